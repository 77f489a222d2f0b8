package ect

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// Note is a signed message that is no ECT, such as a vote: a JWS in compact form with a type of its own, taken
// apart and not believed yet. Its payload names its issuer and time in words of its own.
type Note struct {
	Payload []byte // as it was signed

	compact string
	parsed  *parsed
}

// SignNote signs a message that is no ECT. Its typ keeps any verifier from taking it for one; kid and x5c are those
// of our ECTs. A result beyond limit bytes is [ErrUnsignable].
func (s *Signer) SignNote(typ string, payload []byte, limit int) (string, error) {
	own := s.own.Load()
	return sign(own, encodeHeader(own.alg, typ, own.kid, own.chain), payload, limit)
}

// ParseNote takes a note of at most limit bytes apart. Its errors are *[MalformedError], and *[InvalidError] for
// another typ.
func ParseNote(compact, typ string, limit int) (Note, error) {
	if err := checkShape(compact, limit); err != nil {
		return Note{}, err
	}
	parts := strings.Split(compact, ".")
	if len(parts) != 3 {
		return Note{}, &MalformedError{Reason: "not the three parts of a signed message"}
	}
	p := &parsed{compact: compact, data: []byte(compact), level: L2}
	p.signed = p.data[:len(parts[0])+1+len(parts[1])]
	err := p.openHeader(&jose.Scanner{}, nil, parts[0])
	var payload []byte
	if err == nil {
		payload, err = jose.Decode(parts[1], "payload")
	}
	if err == nil {
		p.signature, err = jose.Decode(parts[2], "signature")
	}
	switch {
	case err != nil:
		return Note{}, malformed(err)
	case jose.MediaType(p.header.Type) != typ:
		return Note{}, &InvalidError{Reason: ReasonWrongType, Claim: "typ"}
	case p.critical:
		return Note{}, &InvalidError{Reason: ReasonUnsupportedCritical, Claim: "crit"}
	}
	return Note{Payload: payload, compact: compact, parsed: p}, nil
}

// Compact is the note as it came.
func (n Note) Compact() string { return n.compact }

// Hash names the note: the hash of its compact form.
func (n Note) Hash() string { return Hash([]byte(n.compact)) }

// Authentic verifies that an issuer signed a note at a time, with a key that was its own then. Its errors are
// *[InvalidError]; any other is trouble of the key source.
func (v *Verifier) Authentic(ctx context.Context, n Note, issuer Identity, at time.Time) error {
	if n.parsed == nil {
		return ErrNoToken
	}
	p := *n.parsed
	p.claims = Claims{Issuer: issuer, IssuedAt: at.Unix()}
	if !slices.Contains(v.algorithms, p.header.Algorithm) {
		return p.invalid(ReasonUnsupportedAlg, "alg")
	}
	owner, err := v.resolve(ctx, &p, Peer{})
	if err != nil {
		return err
	}
	switch {
	case !jose.Fits(p.header.Algorithm, owner.Key):
		return p.invalid(ReasonUnsupportedAlg, "alg")
	case !jose.Verify(p.header.Algorithm, owner.Key, p.signed, p.signature):
		return p.invalid(ReasonInvalidSignature, "")
	case owner.ID == "" || owner.ID != issuer:
		return p.invalid(ReasonIssuerMismatch, "")
	}
	return nil
}
