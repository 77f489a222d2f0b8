package gateway

import (
	"context"
	"errors"
	"log/slog"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/inbody"
)

// fail is what every failure after step 5 leaves behind: an
// aepb:translate_error ECT (AEPB, Translation Failure Handling; at a CPAT
// endpoint too, since CPAT registers no act for it, R10). It returns the evidence to hand to the caller beside the error.
func (g *Gateway) fail(ctx context.Context, x *exchange, answer transport.Answer, cause error) transport.Answer {
	if !x.in.Accounts {
		return answer
	}
	ctx = context.WithoutCancel(ctx) // the caller may be gone; the evidence must not be
	failure := attest.Failure{
		Subject: x.subject(), Lineage: attest.Lineage{Workflow: g.failedWorkflow(x), Parents: failedParents(x)},
		Cause: cause, Pair: attest.Pair{From: x.in.Call.Wire.Binding, To: x.toBinding()}, Input: x.in.Input, Unlisted: x.in.Foreign(),
	}
	if h := x.in.Call.Wire.Hasher; h != nil {
		failure.Pair.HashForm = h.HashForm()
	} else if x.callerInside() {
		failure.Pair.HashForm = inbody.HashForm
	}
	answer = transport.Answer{Notice: notice(x.to.Agent.Lifecycle)}
	if g.attest.Failure(ctx, x.trail, failure) {
		answer.Losses = x.trail.Losses()
	}
	answer.Evidence = x.trail.Proof()
	return answer
}

func (g *Gateway) failedWorkflow(x *exchange) string {
	if x.workflow != "" {
		return x.workflow
	}
	if workflow, ids := x.in.Evidence.Origins(); len(ids) > 0 {
		return workflow
	}
	return g.NewID()
}

// failedParents is the source's ECT as the draft has it; without one, what we
// signed last, else the one that the message names.
func failedParents(x *exchange) []ect.ID {
	if len(x.in.Evidence.Sources) == 0 && x.trail.Request() != "" {
		return []ect.ID{x.trail.Request()}
	}
	if _, ids := x.in.Evidence.Origins(); len(ids) > 0 {
		return ids
	}
	return x.parents
}

func (x *exchange) toBinding() canonical.Binding {
	if x.to.Codec != nil {
		return x.to.Codec.Info().Binding
	}
	return x.in.Call.To
}

// unreached is what the network said of an agent that cannot be reached. It is for
// logs alone, and quotes no message.
func unreached(err error) error {
	if e, ok := errors.AsType[*transport.UnreachableError](err); ok {
		return e.Err
	}
	return nil
}

// finish counts the exchange and, where the message brought an ECT, keeps the
// answer for its repetition.
func (g *Gateway) finish(ctx context.Context, x *exchange, err error) {
	result := "ok"
	if err != nil {
		result = problem.From(err).Code
	}
	took := g.Now().Sub(x.scope.began)
	g.Metrics.Translated(string(x.in.Call.Wire.Binding), string(x.toBinding()), result, took)
	reason := problem.ReasonOf(err)
	if reason != "" {
		g.Metrics.UpstreamFailed(x.whom(), reason)
	}
	level := slog.LevelDebug
	if err != nil {
		level = slog.LevelWarn
	}
	if !g.Logger.Enabled(ctx, level) { // as a rule, and the attributes are not for nothing
		return
	}
	attrs := []slog.Attr{
		slog.String("from", string(x.in.Call.Wire.Binding)), slog.String("to", string(x.toBinding())),
		slog.String("agent", x.to.Agent.Name), slog.String("caller", string(x.in.Call.Caller.ID)),
		slog.String("result", result), slog.String("wid", x.workflow), slog.Int("losses", len(x.trail.Losses())),
		slog.Duration("took", took),
	}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	if reason != "" {
		attrs = append(attrs, slog.String("reason", string(reason)))
	}
	if cause := unreached(err); cause != nil {
		attrs = append(attrs, slog.Any("cause", cause))
	}
	g.Logger.LogAttrs(ctx, level, "exchange", attrs...)
}

// label is an agent in metrics: callers can name documents without end.
func label(a directory.Agent) string {
	if a.Name != "" && !a.Listed() {
		return "document"
	}
	return a.Name
}
