package transport

import (
	"errors"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/translators"
)

// ErrUnsealed: the receipt does not cover the bytes that were to be sent.
var ErrUnsealed = errors.New("transport: no receipt covers this message")

// Sealed is a message whose translation is on record, with the tokens that
// travel along. Only Seal makes one that a Dialer sends.
type Sealed struct {
	wire     translators.Wire
	evidence []string
	token    ect.ID
	valid    bool
}

// Seal binds a message to the receipt of its ECT. The receipt's out_hash must
// be the hash of its octets. ancestors travel along behind our own token.
func Seal(receipt ect.Receipt, wire translators.Wire, ancestors ...string) (Sealed, error) {
	if receipt.ID() == "" || receipt.OutputHash() != ect.Hash(wire.Octets()) {
		return Sealed{}, ErrUnsealed
	}
	evidence := append([]string{receipt.Compact()}, ancestors...)
	return Sealed{wire: wire, evidence: evidence, token: receipt.ID(), valid: true}, nil
}

// Token is the jti of our token, which whoever hears the message may name as its
// parent; empty for a zero Sealed.
func (s Sealed) Token() ect.ID { return s.token }

// Open gives a dialer what to send; ErrUnsealed for a zero Sealed.
func (s Sealed) Open() (translators.Wire, []string, error) {
	if !s.valid {
		return translators.Wire{}, nil, ErrUnsealed
	}
	return s.wire, s.evidence, nil
}
