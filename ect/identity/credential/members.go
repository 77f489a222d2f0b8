package credential

import (
	"cmp"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

const memberToken = "JWT"

// maxSubject bounds a subject, bytes.
const maxSubject = 512

// MembersDeps is what a Members needs.
type MembersDeps struct {
	Keys     *identity.KeySet // of who issues the tokens; required
	Issuer   string           // iss that tokens must have; required
	Audience []string         // one of which tokens must be for; required
	Skew     time.Duration    // tolerance for clocks, whole seconds; 0: DefaultSkew
	MaxToken int              // bytes; 0: DefaultMaxToken
	Now      func() time.Time // nil: time.Now
}

// Members judges the JWTs by which the members of a network know each other,
// all of one issuer. Safe for concurrent use.
type Members struct {
	deps MembersDeps
	keys atomic.Pointer[identity.KeySet]
}

// NewMembers checks its dependencies.
func NewMembers(d MembersDeps) (*Members, error) {
	if d.Keys == nil || d.Issuer == "" || len(d.Audience) == 0 {
		return nil, errors.New("credential: tokens of members are judged by keys, issuer and audience")
	}
	d.Skew, d.MaxToken = cmp.Or(d.Skew, DefaultSkew), cmp.Or(d.MaxToken, DefaultMaxToken)
	if d.Skew < 0 || d.MaxToken < 0 {
		return nil, errors.New("credential: a bound is negative")
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	m := &Members{deps: d}
	m.keys.Store(d.Keys)
	return m, nil
}

// Replace puts other keys in force, from the next token on.
func (m *Members) Replace(keys *identity.KeySet) { m.keys.Store(keys) }

// Judge gives the subject that a token names. It says nothing of who shows the
// token. Errors: *identity.CredentialError.
func (m *Members) Judge(compact string) (string, error) {
	j := judge{memberToken, m.deps.Now().Unix(), int64(m.deps.Skew / time.Second)}
	token, err := j.parse(compact, m.deps.MaxToken, "", "jwt")
	if err != nil {
		return "", err
	}
	if !jose.Supported(token.Algorithm) {
		return "", j.refuse(identity.CredentialUnsupportedAlg, "alg")
	}
	claims := token.Claims
	claims.Demand("sub", "iss", "aud", "exp")
	sub, iss, audience := claims.Text("sub"), claims.Text("iss"), claims.Texts("aud")
	if len(sub) > maxSubject {
		claims.Fail("sub")
	}
	if err := j.well(claims); err != nil {
		return "", err
	}
	if err := m.signed(token, sub, j); err != nil {
		return "", err
	}
	if iss != m.deps.Issuer {
		return "", j.refuse(identity.CredentialIssuerMismatch, "iss")
	}
	if err := j.timely(claims); err != nil {
		return "", err
	}
	if !slices.ContainsFunc(audience, func(aud string) bool { return slices.Contains(m.deps.Audience, aud) }) {
		return "", j.refuse(identity.CredentialAudienceMismatch, "aud")
	}
	return sub, nil
}

// signed finds the key by its name. SLIM's own software gives the subject for
// one, which names no key unless the key set says so: then the only key that can
// be meant is tried.
func (m *Members) signed(token *jose.JWT, sub string, j judge) error {
	keys := m.keys.Load()
	key, known := keys.Find(token.Algorithm, token.KeyID)
	if !known && token.KeyID == sub {
		key, known = keys.Find(token.Algorithm, "")
	}
	switch {
	case !known:
		return j.refuse(identity.CredentialUnknownKey, "kid")
	case !token.Verify(key):
		return j.refuse(identity.CredentialInvalidSignature, "")
	}
	return nil
}
