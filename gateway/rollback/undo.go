package rollback

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/checkpoint"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/worker"
	pure "github.com/aepb/aepb-gateway/lifecycle/checkpoint"
	undo "github.com/aepb/aepb-gateway/lifecycle/rollback"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

const (
	waitFor  = 60 * time.Second       // that a caller waits for a rollback; then it asks again
	pollEach = 100 * time.Millisecond // between two looks at whether it is over
)

// Order is a request to roll back to a checkpoint that is kept here.
type Order struct {
	Workflow string
	From     ect.ID // the checkpoint
	Issuer   ect.Identity
	Request  ect.ID // jti of the request
	Digest   string // of its bytes
	Cascade  bool
	Reason   string
	Owner    string // whose share of the store it takes
	Holder   string // in whose share its evidence counts
}

// OrderOf reads a request that was verified. false: it names no parent.
func OrderOf(token ect.Verified) (Order, bool) {
	claims := token.Claims()
	if len(claims.Parents) == 0 {
		return Order{}, false
	}
	o := Order{
		Workflow: claims.Workflow, From: claims.Parents[0], Issuer: claims.Issuer, Request: claims.ID, Digest: ect.Hash([]byte(token.Compact())),
	}
	o.Cascade, _ = claims.Ext.Bool(ect.ExtCascade)
	o.Reason, _ = claims.Ext.String(ect.ExtATDReason)
	return o, true
}

// Result is how a rollback ended.
type Result struct {
	Compact string // the atd:rollback_result
	Status  undo.Status
	Steps   []undo.Progress
}

// Concerns is the checkpoint that is kept here and that a request means: the one that it names, or the one of the same action that the gateway
// made, where it names that of an agent that rolls back itself. False: there is no such checkpoint. Its errors are those of the store.
func (s *Service) Concerns(ctx context.Context, wid string, id ect.ID, who ect.Identity) (ect.ID, bool, error) {
	kept, err := s.IsKept(ctx, wid, id)
	if kept || err != nil {
		return id, kept, err
	}
	all, err := s.deps.Checkpoints.All(ctx, wid)
	if err != nil || len(all) == 0 {
		return "", false, err
	}
	_, tokens, err := s.deps.Read(ctx, wid, who)
	if err != nil {
		return "", false, err
	}
	for ours, theirs := range s.natives(all, tokens) {
		if theirs == id {
			return ours, true, nil
		}
	}
	return "", false, nil
}

// IsKept reports whether a checkpoint is kept here. Its errors are those of the store.
func (s *Service) IsKept(ctx context.Context, wid string, id ect.ID) (bool, error) {
	_, err := s.deps.Checkpoints.Find(ctx, wid, id)
	if _, missing := errors.AsType[*problem.NotFoundError](err); missing {
		return false, nil
	}
	if isRecording(err) {
		return false, err
	}
	return true, nil
}

// natives are the checkpoints that agents which roll back themselves made of the actions of checkpoints that are kept here, by these: an agent knows
// its own. Its checkpoint is that of the request, or of its own task that follows from the request.
func (s *Service) natives(all []checkpoint.Kept, tokens []workflow.Token) map[ect.ID]ect.ID {
	nodes := map[ect.ID]dag.Node{}
	for _, t := range tokens {
		nodes[t.Node.ID] = t.Node
	}
	own := map[string]ect.ID{} // by agent and action
	for _, k := range all {
		if k.Plan != nil && k.Plan.Own {
			agent, _ := s.deps.Directory.Find(k.Plan.Agent)
			own[string(agent.ID)+" "+string(k.Parents[0])] = k.ID
		}
	}
	natives := map[ect.ID]ect.ID{}
	for _, t := range tokens {
		if t.Node.Act != ect.ActCheckpoint || !t.Reversible {
			continue
		}
		actions := slices.Clone(t.Node.Parents)
		for _, id := range t.Node.Parents {
			if task := nodes[id]; task.Issuer == t.Node.Issuer {
				actions = append(actions, task.Parents...)
			}
		}
		for _, action := range actions {
			if ours, there := own[string(t.Node.Issuer)+" "+string(action)]; there {
				natives[ours] = t.Node.ID
			}
		}
	}
	return natives
}

