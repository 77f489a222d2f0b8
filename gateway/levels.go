package gateway

import (
	"context"
	"log/slog"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/workflow"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// held refuses new work of a workflow that humans hold. Admission has judged messages whose tokens name their workflow;
// this is for those that a dialogue leads there, and for calls that were approved while it was held.
func (g *Gateway) held(ctx context.Context, x *request) error {
	if x.message.Op != canonical.OpInvoke || x.in.Call.Agent == "" {
		return nil
	}
	return g.parts.Levels.Refusal(ctx, x.lineage.Workflow, string(x.message.Op), x.record == nil || x.approval != "")
}

// failed holds a workflow after an error of it, where a rule says so (ATD, HITL Escalation on Error).
func (g *Gateway) failed(ctx context.Context, f workflow.Failure, compact string) {
	severity, kind := f.Kind()
	reaction, ok := g.settings.Load().Approvals.MatchError(severity.String(), string(kind))
	if !ok {
		return
	}
	e := hitl.StandingEvent{Step: hitl.Pause, At: g.Now().UTC(), Why: "an error of severity " + severity.String(), Roles: reaction.Roles}
	if reaction.Level == hitl.LevelStop {
		e.Step = hitl.Stop
	}
	g.hold(ctx, f.Workflow, approval.Order{Event: e, After: attest.After(compact), Holder: f.Holder})
}

// rolledBack stops a workflow whose rollback has failed (ATD, Interaction with HITL, 2).
func (g *Gateway) rolledBack(ctx context.Context, result ect.Verified) {
	if status, _ := result.Extension(ect.ExtStatus); status != "failed" {
		return
	}
	g.hold(ctx, result.Workflow(), approval.Order{
		Event: hitl.StandingEvent{Step: hitl.Stop, At: g.Now().UTC(), Why: "a rollback failed"},
		After: attest.Lineage{Workflow: result.Workflow(), Parents: []ect.ID{result.ID()}},
	})
}

// Held are the workflows that humans hold.
func (g *Gateway) Held() []approval.Held { return g.parts.Levels.Held() }

// Hold changes how a workflow stands, for an operator. Its errors are those of [approval.Levels.Change].
func (g *Gateway) Hold(ctx context.Context, wid string, e hitl.StandingEvent) (approval.Held, error) {
	after := attest.Lineage{Workflow: wid}
	began, started, err := g.parts.Workflows.Started(ctx, wid)
	if err != nil {
		return approval.Held{}, attest.Recording(err)
	}
	if started {
		after.Parents = []ect.ID{began.Start}
	}
	return g.parts.Levels.Change(ctx, wid, approval.Order{Event: e, After: after})
}

// hold changes the level of a workflow for a reason of its own. What cannot be recorded is logged: operators are told of
// the error all the same.
func (g *Gateway) hold(ctx context.Context, wid string, o approval.Order) {
	if _, err := g.parts.Levels.Change(context.WithoutCancel(ctx), wid, o); err != nil {
		g.Logger.ErrorContext(ctx, "a workflow is not held: look after it", slog.String("wid", wid), slog.String("step", string(o.Event.Step)), slog.Any("error", err))
		return
	}
	g.Logger.WarnContext(ctx, "a workflow is held", slog.String("wid", wid), slog.String("step", string(o.Event.Step)), slog.String("reason", o.Event.Why))
}
