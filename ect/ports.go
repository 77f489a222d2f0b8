package ect

import (
	"context"
	"crypto"
	"errors"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// Header is the JOSE header of a token, as far as it matters here.
type Header struct {
	Type      string   // typ, as written
	Algorithm string   // alg; empty for an unsigned token
	KeyID     string   // kid; empty: absent
	Chain     [][]byte // x5c as DER, leaf first; nil: absent
}

func (h Header) clone() Header {
	h.Chain = slices.Clone(h.Chain)
	for i := range h.Chain {
		h.Chain[i] = slices.Clone(h.Chain[i])
	}
	return h
}

// Peer is an identity and the key that proves it. The zero Peer has no identity.
type Peer struct {
	ID    Identity
	Key   crypto.PublicKey // nil: proved by something other than a key (a bearer token)
	KeyID string           // what the peer's credential calls the key; empty: nothing, its thumbprint names it
}

// KeyRequest asks for the key of a token whose signature is not yet verified: its
// values are unproven, and may only be used to find a key.
type KeyRequest struct {
	Header Header
	Issuer Identity
	At     time.Time // iat: a chain is judged as of this instant
	Peer   Peer      // the authenticated transport peer that presented the token
}

// KeySource finds the key for a token and the identity that is bound to it.
// It fails with *InvalidError: ReasonUnknownKey if it knows none,
// ReasonKeyNotTrusted if it does not trust the one that it found. Any other error
// is a failure of the source and no judgement of the token.
type KeySource interface {
	Resolve(context.Context, KeyRequest) (Peer, error)
}

var errKeyType = errors.New("ect: neither an ECDSA P-256 nor an Ed25519 key")

// Thumbprint is the JWK thumbprint (RFC 7638, SHA-256) of a P-256 or Ed25519
// key: the kid of our tokens.
func Thumbprint(key crypto.PublicKey) (string, error) {
	thumbprint, err := jose.Thumbprint(key)
	if err != nil {
		return "", errKeyType
	}
	return thumbprint, nil
}

// ReplayKey names one use of a token: the issuer's jti in its workflow.
type ReplayKey struct {
	Issuer   Identity
	Workflow string
	ID       ID
}

// ReplayUse is what a token was used for.
type ReplayUse struct {
	Token  string    // Hash of the compact token
	Body   string    // Hash of the message body; empty: none
	Issued time.Time // iat: lets a cache refuse what is older than itself
	Until  time.Time // after this instant the token is refused anyway
	Holder Identity  // in whose share of the memory it counts; empty: the issuer's
}

// ReplayState is what the cache knew before a claim.
type ReplayState int

// The answers of a ReplayCache.
const (
	// ReplayFresh: never seen; the key is claimed now.
	ReplayFresh ReplayState = iota
	// ReplaySame: the same token with the same body.
	ReplaySame
	// ReplayConflict: the key was used by another token or with another body.
	ReplayConflict
	// ReplayUnknown: the token was issued before the cache began, so its uses are not known.
	ReplayUnknown
)

// ReplayCache remembers uses until they run out. Claim looks and writes in one
// atomic step: of many callers with one key, exactly one is told ReplayFresh.
type ReplayCache interface {
	Claim(ctx context.Context, key ReplayKey, use ReplayUse) (ReplayState, error)
}
