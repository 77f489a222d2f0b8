package approval

import (
	"context"
	"errors"
	"log/slog"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Notices tell others how approvals stand. Every field but Escalate is required.
type Notices struct {
	Count    func(state string)                                                     // counts each change
	Escalate func(context.Context, breakers.Event)                                  // tells operators, and does not wait for that; nil: the log alone says it
	Announce func(ctx context.Context, workflow string, decision *canonical.Signal) // tells who registered a callback in a workflow, in the background (AEPB, HITL Callback Registration)
	// Registered are the URIs that Announce tells.
	Registered func(ctx context.Context, workflow string) ([]string, error)
	Find       func(ctx context.Context, refs ...ect.Ref) (records [][]ect.Record, err error) // reads evidence
	Logger     *slog.Logger
	Replica    string
}

// changed counts and logs a change, and tells operators of an approval that begins to wait.
func (n Notices) changed(ctx context.Context, a hitl.Approval) {
	n.Count(string(a.State))
	n.Logger.InfoContext(
		ctx, "approval", slog.String("approval", a.ID), slog.String("state", string(a.State)), slog.String("agent", a.Call.Agent),
		slog.String("tool", a.Call.Tool), slog.String("caller", string(a.Call.Caller)), slog.String("wid", a.Origin.Workflow),
	)
	if n.Escalate != nil && a.State == hitl.Pending {
		n.Escalate(ctx, breakers.Event{Agent: a.Call.Agent, State: "approval", Work: a.Origin.Workflow, At: a.Changed, Token: a.Token, Replica: n.Replica, Approval: Path(a.ID)})
	}
}

// decided tells callers of a decision.
func (n Notices) decided(ctx context.Context, a hitl.Approval) {
	token, err := n.decisionOf(ctx, a)
	if err != nil {
		n.Logger.WarnContext(ctx, "a decision is not told: its token is not on record", slog.String("approval", a.ID), slog.Any("error", err))
		return
	}
	n.Announce(ctx, a.Origin.Workflow, &canonical.Signal{Approval: a.ID, Token: token})
}

// decisionOf is the token of the decision that an approval rests on: the approver's own, or the gateway's.
func (n Notices) decisionOf(ctx context.Context, a hitl.Approval) (string, error) {
	count := len(a.Decisions)
	if count == 0 || a.Decisions[count-1].Token == "" {
		return a.Token, nil
	}
	d := a.Decisions[count-1]
	if claims, err := ect.ParseRecorded(a.Token); err == nil && claims.ID == d.Token {
		return a.Token, nil
	}
	found, err := n.Find(ctx, ect.Ref{Workflow: a.Origin.Workflow, ID: d.Token, Issuer: d.Approver.ID})
	if err != nil {
		return "", err
	}
	if len(found) == 0 || len(found[0]) == 0 {
		return "", errNoDecision
	}
	return found[0][0].Compact, nil
}

var errNoDecision = errors.New("the evidence has no token of the decision")