// Undo rolls back to a checkpoint, and returns when that is over. The same request gets the same result. Its errors are
// *[ect.InvalidError] for other bytes under the same jti; *[problem.NotFoundError], those of [undo.Make] and
// *[problem.WaitingError] for what cannot be rolled back, or not now; and those of the stores.
func (s *Service) Undo(ctx context.Context, o Order) (Result, error) {
	if r, done, err := s.done(ctx, o); done || err != nil {
		return r, err
	}
	if err := s.open(ctx, o); err != nil {
		return Result{}, err
	}
	return s.await(ctx, o)
}

// open begins a rollback, or goes on with it.
func (s *Service) open(ctx context.Context, o Order) error {
	u, running, err := s.begun(ctx, o.Workflow)
	if err != nil {
		return err
	}
	if !running {
		plan, natives, err := s.plan(ctx, o)
		if err != nil {
			return err
		}
		u = underWay{
			Journal: undo.Begin(plan, o.Workflow, o.Issuer, o.Request, s.deps.Replica), Digest: o.Digest, Owner: o.Owner, Holder: o.Holder, Reason: o.Reason,
			Natives: natives,
		}
	}
	if err := s.begin(ctx, u); err != nil {
		return err
	}
	switch {
	case u.Issuer != o.Issuer || u.Request != o.Request:
		return errAnother
	case u.Digest != o.Digest:
		return conflicting(o.Request)
	}
	s.start(ctx, o.Workflow, o.Request, o.Holder)
	return nil
}

// errAnother refuses a second rollback of a workflow beside one that is under way.
var errAnother = &problem.WaitingError{Reason: "another rollback of this workflow is under way: ask again when it is over"}

// conflicting refuses another request under the jti of an earlier one.
func conflicting(id ect.ID) error {
	return &ect.InvalidError{Reason: ect.ReasonReplay, ID: id}
}

// done is the result of a rollback that is over; false: it is not known.
func (s *Service) done(ctx context.Context, o Order) (Result, bool, error) {
	k, found, err := s.result(ctx, o.Workflow, o.Issuer, o.Request)
	switch {
	case err != nil || !found:
		return Result{}, false, err
	case k.Digest != o.Digest:
		return Result{}, false, conflicting(o.Request)
	}
	return Result{k.Result, k.Status, k.Steps}, true, nil
}

// await waits until a rollback is over. *[problem.WaitingError]: it takes longer than callers wait.
func (s *Service) await(ctx context.Context, o Order) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, waitFor)
	defer cancel()
	for {
		if r, done, err := s.done(ctx, o); done || err != nil {
			return r, err
		}
		if !worker.Pause(ctx, pollEach) {
			return Result{}, &problem.WaitingError{Reason: "the rollback goes on: ask again for its result"}
		}
	}
}

// plan says what a rollback would do now, and which checkpoints agents know by other names.
func (s *Service) plan(ctx context.Context, o Order) (undo.Plan, map[ect.ID]ect.ID, error) {
	if _, err := s.deps.Checkpoints.Find(ctx, o.Workflow, o.From); err != nil {
		return undo.Plan{}, nil, err
	}
	run, tokens, err := s.deps.Read(ctx, o.Workflow, o.Issuer)
	if err != nil {
		return undo.Plan{}, nil, err
	}
	held, natives, err := s.held(ctx, o.Workflow, tokens)
	if err != nil {
		return undo.Plan{}, nil, err
	}
	plan, err := undo.Make(run, held, undo.Request{From: o.From, Cascade: o.Cascade, At: s.deps.Now(), Patience: s.deps.Patience()})
	return plan, natives, err
}

