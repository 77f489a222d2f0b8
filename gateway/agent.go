package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/admission"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	waits "github.com/aepb/aepb-gateway/gateway/schedule"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/workflow"
	"github.com/aepb/aepb-gateway/lifecycle/schedule"
	steps "github.com/aepb/aepb-gateway/lifecycle/workflow"
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

// along returns the ancestors of a request. A next gateway judges the message by them. If they do
// not all fit, it is not asked: it could take another token for one that is missing.
func (g *Gateway) along(x *request) ([]string, error) {
	along, size := x.in.Evidence.Ancestors()
	if size > admission.MaxAncestors && g.toGateway(x) {
		return nil, &problem.AncestorsTooLargeError{Size: size, Limit: admission.MaxAncestors}
	}
	return along, nil
}

// toGateway reports whether a message goes on to another gateway, as far as we know.
func (g *Gateway) toGateway(x *request) bool {
	return x.to.Via != nil || x.to.Agent.ID != "" && (x.settings.rules.IsGateway(x.to.Agent.ID) ||
		slices.ContainsFunc(g.Directory.Peers(), func(p directory.Peer) bool { return p.ID == x.to.Agent.ID }))
}

// question returns the reply in which the caller was asked what a message to the agent answers.
func (g *Gateway) question(ctx context.Context, x *request, m *canonical.Message) ([]ect.ID, error) {
	if m.Op != canonical.OpAnswer || x.record == nil {
		return nil, nil
	}
	last, err := g.lastTold(ctx, x.parties(), x.record)
	if err != nil || last == "" || slices.Contains(x.afterRequest(), last) {
		return nil, err
	}
	return []ect.ID{last}, nil
}

// ownTokens returns the tokens of this gateway that are parents of a message, such as the reply that asked. A next
// gateway takes no message whose parent it does not know, and knows them only from here. What is no gateway, as far
// as we know, gets the replies of its own dialogue alone: other tokens say who approved a call, or which agents others asked.
func (g *Gateway) ownTokens(ctx context.Context, x *request, parents []ect.ID) (own []string, err error) {
	known := g.toGateway(x)
	if len(parents) == 0 || x.in.Evidence.Named != nil && !known {
		return nil, nil
	}
	self, workflow := g.Signer.Issuer(), x.lineage.Workflow
	refs := make([]ect.Ref, len(parents))
	for i, parent := range parents {
		refs[i] = ect.Ref{ID: parent, Workflow: workflow, Issuer: self}
	}
	found, err := g.Evidence.Get(ctx, refs...)
	if err != nil {
		return nil, attest.Recording(err)
	}
	size := 0
	for _, r := range slices.Concat(found...) {
		if r.Issuer == self && r.Workflow == workflow && (known || isReply(r)) && size+len(r.Compact) <= admission.MaxAncestors {
			size += len(r.Compact)
			own = append(own, r.Compact)
		}
	}
	return own, nil
}

// isReply reports whether a token of ours is that of a reply.
func isReply(r ect.Record) bool {
	claims, _, err := ect.ParseUnverified(r.Compact)
	direction, _ := claims.Ext.String(ect.ExtLeg)
	return err == nil && claims.Act.Translation() && attest.Direction(direction) == attest.Reply
}

