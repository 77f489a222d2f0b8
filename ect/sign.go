package ect

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// DefaultLifetime is exp minus iat of our tokens.
const DefaultLifetime = 600 * time.Second

// SignerDeps is what a Signer needs.
type SignerDeps struct {
	Key          crypto.Signer       // required: an *ecdsa.PrivateKey on P-256
	Chain        []*x509.Certificate // sent as x5c, leaf first; empty: no x5c
	Issuer       Identity            // required; if it is a SPIFFE id the leaf must carry it
	AgentVersion string              // put into every token as aepb.agent_version; empty: not
	Lifetime     time.Duration       // whole seconds; 0: DefaultLifetime
	MaxToken     int                 // octets; 0: the default of Limits.Token
	Now          func() time.Time    // nil: time.Now
	NewID        func() ID           // nil: NewID
}

// Signer makes the tokens of one identity, in the dialect of the AEPB draft:
// typ exec+jwt, parents in par, extension in ext, ES256.
type Signer struct {
	key      *ecdsa.PrivateKey
	issuer   Identity
	version  string
	header   string // the encoded header and its dot: the same for every token
	lifetime int64
	maxToken int
	now      func() time.Time
	newID    func() ID
}

// NewSigner checks that key, chain and issuer belong together.
func NewSigner(d SignerDeps) (*Signer, error) {
	key, ok := d.Key.(*ecdsa.PrivateKey)
	if !ok || key == nil {
		return nil, errNotP256
	}
	kid, err := Thumbprint(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	if d.Issuer == "" {
		return nil, errors.New("ect: a signer needs an issuer")
	}
	if err := checkLeaf(key, d.Chain, d.Issuer); err != nil {
		return nil, err
	}
	s := &Signer{
		key: key, issuer: d.Issuer, version: d.AgentVersion, header: encodeHeader(kid, d.Chain),
		lifetime: int64(orDefault(d.Lifetime, DefaultLifetime) / time.Second),
		maxToken: orDefault(d.MaxToken, defaultToken), now: d.Now, newID: d.NewID,
	}
	if s.lifetime < 1 {
		return nil, errors.New("ect: a lifetime is a second or more")
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.newID == nil {
		s.newID = NewID
	}
	return s, nil
}

// checkLeaf finds a mixed-up configuration at start rather than at the first peer.
func checkLeaf(key *ecdsa.PrivateKey, chain []*x509.Certificate, issuer Identity) error {
	if len(chain) == 0 {
		return nil
	}
	leaf := chain[0]
	if !key.PublicKey.Equal(leaf.PublicKey) {
		return errors.New("ect: the leaf certificate is not of the signing key")
	}
	if !strings.HasPrefix(string(issuer), "spiffe://") {
		return nil
	}
	for _, uri := range leaf.URIs {
		if uri.String() == string(issuer) {
			return nil
		}
	}
	return errors.New("ect: the leaf certificate does not carry the issuer")
}

func encodeHeader(kid string, chain []*x509.Certificate) string {
	h := append(make([]byte, 0, 256), `{"alg":"ES256","typ":"exec+jwt","kid":`...)
	h = quote(h, kid)
	if len(chain) > 0 {
		certs := make([]string, len(chain))
		for i, c := range chain {
			certs[i] = base64.StdEncoding.EncodeToString(c.Raw)
		}
		h = quoteAll(append(h, `,"x5c":`...), certs)
	}
	return base64.RawURLEncoding.EncodeToString(append(h, '}')) + "."
}

// Issuer is the identity that this signer signs as.
func (s *Signer) Issuer() Identity { return s.issuer }

// Sign makes a token. It fills iss, iat, exp and jti where they are zero, and
// signs nothing that Verify would refuse: such claims, and a token beyond
// MaxToken, are ErrUnsignable.
func (s *Signer) Sign(c Claims) (Token, error) {
	c = s.complete(c)
	if c.Issuer != s.issuer {
		return Token{}, fmt.Errorf("%w: the issuer is somebody else", ErrUnsignable)
	}
	ext, err := c.Ext.marshal()
	if err != nil {
		return Token{}, err
	}
	if f := c.fault(L2, ext); f != nil {
		return Token{}, fmt.Errorf("%w: %s %s", ErrUnsignable, f.reason, f.claim)
	}
	compact, err := s.sign(c.appendTo(make([]byte, 0, 512+len(ext)), ext))
	if err != nil {
		return Token{}, err
	}
	return Token{compact: compact, claims: c}, nil
}

// complete works on a copy: the caller's slices and map stay the caller's.
func (s *Signer) complete(c Claims) Claims {
	c = c.clone()
	if c.Issuer == "" {
		c.Issuer = s.issuer
	}
	if c.IssuedAt == 0 {
		c.IssuedAt = s.now().Unix()
	}
	if c.Expires == 0 {
		c.Expires = c.IssuedAt + s.lifetime
	}
	if c.ID == "" {
		c.ID = s.newID()
	}
	if s.version != "" && c.Ext[ExtAgentVersion] == nil {
		if c.Ext == nil {
			c.Ext = Ext{}
		}
		c.Ext.SetString(ExtAgentVersion, s.version)
	}
	return c
}

func (s *Signer) sign(payload []byte) (string, error) {
	enc := base64.RawURLEncoding
	size := len(s.header) + enc.EncodedLen(len(payload))
	const signature = 1 + 86 // a dot and 64 octets
	if size+signature > s.maxToken {
		return "", fmt.Errorf("%w: the token would exceed %d octets", ErrUnsignable, s.maxToken)
	}
	out := append(make([]byte, 0, size+signature), s.header...)
	out = enc.AppendEncode(out, payload)
	sig, err := jwt.SigningMethodES256.Sign(string(out), s.key)
	if err != nil {
		return "", fmt.Errorf("ect: sign: %w", err)
	}
	return string(enc.AppendEncode(append(out, '.'), sig)), nil
}

// Token is a token of ours. Only Sign makes one.
type Token struct {
	compact string
	claims  Claims
}

// Compact is the token's bytes: what is sent, hashed and stored.
func (t Token) Compact() string { return t.compact }

// Claims is a copy of what was signed.
func (t Token) Claims() Claims { return t.claims.clone() }

// ID is the token's jti.
func (t Token) ID() ID { return t.claims.ID }

// LogValue prints the jti; a token is never logged.
func (t Token) LogValue() slog.Value { return slog.StringValue(string(t.claims.ID)) }

// String prints the jti, so that no format verb prints the token.
func (t Token) String() string { return string(t.claims.ID) }

// GoString does the same for %#v.
func (t Token) GoString() string { return "ect.Token(" + string(t.claims.ID) + ")" }

// orDefault reads zero as "not set".
func orDefault[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}
