package rollback

import (
	"context"
	"errors"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/worker"
	undo "github.com/aepb/aepb-gateway/lifecycle/rollback"
)

const (
	waitFor  = 60 * time.Second       // that a caller waits for a rollback; then it asks again
	pollEach = 100 * time.Millisecond // between two looks at whether it is over
)

// Order is a request to roll back to a checkpoint that is saved here.
type Order struct {
	Workflow string
	From     ect.ID // the checkpoint
	Issuer   ect.Identity
	Request  ect.ID // jti of the request
	Digest   string // of its bytes
	Cascade  bool
	Reviewed bool         // an operator has seen the plan
	Caller   ect.Identity // of the failure that it follows from; empty: the issuer asks for it
	Follows  *aftermath   // the failure, whose branch the checkpoint must still begin; nil: there is none
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

// Concerns is the checkpoint that is saved here and that a request means: the one that it names, or the one of the same action that the gateway
// made, where it names that of an agent that rolls back itself. False: there is no such checkpoint. Its errors are those of the store.
func (s *Service) Concerns(ctx context.Context, wid string, id ect.ID, who ect.Identity) (ect.ID, bool, error) {
	saved, err := s.IsKept(ctx, wid, id)
	if saved || err != nil {
		return id, saved, err
	}
	all, err := s.deps.Checkpoints.All(ctx, wid)
	if err != nil || len(all) == 0 {
		return "", false, err
	}
	_, tokens, err := s.deps.Workflows.Read(ctx, wid, who)
	if err != nil {
		return "", false, err
	}
	for ours, theirs := range (planner{s.deps}).natives(all, tokens) {
		if theirs == id {
			return ours, true, nil
		}
	}
	return "", false, nil
}

// IsKept reports whether a checkpoint is saved here. Its errors are those of the store.
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
		plan, natives, err := planner{s.deps}.plan(ctx, o)
		if err != nil {
			return err
		}
		u = underWay{
			Journal: undo.Begin(plan, o.Workflow, o.Issuer, o.Request, s.deps.Replicas.Self), Digest: o.Digest, Owner: o.Owner, Holder: o.Holder, Reason: o.Reason,
			Natives: natives, Caller: o.Caller,
		}
		if err := s.begin(ctx, u); errors.Is(err, errOver) {
			return nil // its result is known by now
		} else if err != nil {
			return err
		}
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
