package gateway

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// abortWithin is how long it may take to tell an agent something in the background.
const abortWithin = 5 * time.Second

// agent is the agent of a request: what goes to it, and what it says.
type agent struct {
	g *Gateway
	x *request
}

var _ execution.Agent = agent{}

func (g *Gateway) agent(x *request) agent { return agent{g, x} }

// Seal implements [execution.Agent]: a message that the caller did not send in these words.
func (a agent) Seal(ctx context.Context, m *canonical.Message) (transport.Sealed, error) {
	x := a.x
	tr := attest.Translation{Direction: attest.Request, ID: ect.ID(a.g.NewID()), Internal: true}
	tr.Codec, tr.Pair = x.to.Codec, x.pair()
	tr.Target = translators.Target{
		Version: x.route.Endpoint.Version, Form: x.route.Endpoint.Form, Capability: x.route.Capable(),
		Stream: m.Op == canonical.OpTaskSubscribe || m.Op == canonical.OpInvoke && x.streams(),
	}
	tr.Lineage.Parents = x.afterRequest()
	tr.Audience, tr.Reader = a.g.audience(x), x.reader()
	m.Correlation.WireID = canonical.TextID(string(tr.ID))
	if x.route.Endpoint.Tenant != "" {
		m.Conversation.Tenant = x.route.Endpoint.Tenant
	}
	tr.Message = x.tasked(m)
	out, err := a.g.translate(ctx, x, tr)
	if err != nil {
		return transport.Sealed{}, err
	}
	return x.seal(out)
}

// SealAsTask implements [execution.Agent].
func (a agent) SealAsTask(ctx context.Context) (transport.Sealed, error) {
	a.x.forced = true
	again := *a.x.message
	return a.Seal(ctx, &again)
}

// Inquire seals a message of ours about the work: an evidence of its own, behind that of the
// request.
func (a agent) Inquire(ctx context.Context, op canonical.Op, body canonical.Body) (transport.Sealed, error) {
	m := &canonical.Message{Op: op, Phase: canonical.PhaseRequest, Body: body, Trace: a.x.message.Trace}
	m.Preferences.CanAnswer = a.x.route.Endpoint.Asked
	return a.Seal(ctx, m)
}

// Send implements [execution.Agent].
func (a agent) Send(ctx context.Context, sealed transport.Sealed, limit time.Duration) (transport.Reply, error) {
	x := a.x
	got, err := a.g.Sender.Send(ctx, outbound.Call{
		Kind: x.sends(), Endpoint: x.route.Endpoint, Sealed: sealed, Limit: limit, Agent: x.whom(), From: x.in.Call.Wire.Binding,
	})
	reply := got.Reply
	a.refused(ctx, err)
	if reply.Wire.Hasher == nil {
		reply.Wire.Hasher = translators.HasherOf(x.to.Codec)
	}
	if err != nil {
		return reply, err
	}
	return x.heardInside(reply)
}

// refused keeps the evidence of a gateway that carried a message no further.
func (a agent) refused(ctx context.Context, err error) {
	if refusal, ok := errors.AsType[*transport.RefusedError](err); ok {
		a.g.attest.Refused(context.WithoutCancel(ctx), a.x.trail, a.x.received(refusal.Evidence, ect.Check{}))
	}
}

// Acknowledge implements [execution.Agent]. The reply's evidence is no part of the answer to the
// caller.
func (a agent) Acknowledge(ctx context.Context, op canonical.Op, sealed transport.Sealed) (wire translators.Wire, m *canonical.Message, parents []ect.ID, err error) {
	request := *a.x.message
	request.Op = op
	return agent{a.g, a.x.derive(&request)}.acknowledged(ctx, sealed)
}

// acknowledged sends a message that has one reply, and returns that with what testifies to it. An
// error of the agent is one here.
func (a agent) acknowledged(ctx context.Context, sealed transport.Sealed) (wire translators.Wire, m *canonical.Message, parents []ect.ID, err error) {
	reply, err := a.Send(ctx, sealed, a.x.route.Endpoint.Timeout)
	defer outbound.CloseReply(reply)
	if err != nil {
		return wire, nil, nil, err
	}
	if m, parents, err = a.hear(ctx, reply); err == nil && m == nil {
		err = &transport.BadReplyError{Agent: a.x.to.Agent.Name, Reason: "it answers with a stream"}
	}
	if err == nil {
		if refusal, ok := m.Body.(*canonical.Error); ok {
			err = refusal
		}
	}
	return reply.Wire, m, parents, err
}

// confirm sends the request, which is only acknowledged.
func (a agent) confirm(ctx context.Context) error {
	sealed, _, err := a.g.request(ctx, a.x)
	if err == nil {
		_, _, _, err = a.acknowledged(ctx, sealed)
	}
	return err
}

// hear reads the reply to the request: its evidence, and its message where it is one and no
// stream. An agent's error is a message like any other.
func (a agent) hear(ctx context.Context, reply transport.Reply) (*canonical.Message, []ect.ID, error) {
	parents, err := a.Prove(ctx, reply)
	if err != nil || reply.Events != nil {
		return nil, parents, err
	}
	got, err := a.Read(ctx, reply.Wire, a.x.message.Op)
	return got.Message, parents, err
}

