package ect

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"
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

// Peer is an identity and the key that proves it. The zero Peer is nobody.
type Peer struct {
	ID  Identity
	Key crypto.PublicKey
}

// KeyRequest asks for the key of a token whose signature is not yet judged:
// everything in it is a claim, good for finding a key and for nothing else.
type KeyRequest struct {
	Header Header
	Issuer Identity
	At     time.Time // iat: a chain is judged as of this instant
	Peer   Peer      // the authenticated transport peer that presented the token
}

// KeySource finds the key for a token and the identity that is bound to it.
// It fails with *InvalidError: ReasonUnknownKey if it knows none,
// ReasonKeyNotTrusted if the one it found is not to be trusted. Any other error
// is trouble of its own and no judgement of the token.
type KeySource interface {
	Resolve(context.Context, KeyRequest) (Peer, error)
}

var errNotP256 = errors.New("ect: not an ECDSA P-256 key")

// Thumbprint is the JWK thumbprint (RFC 7638, SHA-256) of a P-256 key: the kid
// of our tokens.
func Thumbprint(key crypto.PublicKey) (string, error) {
	public, err := p256(key)
	if err != nil {
		return "", err
	}
	point, err := public.Bytes() // 0x04 || X || Y
	if err != nil {
		return "", fmt.Errorf("ect: public key: %w", err)
	}
	half := 1 + len(point)/2
	x, y := point[1:half], point[half:]
	return Hash([]byte(`{"crv":"P-256","kty":"EC","x":"` + base64.RawURLEncoding.EncodeToString(x) +
		`","y":"` + base64.RawURLEncoding.EncodeToString(y) + `"}`)), nil
}

// p256 narrows a key to what ES256 demands. The signature library checks the
// type of the key but not its curve.
func p256(key crypto.PublicKey) (*ecdsa.PublicKey, error) {
	public, ok := key.(*ecdsa.PublicKey)
	if !ok || public == nil || public.Curve != elliptic.P256() {
		return nil, errNotP256
	}
	return public, nil
}
