package ect

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// DefaultLifetime is exp minus iat of our tokens.
const DefaultLifetime = 600 * time.Second

// SignerDeps is what a Signer needs.
type SignerDeps struct {
	Key          crypto.Signer       // required: an *ecdsa.PrivateKey on P-256 (ES256) or an ed25519.PrivateKey (EdDSA)
	Chain        []*x509.Certificate // sent as x5c, leaf first; empty: no x5c
	Issuer       Identity            // required; if it is a SPIFFE id the leaf must carry it
	AgentVersion string              // put into every token as aepb.agent_version; empty: not
	Lifetime     time.Duration       // whole seconds; 0: DefaultLifetime
	MaxToken     int                 // bytes; 0: the default of Limits.Token
	Now          func() time.Time    // nil: time.Now
	NewID        func() ID           // nil: NewID
	UnsignedFor  []string            // audiences that may be sent unsigned tokens; empty: none
}

// Signer makes the tokens of one identity.
type Signer struct {
	own      atomic.Pointer[signing]
	issuer   Identity
	version  string
	lifetime int64
	maxToken int
	now      func() time.Time
	newID    func() ID
	unsigned []string
}

// signing is what changes when a key is rotated.
type signing struct {
	key     crypto.Signer
	alg     string
	headers [types]string // the encoded header and its dot, by typ: the same for every token
	notes   string        // the encoded header and its dot of a Statement
	kid     string
	chain   []*x509.Certificate
	spaces  spaces
}

// spaces are where tokens are written and hashed: an array on the stack would make each new stack grow.
type spaces struct{ sync.Pool }

// of is a space with a text in it, to be put back.
func (s *spaces) of(text string) *[]byte {
	space, ok := s.Get().(*[]byte)
	if !ok {
		space = new([]byte)
	}
	*space = append((*space)[:0], text...)
	return space
}

