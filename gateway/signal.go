package gateway

import (
	"context"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/membership"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// signal carries a message that is a token (canonical.Signal) to whom it is for.
func (g *Gateway) signal(ctx context.Context, x *request) (transport.Answer, error) {
	token, err := g.admission.Signal(ctx, x.in, x.settings.rules)
	if err != nil {
		return transport.Answer{}, err
	}
	if x.message.Op == canonical.OpDecision {
		return g.decide(ctx, x, token)
	}
	return g.relaySignal(ctx, x, token)
}

// signal: the operation is one.
func signal(op canonical.Op) bool { return op == canonical.OpRollback || op == canonical.OpDecision }

// relaySignal says a signal to the agent, in its protocol's form for that. A
// protocol without one cannot be told: L36.
func (g *Gateway) relaySignal(ctx context.Context, x *request, token ect.Verified) (transport.Answer, error) {
	if x.in.Call.Agent != "" {
		g.undoing(x)
		if err := g.choose(ctx, x); err != nil {
			return transport.Answer{}, err
		}
	}
	if !signalling(x.to.Features.Signaler, x.message.Op, x.route.Endpoint.Version, x.route.Endpoint.Form) {
		loss := canonical.Loss{Code: canonical.LossOperation, Path: "/" + string(x.message.Op), Fate: canonical.Dropped}
		if err := x.in.Permit.Judge(attest.Judged([]canonical.Loss{loss})); err != nil {
			return transport.Answer{}, err
		}
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "the agent's protocol has no form for this"}
	}
	sealed, out, err := g.request(ctx, x)
	if err != nil || x.in.Call.Agent == "" {
		return x.answer(out), err
	}
	reply, err := g.agent(x).Send(ctx, sealed, x.route.Endpoint.Timeout)
	if err != nil {
		return transport.Answer{}, err
	}
	message, parents, err := g.agent(x).hear(ctx, reply)
	if err != nil || message == nil {
		outbound.CloseReply(reply)
		if err == nil {
			err = &transport.BadReplyError{Agent: x.to.Agent.Name, Reason: "it answers a signal with a stream"}
		}
		return transport.Answer{}, err
	}
	if said, ok := message.Body.(*canonical.Signal); ok {
		if parents, err = g.outcome(ctx, x, said, token, parents); err != nil {
			return transport.Answer{}, err
		}
	}
	return g.caller(x).Relay(ctx, reply.Wire, message, parents)
}

// outcome verifies and keeps the token with which an agent answers a rollback
// request (ATD, Basic Rollback). It comes before all else that the reply is
// proven by.
func (g *Gateway) outcome(ctx context.Context, x *request, said *canonical.Signal, request ect.Verified, parents []ect.ID) ([]ect.ID, error) {
	v, err := g.attest.Verify(ctx, said.Token, ect.Check{Purpose: ect.Parent})
	bad := v.Act() != ect.ActRollbackResult || v.Level() < ect.L2 || v.Workflow() != request.Workflow() ||
		!slices.Contains(v.Parents(), request.ID()) || x.to.Agent.ID != "" && v.Issuer() != x.to.Agent.ID
	if err != nil || bad {
		return nil, &transport.BadReplyError{Agent: x.to.Agent.Name, Reason: "its rollback result is not to be believed"}
	}
	reply := membership.Reply{Workflow: request.Workflow(), Legs: []ect.ID{request.ID()}, Agent: x.to.Agent.ID, Gateway: x.settings.rules.IsGateway}
	if err := g.attest.Bound(ctx, v, reply, x.replier()); err != nil {
		return nil, err
	}
	parents = slices.DeleteFunc(parents, func(id ect.ID) bool { return id == v.ID() })
	return append([]ect.ID{v.ID()}, parents...), nil
}

// signalling: a protocol has a form for a signal, or, with OpInvoke, for the
// callback of a request.
func signalling(s translators.Signaler, op canonical.Op, version, wire string) bool {
	return s != nil && s.Signals(op, translators.Target{Version: version, Form: wire})
}

// decide tells a human's decision to those who wait for it; where nobody has
// said so, to the agent that it is addressed to (AEPB, HITL Callback
// Registration).
func (g *Gateway) decide(ctx context.Context, x *request, token ect.Verified) (transport.Answer, error) {
	said, _ := x.message.Body.(*canonical.Signal)
	waiting, err := g.callbacks.Of(ctx, token.Workflow())
	if err != nil {
		return transport.Answer{}, err
	}
	if len(waiting) == 0 || x.in.Call.Agent == "" {
		return g.relaySignal(ctx, x, token)
	}
	for _, w := range waiting {
		if w.Caller == token.Issuer() { // R23
			return transport.Answer{}, &policy.Forbidden{Agent: x.to.Agent.Name, Reason: "who asks for an approval does not give it"}
		}
	}
	fresh, err := g.callbacks.Decide(ctx, said, token)
	if err != nil {
		return transport.Answer{}, err
	}
	if fresh {
		g.callbacks.Announce(ctx, said, waiting)
	}
	x.lineage.Workflow = token.Workflow()
	m := &canonical.Message{
		Op: x.message.Op, Phase: canonical.PhaseResponse, Body: &canonical.Done{}, Correlation: canonical.Correlation{WireID: x.in.WireID},
	}
	if x.in.WireID == nil {
		return transport.Answer{}, nil
	}
	out, err := g.translate(ctx, x, g.caller(x).translation(m, []ect.ID{token.ID()}))
	return x.answer(out), err
}

// await takes the callback of a request: it is kept here, told from here, and
// goes on to an agent whose protocol has a place for it. Where no approver is asked,
// this gateway hears of no decision.
func (g *Gateway) await(ctx context.Context, x *request) (*canonical.Message, error) {
	m := x.message
	if m.Callback == "" {
		return m, nil
	}
	if x.in.Call.Agent != "" {
		if err := g.callbacks.Await(ctx, x.in.Call.Caller.ID, x.lineage.Workflow, m.Callback); err != nil {
			return m, err
		}
	}
	if !signalling(x.to.Features.Signaler, m.Op, x.route.Endpoint.Version, x.route.Endpoint.Form) {
		said := *m
		said.Callback = ""
		said.Losses = append(slices.Clip(said.Losses),
			canonical.Loss{Code: canonical.LossCallback, Path: "/callback", Fate: canonical.Dropped})
		return &said, nil
	}
	return m, nil
}
