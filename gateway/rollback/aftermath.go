package rollback

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	work "github.com/aepb/aepb-gateway/gateway/workflow"
	undo "github.com/aepb/aepb-gateway/lifecycle/rollback"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// KindAftermath is what follows from a failure or from a rollback, among the kinds of entries.
const KindAftermath = "aftermath"

// patience is how long an aftermath waits for a store, or for other rollbacks of its workflow. Then humans decide.
const patience = 24 * time.Hour

// aftermath is what follows from a failure or from a rollback, as replicas share it.
type aftermath struct {
	undo.Aftermath

	Owner  string `json:"owner,omitempty"`  // whose share of the store it takes
	Holder string `json:"holder,omitempty"` // in whose share its evidence counts
	Runner string `json:"runner"`           // the replica that goes on with it, while it lives

	event undo.AftermathEvent // that takes it further once its token is signed; not stored
}

// token is what the gateway signed of it last.
func (a aftermath) token() string {
	switch {
	case a.Call != "":
		return a.Call
	case a.Request != "":
		return a.Request
	}
	return a.Cause
}

// sealed adds what the gateway has signed: the error from which all follows, or the token of an event.
func (a aftermath) sealed(compact string) aftermath {
	if a.Cause == "" {
		a.Cause = compact
		return a
	}
	a.event.Token = compact
	a.Aftermath, _ = a.Next(a.event) // it was tried before it was signed
	return a
}

func aftermathKey(id, owner string) state.EntryKey {
	return state.EntryKey{Kind: KindAftermath, ID: id, Owner: owner}
}

// aftermaths decides what follows.
func aftermaths(deps record.Deps) (*record.Machine[aftermath], error) {
	return record.New(record.Kind[aftermath]{
		Encode: func(a aftermath) ([]byte, error) { return json.Marshal(a) },
		Decode: decodeAftermath,
		Life:   resultLife,
		Token:  aftermath.token,
		Sealed: aftermath.sealed,
	}, deps)
}

func decodeAftermath(text []byte) (a aftermath, err error) {
	if err = json.Unmarshal(text, &a); err == nil && a.Version != undo.Version {
		err = fmt.Errorf("rollback: what follows from a failure has the version %d, expected %d", a.Version, undo.Version)
	}
	return a, err
}

// follower goes on with aftermaths.
type follower struct {
	rollbacks *Service
	records   *record.Machine[aftermath]
}

// Follow records the error of a failure, and what follows from it: with Cascade a rollback of what led to it (AEPB, Translation Failure
// Handling), and a question to humans about what cannot be undone (ATD, Interaction with HITL, 1). It does not wait for that. It returns
// the error. Its errors are those of [record.Machine.Decide].
func (s *Service) Follow(ctx context.Context, f work.Failure, st attest.Statement) (string, error) {
	a := aftermath{Owner: f.Owner, Holder: f.Holder, Aftermath: undo.Aftermath{
		Workflow: f.Workflow, Actions: f.Action, Caller: f.Caller, Holds: true, Stage: undo.StageFind,
	}}
	if !f.Cascade { // it is about this action alone, and the workflow goes on meanwhile
		a.Holds, a.Stage, a.Stuck = false, undo.StageAsk, []ect.ID{f.Checkpoint}
	}
	return s.after.follow(ctx, string(ect.NewID()), a, &st)
}

func (f *follower) follow(ctx context.Context, id string, a aftermath, st *attest.Statement) (string, error) {
	a.Version, a.Term, a.Runner, a.Until = undo.Version, 1, f.rollbacks.deps.Replicas.Self, f.rollbacks.deps.Now().Add(patience)
	made, _, err := f.records.Decide(ctx, aftermathKey(id, a.Owner), func(before record.Found[aftermath]) (aftermath, *attest.Statement, error) {
		if before.Revision != 0 {
			return before.Value, nil, record.ErrUnchanged
		}
		return a, st, nil
	})
	if err == nil {
		f.goOn(ctx, id, made.Holder)
	}
	return made.Cause, err
}

// goOn goes on with an aftermath in the background.
func (f *follower) goOn(ctx context.Context, id, holder string) {
	f.rollbacks.runs.start(ctx, KindAftermath+" "+id, holder, func(life context.Context) error { return f.visit(life, id) })
}

