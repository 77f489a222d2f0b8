package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	waits "github.com/aepb/aepb-gateway/gateway/schedule"
	"github.com/aepb/aepb-gateway/gateway/workflow"
	"github.com/aepb/aepb-gateway/lifecycle/schedule"
	steps "github.com/aepb/aepb-gateway/lifecycle/workflow"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// gates are the roles of approvers that the plan of the workflow demands before the message is sent.
func gates(ctx context.Context, g *Gateway, x *request) ([]string, error) {
	if !x.started || x.record != nil && x.approval == "" {
		return nil, nil
	}
	return g.parts.Workflows.Gates(ctx, x.lineage.Workflow, x.in.Call.Caller.ID, prospect(ctx, g, x))
}

// prospect is the step that a message begins.
func prospect(ctx context.Context, g *Gateway, x *request) steps.Prospect {
	step := steps.Prospect{Acts: []string{x.route.Called(x.message)}}
	step.Agents, _ = g.Directory.NamesOf(ctx, x.to.Agent.Name)
	for _, v := range x.in.Evidence.Sources {
		step.Task, step.Acts = v.ID(), append(step.Acts, string(v.Act()))
	}
	return step
}

// understood refuses a message of a workflow with a start to an agent that says which namespaces of ECT extensions it knows, and not the one of workflows
// (AEPB, Capability Document Format).
func (x *request) understood() error {
	if knows := x.to.Agent.Namespaces; !x.started || knows == nil || slices.Contains(knows, "atd") {
		return nil
	}
	return &problem.NoPathError{
		From: string(x.in.Call.Wire.Binding), To: string(x.toBinding()),
		Detail: "the workflow needs the ECT namespace atd, and the agent's capability document does not list it: send the message outside of the workflow, or have the agent list it",
	}
}

// wanted is what the caller wants of which agent, for the intent that is signed for it. Outside of a workflow with a
// start it is not said: no descriptor has it.
func (x *request) wanted(audience []string) attest.Work {
	if !x.started {
		return attest.Work{}
	}
	return attest.Work{Name: x.route.Called(x.message), Agent: cmp.Or(string(x.to.Agent.ID), audience[0])}
}

// foreseen is what the translation will lose, by code.
func (x *request) foreseen() ([]string, error) {
	losses := x.message.Losses
	if !x.verbatim() {
		message := *x.message
		_, more, err := x.to.Codec.Encode(&message, x.target(x.streams()))
		if err != nil {
			return nil, err
		}
		losses = slices.Concat(losses, more)
	}
	var codes []string
	for _, loss := range losses {
		codes = append(codes, string(loss.Code))
	}
	return codes, nil
}

// place waits until the agent has a place for new work (R30). The scope of the request gives it back.
func (g *Gateway) place(ctx context.Context, x *request) error {
	if !x.needsPlace() || !g.parts.Places.Queues(x.to.Agent.Name) {
		return nil
	}
	call := x.waiting(g.parts.Places.Rules())
	if x.started {
		priority, err := g.parts.Workflows.Priority(ctx, x.lineage.Workflow, func() steps.Prospect { return prospect(ctx, g, x) })
		if err != nil {
			return err
		}
		class, _ := schedule.ParseClass(string(priority))
		call.Class = schedule.Effective(call.Class, class)
	}
	leave, waited, err := g.parts.Places.Enter(ctx, call)
	if err != nil {
		g.unplaced(ctx, x, err)
		return err
	}
	if x.scope.place = leave; waited < degradedAfter {
		return nil
	}
	if x.started && x.in.Recorded && call.Class != schedule.Critical {
		g.degraded(ctx, x, waited)
	}
	if x.message.Op != canonical.OpInvoke {
		return nil
	}
	return g.parts.Levels.Refusal(ctx, x.lineage.Workflow, string(x.message.Op), true) // humans may have paused it meanwhile
}

// degradedAfter is how long a call waits before that is worth a warning.
const degradedAfter = time.Second

// needsPlace reports whether a message begins work at an agent. What goes on with work that is under way has the place
// of that work, such as the answer to a question, and so has what an agent wants of itself: it could wait for a place that
// it has. What listens, polls, cancels or rolls back is no work.
func (x *request) needsPlace() bool {
	begins := x.message.Op == canonical.OpInvoke || x.message.Op == canonical.OpNative && !x.listens()
	goesOn := x.claim != nil || x.record != nil && x.approval == ""
	nested := x.to.Agent.ID != "" && x.in.Call.Caller.ID == x.to.Agent.ID
	return x.in.Call.Agent != "" && begins && !goesOn && !nested
}

// waiting is the call as it waits: in the class of the operator, or a lower one of which the caller's own tokens speak
// (ATD, Resource Claim Format). Hints are advisory, so an unknown one changes nothing.
func (x *request) waiting(rules waits.Rules) waits.Call {
	agent, caller := x.to.Agent.Name, x.in.Call.Caller
	call := waits.Call{Agent: agent, Caller: x.owner(), Class: rules.Ceiling(caller.ID, caller.Anonymous, agent)}
	if x.started { // else its caller, or the gateway, may have made the workflow for this call alone
		call.Workflow = x.lineage.Workflow
	}
	for _, source := range x.in.Evidence.Sources {
		hint, _ := source.Extension(ect.ExtPriority)
		class, _ := schedule.ParseClass(hint)
		call.Class = schedule.Effective(call.Class, class)
	}
	return call
}

// degraded leaves, now and then, a warning in the workflow of a call that had to wait (ATD, Unsatisfiable Resource Hints).
func (g *Gateway) degraded(ctx context.Context, x *request, waited time.Duration) {
	if count, due := g.parts.Places.Due(x.to.Agent.Name, "degraded"); due {
		g.parts.Workflows.Fail(ctx, workflow.Failure{
			Workflow: x.lineage.Workflow, Action: x.lineage.Parents, Caller: x.in.Call.Caller.ID, Holder: x.in.Holder,
			Code: problem.CodeUnavailable, Severity: steps.SeverityWarning,
			Description: fmt.Sprintf("it ran degraded: it waited %s for a free place at its agent, as did %d calls since the last such warning", waited.Round(time.Millisecond), count),
		})
	}
}

// unplaced logs now and then that critical work gave up: outside of a workflow with a start nothing else says so.
func (g *Gateway) unplaced(ctx context.Context, x *request, err error) {
	if _, exhausted := errors.AsType[*schedule.ExhaustedError](err); !exhausted {
		return
	}
	if count, due := g.parts.Places.Due(x.to.Agent.Name, "exhausted"); due {
		g.Logger.ErrorContext(ctx, "critical calls got no place at their agent: raise its concurrency, or call it less",
			slog.String("agent", x.to.Agent.Name), slog.Uint64("calls", count))
	}
}

func (x *request) toBinding() canonical.Binding {
	if x.to.Codec != nil {
		return x.to.Codec.Info().Binding
	}
	return x.in.Call.To
}
