package identity

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync/atomic"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// Bounds of a JWK set. An EC key takes about 250 bytes.
const (
	maxKeySet = 256 << 10
	maxKeys   = 128
)

// Why key sets are refused.
var (
	errKeySetSize = fmt.Errorf("identity: a key set has at most %d bytes and %d keys", maxKeySet, maxKeys)
	errKeySet     = errors.New("identity: a key set has at least one key that can verify signatures")
	errIssuer     = errors.New("identity: a key set belongs to an issuer with a name")
)

// KeySet holds an issuer's public keys, for the signatures of tokens. It never
// changes.
type KeySet struct{ keys []jose.Key }

// ParseKeySet reads a JWK set (RFC 7517). Keys of kinds or for uses other than
// verifying signatures are passed over; a private or broken one spoils the set.
func ParseKeySet(document []byte) (*KeySet, error) {
	if len(document) > maxKeySet {
		return nil, errKeySetSize
	}
	keys, err := jose.ParseSet(document, maxKeys)
	if err != nil {
		return nil, fmt.Errorf("identity: key set: %w", err)
	}
	keys = slices.DeleteFunc(keys, func(key jose.Key) bool { return !forTokens(key.Use) })
	if len(keys) == 0 {
		return nil, errKeySet
	}
	return &KeySet{keys: keys}, nil
}

// forTokens knows what issuers call the keys that sign tokens; wit-svid is
// SPIFFE's word in a bundle for those that sign workload identity tokens.
func forTokens(use string) bool { return use == "" || use == "sig" || use == "wit-svid" }

// LoadKeySet reads a JWK set from a file.
func LoadKeySet(file string) (*KeySet, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	document, err := io.ReadAll(io.LimitReader(f, maxKeySet+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	keys, err := ParseKeySet(document)
	if err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, file)
	}
	return keys, nil
}

// add takes in a jwt-svid key of a SPIFFE bundle. One without a kid is of no
// use, since a JWT-SVID names its key (SPIFFE JWT-SVID, section 2.2).
func (k *KeySet) add(raw json.RawMessage) error {
	key, err := jose.ParseKey(&jose.Scanner{}, raw)
	switch {
	case errors.Is(err, jose.ErrForeignKey):
		return nil
	case err != nil:
		return fmt.Errorf("identity: bundle document: %w", err)
	case len(k.keys) == maxKeys:
		return errKeySetSize
	case key.ID != "":
		k.keys = append(k.keys, key)
	}
	return nil
}

// Find gives the one key that a token can mean: of the algorithm, and by the
// name it gives, its kid or else its RFC 7638 thumbprint. A token that gives no
// name can mean a key only if there is no other. False also where two fit.
func (k *KeySet) Find(alg, kid string) (crypto.PublicKey, bool) {
	for _, named := range [...]func(jose.Key) bool{
		func(key jose.Key) bool { return kid == "" || key.ID == kid },
		func(key jose.Key) bool { return key.Thumbprint == kid },
	} {
		var found []crypto.PublicKey
		for _, key := range k.keys {
			if named(key) && key.Fits(alg) {
				found = append(found, key.Public)
			}
		}
		if len(found) > 0 {
			return found[0], len(found) == 1
		}
	}
	return nil, false
}

var _ ect.KeySource = (*JWKSource)(nil)

// JWKSource finds the key of an ECT's issuer in the JWK set that the operator
// has configured for that issuer (ECT draft -01, the JWK-set profile of identity
// binding). A set is good for its issuer only, and nothing is ever fetched.
// Safe for concurrent use.
type JWKSource struct {
	sets atomic.Pointer[map[ect.Identity]*KeySet]
}

// NewJWKSource makes a source of one key set for each issuer.
func NewJWKSource(sets map[ect.Identity]*KeySet) (*JWKSource, error) {
	s := &JWKSource{}
	return s, s.Replace(sets)
}

// Replace puts other key sets in place of all that were there, from the next
// token on: this is how keys are rotated and withdrawn.
func (s *JWKSource) Replace(sets map[ect.Identity]*KeySet) error {
	for issuer, set := range sets {
		if issuer == "" || set == nil {
			return errIssuer
		}
	}
	own := maps.Clone(sets)
	s.sets.Store(&own)
	return nil
}

// Resolve gives the issuer's key. It fails with *ect.InvalidError,
// ReasonUnknownKey.
func (s *JWKSource) Resolve(_ context.Context, request ect.KeyRequest) (ect.Peer, error) {
	if set, ok := (*s.sets.Load())[request.Issuer]; ok {
		if key, ok := set.Find(request.Header.Algorithm, request.Header.KeyID); ok {
			return ect.Peer{ID: request.Issuer, Key: key, KeyID: request.Header.KeyID}, nil
		}
	}
	return ect.Peer{}, &ect.InvalidError{Reason: ect.ReasonUnknownKey, Claim: "kid"}
}

var _ ect.KeySource = KeySources(nil)

// KeySources asks one source after the other until one knows the key. One that
// finds a key and does not trust it has the last word, so sources that the
// operator filled by hand come first.
type KeySources []ect.KeySource

// Resolve gives the first key found; without any, *ect.InvalidError with
// ReasonUnknownKey.
func (k KeySources) Resolve(ctx context.Context, request ect.KeyRequest) (ect.Peer, error) {
	for _, source := range k {
		peer, err := source.Resolve(ctx, request)
		invalid, ok := errors.AsType[*ect.InvalidError](err)
		if !ok || invalid.Reason != ect.ReasonUnknownKey {
			return peer, err
		}
	}
	return ect.Peer{}, &ect.InvalidError{Reason: ect.ReasonUnknownKey, Claim: "kid"}
}
