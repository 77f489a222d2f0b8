// Package signed signs and verifies the messages of consensus rounds (draft-nennemann-agent-consensus-00, "Consensus
// Message Format"): proposals, votes, acknowledgements and outcomes.
//
// A message is a JSON object with a member signature: a JWS in compact form (RFC 7515) whose payload is the same object
// without that member. The payload is what counts. Each kind of message has a typ of its own, so that none is taken for
// another, nor for an ECT.
//
// Alternatives considered: messages that are ECTs. Evidence is read by all members of a workflow, and a vote must not be
// read before the tally.
package signed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	json2 "github.com/go-json-experiment/json"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/consensus"
)

// The types of signed messages, as typ has them.
const (
	TypeProposal = "consensus-proposal+jwt"
	TypeVote     = "consensus-vote+jwt"
	TypeAck      = "consensus-ack+jwt"
	TypeOutcome  = "consensus-outcome+jwt"
)

// Content is what can be signed.
type Content interface {
	consensus.Proposal | consensus.Vote | consensus.Ack | consensus.Outcome
}

// Message is a signed message.
type Message[M Content] struct {
	Content M
	Compact string // the signature
	Hash    string // of Compact: it names the message

	note ect.Note
}

// Verifier verifies signatures. It is an [ect.Verifier].
type Verifier interface {
	Authentic(ctx context.Context, n ect.Note, issuer ect.Identity, at time.Time) error
}

func typeOf[M Content]() (typ string, limit int) {
	var m M
	switch any(m).(type) {
	case consensus.Proposal:
		return TypeProposal, consensus.MaxProposal
	case consensus.Vote:
		return TypeVote, consensus.MaxVote
	case consensus.Ack:
		return TypeAck, 4 * consensus.MaxVote // it may hold two outcomes
	default:
		return TypeOutcome, consensus.MaxVote
	}
}

// Sign signs a message. Its errors are those of [consensus.Read] and [ect.ErrUnsignable].
func Sign[M Content](s *ect.Signer, m M) (Message[M], error) {
	text, err := consensus.Encode(m)
	if err != nil {
		return Message[M]{}, err
	}
	if _, err := consensus.Read[M](text); err != nil {
		return Message[M]{}, err
	}
	typ, limit := typeOf[M]()
	compact, err := s.SignNote(typ, text, limit)
	if err != nil {
		return Message[M]{}, err
	}
	return Take[M](compact)
}

// Take takes a signature apart, which has the message in it. It verifies nothing: [Message.Verify] does. Its errors are
// those of [ect.ParseNote] and [consensus.Read].
func Take[M Content](compact string) (Message[M], error) {
	typ, limit := typeOf[M]()
	note, err := ect.ParseNote(compact, typ, limit)
	if err != nil {
		return Message[M]{}, err
	}
	m, err := consensus.Read[M](note.Payload)
	return Message[M]{m, compact, note.Hash(), note}, err
}

// Parse reads a message as it is sent. It verifies nothing: [Message.Verify] does. Its errors are those of [Take], and
// *[consensus.InvalidError] for a message whose members are not those that were signed.
func Parse[M Content](text []byte) (Message[M], error) {
	outer, compact, err := split(text)
	if err != nil {
		return Message[M]{}, err
	}
	m, err := Take[M](compact)
	if err != nil {
		return m, err
	}
	sent, err := consensus.Read[M](outer)
	if err != nil {
		return m, err
	}
	a, errA := consensus.Encode(sent)
	b, errB := consensus.Encode(m.Content)
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		return m, &consensus.InvalidError{Message: "message", Reason: "says something else than what was signed"}
	}
	return m, nil
}

// split takes the signature out of a message.
func split(text []byte) (rest []byte, compact string, err error) {
	bad := &consensus.InvalidError{Message: "message", Reason: "is a JSON object with a member signature, a JWS in compact form"}
	var members map[string]json.RawMessage
	if json2.Unmarshal(text, &members) != nil || json.Unmarshal(members["signature"], &compact) != nil || compact == "" {
		return nil, "", bad // a name that stands twice is refused, too
	}
	delete(members, "signature")
	rest, err = json.Marshal(members)
	return rest, compact, err
}

// Issued is who has to have signed the message, and when that was, as it says.
func (m Message[M]) Issued() (ect.Identity, time.Time) { return consensus.Signer(m.Content) }

// Verify verifies that who the message says has signed it. Its errors are *[ect.InvalidError] and those of the key source.
func (m Message[M]) Verify(ctx context.Context, v Verifier) error {
	issuer, at := consensus.Signer(m.Content)
	return v.Authentic(ctx, m.note, issuer, at)
}

// MarshalJSON writes the message as it is sent.
func (m Message[M]) MarshalJSON() ([]byte, error) {
	text, err := consensus.Encode(m.Content)
	if err != nil {
		return nil, err
	}
	quoted, err := json.Marshal(m.Compact)
	if err != nil {
		return nil, err
	}
	return slices.Concat(text[:len(text)-1], []byte(`,"signature":`), quoted, []byte("}")), nil
}

// EquivocationError reports a second outcome of one round that says something else than the first.
type EquivocationError struct{ First, Second string } // signed

func (e *EquivocationError) Error() string {
	return "consensus: there are two outcomes of this round: keep both, and do nothing"
}

// Accept takes an outcome of a round, unless another one was taken before; empty: none was. It returns what is to be
// kept. Its error is an *[EquivocationError] (Split-Brain Prevention).
func Accept(before, now string) (string, error) {
	if before == "" || before == now {
		return now, nil
	}
	a, errA := Take[consensus.Outcome](before)
	b, errB := Take[consensus.Outcome](now)
	if err := errors.Join(errA, errB); err != nil {
		return before, err
	}
	if !bytes.Equal(a.note.Payload, b.note.Payload) {
		return before, &EquivocationError{before, now}
	}
	return before, nil
}