// Prove implements [execution.Agent]. The reply has the request as parent and, beside it, what the
// agent signed if that is bound to this request (R4; architecture section 5, step 13). A broken
// token makes the reply untrustworthy.
func (a agent) Prove(ctx context.Context, reply transport.Reply) ([]ect.ID, error) {
	if len(reply.Evidence) == 0 {
		return a.x.afterRequest(), nil
	}
	check := ect.Check{Purpose: ect.Parent} // of a stream that begins, no token can have seen all
	if reply.Events == nil {
		check = ect.Check{Purpose: ect.Reply, Body: ect.Hash(reply.Wire.Octets())}
	}
	own, err := a.Verify(ctx, reply.Evidence, check)
	return slices.Concat(own, a.x.afterRequest()), err
}

// Verify implements [execution.Agent].
func (a agent) Verify(ctx context.Context, tokens []string, check ect.Check) ([]ect.ID, error) {
	return a.g.attest.Receive(ctx, a.x.trail, a.x.received(tokens, check))
}

// Read implements [execution.Agent]. The circuit breaker of the agent is told what a reply is.
func (a agent) Read(ctx context.Context, wire translators.Wire, op canonical.Op) (got execution.Incoming, err error) {
	if got.Wire = wire; wire.Event {
		if got.Wire, got.Tokens, err = a.x.heardEvent(wire); err != nil {
			return got, err
		}
	}
	message, err := a.decode(got.Wire, op)
	if !wire.Event {
		a.report(ctx, message, err)
	}
	if err == nil {
		a.heed(message)
		got.Message = message
	}
	return got, err
}

// decode reads what an agent said: a reply, or an event of a stream. *transport.BadReplyError, or
// *translators.UnreadableNoticeError of an event.
func (a agent) decode(wire translators.Wire, re canonical.Op) (*canonical.Message, error) {
	x := a.x
	wire.Binding, wire.Version, wire.Re = x.to.Codec.Info().Binding, x.route.Endpoint.Version, re
	if called := x.route.Capable(); called != nil {
		wire.Profile = called.Profile
	}
	message, err := a.g.admission.Read(x.to.Codec, wire)
	if unread, ok := errors.AsType[*translators.UnreadableNoticeError](err); ok {
		return nil, unread
	}
	if err != nil {
		return nil, &transport.BadReplyError{Agent: x.to.Agent.Name, Reason: "not a reply of " + string(wire.Binding)}
	}
	if result, ok := message.Body.(*canonical.Result); ok && result.Pending != nil && len(result.Pending.Inputs) == 0 && result.Pending.State == "" {
		return nil, &transport.BadReplyError{Agent: x.to.Agent.Name, Reason: "it waits for an answer and asks nothing"}
	}
	if id := message.Conversation.ContextID; id != "" {
		x.thread = x.thread.WithAgentID(id)
	}
	return message, nil
}

// report tells the agent's circuit breaker what its reply is.
func (a agent) report(ctx context.Context, message *canonical.Message, err error) {
	if message != nil && err == nil {
		if refusal, ok := message.Body.(*canonical.Error); ok {
			err = refusal
		}
	}
	a.g.Breakers.Report(ctx, breakers.Target{Kind: a.x.sends(), Endpoint: a.x.route.Endpoint, Label: a.x.whom()}, err)
}

// heed: an agent that says that it has changed is not as it is known here, nor is one that misses
// something in the header of a request.
func (a agent) heed(message *canonical.Message) {
	changed := false
	switch body := message.Body.(type) {
	case *canonical.Error:
		changed = body.Code == canonical.CodeHeaderMismatch
	case *canonical.Event:
		changer := a.x.to.Features.Changer
		changed = changer != nil && body.Native != nil && changer.Changes(body.Native)
	}
	if changed {
		a.g.Directory.Outdated(a.x.to.Agent.Name)
	}
}

// CancelRequest implements [execution.Agent] (MCP before 2026-07-28).
func (a agent) CancelRequest() {
	x := a.x
	asker := x.to.Features.Asker
	if asker == nil || x.mode.AgentStreams != translators.StreamsReply || asker.Asks(x.route.Endpoint.Version, x.route.Endpoint.Form) == translators.AskReply {
		return
	}
	id := canonical.TextID(string(x.trail.Request()))
	if x.verbatim() {
		id = x.in.WireID
	}
	a.Notify(canonical.OpAbort, &canonical.Abort{Request: id})
}

// Notify implements [execution.Agent], about the work as it stands now: its execution may go on with
// its record.
func (a agent) Notify(op canonical.Op, body canonical.Body) {
	own := agent{a.g, a.x.apart()}
	_ = a.g.workers.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, abortWithin)
		defer cancel()
		sealed, err := own.Inquire(ctx, op, body)
		if err == nil {
			var reply transport.Reply
			reply, err = own.Send(ctx, sealed, 0)
			outbound.CloseReply(reply)
		}
		if err != nil {
			a.g.Logger.WarnContext(ctx, "the agent could not be told to stop", slog.String("agent", own.x.to.Agent.Name), slog.Any("error", err))
		}
	})
}

// drop deals with a reply whose caller has left meanwhile.
func (a agent) drop(ctx context.Context, reply transport.Reply) {
	message, parents, err := a.hear(ctx, reply)
	if err != nil {
		outbound.CloseReply(reply)
		return
	}
	a.g.executions.StartFrom(ctx, a.g.work(a.x), reply, message, parents).Abort()
}
