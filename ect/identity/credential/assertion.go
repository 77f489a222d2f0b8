package credential

import (
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// AssertionLife is exp minus iat of a client assertion.
const AssertionLife = time.Minute

// AssertionDeps is what a client assertion is made of.
type AssertionDeps struct {
	Key      crypto.Signer       // required: an *ecdsa.PrivateKey on P-256 (ES256) or an ed25519.PrivateKey (EdDSA)
	Chain    []*x509.Certificate // of the key, shown as x5c; nil: the key's RFC 7638 thumbprint alone names it
	Client   string              // iss and sub: the client_id; required
	Audience string              // aud: of the authorization server; required
	ID       string              // jti; required
	Now      time.Time
}

// Assertion makes the JWT with which a client authenticates at a token endpoint (RFC 7523, sections 2.2 and 3).
func Assertion(d AssertionDeps) (string, error) {
	alg, err := jose.CheckSigner(d.Key)
	if err != nil {
		return "", errors.New("credential: assertions are signed with ECDSA on P-256, or Ed25519")
	}
	if d.Client == "" || d.Audience == "" || d.ID == "" {
		return "", errors.New("credential: no client, audience or id for an assertion: set all three")
	}
	kid, err := jose.Thumbprint(d.Key.Public())
	if err != nil {
		return "", err
	}
	h := jose.Quote([]byte(`{"alg":`), alg)
	h = jose.Quote(append(h, `,"typ":"JWT","kid":`...), kid)
	if len(d.Chain) > 0 {
		chain := make([]string, len(d.Chain))
		for i, certificate := range d.Chain {
			chain[i] = base64.StdEncoding.EncodeToString(certificate.Raw)
		}
		h = jose.QuoteAll(append(h, `,"x5c":`...), chain)
	}
	c := jose.Quote([]byte(`{"iss":`), d.Client)
	c = jose.Quote(append(c, `,"sub":`...), d.Client)
	c = jose.Quote(append(c, `,"aud":`...), d.Audience)
	c = jose.Quote(append(c, `,"jti":`...), d.ID)
	c = strconv.AppendInt(append(c, `,"iat":`...), d.Now.Unix(), 10)
	c = strconv.AppendInt(append(c, `,"exp":`...), d.Now.Add(AssertionLife).Unix(), 10)
	signed := base64.RawURLEncoding.EncodeToString(append(h, '}')) + "." + base64.RawURLEncoding.EncodeToString(append(c, '}'))
	signature, err := jose.Sign(alg, d.Key, []byte(signed))
	if err != nil {
		return "", err
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}
