package credential

import (
	"bytes"
	"cmp"
	"crypto"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

const bearerToken = "JWT-SVID"

// bearerAlgorithms are those of a JWT-SVID (SPIFFE JWT-SVID section 2.1).
var bearerAlgorithms = []string{"RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512"}

// The types that a JWT-SVID may have (SPIFFE JWT-SVID section 2.3), and those of our
// other tokens, which belong in other fields.
var (
	bearerTypes = []string{"", "jwt", "jose"}
	otherTypes  = []string{"wit+jwt", "wpt+jwt", "exec+jwt"}
)

// BearerDeps is what a Bearer needs.
type BearerDeps struct {
	Bundle   *identity.Bundle // whose TokenKeys sign JWT-SVIDs; required
	Audience []string         // our own ids; required
	Skew     time.Duration    // tolerance for clocks, whole seconds; 0: DefaultSkew
	MaxToken int              // bytes; 0: DefaultMaxToken
	Now      func() time.Time // nil: time.Now
}

// Bearer finds out who shows a JWT-SVID. It is safe for concurrent use.
type Bearer struct {
	bundle   *identity.Bundle
	audience []string
	skew     int64
	maxToken int
	now      func() time.Time
}

// NewBearer checks its dependencies.
func NewBearer(d BearerDeps) (*Bearer, error) {
	b := &Bearer{
		bundle: d.Bundle, audience: slices.Clone(d.Audience), skew: int64(cmp.Or(d.Skew, DefaultSkew) / time.Second),
		maxToken: cmp.Or(d.MaxToken, DefaultMaxToken), now: d.Now,
	}
	if b.now == nil {
		b.now = time.Now
	}
	switch {
	case b.bundle == nil:
		return nil, errors.New("credential: no bundle for JWT-SVIDs, expected one")
	case len(b.audience) == 0 || slices.Contains(b.audience, ""):
		return nil, errors.New("credential: no audience for JWT-SVIDs, or an empty one: set one")
	case b.skew < 0 || b.maxToken < 0:
		return nil, errors.New("credential: a bound is negative")
	}
	return b, nil
}

// Caller is who sent a request; false if its Authorization shows no bearer
// token. The caller has no key: it proved to have a token, which any party on its
// way could have. Its error is *identity.CredentialError, which tells a token that
// cannot be for us, such as one that an SDK sends to every server.
func (b *Bearer) Caller(r Request) (identity.Caller, bool, error) {
	token, shown, err := bearerOf(r)
	if err != nil || !shown {
		return identity.Caller{}, false, err
	}
	id, until, err := b.judge(token)
	if refused, ok := errors.AsType[*identity.CredentialError](err); ok {
		refused.Foreign = b.foreign(token)
	}
	if err != nil {
		return identity.Caller{}, false, err
	}
	return identity.Caller{Peer: ect.Peer{ID: id}, Until: until}, true, nil
}

// bearerOf is the bearer token of a request; false if it shows none.
func bearerOf(r Request) (token string, shown bool, err error) {
	value, shown, err := r.single(authorizationField, bearerToken)
	if err != nil || !shown {
		return "", false, err
	}
	scheme, token, _ := strings.Cut(value, " ")
	return strings.TrimLeft(token, " "), strings.EqualFold(scheme, "Bearer"), nil
}

// Known reports whether a request shows a token that names one of the keys by which
// it could be judged. It checks no signature, so anyone can make such a token.
func (b *Bearer) Known(r Request) bool {
	compact, shown, err := bearerOf(r)
	if err != nil || !shown {
		return false
	}
	j := judge{credential: bearerToken}
	token, err := j.parse(compact, b.maxToken, bearerTypes...)
	if err != nil || !slices.Contains(bearerAlgorithms, token.Algorithm) {
		return false
	}
	_, domain, ok := workload(token.Claims.Text("sub"))
	if ok {
		_, err = b.key(token, domain, j)
	}
	return ok && err == nil
}

// Judge gives the id in a JWT-SVID (SPIFFE JWT-SVID sections 2 to 4). Its error
// is *identity.CredentialError.
func (b *Bearer) Judge(compact string) (ect.Identity, error) {
	id, _, err := b.judge(compact)
	return id, err
}

// judge also tells when the token ends.
func (b *Bearer) judge(compact string) (ect.Identity, time.Time, error) {
	j := judge{bearerToken, b.now().Unix(), b.skew}
	token, err := j.parse(compact, b.maxToken, bearerTypes...)
	if err != nil {
		return "", time.Time{}, err
	}
	if !slices.Contains(bearerAlgorithms, token.Algorithm) {
		return "", time.Time{}, j.refuse(identity.CredentialUnsupportedAlg, "alg")
	}
	claims := token.Claims
	claims.Demand("sub")
	id, domain, ok := workload(claims.Text("sub"))
	if !ok || !strings.HasPrefix(string(id), "spiffe://") {
		claims.Fail("sub")
		return "", time.Time{}, j.well(claims)
	}
	if err := b.signed(token, domain, j); err != nil {
		return "", time.Time{}, err
	}
	claims.Demand("aud", "exp")
	audience := claims.Texts("aud")
	if err := j.timely(claims); err != nil {
		return "", time.Time{}, err
	}
	if !slices.ContainsFunc(audience, func(aud string) bool { return slices.Contains(b.audience, aud) }) {
		return "", time.Time{}, j.refuse(identity.CredentialAudienceMismatch, "aud")
	}
	return id, j.end(claims), nil
}

// foreign reports whether a token that was refused cannot have been meant for us: it is
// no JWT, or one that has neither the form of our tokens nor us as an audience. What
// has a JWT's header and cannot be read as a whole may be one of ours that was spoiled.
func (b *Bearer) foreign(compact string) bool {
	token, err := jose.ParseJWT(compact, len(compact)) // the header that it came in has a bound
	if err != nil {
		parts := strings.Split(compact, ".")
		header, broken := jose.Decode(parts[0], "header")
		return len(parts) != 3 || broken != nil || !bytes.HasPrefix(bytes.TrimSpace(header), []byte("{"))
	}
	ours := func(aud string) bool { return slices.Contains(b.audience, aud) }
	switch {
	case slices.ContainsFunc(token.Claims.Texts("aud"), ours):
		return false
	case slices.Contains(bearerTypes, token.Type):
		return !strings.HasPrefix(token.Claims.Text("sub"), "spiffe://")
	default:
		return !slices.Contains(otherTypes, token.Type)
	}
}

func (b *Bearer) signed(token *jose.JWT, domain string, j judge) error {
	key, err := b.key(token, domain, j)
	if err == nil && !token.Verify(key) {
		return j.refuse(identity.CredentialInvalidSignature, "")
	}
	return err
}

// key is the one that a token names.
func (b *Bearer) key(token *jose.JWT, domain string, j judge) (crypto.PublicKey, error) {
	keys, known := b.bundle.TokenKeys(domain)
	if !known {
		return nil, j.refuse(identity.CredentialUnknownKey, "sub")
	}
	key, known := keys.Find(token.Algorithm, token.KeyID)
	if !known {
		return nil, j.refuse(identity.CredentialUnknownKey, "kid")
	}
	return key, nil
}
