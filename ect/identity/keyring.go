package identity

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"errors"

	"github.com/aepb/aepb-gateway/ect"
)

// defaultKnown is how many judged chains a KeyRing remembers.
const defaultKnown = 1024

// errNoBundle: a key ring without anchors could verify no chain.
var errNoBundle = errors.New("identity: key ring without a bundle, expected one")

var _ ect.KeySource = (*KeyRing)(nil)

// KeyRing finds the key of an ECT's issuer, in this order:
//
//  1. the transport peer's own key, if the peer is the issuer and the kid names
//     that key (or there is neither kid nor chain);
//  2. the leaf of the x5c chain, verified against the bundle as of iat (R4);
//     a kid, if present, must name the leaf's key.
//
// A kid names a key by its RFC 7638 thumbprint, or as the peer's own credential
// calls it (the cnf.jwk.kid of a workload identity token). The chain, and so the id that
// is bound to the key, is trusted only if the bundle says so; a URL in a token
// is never followed. Safe for concurrent use.
type KeyRing struct {
	bundle *Bundle
	known  *chainCache
	prints *printCache
}

// KeyRingDeps is what a KeyRing needs.
type KeyRingDeps struct {
	Bundle *Bundle // required
	Known  int     // judged chains to remember; 0: 1024
}

// NewKeyRing makes a KeyRing.
func NewKeyRing(deps KeyRingDeps) (*KeyRing, error) {
	if deps.Bundle == nil {
		return nil, errNoBundle
	}
	if deps.Known <= 0 {
		deps.Known = defaultKnown
	}
	return &KeyRing{bundle: deps.Bundle, known: newChainCache(deps.Known), prints: &printCache{limit: deps.Known}}, nil
}

// Resolve gives the key for a token and the identity bound to it. It fails with
// *ect.InvalidError: ReasonUnknownKey if the token names no key that can be
// found, ReasonKeyNotTrusted if its chain does not hold.
func (k *KeyRing) Resolve(_ context.Context, request ect.KeyRequest) (ect.Peer, error) {
	if k.ownKey(request) {
		return request.Peer, nil
	}
	if len(request.Header.Chain) == 0 {
		return ect.Peer{}, &ect.InvalidError{Reason: ect.ReasonUnknownKey, Claim: "kid"}
	}
	found, ok := k.judge(request)
	if !ok {
		return ect.Peer{}, &ect.InvalidError{Reason: ect.ReasonKeyNotTrusted, Claim: "x5c"}
	}
	if kid := request.Header.KeyID; kid != "" && kid != found.thumbprint {
		return ect.Peer{}, &ect.InvalidError{Reason: ect.ReasonUnknownKey, Claim: "kid"}
	}
	return found.peer, nil
}

// ownKey says that the peer that presented the token is its issuer and signed
// it with the key of its own connection. A token with a chain and no kid is
// judged by the chain.
func (k *KeyRing) ownKey(request ect.KeyRequest) bool {
	peer, header := request.Peer, request.Header
	if peer.Key == nil || peer.ID == "" || peer.ID != request.Issuer {
		return false
	}
	if header.KeyID == "" {
		return len(header.Chain) == 0
	}
	return header.KeyID == peer.KeyID || header.KeyID == k.prints.get(peer.Key)
}

// judge verifies a chain, or remembers that it did. A remembered chain counts
// only within its validity and while the anchors are the same; then the answer
// is what verification would give again.
func (k *KeyRing) judge(request ect.KeyRequest) (judged, bool) {
	name, ok := chainName(request.Header.Chain)
	if !ok || request.At.IsZero() {
		return judged{}, false
	}
	anchors := k.bundle.changes.Load() // before verifying: a change meanwhile makes the result stale
	if found, ok := k.known.get(name); ok && found.anchors == anchors && found.covers(request.At) {
		return found, true
	}
	chain, err := parseChain(request.Header.Chain)
	if err != nil {
		return judged{}, false
	}
	id, path, err := k.bundle.verify(chain, request.At)
	if err != nil {
		return judged{}, false
	}
	found := newJudged(ect.Identity(id.String()), path, anchors)
	k.known.put(name, found)
	return found, true
}

// chainName identifies a chain by the hash of all of it: named by its leaf
// alone, what a chain is worth would depend on what was asked before. It is
// false for a chain beyond the bounds, which is not parsed.
func chainName(chain [][]byte) ([sha256.Size]byte, bool) {
	if len(chain) > maxChain {
		return [sha256.Size]byte{}, false
	}
	hash := sha256.New()
	for _, der := range chain {
		if len(der) > maxCertificate {
			return [sha256.Size]byte{}, false
		}
		hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(der))))
		hash.Write(der)
	}
	return [sha256.Size]byte(hash.Sum(nil)), true
}

func parseChain(chain [][]byte) ([]*x509.Certificate, error) {
	parsed := make([]*x509.Certificate, len(chain))
	for i, der := range chain {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		parsed[i] = cert
	}
	return parsed, nil
}

// thumbprint is empty for a key that cannot sign ECTs; no kid is empty where
// this is compared.
func thumbprint(key crypto.PublicKey) string {
	kid, err := ect.Thumbprint(key)
	if err != nil {
		return ""
	}
	return kid
}
