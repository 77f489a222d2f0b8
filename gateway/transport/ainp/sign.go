package ainp

import (
	"crypto/ed25519"
	"encoding/base64"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
)

// Identity is who we are in AINP.
type Identity struct {
	DID string
	Key ed25519.PrivateKey
}

func (i Identity) complete() bool { return i.DID != "" && len(i.Key) == ed25519.PrivateKeySize }

// finish puts evidence, newest first, and then the signature into a message: what
// is hashed does not cover the evidence, what is signed does.
func (i Identity) finish(e ainp.Envelope, wire translators.Wire, evidence []string, profile ainp.SigProfile) ([]byte, error) {
	if len(evidence) == 0 {
		text, err := e.Text()
		if err != nil {
			return nil, err
		}
		return e.WithSignature(i.sign(text, profile)), nil
	}
	text, err := hashed(e, wire)
	if err == nil {
		text, err = text.WithEvidence(evidence)
	}
	if err != nil {
		return nil, err
	}
	sig := i.sign(text, profile)
	if e.Exact() {
		return text.WithSignature(sig), nil
	}
	return e.WithEvidence(evidence, sig)
}

func (i Identity) sign(text ainp.Text, profile ainp.SigProfile) string {
	return base64.StdEncoding.EncodeToString(ed25519.Sign(i.Key, text.SigningInput(profile)))
}

// hashed returns the text of a message as it is hashed. A Hasher that has read the message
// keeps that text, so it is not made again.
func hashed(e ainp.Envelope, wire translators.Wire) (ainp.Text, error) {
	if wire.Hasher == nil {
		return e.Text()
	}
	text, err := wire.Hasher.HashInput(wire.Body)
	return text, err
}
