package transport

import (
	"bytes"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Answer is what goes back to the caller: one message, or a stream. Its message has a token
// on record, and its stream the token that opens it: only [Attested.Answer],
// [Opened.Answer] and [Vouch] make one with either.
type Answer struct {
	wire   translators.Wire
	events Events

	Evidence []string         // our ECTs, compact, oldest first
	Losses   []canonical.Loss // of both directions
	Notice   LifecycleNotice
	Inside   bool // the caller has evidence in the body too: in an error, which its server says, it is the server that puts it there
}

// Wire is the message in the caller's protocol, for translation alone in the destination's;
// without a body: there is none.
func (a Answer) Wire() translators.Wire { return a.wire }

// Events is the stream in place of a message, which its reader closes; nil: there is none.
func (a Answer) Events() Events { return a.events }

// Answer makes the message that of an answer.
func (a Attested) Answer() Answer { return Answer{wire: a.wire} }

// Vouch makes an answer of what a token covers that was on record before: that of the first
// answer, or another gateway's. Package attest alone calls it, and tests of protocols.
func Vouch(wire translators.Wire, events Events) Answer { return Answer{wire: wire, events: events} }

// Opened is a stream whose first token is on record. Only [Open] makes one that can be
// answered.
type Opened struct{ receipt ect.Receipt }

// Open makes a stream of the receipt of the token that opens it. [ErrUnsealed]: the receipt
// is of no token. Package attest alone calls it.
func Open(receipt ect.Receipt) (Opened, error) {
	if receipt.ID() == "" {
		return Opened{}, ErrUnsealed
	}
	return Opened{receipt}, nil
}

// ID is that of the token; empty for a zero Opened.
func (o Opened) ID() ect.ID { return o.receipt.ID() }

// Answer makes events the stream of an answer. [ErrUnsealed]: it is the zero Opened.
func (o Opened) Answer(events Events) (Answer, error) {
	if o.receipt.ID() == "" {
		return Answer{}, ErrUnsealed
	}
	return Answer{events: events}, nil
}

// Carrying is the answer with tokens in the body of its message too: the hash that its token
// has is of the message without them (R5). [ErrUnsealed]: it says something else.
func (a Answer) Carrying(wire translators.Wire) (Answer, error) {
	if !bytes.Equal(wire.HashInput(), a.wire.HashInput()) {
		return Answer{}, ErrUnsealed
	}
	a.wire = wire
	return a, nil
}

// Through is the answer with its stream in a wrapper.
func (a Answer) Through(wrap func(Events) Events) Answer {
	if a.events != nil {
		a.events = wrap(a.events)
	}
	return a
}
