package rollback

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/checkpoint"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/worker"
	undo "github.com/aepb/aepb-gateway/lifecycle/rollback"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

const (
	lookInterval = time.Second      // between two looks at what other replicas left
	pageSize     = 100              // rollbacks of one read
	longestPause = 30 * time.Second // between two tries of one step
)

// Agents are asked to undo their work.
type Agents interface {
	// Call sends a compensating call. The same id is the same call: its bytes are the same, and so is its token. It returns the hash
	// of the answer. An agent that says that the call failed is an error, as one that refuses is.
	Call(ctx context.Context, c Call) (hash string, err error)
	// Ask has an agent roll back itself, with a request that the gateway signed, and returns the result that it signed, which judge accepts.
	Ask(ctx context.Context, c Call, judge func(ect.Verified) error) (ect.Verified, error)
}

// Call is what is sent to an agent in a step of a rollback.
type Call struct {
	Agent     string
	Tool      string          // that undoes; of Call alone
	Arguments json.RawMessage // of Call alone
	Token     string          // the gateway's own request for the step
	Request   ect.Claims      // its claims
	ID        ect.ID          // of what is sent: the same for ever
	At        time.Time
}

// Watch goes on with rollbacks whose replica has ended, until ctx ends.
func (s *Service) Watch(ctx context.Context) {
	for worker.Pause(ctx, lookInterval) {
		if err := errors.Join(s.look(ctx), s.after.lookAgain(ctx)); err != nil && ctx.Err() == nil {
			s.deps.Logger.WarnContext(ctx, "rollbacks that are under way are not known anew", slog.Any("error", err))
		}
	}
}

// look takes over the rollbacks of replicas that are gone.
func (s *Service) look(ctx context.Context) error {
	return each(ctx, s.deps.Entries, KindUndo, func(e store.Entry) {
		u, running, err := s.begun(ctx, e.Key.ID)
		if err == nil && running && (u.Runner == s.deps.Replicas.Self || !s.deps.Replicas.Alive(ctx, u.Runner)) {
			s.start(ctx, e.Key.ID, u.Request, u.Holder)
		}
	})
}

// each visits all entries of a kind.
func each(ctx context.Context, all store.Entries, kind string, visit func(store.Entry)) error {
	for after := ""; ; {
		entries, err := all.List(ctx, kind, "", after, pageSize)
		if err != nil {
			return err
		}
		for _, e := range entries {
			after = e.Key.ID
			visit(e)
		}
		if len(entries) < pageSize {
			return nil
		}
	}
}

// start goes on with a rollback in the background.
func (s *Service) start(ctx context.Context, workflow string, request ect.ID, holder string) {
	s.runs.start(ctx, workflow, holder, func(life context.Context) error { return s.run(life, workflow, request) })
}

// runs are what goes on at this replica in the background, by name.
type runs struct {
	deps Deps
	mu   sync.Mutex
	all  map[string]bool
	rest map[string]rest // what has failed: it does not begin anew each second
}

// rest is until when a run that failed is left alone.
type rest struct {
	tries int
	until time.Time
}

const (
	longestRest = time.Minute
	maxRests    = 10_000 // of more all are forgotten: they begin anew at once
)

// failed has a run rest that has failed so often; with no error it does so no more.
func (r *runs) failed(name string, err error) {
	if delete(r.all, name); err == nil {
		delete(r.rest, name)
		return
	}
	if len(r.rest) >= maxRests {
		clear(r.rest)
	}
	tries := r.rest[name].tries
	r.rest[name] = rest{tries + 1, r.deps.Now().Add(min(lookInterval<<min(tries, 10), longestRest) - lookInterval)}
}

// start does what has a name, once at a time. Where there is no space for that now, the next look starts it.
func (r *runs) start(ctx context.Context, name, holder string, work func(context.Context) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all[name] || r.deps.Now().Before(r.rest[name].until) {
		return
	}
	err := r.deps.Replicas.Go(holder, func(life context.Context) {
		err := error(nil)
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.failed(name, err)
		}()
		if err = work(life); errors.Is(err, errOver) || errors.Is(err, errLooks) {
			err = nil
		}
		if err != nil && life.Err() == nil {
			r.deps.Logger.WarnContext(life, "a rollback is interrupted: it goes on", slog.String("work", name), slog.Any("error", err))
		}
	})
	if err != nil {
		r.deps.Logger.WarnContext(ctx, "a rollback waits for space", slog.String("work", name), slog.Any("error", err))
		return
	}
	r.all[name] = true
}

// errLooks ends a run that waits for a human: the next look starts it again.
var errLooks = errors.New("rollback: a human looks at it first")

// run does what a rollback has to do next, until it is over.
func (s *Service) run(ctx context.Context, workflow string, request ect.ID) error {
	u, running, err := s.begun(ctx, workflow)
	if err != nil || !running || u.Request != request {
		return err
	}
	if u.Runner != s.deps.Replicas.Self && u.Status == "" {
		if u, err = s.advance(ctx, u, undo.Event{Kind: undo.Took, At: s.deps.Now(), Runner: s.deps.Replicas.Self}, nil); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		effect := u.Due(s.deps.Now())
		if effect.Kind == undo.Done {
			return s.finish(ctx, u)
		}
		next, err := s.take(ctx, u, effect)
		if _, others := errors.AsType[*undo.StateError](err); others { // another replica was first with it
			return nil
		}
		if err != nil {
			return err
		}
		if next.Runner != s.deps.Replicas.Self {
			return nil
		}
		u = next
	}
	return ctx.Err()
}

