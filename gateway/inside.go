package gateway

import (
	"cmp"
	"context"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/inbody"
)

// Peers with ect_in_body have their tokens in the body as well as in the header
// (R5). All else on the road sees messages as they were before insertion. In a stream
// the tokens of its header are in the first event that has a place for them, and those
// of its trailer in its last; a stream that only follows the work of another request
// has the latter in its trailer alone. Over gRPC all are in the metadata.

// callerInside: the caller is such a peer, and its protocol has a place for them.
func (x *exchange) callerInside() bool {
	return x.bears(x.call.Caller.ID, x.source, x.call.Wire.Form)
}

// agentInside is the same of whoever is asked.
func (x *exchange) agentInside() bool { return x.bears(x.reader(), x.to.Codec, x.endpoint.Form) }

func (x *exchange) bears(peer ect.Identity, codec translators.Translator, form string) bool {
	if peer == "" || !x.settings.ECTInBody[peer] {
		return false
	}
	bearer, ok := codec.(translators.Bearer)
	return ok && len(bearer.Bears(translators.Wire{Form: form})) > 0
}

// submitted takes a caller's tokens out of its message. Those in the header are the
// same, or there are none.
func (x *exchange) submitted() error {
	if !x.callerInside() {
		return nil
	}
	wire, tokens, err := withoutTokens(x.source, x.call.Wire, x.call.Evidence)
	if err == nil && len(tokens) > 0 {
		x.call.Wire, x.call.Evidence, x.call.Message = wire, tokens, nil
	}
	return err
}

// heardInside takes an agent's tokens out of its reply.
func (x *exchange) heardInside(reply transport.Reply) (transport.Reply, error) {
	if reply.Events != nil || !x.agentInside() {
		return reply, nil
	}
	wire := reply.Wire
	wire.Re = cmp.Or(wire.Re, canonical.OpInvoke)
	wire, tokens, err := withoutTokens(x.to.Codec, wire, reply.Evidence)
	if err != nil {
		return reply, &transport.BadReplyError{Agent: x.to.Agent.Name, Reason: "the ECTs in its body are malformed, or not those in its header"}
	}
	if len(tokens) > 0 {
		reply.Wire.Body, reply.Evidence = wire.Body, tokens
	}
	return reply, nil
}

// heardEvent takes an agent's tokens out of an event.
func (x *exchange) heardEvent(wire translators.Wire) (translators.Wire, []string, error) {
	if !x.agentInside() {
		return wire, nil, nil
	}
	like := wire
	like.Re = cmp.Or(like.Re, canonical.OpInvoke)
	like, tokens, err := withoutTokens(x.to.Codec, like, nil)
	if err != nil {
		return wire, nil, &transport.BadReplyError{Agent: x.to.Agent.Name, Reason: "the ECTs in an event of its stream are malformed"}
	}
	if len(tokens) > 0 {
		wire.Body = like.Body
	}
	return wire, tokens, nil
}

// vouched judges the tokens in an event that was heard, like those of the stream's
// trailer where nothing follows the event, else like those of its header.
func (r *run) vouched(ctx context.Context, tokens []string) error {
	if len(tokens) == 0 {
		return nil
	}
	if r.stream != nil && r.complete() {
		return r.closed(ctx, tokens)
	}
	parents, err := r.g.receive(ctx, r.x, tokens, ect.Check{Purpose: ect.Parent})
	if err == nil {
		r.follows(parents)
	}
	return err
}

// withoutTokens takes tokens out of a message that came with some in its header.
func withoutTokens(form translators.Translator, wire translators.Wire, header []string) (translators.Wire, []string, error) {
	wire, tokens, err := inbody.Take(form, wire)
	if err != nil || len(tokens) == 0 {
		return wire, nil, err
	}
	if tokens, err = ect.ParseHeader(tokens, ect.Limits{}); err != nil {
		return wire, nil, err
	}
	if len(header) > 0 && !slices.Equal(header, tokens) {
		return wire, nil, &ect.MalformedError{Reason: "the body has other tokens than the header"}
	}
	return wire, tokens, nil
}

// seal binds a message to its receipt, with the tokens inside for an agent that
// wants them there.
func (x *exchange) seal(out transport.Attested, ancestors ...string) (transport.Sealed, error) {
	if x.agentInside() {
		wire, _ := inbody.Insert(x.to.Codec, out.Wire(), append([]string{out.Token()}, ancestors...))
		var err error
		if out, err = out.Carrying(wire); err != nil {
			return transport.Sealed{}, err
		}
	}
	return out.Seal(ancestors...)
}

// inside puts the evidence of an answer into its body, for a caller that wants it
// there. Its door says what is no answer, and so puts it in.
func (g *Gateway) inside(x *exchange, answer transport.Answer) transport.Answer {
	if x.source == nil || !x.callerInside() {
		return answer
	}
	answer.Inside = true
	wire := answer.Wire()
	form, ok := g.Registry.Translator(wire.Binding)
	switch {
	case answer.Events() != nil:
		return answer.Through(func(events transport.Events) transport.Events {
			return &embedding{Events: events, form: x.source, due: answer.Evidence}
		})
	case ok && len(wire.Body) > 0:
		like := wire
		if x.call.Agent != "" {
			like.Re = cmp.Or(like.Re, canonical.OpInvoke)
		}
		with, _ := inbody.Insert(form, like, answer.Evidence)
		with.Re = wire.Re
		if carrying, err := answer.Carrying(with); err == nil { // else its own token would not cover it
			return carrying
		}
	}
	return answer
}

// embedding puts the evidence of a stream into its events.
type embedding struct {
	transport.Events

	form translators.Translator
	due  []string // has had no place yet
}

// Next is the next event.
func (e *embedding) Next(ctx context.Context) (transport.Event, error) {
	event, err := e.Events.Next(ctx)
	if err != nil || len(event.Wire.Body) == 0 {
		return event, err
	}
	like := event.Wire
	like.Re, like.Event = cmp.Or(like.Re, canonical.OpInvoke), true
	if with, ok := inbody.Insert(e.form, like, slices.Concat(e.due, event.Evidence)); ok {
		event.Wire.Body, e.due = with.Body, nil
	}
	return event, nil
}