// lookAgain goes on with what follows and was left by replicas that are gone, or had to wait.
func (f *follower) lookAgain(ctx context.Context) error {
	return each(ctx, f.rollbacks.deps.Entries, KindAftermath, func(e store.Entry) {
		a, err := decodeAftermath(e.Value) // of what cannot be read the run says so
		if err != nil || a.Runner == f.rollbacks.deps.Replicas.Self || !f.rollbacks.deps.Replicas.Alive(ctx, a.Runner) {
			f.goOn(ctx, e.Key.ID, a.Holder)
		}
	})
}

// visit does what is due in an aftermath, until it has to wait or is over.
func (f *follower) visit(ctx context.Context, id string) error {
	for {
		found, err := f.records.Read(ctx, aftermathKey(id, ""))
		if err != nil || found.Revision == 0 {
			return recording(err)
		}
		a := found.Value
		if a.Stage == undo.StageOver {
			return recording(f.rollbacks.deps.Entries.Delete(ctx, aftermathKey(id, "")))
		}
		event, st, err := f.next(ctx, id, a)
		if err != nil || event.Kind == "" {
			return err
		}
		if err := f.went(ctx, id, a, event, st); err != nil {
			return err
		}
	}
}

// went takes an aftermath one event further. Where others were first with it, it stays as they left it.
func (f *follower) went(ctx context.Context, id string, was aftermath, e undo.AftermathEvent, st *attest.Statement) error {
	_, _, err := f.records.Decide(ctx, aftermathKey(id, was.Owner), func(before record.Found[aftermath]) (aftermath, *attest.Statement, error) {
		now, trial := before.Value, e
		if before.Revision == 0 || now.Term != was.Term {
			return now, nil, record.ErrUnchanged
		}
		if st != nil {
			trial.Token = "signed"
		}
		following, err := now.Next(trial)
		if err != nil {
			return now, nil, err
		}
		if now.event = e; st == nil {
			now.Aftermath = following
		}
		return now, st, nil
	})
	return recording(err)
}

// next does what is due, and says what came of it, with what is signed of that. No kind: it has to wait.
func (f *follower) next(ctx context.Context, id string, a aftermath) (undo.AftermathEvent, *attest.Statement, error) {
	switch a.Stage {
	case undo.StageFind:
		branch, err := planner{f.rollbacks.deps}.branch(ctx, a)
		if err != nil && ctx.Err() == nil && (f.overdue(a) || !passes(err)) {
			f.refuse(ctx, a, err)
			return undo.AftermathEvent{Kind: undo.Refused}, nil, nil
		}
		return undo.AftermathEvent{Kind: undo.Found, Branch: branch}, nil, err
	case undo.StageUndo:
		if a.Request == "" {
			return undo.AftermathEvent{Kind: undo.Requested}, f.rollbacks.says.cascade(a), nil
		}
		kind, err := f.cascade(ctx, a)
		return undo.AftermathEvent{Kind: kind}, nil, err
	case undo.StageAsk:
		if a.Call == "" {
			content, err := f.left(ctx, a)
			return undo.AftermathEvent{Kind: undo.Called}, f.rollbacks.says.call(a, content), err
		}
		return undo.AftermathEvent{Kind: undo.Opened}, nil, f.question(ctx, id, a)
	default:
		granted, over, err := f.rollbacks.deps.Notices.Humans.Answer(ctx, id)
		if err != nil || !over {
			return undo.AftermathEvent{}, nil, err
		}
		switch {
		case granted && a.Holds:
			err = f.lift(ctx, id, a.Workflow)
		case !granted:
			err = f.rollbacks.deps.Notices.Humans.Hold(ctx, hitl.StandingEvent{Step: hitl.Stop, Why: "humans did not accept what cannot be undone"}, attest.After(a.Call))
		}
		return undo.AftermathEvent{Kind: undo.Answered}, nil, err
	}
}

// cascade rolls back to the first root, and says how that ended; empty: it goes on.
func (f *follower) cascade(ctx context.Context, a aftermath) (undo.AftermathKind, error) {
	claims, err := ect.ParseRecorded(a.Request)
	if err != nil {
		return "", err
	}
	o := Order{
		Workflow: a.Workflow, From: a.Roots[0], Issuer: f.rollbacks.deps.Self, Request: claims.ID, Digest: ect.Hash([]byte(a.Request)), Cascade: true,
		Reason: cascadeReason, Caller: a.Caller, Owner: a.Owner, Holder: a.Holder, Follows: &a,
	}
	r, done, err := f.rollbacks.done(ctx, o)
	switch {
	case err != nil:
		return "", err
	case done && r.Status == undo.StatusCompleted:
		return undo.Restored, nil
	case done:
		return undo.Broken, nil
	}
	err = f.rollbacks.open(ctx, o)
	if err == nil || ctx.Err() != nil || passes(err) && !f.overdue(a) {
		return "", nil //nolint:nilerr // another look says how it stands
	}
	f.refuse(ctx, a, err)
	return undo.Refused, nil
}