// take does one effect and writes what came of it.
func (s *Service) take(ctx context.Context, u underWay, effect undo.Effect) (underWay, error) {
	j := u.Journal
	event := undo.Event{Step: effect.Step, At: s.deps.Now()}
	switch effect.Kind {
	case undo.Sign:
		event.Kind = undo.Sent
		return s.advance(ctx, u, event, s.says.stepRequest(u, effect.Step))
	case undo.Send:
		event, statement := s.send(ctx, u, effect.Step)
		if ctx.Err() != nil {
			return u, ctx.Err() // the process ends: whether the agent has got it is found out by the next one
		}
		next, err := s.advance(ctx, u, event, statement)
		for isRecording(err) && worker.Pause(ctx, time.Second) { // else an agent that has undone its work would be asked again
			next, err = s.advance(ctx, u, event, statement)
		}
		if err == nil && event.Kind == undo.Unanswered {
			worker.Pause(ctx, min(time.Second<<min(next.Steps[effect.Step].Tries, 5), longestPause))
		}
		return next, err
	case undo.Hold, undo.Await:
		kind, err := review(ctx, s.deps.Notices.Humans, u, effect.Kind)
		if err != nil {
			return u, err
		}
		event.Kind = kind
		return s.advance(ctx, u, event, nil)
	case undo.Report:
		event.Kind = undo.Overdue
		return s.advance(ctx, u, event, s.says.overdue(u))
	case undo.Escalate:
		event.Kind = undo.Escalated
		next, err := s.advance(ctx, u, event, s.says.escalation(u))
		if err == nil {
			s.deps.Notices.Escalate(ctx, j.Workflow, next.Token)
		}
		return next, err
	default:
		event.Kind = undo.Ended
		return s.advance(ctx, u, event, s.says.ending(u))
	}
}

// review has a human look at a rollback before its first step: it pauses the workflow, and looks whether an operator has let it go on, or has stopped it
// (ATD, Interaction with HITL, 3).
func review(ctx context.Context, humans Humans, u underWay, effect undo.EffectKind) (undo.EventKind, error) {
	if effect == undo.Hold {
		after := attest.Lineage{Workflow: u.Workflow, Parents: []ect.ID{u.Request}}
		return undo.Paused, humans.Hold(ctx, hitl.StandingEvent{Step: hitl.Pause, Why: reasonCritical}, after)
	}
	switch mode, err := humans.Standing(ctx, u.Workflow); {
	case err != nil:
		return "", err
	case mode == hitl.Paused:
		return "", errLooks
	case mode == hitl.Stopped:
		return undo.Declined, nil
	}
	return undo.Released, nil
}

// send asks the agent of a step to undo, and says what came of it, with what is signed of that.
func (s *Service) send(ctx context.Context, u underWay, at int) (undo.Event, *attest.Statement) {
	step := u.Steps[at]
	event := undo.Event{Step: at}
	restored, by, err := s.ask(ctx, u, step)
	event.At = s.deps.Now()
	switch {
	case err == nil:
		event.Kind, event.Restored = undo.Undone, restored
	case isLost(err):
		event.Kind, event.Reason = undo.Unanswered, problem.From(err).Detail
	default:
		event.Kind, event.Reason = undo.Failed, problem.From(err).Detail
	}
	if err != nil {
		s.deps.Logger.WarnContext(ctx, "a step of a rollback did not succeed", slog.String("wid", u.Workflow), slog.String("agent", step.Agent),
			slog.String("checkpoint", string(step.Checkpoint)), slog.Any("error", err))
		return event, nil
	}
	return event, s.says.stepResult(u, step, restored, by)
}

// isLost reports whether it is not known if an agent has got a message, or whether it did not get it because it, or this gateway, has too much to do
// now.
func isLost(err error) bool {
	switch problem.From(err).Code {
	case problem.CodeTimeout, problem.CodeUnreachable, problem.CodeCircuitOpen, problem.CodeRateLimited, problem.CodeDraining:
		return true
	}
	return isRecording(err)
}

// isRecording reports whether the store could not be used.
func isRecording(err error) bool {
	_, recording := errors.AsType[*problem.RecordingError](err)
	_, away := errors.AsType[*state.UnavailableError](err)
	return recording || away
}