// NewSigner checks that key, chain and issuer belong together.
func NewSigner(d SignerDeps) (*Signer, error) {
	if d.Issuer == "" {
		return nil, errors.New("ect: signer without an issuer, expected one")
	}
	s := &Signer{
		issuer: d.Issuer, version: d.AgentVersion,
		lifetime: int64(cmp.Or(d.Lifetime, DefaultLifetime) / time.Second),
		maxToken: cmp.Or(d.MaxToken, defaultToken), now: d.Now, newID: d.NewID,
		unsigned: slices.Clone(d.UnsignedFor),
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
	if err := s.Renew(d.Key, d.Chain); err != nil {
		return nil, err
	}
	return s, nil
}

// Renew signs with another key and chain of the same issuer, from the next token
// on. On an error the old ones stay.
func (s *Signer) Renew(key crypto.Signer, chain []*x509.Certificate) error {
	alg, err := jose.CheckSigner(key)
	if err != nil {
		return errKeyType
	}
	kid, err := Thumbprint(key.Public())
	if err != nil {
		return err
	}
	if err := checkLeaf(key, chain, s.issuer); err != nil {
		return err
	}
	s.own.Store(&signing{key: key, alg: alg, kid: kid, chain: chain, notes: encodeHeader(alg, "JWT", kid, chain), headers: [types]string{
		typeExec:  encodeHeader(alg, mediaExec, kid, chain),
		typeWIMSE: encodeHeader(alg, mediaWIMSE, kid, chain),
	}})
	return nil
}

// checkLeaf finds a mixed-up configuration at start rather than at the first peer.
func checkLeaf(key crypto.Signer, chain []*x509.Certificate, issuer Identity) error {
	if len(chain) == 0 {
		return nil
	}
	leaf := chain[0]
	own, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !own.Equal(leaf.PublicKey) {
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

func encodeHeader(alg, typ, kid string, chain []*x509.Certificate) string {
	h := jose.Quote(append(make([]byte, 0, 256), `{"alg":`...), alg)
	h = jose.Quote(append(h, `,"typ":`...), typ)
	h = jose.Quote(append(h, `,"kid":`...), kid)
	if len(chain) > 0 {
		certs := make([]string, len(chain))
		for i, c := range chain {
			certs[i] = base64.StdEncoding.EncodeToString(c.Raw)
		}
		h = jose.QuoteAll(append(h, `,"x5c":`...), certs)
	}
	return base64.RawURLEncoding.EncodeToString(append(h, '}')) + "."
}

// Issuer is the identity that this signer signs as.
func (s *Signer) Issuer() Identity { return s.issuer }

// Sign makes a token in DialectSeed. It fills iss, iat, exp and jti where they
// are zero, and signs nothing that Verify would refuse: such claims, and a token
// beyond MaxToken, are ErrUnsignable.
func (s *Signer) Sign(c Claims) (Token, error) { return s.SignAs(DialectSeed, c) }

// SignAs is Sign in a dialect of the reader's. More extension than the dialect
// can carry (see Dialect.MaxExt) is ErrUnsignable too.
func (s *Signer) SignAs(d Dialect, c Claims) (Token, error) {
	c = s.complete(c)
	own := s.own.Load()
	space := own.spaces.of("")
	defer own.spaces.Put(space)
	payload, ext, as, err := s.payload(*space, d, &c)
	if err != nil {
		return Token{}, err
	}
	*space = payload
	c.Ext = nil // the caller's: what was signed of it is in ext
	compact, err := s.sign(own, own.headers[as.typ], payload)
	if err != nil {
		return Token{}, err
	}
	return Token{compact: compact, claims: c, ext: ext, dialect: cmp.Or(d, DialectSeed)}, nil
}

// Assert writes an unsigned token (L1), which proves nothing and is no Token:
// nothing that demands evidence takes it. It is for audiences of UnsignedFor
// alone, and never for an act of a gateway; anything else is ErrUnsignable.
func (s *Signer) Assert(d Dialect, c Claims) (Assertion, error) {
	c = s.complete(c)
	for _, id := range c.Audience {
		if !slices.Contains(s.unsigned, id) {
			return Assertion{}, fmt.Errorf("%w: an audience demands a signature: sign the token, or list it in UnsignedFor", ErrUnsignable)
		}
	}
	if c.Act.needsSignature() {
		return Assertion{}, fmt.Errorf("%w: this act must be signed", ErrUnsignable)
	}
	payload, _, _, err := s.payload(nil, d, &c)
	if err != nil {
		return Assertion{}, err
	}
	compact := base64.RawURLEncoding.EncodeToString(payload)
	if len(compact) > s.maxToken {
		return Assertion{}, tooLarge(s.maxToken)
	}
	return Assertion{compact: compact, id: c.ID}, nil
}

// payload checks claims and appends them as encoded; ext is the extension as encoded.
func (s *Signer) payload(dst []byte, d Dialect, c *Claims) (payload []byte, ext json.RawMessage, as spelling, err error) {
	as, ok := d.spelling()
	if !ok {
		return nil, nil, as, fmt.Errorf("%w: %w", ErrUnsignable, errDialect)
	}
	if c.Issuer != s.issuer {
		return nil, nil, as, fmt.Errorf("%w: iss is not this signer's issuer", ErrUnsignable)
	}
	if ext, err = c.Ext.marshal(); err != nil {
		return nil, nil, as, err
	}
	if f := c.fault(L2, ext); f != nil {
		return nil, nil, as, fmt.Errorf("%w: %s %s", ErrUnsignable, f.reason, f.claim)
	}
	if len(ext) > d.MaxExt() {
		return nil, nil, as, fmt.Errorf("%w: more than %d bytes of extension", ErrUnsignable, d.MaxExt())
	}
	return c.appendTo(slices.Grow(dst, 512+len(ext)), ext, as), ext, as, nil
}

// complete works on a copy: the caller's slices and map stay the caller's. Its
// Ext is the caller's own as long as nothing is missing in it, to be read only.
func (s *Signer) complete(c Claims) Claims {
	c.Audience, c.Parents = slices.Clone(c.Audience), slices.Clone(c.Parents)
	c.Issuer = cmp.Or(c.Issuer, s.issuer)
	if c.IssuedAt == 0 {
		c.IssuedAt = s.now().Unix()
	}
	c.Expires = cmp.Or(c.Expires, c.IssuedAt+s.lifetime)
	if c.ID == "" {
		c.ID = s.newID()
	}
	if s.version != "" && c.Ext[ExtAgentVersion] == nil {
		if c.Ext = maps.Clone(c.Ext); c.Ext == nil {
			c.Ext = Ext{}
		}
		c.Ext.SetString(ExtAgentVersion, s.version)
	}
	return c
}

func (s *Signer) sign(own *signing, header string, payload []byte) (string, error) {
	return sign(own, header, payload, s.maxToken)
}

func sign(own *signing, header string, payload []byte, limit int) (string, error) {
	enc := base64.RawURLEncoding
	size := len(header) + enc.EncodedLen(len(payload))
	const signature = 1 + 86 // a dot and 64 bytes, with either algorithm
	if size+signature > limit {
		return "", tooLarge(limit)
	}
	space := own.spaces.of(header)
	defer own.spaces.Put(space)
	out := slices.Grow(*space, size+signature-len(header))
	out = enc.AppendEncode(out, payload)
	sig, err := jose.Sign(own.alg, own.key, out)
	if err != nil {
		return "", fmt.Errorf("ect: sign: %w", err)
	}
	out = enc.AppendEncode(append(out, '.'), sig)
	*space = out
	return string(out), nil
}

func tooLarge(limit int) error {
	return fmt.Errorf("%w: the token would exceed %d bytes", ErrUnsignable, limit)
}

// Token is a token of ours. Only Sign makes one.
type Token struct {
	compact string
	claims  Claims          // without Ext
	ext     json.RawMessage // the extension as it was signed; nil: none
	dialect Dialect
}

// Compact is the token's bytes: what is sent, hashed and stored.
func (t Token) Compact() string { return t.compact }

// Level is that of its evidence: it is signed.
func (t Token) Level() Level { return L2 }

// Claims is a copy of what was signed.
func (t Token) Claims() Claims {
	c := t.claims.clone()
	if t.ext != nil {
		c.Ext, _ = (&jose.Scanner{}).Members(bytes.Clone(t.ext), "ext") // we wrote it
	}
	return c
}

// ID is the token's jti.
func (t Token) ID() ID { return t.claims.ID }

// Dialect is the spelling it was signed in.
func (t Token) Dialect() Dialect { return t.dialect }

// LogValue prints the jti; a token is never logged.
func (t Token) LogValue() slog.Value { return slog.StringValue(string(t.claims.ID)) }

// String prints the jti, so that no format verb prints the token.
func (t Token) String() string { return string(t.claims.ID) }

// GoString does the same for %#v.
func (t Token) GoString() string { return "ect.Token(" + string(t.claims.ID) + ")" }

// Assertion is an unsigned token of ours. Only Assert makes one.
type Assertion struct {
	compact string
	id      ID
}

// Compact is the token's bytes.
func (a Assertion) Compact() string { return a.compact }

// ID is the token's jti.
func (a Assertion) ID() ID { return a.id }

// LogValue prints the jti; a token is never logged.
func (a Assertion) LogValue() slog.Value { return slog.StringValue(string(a.id)) }

// String prints the jti, so that no format verb prints the token.
func (a Assertion) String() string { return string(a.id) }

// GoString does the same for %#v.
func (a Assertion) GoString() string { return "ect.Assertion(" + string(a.id) + ")" }

// Statement signs claims that are no ECT, such as a capability document (AEPB,
// Capability Document Integrity), as a JWT in compact form. Its type is JWT, so
// that no verifier takes it for an ECT; kid and x5c are those of our ECTs. claims is
// a JSON object, written as it is. A result beyond MaxToken is ErrUnsignable.
func (s *Signer) Statement(claims []byte) (string, error) {
	own := s.own.Load()
	return s.sign(own, own.notes, claims)
}

// SignNote signs a message that is no ECT. Its typ keeps any verifier from taking it for one; kid and x5c are those
// of our ECTs. A result beyond limit bytes is [ErrUnsignable].
func (s *Signer) SignNote(typ string, payload []byte, limit int) (string, error) {
	own := s.own.Load()
	return sign(own, encodeHeader(own.alg, typ, own.kid, own.chain), payload, limit)
}
