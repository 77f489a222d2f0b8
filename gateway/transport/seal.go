package transport

import (
	"errors"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/translators"
)

// ErrUnsealed refuses to send bytes that the receipt does not cover.
var ErrUnsealed = errors.New("transport: no receipt covers this message")

// Attested is a message whose token is on record. Only Attest makes one that can be sent
// or answered.
type Attested struct {
	wire    translators.Wire
	receipt ect.Receipt
}

// Attest binds a message to the receipt of its ECT. The receipt's out_hash must be the
// hash of its bytes, else it is [ErrUnsealed]. Package attest alone calls it.
func Attest(receipt ect.Receipt, wire translators.Wire) (Attested, error) {
	if receipt.ID() == "" || receipt.OutputHash() != ect.Hash(wire.HashInput()) {
		return Attested{}, ErrUnsealed
	}
	return Attested{wire, receipt}, nil
}

// Wire is the message.
func (a Attested) Wire() translators.Wire { return a.wire }

// Token is the message's token.
func (a Attested) Token() string { return a.receipt.Compact() }

// Seal makes the message one that a Dialer sends, with the tokens that travel along behind
// its own. [ErrUnsealed]: it is the zero Attested.
func (a Attested) Seal(ancestors ...string) (Sealed, error) {
	if a.receipt.ID() == "" {
		return Sealed{}, ErrUnsealed
	}
	return Sealed{wire: a.wire, evidence: append([]string{a.receipt.Compact()}, ancestors...), token: a.receipt.ID(), valid: true}, nil
}

// Carrying is the message with the tokens in its body too: the hash that its own token has
// is of the message without them (R5). [ErrUnsealed]: it says something else.
func (a Attested) Carrying(wire translators.Wire) (Attested, error) { return Attest(a.receipt, wire) }

// Sealed is a message whose translation is on record, with the tokens that
// travel along. Only [Attested.Seal] makes one that a Dialer sends.
type Sealed struct {
	wire     translators.Wire
	evidence []string
	token    ect.ID
	valid    bool
}

// Token returns the jti of the gateway's token. The receiver of the message may name it as
// the parent of its own token. It is empty for a zero Sealed.
func (s Sealed) Token() ect.ID { return s.token }

// Open gives a dialer what to send; ErrUnsealed for a zero Sealed.
func (s Sealed) Open() (translators.Wire, []string, error) {
	if !s.valid {
		return translators.Wire{}, nil, ErrUnsealed
	}
	return s.wire, s.evidence, nil
}
