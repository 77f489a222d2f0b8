package attest

import (
	"cmp"
	"context"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/embedded"
)

// Peers with ect_in_body have their tokens in the body as well as in the header
// (R5). Everything else sees messages as they were before insertion. In a stream
// the tokens of its header are in the first event that has a place for them, and those
// of its trailer in its last; a stream that only follows the work of another request
// has the latter in its trailer alone. Over gRPC all are in the metadata.

// TakeTokens takes the tokens out of the body of a message; header are those that came beside it.
// Its error is a *[ect.MalformedError], or the codec's.
func TakeTokens(form translators.Translator, wire translators.Wire, header []string) (translators.Wire, []string, error) {
	wire, tokens, err := embedded.Take(form, wire)
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

// Embed puts the tokens of an answer into its body, or into its events. re is the operation
// that the message answers; empty: it is a request.
func Embed(form translators.Translator, answer transport.Answer, re canonical.Op) transport.Answer {
	answer.Inside = true
	wire := answer.Wire()
	switch {
	case answer.Events() != nil:
		return answer.Through(func(events transport.Events) transport.Events {
			return &embedding{Events: events, form: form, due: answer.Evidence}
		})
	case form != nil && len(wire.Body) > 0:
		like := wire
		like.Re = cmp.Or(like.Re, re)
		with, _ := embedded.Insert(form, like, answer.Evidence)
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
	if with, ok := embedded.Insert(e.form, like, slices.Concat(e.due, event.Evidence)); ok {
		event.Wire.Body, e.due = with.Body, nil
	}
	return event, nil
}
