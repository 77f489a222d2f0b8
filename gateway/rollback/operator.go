package rollback

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	undo "github.com/aepb/aepb-gateway/lifecycle/rollback"
)

// Command is a rollback that an operator asks for. The gateway signs the request and names the operator in it.
type Command struct {
	Workflow string // empty: that of the checkpoint, if no other workflow has one of the same id
	From     ect.ID // the checkpoint
	Cascade  bool
	Reason   string // free text
	Operator string
}

// View is how a rollback stands.
type View struct {
	Workflow string          `json:"wid"`
	From     ect.ID          `json:"checkpoint"`
	Request  ect.ID          `json:"request"`
	Status   undo.Status     `json:"status,omitempty"` // empty: it goes on
	Accepted time.Time       `json:"accepted,omitzero"`
	By       time.Time       `json:"by,omitzero"`
	Ended    time.Time       `json:"ended,omitzero"`
	Steps    []undo.Progress `json:"steps"`
	Result   string          `json:"ect,omitempty"` // the atd:rollback_result
}

// Locate finds the workflow of a checkpoint; wid is the only one that is looked at, unless it is empty. A member of one
// workflow can give a token of its own in another the same id, so that an id does not decide which one is meant.
// *[problem.NotFoundError]: there is no such checkpoint, or none any more. *[problem.ConflictError]: several workflows have one.
func (s *Service) Locate(ctx context.Context, wid string, id ect.ID) (string, error) {
	found, err := s.deps.Find(ctx, ect.Ref{ID: id, Workflow: wid})
	if err != nil {
		return "", attest.Recording(err)
	}
	var at []string
	for _, r := range found[0] {
		if r.Act != ect.ActCheckpoint || wid != "" && r.Workflow != wid || slices.Contains(at, r.Workflow) {
			continue
		}
		is, err := s.IsKept(ctx, r.Workflow, id)
		if err != nil {
			return "", err
		}
		if is {
			at = append(at, r.Workflow)
		}
	}
	switch len(at) {
	case 0:
		return "", &problem.NotFoundError{What: "checkpoint"}
	case 1:
		return at[0], nil
	default:
		slices.Sort(at)
		return "", &problem.ConflictError{Reason: "several workflows have a checkpoint of this id: say which one with wid: " + strings.Join(at[:min(len(at), maxWorkflows)], ", ")}
	}
}

// maxWorkflows bounds the workflows that an error names.
const maxWorkflows = 5

// Foresee says what a rollback that an operator asks for would do. Nothing is recorded. Its errors are those of [Service.Undo].
func (s *Service) Foresee(ctx context.Context, c Command) (wid string, plan undo.Plan, err error) {
	if wid, err = s.Locate(ctx, c.Workflow, c.From); err != nil {
		return "", plan, err
	}
	plan, _, err = planner{s.deps}.plan(ctx, Order{Workflow: wid, From: c.From, Issuer: s.deps.Self, Cascade: c.Cascade})
	return wid, plan, err
}

// Begin begins a rollback for an operator, and does not wait for its end. Its errors are those of [Service.Undo].
func (s *Service) Begin(ctx context.Context, c Command) (View, error) {
	wid, _, err := s.Foresee(ctx, c) // what is refused leaves no request behind
	if err != nil {
		return View{}, err
	}
	ext := ect.Ext{}
	ext.SetText(ect.ExtATDReason, c.Reason)
	ext.SetBool(ect.ExtCascade, c.Cascade)
	ext.SetText(ect.ExtApprover, c.Operator)
	compact, err := s.deps.Attest.Statements().State(ctx, attest.Statement{
		Act: ect.ActRollbackRequest, Lineage: attest.Lineage{Workflow: wid, Parents: []ect.ID{c.From}}, Ext: ext,
	})
	if err != nil {
		return View{}, err
	}
	claims, err := ect.ParseRecorded(compact)
	if err != nil {
		return View{}, err
	}
	o := Order{
		Workflow: wid, From: c.From, Issuer: s.deps.Self, Request: claims.ID, Digest: ect.Hash([]byte(compact)), Cascade: c.Cascade, Reason: c.Reason,
		Reviewed: true,
	}
	if err := s.open(ctx, o); err != nil {
		return View{}, err
	}
	return s.Look(ctx, wid, claims.ID)
}

// Look says how a rollback of an operator stands. *[problem.NotFoundError]: there is no such rollback.
func (s *Service) Look(ctx context.Context, wid string, request ect.ID) (View, error) {
	k, done, err := s.result(ctx, wid, s.deps.Self, request)
	if err == nil && done {
		return ended(wid, request, k), nil
	}
	var u underWay
	running := false
	if err == nil {
		u, running, err = s.begun(ctx, wid)
	}
	if err == nil && !running { // it may have ended just now
		k, done, err = s.result(ctx, wid, s.deps.Self, request)
	}
	if err == nil && done {
		return ended(wid, request, k), nil
	}
	switch {
	case err != nil:
		return View{}, err
	case !running || u.Request != request:
		return View{}, &problem.NotFoundError{What: "rollback"}
	}
	return View{Workflow: wid, From: u.From, Request: request, Accepted: u.Accepted, By: u.By, Steps: brief(u.Steps)}, nil
}

// ended is a rollback that is over.
func ended(wid string, request ect.ID, k saved) View {
	v := View{Workflow: wid, Request: request, Status: k.Status, Ended: k.At, Steps: k.Steps, Result: k.Result}
	if claims, err := ect.ParseRecorded(k.Result); err == nil {
		of, _ := claims.Ext.String(ect.ExtCheckpointID)
		v.From = ect.ID(of)
	}
	return v
}