// passes reports whether an error passes by itself: the store is away, or another rollback of the workflow goes on.
func passes(err error) bool {
	_, wait := errors.AsType[*problem.WaitingError](err)
	return wait || isRecording(err)
}

// overdue reports whether an aftermath has waited for too long. One of an earlier version has no such time.
func (f *follower) overdue(a aftermath) bool {
	return !a.Until.IsZero() && !f.rollbacks.deps.Now().Before(a.Until)
}

// refuse says why humans decide instead.
func (f *follower) refuse(ctx context.Context, a aftermath, err error) {
	f.rollbacks.deps.Logger.WarnContext(ctx, "a failure cannot be rolled back: humans decide", slog.String("wid", a.Workflow), slog.Any("error", err))
}

// lift lets a workflow go on after a grant, unless another question holds it, too: the last grant lifts the pause.
func (f *follower) lift(ctx context.Context, id, wid string) error {
	waits, failed := false, error(nil)
	err := each(ctx, f.rollbacks.deps.Entries, KindAftermath, func(e store.Entry) {
		a, err := decodeAftermath(e.Value)
		if err != nil || e.Key.ID == id || a.Workflow != wid || !a.Holds || a.Stage != undo.StageAnswer {
			return
		}
		granted, _, err := f.rollbacks.deps.Notices.Humans.Answer(ctx, e.Key.ID)
		waits, failed = waits || !granted, errors.Join(failed, err)
	})
	if err = errors.Join(err, failed); err != nil || waits {
		return err
	}
	return f.rollbacks.deps.Notices.Humans.Lift(ctx, wid, "approval "+id, reasonLeft)
}

// remainder is what a human sees of a checkpoint that cannot be undone.
type remainder struct {
	Checkpoint  ect.ID `json:"checkpoint"`
	Agent       string `json:"agent,omitempty"`
	Description string `json:"description,omitempty"`
}

// left is what cannot be undone, as humans see it.
func (f *follower) left(ctx context.Context, a aftermath) ([]byte, error) {
	list := make([]remainder, 0, min(len(a.Stuck), maxShown))
	for _, id := range a.Stuck[:min(len(a.Stuck), maxShown)] {
		saved, err := f.rollbacks.deps.Checkpoints.Find(ctx, a.Workflow, id)
		if isRecording(err) {
			return nil, err
		}
		list = append(list, remainder{id, saved.Target, saved.Description})
	}
	return json.Marshal(struct {
		Left []remainder `json:"cannot_be_undone"`
		More int         `json:"more,omitempty"`
	}{list, len(a.Stuck) - len(list)})
}

// maxShown bounds the checkpoints that a question shows.
const maxShown = 50

// question asks humans, and pauses the workflow until they have answered, if it is to be. The same question is asked once.
func (f *follower) question(ctx context.Context, id string, a aftermath) error {
	content, err := f.left(ctx, a)
	if err != nil {
		return err
	}
	if a.Holds {
		if err := f.rollbacks.deps.Notices.Humans.Hold(ctx, hitl.StandingEvent{Step: hitl.Pause, Why: reasonLeft, Roles: askedRoles()}, attest.After(a.Call)); err != nil {
			return err
		}
	}
	claims, err := ect.ParseRecorded(a.Call)
	if err == nil {
		err = f.rollbacks.deps.Notices.Humans.Ask(ctx, Question{ID: id, Workflow: a.Workflow, Asker: a.Caller, Gated: claims.ID, Content: content})
	}
	return err
}

// askedRoles are those that humans need who are asked, and so those that lift the pause meanwhile.
func askedRoles() []string { return []string{string(policy.RoleApprover)} }

// Question is what humans decide after a failure or a rollback: whether the workflow goes on although something cannot be undone.
type Question struct {
	ID       string
	Workflow string
	Asker    ect.Identity // does not decide itself
	Gated    ect.ID       // the atd:escalate that asks, whose inp_hash is that of Content
	Content  json.RawMessage
}
