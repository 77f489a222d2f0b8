package httpapi_test

import (
	"context"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/checkpoint"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/rollback"
	pure "github.com/aepb/aepb-gateway/lifecycle/checkpoint"
	undo "github.com/aepb/aepb-gateway/lifecycle/rollback"
)

// oneCheckpoint is the checkpoint c of the workflow w, and its rollback r, for all who ask.
type oneCheckpoint struct{}

func missing(what string) error { return &problem.NotFoundError{What: what} }

func (oneCheckpoint) Deposit(context.Context, checkpoint.Depositor, string, []byte) (pure.Checkpoint, error) {
	return pure.Checkpoint{ID: "c", Workflow: "w"}, nil
}

func (o oneCheckpoint) Fetch(ctx context.Context, _ ect.Identity, id ect.ID) (checkpoint.Saved, []byte, error) {
	k, err := o.Find(ctx, "w", id)
	return k, []byte("state"), err
}

func (oneCheckpoint) Find(_ context.Context, _ string, id ect.ID) (checkpoint.Saved, error) {
	if id != "c" {
		return checkpoint.Saved{}, missing("checkpoint")
	}
	return checkpoint.Saved{
		Checkpoint: pure.Checkpoint{ID: "c", Workflow: "w", Parents: []ect.ID{"a"}, Reversible: true, At: time.Unix(1_800_000_000, 0), TTL: time.Hour}, Compact: "x.y.z", Size: 5,
		Plan: &checkpoint.Plan{Agent: "files", Tool: "write", Undo: &checkpoint.Undo{Tool: "restore", Result: true}},
	}, nil
}

func (o oneCheckpoint) Page(ctx context.Context, workflow, _ string, _ int) ([]checkpoint.Saved, string, error) {
	k, err := o.Find(ctx, workflow, "c")
	return []checkpoint.Saved{k}, "c", err
}

func (oneCheckpoint) Locate(_ context.Context, _ string, id ect.ID) (string, error) {
	if id != "c" {
		return "", missing("checkpoint")
	}
	return "w", nil
}

var oneStep = undo.Step{Checkpoint: "c", Action: "a", Agent: "files", How: undo.ByCall}

func (oneCheckpoint) Foresee(_ context.Context, c rollback.Command) (string, undo.Plan, error) {
	return "w", undo.Plan{From: c.From, Cascade: c.Cascade, Steps: []undo.Step{oneStep}, Blast: []string{"files"}, By: time.Unix(1_800_000_000, 0)}, nil
}

func (o oneCheckpoint) Begin(ctx context.Context, _ rollback.Command) (rollback.View, error) {
	return o.Look(ctx, "w", "r")
}

func (oneCheckpoint) Look(_ context.Context, wid string, request ect.ID) (rollback.View, error) {
	if request != "r" {
		return rollback.View{}, missing("rollback")
	}
	return rollback.View{Workflow: wid, From: "c", Request: "r", Accepted: time.Unix(1_800_000_000, 0), Steps: []undo.Progress{{Step: oneStep, State: undo.StepSent, Tries: 1, Reason: "why"}}}, nil
}
