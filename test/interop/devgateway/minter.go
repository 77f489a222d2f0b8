package devgateway

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
)

// Minter signs ECTs in one name, as a rule the development client's.
type Minter struct {
	issuer, audience, kid string
	key                   *ecdsa.PrivateKey
	chain                 []string
}

// Claims are those of an ECT. Sign fills in what is empty: issuer, audience, jti,
// time of issue, an end of a day later, and the act send_task.
type Claims struct {
	jwt.RegisteredClaims
	Workflow   string         `json:"wid,omitempty"`
	Act        string         `json:"exec_act"`
	Parents    []string       `json:"par"`
	OutputHash string         `json:"out_hash,omitempty"`
	Ext        map[string]any `json:"ext,omitempty"`
}

// NewMinter signs as the development client of this trust domain, for its gateway.
func (t *Trust) NewMinter() (*Minter, error) { return NewMinterOf(t.client, t.GatewayID()) }

// NewMinterOf signs with an SVID's P-256 key, for the gateway of this SPIFFE id.
func NewMinterOf(svid tls.Certificate, gateway string) (*Minter, error) {
	key, ok := svid.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || svid.Leaf == nil || len(svid.Leaf.URIs) != 1 {
		return nil, fmt.Errorf("%w: the minter's SVID is not one", ErrPEM)
	}
	kid, err := Thumbprint(&key.PublicKey)
	m := &Minter{issuer: svid.Leaf.URIs[0].String(), audience: gateway, kid: kid, key: key}
	for _, der := range svid.Certificate {
		m.chain = append(m.chain, base64.StdEncoding.EncodeToString(der))
	}
	return m, err
}

// HashOf is the hash of a body as ECTs have it.
func HashOf(body string) string {
	sum := sha256.Sum256([]byte(body))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Mint signs an ECT for a body that begins a step of a workflow.
func (m *Minter) Mint(body, workflow string, lifetime time.Duration) (string, error) {
	return m.Sign(Claims{
		RegisteredClaims: jwt.RegisteredClaims{ExpiresAt: jwt.NewNumericDate(time.Now().Add(lifetime))},
		Workflow:         workflow, OutputHash: HashOf(body),
	})
}

// Sign signs an ECT with these claims.
func (m *Minter) Sign(c Claims) (string, error) {
	now := time.Now()
	c.Issuer = cmp.Or(c.Issuer, m.issuer)
	c.ID = cmp.Or(c.ID, uuid.NewString())
	c.Act = cmp.Or(c.Act, "send_task")
	if c.Audience == nil {
		c.Audience = jwt.ClaimStrings{m.audience}
	}
	if c.IssuedAt == nil {
		c.IssuedAt = jwt.NewNumericDate(now)
	}
	if c.ExpiresAt == nil {
		c.ExpiresAt = jwt.NewNumericDate(now.Add(lifetime))
	}
	if c.Parents == nil {
		c.Parents = []string{}
	}
	token := jwt.NewWithClaims(jwt.SigningMethodES256, c)
	token.Header["typ"], token.Header["kid"], token.Header["x5c"] = "exec+jwt", m.kid, m.chain
	return token.SignedString(m.key)
}