// ask has the work behind a checkpoint undone. It returns the hash of what was restored, and the ids of the tokens that testify to it.
func (s *Service) ask(ctx context.Context, u underWay, step undo.Progress) (restored string, by []ect.ID, err error) {
	request, err := ect.ParseRecorded(step.Request)
	if err != nil {
		return "", nil, err
	}
	saved, err := s.deps.Checkpoints.Find(ctx, u.Workflow, step.Checkpoint)
	if _, missing := errors.AsType[*problem.NotFoundError](err); missing && step.How == undo.ByAgent {
		err = nil // the agent keeps it itself
	}
	if err != nil {
		return "", nil, err
	}
	c := Call{
		Agent: step.Agent, Token: step.Request, Request: request, ID: derived(request.ID), At: time.Unix(request.IssuedAt, 0).UTC(),
	}
	if step.How == undo.ByCall {
		if c.Tool, c.Arguments, err = saved.Call(); err != nil {
			return "", nil, err
		}
		restored, err = s.deps.Agents.Call(ctx, c)
		return restored, nil, err
	}
	v, err := s.deps.Agents.Ask(ctx, c, func(v ect.Verified) error { return judge(v, step.Agent, u.known(step), saved) })
	return v.Claims().OutputHash, []ect.ID{v.ID()}, err
}

// Judge judges the result that an agent signed for a caller's request: it is as the draft has it, and about one of the checkpoints that the request names
// (ATD, Basic Rollback).
func Judge(v ect.Verified, named []ect.ID) error {
	result, err := undo.ParseResult(v.Claims())
	if err == nil && !slices.Contains(named, result.Checkpoint) {
		err = errors.New("it is about another checkpoint")
	}
	return err
}

// judge judges the result of an agent as a whole: that it is about the checkpoint, that it is completed, and that the restored state is the one that the agent
// deposited (ATD, Checkpoint ECT Format).
func judge(v ect.Verified, agent string, id ect.ID, saved checkpoint.Saved) error {
	result, err := undo.ParseResult(v.Claims())
	switch {
	case err != nil:
	case result.Checkpoint != id:
		err = errors.New("it is about another checkpoint")
	case result.Status != undo.StatusCompleted:
		err = errors.New("it ended as " + string(result.Status))
	case saved.ID == id && saved.Plan == nil:
		err = result.Restores(saved.Checkpoint)
	}
	if err == nil {
		return nil
	}
	return &transport.BadReplyError{Agent: agent, Reason: "its rollback result is not to be believed: " + err.Error()}
}

// finish keeps the result of a rollback, tells of it, and lets the next one of the workflow begin.
func (s *Service) finish(ctx context.Context, u underWay) error {
	j := u.Journal
	// The replica that wrote the end may have been lost before it recorded the result.
	_, _, err := s.journals.Decide(ctx, keyOf(j.Workflow, u.Owner), func(before record.Found[underWay]) (underWay, *attest.Statement, error) {
		if before.Revision == 0 || before.Value.Request != j.Request {
			return before.Value, nil, errOver
		}
		return before.Value, nil, record.ErrUnchanged
	})
	if err != nil {
		return err
	}
	if err := s.hold(ctx, u); err != nil { // before its caller hears of the end
		return err
	}
	value, err := json.Marshal(saved{Digest: u.Digest, Result: j.Result, Status: j.Status, Steps: brief(j.Steps), At: j.Ended})
	if err != nil {
		return err
	}
	first, err := keepResult(ctx, s.deps, u, value)
	if err != nil {
		return attest.Recording(err)
	}
	if first {
		s.deps.Notices.Count(string(j.Status))
		s.deps.Logger.InfoContext(ctx, "a rollback is over", slog.String("wid", j.Workflow), slog.String("checkpoint", string(j.From)), slog.String("status", string(j.Status)))
	}
	return recording(s.deps.Entries.Delete(ctx, keyOf(j.Workflow, "")))
}

// hold stops the workflow of a rollback in which a step failed, and asks humans about one in which they have to deal with a step (ATD,
// Interaction with HITL, 1 and 2).
func (s *Service) hold(ctx context.Context, u underWay) error {
	var left []ect.ID
	for _, p := range u.Steps {
		switch p.State {
		case undo.StepFailed:
			return s.deps.Notices.Humans.Hold(ctx, hitl.StandingEvent{Step: hitl.Stop, Why: "a rollback failed"}, attest.After(u.Result))
		case undo.StepEscalated:
			left = append(left, p.Checkpoint)
		default:
		}
	}
	if len(left) == 0 {
		return nil
	}
	// Others may have used the id of the request, also for an approval.
	id := ect.DerivedID("question after a rollback\x00" + u.Workflow + "\x00" + string(u.Issuer) + "\x00" + string(u.Request))
	_, err := s.after.follow(ctx, string(id), aftermath{Owner: u.Owner, Holder: u.Holder, Aftermath: undo.Aftermath{
		Workflow: u.Workflow, Cause: u.Result, Caller: cmp.Or(u.Caller, u.Issuer), Holds: true, Stage: undo.StageAsk, Stuck: left,
	}}, nil)
	if err != nil {
		return err
	}
	return s.deps.Notices.Humans.Hold(ctx, hitl.StandingEvent{Step: hitl.Pause, Why: reasonLeft, Roles: askedRoles()}, attest.After(u.Result))
}

// brief is steps without their tokens, which are on record.
func brief(steps []undo.Progress) []undo.Progress {
	out := make([]undo.Progress, len(steps))
	for i, step := range steps {
		out[i] = step
		out[i].Request = ""
	}
	return out
}
