package devgateway

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
)

// Minter signs ECTs as the development client.
type Minter struct {
	issuer, audience, kid string
	key                   *ecdsa.PrivateKey
	chain                 []string
}

type claims struct {
	jwt.RegisteredClaims
	Workflow   string   `json:"wid"`
	Act        string   `json:"exec_act"`
	Parents    []string `json:"par"`
	OutputHash string   `json:"out_hash"`
}

// NewMinter signs as the development client of this trust domain, for its gateway.
func (t *Trust) NewMinter() (*Minter, error) {
	key, ok := t.client.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || len(t.client.Leaf.URIs) != 1 {
		return nil, fmt.Errorf("%w: the client's SVID is not one", ErrPEM)
	}
	kid, err := Thumbprint(&key.PublicKey)
	m := &Minter{issuer: t.client.Leaf.URIs[0].String(), audience: t.GatewayID(), kid: kid, key: key}
	for _, der := range t.client.Certificate {
		m.chain = append(m.chain, base64.StdEncoding.EncodeToString(der))
	}
	return m, err
}

// Mint signs an ECT for a body that begins a step of a workflow.
func (m *Minter) Mint(body, workflow string, lifetime time.Duration) (string, error) {
	now, sum := time.Now(), sha256.Sum256([]byte(body))
	token := jwt.NewWithClaims(jwt.SigningMethodES256, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: m.issuer, ID: uuid.NewString(), Audience: jwt.ClaimStrings{m.audience},
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(lifetime)),
		},
		Workflow: workflow, Act: "send_task", Parents: []string{}, OutputHash: base64.RawURLEncoding.EncodeToString(sum[:]),
	})
	token.Header["typ"], token.Header["kid"], token.Header["x5c"] = "exec+jwt", m.kid, m.chain
	return token.SignedString(m.key)
}