// held is what is known of the checkpoints of a workflow whose tokens are on record: those that are kept here, and those
// that agents signed and keep themselves.
func (s *Service) held(ctx context.Context, wid string, tokens []workflow.Token) (map[ect.ID]undo.Held, map[ect.ID]ect.ID, error) {
	recorded, undone := map[ect.ID]ect.Identity{}, map[ect.ID][]ect.Identity{}
	for _, t := range tokens {
		switch t.Node.Act {
		case ect.ActCheckpoint:
			recorded[t.Node.ID] = t.Node.Issuer
		case ect.ActRollbackResult:
			if t.Status == string(undo.StatusCompleted) {
				undone[t.Checkpoint] = append(undone[t.Checkpoint], t.Node.Issuer)
			}
		}
	}
	all, err := s.deps.Checkpoints.All(ctx, wid)
	if err != nil {
		return nil, nil, err
	}
	held, natives := map[ect.ID]undo.Held{}, s.natives(all, tokens)
	for _, k := range all {
		if recorded[k.ID] == k.Issuer { // else its action did not leave
			held[k.ID] = s.ours(k)
			delete(recorded, k.ID)
		}
	}
	for ours, id := range natives {
		if _, deposited := held[id]; deposited { // it is held by itself: ours stands for it
			h := held[ours]
			h.Parents = []ect.ID{id}
			held[ours] = h
			delete(natives, ours)
		}
		delete(recorded, id)
	}
	if err := s.theirs(ctx, wid, recorded, held); err != nil {
		return nil, nil, err
	}
	for id, h := range held {
		_, theirs := recorded[id]
		h.Undone = slices.Contains(undone[id], s.deps.Self) || theirs && slices.Contains(undone[id], h.Issuer)
		held[id] = h
	}
	return held, natives, nil
}

// ours is a checkpoint that is kept here.
func (s *Service) ours(k checkpoint.Kept) undo.Held {
	h := undo.Held{Checkpoint: k.Checkpoint, How: undo.Never}
	if k.Plan == nil {
		agent, listed := s.deps.Directory.Find(string(k.Issuer))
		if h.Agent, h.Acts = agent.Name, []ect.Identity{k.Issuer}; listed && k.Reversible {
			h.How = undo.ByAgent
		}
		return h
	}
	h.Agent = k.Plan.Agent
	if agent, listed := s.deps.Directory.Find(k.Plan.Agent); listed && agent.ID != "" {
		h.Acts = []ect.Identity{agent.ID}
	}
	switch {
	case k.Outcome != nil && k.Outcome.Failed:
		h.How = undo.Nothing
	case k.Plan.Own:
		h.How = undo.ByAgent
	case k.Plan.Undo != nil:
		if _, _, err := k.Call(); err == nil {
			h.How = undo.ByCall
		}
	}
	return h
}

// theirs adds the checkpoints that agents signed and keep themselves, as their tokens say. One that is not as the draft has it is left out.
func (s *Service) theirs(ctx context.Context, wid string, recorded map[ect.ID]ect.Identity, held map[ect.ID]undo.Held) error {
	refs := make([]ect.Ref, 0, len(recorded))
	for id, issuer := range recorded {
		if issuer != s.deps.Self {
			refs = append(refs, ect.Ref{ID: id, Workflow: wid, Issuer: issuer})
		}
	}
	for page := range slices.Chunk(refs, ect.MaxLookups) {
		found, err := s.deps.Find(ctx, page...)
		if err != nil {
			return attest.Recording(err)
		}
		for i, ref := range page {
			for _, r := range found[i] {
				if r.Issuer != ref.Issuer || r.Workflow != wid {
					continue
				}
				claims, err := ect.ParseRecorded(r.Compact)
				if err != nil {
					continue
				}
				c, err := pure.Parse(claims)
				if err != nil {
					s.deps.Logger.WarnContext(ctx, "a checkpoint of an agent is left out", slog.String("wid", wid), slog.Any("error", err))
					continue
				}
				agent, listed := s.deps.Directory.Find(string(c.Issuer))
				h := undo.Held{Checkpoint: c, Agent: agent.Name, Acts: []ect.Identity{c.Issuer}, How: undo.Never}
				if listed && c.Reversible {
					h.How = undo.ByAgent
				}
				held[c.ID] = h
			}
		}
	}
	return nil
}

// result reads the result of a rollback; false: there is no such result.
func (s *Service) result(ctx context.Context, wid string, issuer ect.Identity, request ect.ID) (kept, bool, error) {
	entry, found, err := s.deps.Entries.Get(ctx, resultKey(wid, issuer, request, ""))
	if err != nil || !found {
		return kept{}, false, recording(err)
	}
	k, err := readKept(entry.Value)
	return k, true, err
}

func resultKey(wid string, issuer ect.Identity, request ect.ID, owner string) store.EntryKey {
	return store.EntryKey{Kind: store.KindRollback, Group: wid, ID: ect.Hash([]byte(string(issuer) + "\x00" + string(request))), Owner: owner}
}

// recording is an error of the store as one of recording; nil stays nil.
func recording(err error) error {
	if err == nil {
		return nil
	}
	return attest.Recording(err)
}
