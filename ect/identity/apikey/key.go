package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
)

// Prefix begins the text of each key.
const Prefix = "aepb_"

// Sizes of a key.
const (
	maxID       = 32   // characters
	maxCaller   = 2048 // bytes (SPIFFE-ID section 2.3)
	saltBytes   = 16
	secretBytes = 32
	randomID    = 6 // bytes
)

const (
	secretText = (secretBytes*8 + 5) / 6                     // characters of the secret
	maxText    = len(Prefix) + maxID + len("_") + secretText // bytes of the text of a key
)

// encoding has one spelling for each value: without padding, and strict about the bits at the end.
func encoding() *base64.Encoding { return base64.RawURLEncoding.Strict() }

// Key is what is known of a key: whose it is, and what verifies it.
type Key struct {
	ID             string
	Caller         ect.Identity
	Created, Until time.Time // whole seconds

	salt [saltBytes]byte
	hash [sha256.Size]byte
}

// Ended reports whether the key is not taken any more.
func (k Key) Ended(now time.Time) bool { return !now.Before(k.Until) }

// KeyError is a value that a key cannot have.
type KeyError struct{ Member, Reason string } // Reason never quotes a secret or its hash

func (e *KeyError) Error() string { return "apikey: " + e.Member + ": " + e.Reason }

// New makes a key of a caller from now on until an instant, and its text, which is known here alone. An empty id is a
// random one. Its error is *KeyError.
func New(id string, caller ect.Identity, now, until time.Time) (Key, string, error) {
	if id == "" {
		var some [randomID]byte
		rand.Read(some[:])
		id = hex.EncodeToString(some[:])
	}
	k := Key{ID: id, Caller: caller, Created: now.UTC().Truncate(time.Second), Until: until.UTC().Truncate(time.Second)}
	if err := k.check(""); err != nil {
		return Key{}, "", err
	}
	var secret [secretBytes]byte
	rand.Read(secret[:])
	rand.Read(k.salt[:])
	k.hash = hashOf(k.salt, secret)
	return k, Prefix + id + "_" + encoding().EncodeToString(secret[:]), nil
}

// check judges what a key says. An empty trust domain is any.
func (k Key) check(domain string) error {
	if !isID(k.ID) {
		return &KeyError{"id", fmt.Sprintf("expected 1 to %d of a-z 0-9 -", maxID)}
	}
	caller, err := spiffeid.FromString(string(k.Caller))
	switch {
	case err != nil || caller.Path() == "" || len(k.Caller) > maxCaller:
		return &KeyError{"caller", "expected the SPIFFE ID of a workload, such as spiffe://example.com/client"}
	case domain != "" && caller.TrustDomain().Name() != domain:
		return &KeyError{"caller", "is not of our own trust domain, " + domain}
	case k.Caller == identity.Anonymous(caller.TrustDomain().Name()).ID:
		return &KeyError{"caller", "is the id of callers without credentials"}
	case !k.Created.Before(k.Until):
		return &KeyError{"until", "expected a time after created"}
	}
	return nil
}

func isID(id string) bool {
	foreign := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }
	return id != "" && len(id) <= maxID && !strings.ContainsFunc(id, foreign)
}

func hashOf(salt [saltBytes]byte, secret [secretBytes]byte) [sha256.Size]byte {
	return sha256.Sum256(append(salt[:], secret[:]...))
}

// read takes the text of a key apart. fault says what is wrong with it; empty: nothing.
func read(text string) (id string, secret [secretBytes]byte, fault identity.CredentialReason) {
	if len(text) > maxText {
		return "", secret, identity.CredentialTooLong
	}
	rest, ours := strings.CutPrefix(text, Prefix)
	id, encoded, two := strings.Cut(rest, "_") // an id has no _, and the secret may
	if !ours || !two || !isID(id) {
		return "", secret, identity.CredentialMalformed
	}
	// Decode passes over line breaks, which the length then gives away.
	if decoded, err := encoding().DecodeString(encoded); err != nil || copy(secret[:], decoded) != secretBytes || len(encoded) != secretText {
		return "", secret, identity.CredentialInvalidEncoding
	}
	return id, secret, ""
}
