package link

import (
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/mlkem"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/frame"
)

// The versions of SLIM, by their first number, whose messages are those of package
// dataplane: SLIM 1 has other field numbers, and there is no SLIM 4 yet.
const (
	oldestMajor = 2
	newestMajor = 3
	maxVersion  = 64 // bytes of a version's text
)

// versionError refuses a node with another version of SLIM, or without one.
type versionError struct {
	Numbers []uint64 // of its version; none: it named no version
}

func (e *versionError) Error() string {
	found := "the node names no version of SLIM that can be read"
	if len(e.Numbers) > 0 {
		found = "the node speaks SLIM " + strings.Trim(strings.ReplaceAll(fmt.Sprint(e.Numbers), " ", "."), "[]")
	}
	return fmt.Sprintf("slim link: %s, and %d or %d is expected here", found, oldestMajor, newestMajor)
}

// keyError refuses a node whose public key for the link is invalid.
type keyError struct{ Err error } // why, for logs; nil: its length

func (e *keyError) Error() string {
	return "slim link: the node's greeting has a link key that cannot be used"
}

// Unwrap gives the cause.
func (e *keyError) Unwrap() error { return e.Err }

var errGreeting = errors.New("slim link: the node answers another negotiation")

// spoken judges a node's version. Errors: *versionError.
func spoken(text string) error {
	numbers := versionOf(text)
	if len(numbers) == 0 || numbers[0] < oldestMajor || numbers[0] > newestMajor {
		return &versionError{Numbers: numbers}
	}
	return nil
}

// versionOf reads the three numbers of a semantic version; nil: it is none.
func versionOf(text string) []uint64 {
	if len(text) > maxVersion {
		return nil
	}
	if i := strings.IndexAny(text, "-+"); i >= 0 {
		text = text[:i]
	}
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return nil
	}
	numbers := make([]uint64, 0, len(parts))
	for _, part := range parts {
		n, err := strconv.ParseUint(part, 10, 64)
		if err != nil {
			return nil
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// Names under which the key of a link is made, from one secret or from two.
const (
	infoClassical = "SLIM-DP-inter-node-hmac-v1"
	infoHybrid    = "SLIM-DP-inter-node-hmac-v1-pq"
)

// offer is our half of a link's key: X25519, and ML-KEM-768 beside it for nodes
// that demand it. Nodes that know nothing of either leave them alone.
type offer struct {
	linkID  string
	private *ecdh.PrivateKey
	kem     *mlkem.DecapsulationKey768
}

func newOffer(linkID string) (*offer, error) {
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	kem, err := mlkem.GenerateKey768()
	if err != nil {
		return nil, err
	}
	return &offer{linkID: linkID, private: private, kem: kem}, nil
}

// greeting is our first message on the connection.
func (o *offer) greeting() *dataplane.Message {
	return frame.Greeting(o.linkID, o.private.PublicKey().Bytes(), o.kem.EncapsulationKey().Bytes())
}

// meet judges the node's greeting, and makes the link's key of both halves; nil:
// the node sent none. Errors: *versionError, *keyError, errGreeting.
func (o *offer) meet(reply *dataplane.LinkNegotiationPayload) (key []byte, err error) {
	if reply.GetLinkId() != o.linkID {
		return nil, errGreeting
	}
	if err := spoken(reply.GetSlimVersion()); err != nil {
		return nil, err
	}
	if len(reply.GetLinkEcdhPublicKey()) == 0 {
		return nil, nil
	}
	public, err := ecdh.X25519().NewPublicKey(reply.GetLinkEcdhPublicKey())
	if err != nil {
		return nil, &keyError{err}
	}
	secret, err := o.private.ECDH(public) // refuses points that make the secret known
	if err != nil {
		return nil, &keyError{err}
	}
	info := infoClassical
	if reply.LinkKemPayload != nil {
		shared, err := o.kem.Decapsulate(reply.GetLinkKemPayload())
		if err != nil {
			return nil, &keyError{err}
		}
		secret, info = append(secret, shared...), infoHybrid
	}
	return hkdf.Key(sha256.New, secret, []byte(o.linkID), info, sha256.Size)
}