// Send implements [execution.Agent].
func (a agent) Send(ctx context.Context, sealed transport.Sealed, limit time.Duration) (transport.Reply, error) {
	x := a.x
	got, err := a.g.Sender.Send(ctx, &outbound.Call{
		Kind: x.sends(), Endpoint: x.route.Endpoint, Sealed: sealed, Limit: limit, Agent: x.agentLabel(), From: x.in.Call.Wire.Binding,
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
// error of the agent is one here. What an MCP server tells before its reply, in a stream, is left out:
// there is no caller who waits for it.
func (a agent) acknowledged(ctx context.Context, sealed transport.Sealed) (wire translators.Wire, m *canonical.Message, parents []ect.ID, err error) {
	limit := a.x.route.Endpoint.Timeout
	reply, err := a.Send(ctx, sealed, limit)
	defer outbound.CloseReply(reply)
	if err != nil {
		return wire, nil, nil, err
	}
	m, parents, err = a.hear(ctx, reply)
	if wire = reply.Wire; err == nil && m == nil {
		within, cancel := context.WithTimeoutCause(ctx, limit, &transport.TimeoutError{Agent: a.x.to.Agent.Name, After: limit})
		defer cancel()
		var own []ect.ID
		wire, m, own, err = a.replyIn(within, reply.Events)
		if parents = slices.Concat(own, parents); err != nil && ctx.Err() == nil && within.Err() != nil {
			err = context.Cause(within)
		}
	}
	if err == nil {
		if refusal, ok := m.Body.(*canonical.Error); ok {
			err = refusal
		}
	}
	return wire, m, parents, err
}

// replyIn reads a stream to the reply in it, with the tokens of the agent. A question is refused: it would wait for an answer.
func (a agent) replyIn(ctx context.Context, events transport.Events) (wire translators.Wire, m *canonical.Message, parents []ect.ID, err error) {
	bad := func(reason string) error { return &transport.BadReplyError{Agent: a.x.to.Agent.Name, Reason: reason} }
	var whole ect.StreamHash
	for m == nil || m.Phase == canonical.PhaseEvent {
		event, err := events.Next(ctx)
		if errors.Is(err, io.EOF) || err == nil && len(event.Wire.Body) == 0 {
			err = bad("its stream ended without a reply")
		}
		if err != nil {
			return wire, nil, nil, err
		}
		event.Wire.Event = true
		got, err := a.Read(ctx, event.Wire, a.x.message.Op)
		if _, unread := errors.AsType[*translators.UnreadableNoticeError](err); err != nil && !unread {
			return wire, nil, nil, err
		}
		whole.Add(got.Wire.HashInput())
		check := ect.Check{Purpose: ect.Parent}
		if wire, m = got.Wire, got.Message; m != nil && m.Phase != canonical.PhaseEvent {
			check = ect.Check{Purpose: ect.Reply, Body: whole.Sum()}
			got.Tokens = append(got.Tokens, closing(ctx, events)...)
		} else if asks(m) {
			return wire, nil, nil, bad("it asks a question, which a call of the gateway's own cannot answer")
		}
		if len(got.Tokens) > 0 {
			own, err := a.Verify(ctx, got.Tokens, check)
			if err != nil {
				return wire, nil, nil, err
			}
			parents = append(parents, own...)
		}
	}
	return wire, m, parents, nil
}

// asks reports whether a message asks the caller something; nil asks nothing.
func asks(m *canonical.Message) bool {
	if m == nil {
		return false
	}
	event, ok := m.Body.(*canonical.Event)
	return ok && event.Ask != nil
}

// closing are the tokens that close a stream whose reply came. An agent that keeps its stream open gives none.
func closing(ctx context.Context, events transport.Events) []string {
	ctx, cancel := context.WithTimeout(ctx, execution.FirstEventWait)
	defer cancel()
	if event, err := events.Next(ctx); err == nil && len(event.Wire.Body) == 0 {
		return event.Evidence
	}
	return nil
}

// hear reads the reply to the request: its evidence, and its message if it is not a stream. An
// error of the agent is a message, too.
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
		check = ect.Check{Purpose: ect.Reply, Body: ect.Hash(reply.Wire.HashInput())}
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
		a.invalidateIfChanged(message)
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
		return nil, &transport.BadReplyError{Agent: x.to.Agent.Name, Reason: "not a reply of " + string(wire.Binding) + ": " + translators.Explain(err)}
	}
	if result, ok := message.Body.(*canonical.Result); ok && result.Pending != nil && len(result.Pending.Inputs) == 0 && result.Pending.State == "" {
		return nil, &transport.BadReplyError{Agent: x.to.Agent.Name, Reason: "it waits for an answer and asks nothing"}
	}
	if id := message.Conversation.ContextID; id != "" {
		x.thread = x.thread.WithAgentID(id)
	}
	return message, nil
}

// report tells the agent's circuit breaker whether the reply is an error.
func (a agent) report(ctx context.Context, message *canonical.Message, err error) {
	if message != nil && err == nil {
		if refusal, ok := message.Body.(*canonical.Error); ok {
			err = refusal
		}
	}
	a.g.Breakers.Report(ctx, breakers.Target{Kind: a.x.sends(), Endpoint: a.x.route.Endpoint, Label: a.x.agentLabel()}, err)
}

// invalidateIfChanged forgets the description of an agent that announces a change, or that refuses
// a request for its header fields: those are made from the description.
func (a agent) invalidateIfChanged(message *canonical.Message) {
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
	own := agent{a.g, a.x.clone()}
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

// ownCard puts our card in place of the extended card that an agent answers with
// (A2A 3.1.11): the same skills at our URLs, cleaned as every description is (R9), of which those stay that the
// caller is offered.
// Any other reply stays as it is; a *transport.BadReplyError: there is no card in it.
func (x *request) ownCard(m *canonical.Message) (*canonical.Message, error) {
	if x.in.Call.Card == nil {
		return m, nil
	}
	bad := &transport.BadReplyError{Agent: x.to.Agent.Name, Reason: "not a card in answer to the request for its extended card"}
	if m == nil {
		return nil, bad // it answers with a stream
	}
	native, ok := m.Body.(*canonical.Native)
	if !ok {
		return m, nil
	}
	decoded, err := x.to.Codec.Decode(translators.Wire{Binding: x.to.Codec.Info().Binding, Media: x.to.Codec.Info().Media[0], Body: native.Result, Re: canonical.OpDescribe})
	if err != nil {
		return nil, bad
	}
	description, ok := decoded.Body.(*canonical.Description)
	if !ok {
		return nil, bad
	}
	clean, _ := directory.Clean(*description)
	card, err := x.in.Call.Card(directory.Offered(&clean, x.in.Permit.Offer()))
	if err != nil {
		return nil, bad
	}
	m.Body = &canonical.Native{Result: card}
	return m, nil
}

// place waits until the agent has a place for new work (R30). The scope of the request gives it back.
func (g *Gateway) place(ctx context.Context, x *request) error {
	if !x.needsPlace() || !g.parts.Places.Queues(x.to.Agent.Name) {
		return nil
	}
	call := x.waiting(g.parts.Places.Rules())
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
