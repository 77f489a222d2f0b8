package ainp

import (
	"crypto/ed25519"
	"encoding/base64"

	"github.com/aepb/aepb-gateway/translators/ainp"
)

// Identity is who we are in AINP.
type Identity struct {
	DID string
	Key ed25519.PrivateKey
}

func (i Identity) complete() bool { return i.DID != "" && len(i.Key) == ed25519.PrivateKeySize }

// finish puts evidence and then the signature into an envelope: what is hashed
// does not cover the evidence, what is signed does.
func (i Identity) finish(e ainp.Envelope, evidence []string, profile ainp.SigProfile) ([]byte, error) {
	text, err := e.Text()
	if err != nil {
		return nil, err
	}
	if len(evidence) > 0 {
		if e, err = e.WithEvidence(evidence); err != nil {
			return nil, err
		}
		if text, err = text.WithEvidence(evidence); err != nil {
			return nil, err
		}
	}
	return e.WithSignature(base64.StdEncoding.EncodeToString(ed25519.Sign(i.Key, text.SigningInput(profile)))), nil
}
