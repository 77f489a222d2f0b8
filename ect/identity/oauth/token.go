package oauth

import (
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// access is what a token says.
type access struct {
	subject, client  string
	actor            string // sub of act (RFC 8693 section 4.1); empty: the client acts
	audience, scopes []string
	groups           []string
	until            time.Time // when it ends, without tolerance
}

// typeAccess is the typ of an access token (RFC 9068 section 2.1).
const typeAccess = "at+jwt"

func (i Issuer) refuse(reason Reason, claim string) error {
	return &TokenError{Issuer: i.Name, Reason: reason, Claim: claim}
}

// form judges a token as far as that can be done without a key (RFC 9068 section 4).
func (i Issuer) form(token *jose.JWT, size int) error {
	algorithms := i.Algorithms
	if len(algorithms) == 0 {
		algorithms = DefaultAlgorithms()
	}
	legacy := i.LegacyType && (token.Type == "" || token.Type == "jwt")
	switch {
	case size > MaxToken:
		return i.refuse(TooLong, "")
	case token.Type != typeAccess && !legacy:
		return i.refuse(WrongType, "typ")
	case token.Critical:
		return i.refuse(Critical, "crit")
	case !slices.Contains(algorithms, token.Algorithm) || !jose.Supported(token.Algorithm):
		return i.refuse(UnsupportedAlg, "alg")
	case token.KeyID == "":
		return i.refuse(UnknownKey, "kid")
	}
	return nil
}

// claims reads what a signed token says (RFC 9068 section 2.2).
func (i Issuer) claims(c *jose.Claims, now time.Time) (access, error) {
	c.Demand("sub", "aud", "exp", "iat")
	if !i.LegacyType {
		c.Demand("client_id", "jti")
	} else if slices.ContainsFunc([]string{"nonce", "at_hash", "c_hash"}, c.Has) {
		return access{}, i.refuse(WrongType, "") // an ID token (OpenID Connect Core section 2)
	}
	return i.common(c, now)
}

// introspected reads what an issuer says of an active token (RFC 7662 section 2.2).
func (i Issuer) introspected(c *jose.Claims, now time.Time) (access, error) {
	c.Demand("sub", "aud", "exp")
	if iss := c.Text("iss"); iss != "" && iss != i.URL {
		return access{}, i.refuse(WrongIssuer, "iss")
	}
	if kind := c.Text("token_type"); kind != "" && !strings.EqualFold(kind, "Bearer") {
		return access{}, i.refuse(Bound, "token_type")
	}
	return i.common(c, now)
}

func (i Issuer) common(c *jose.Claims, now time.Time) (access, error) {
	a := access{subject: c.Text("sub"), client: c.Text("client_id"), audience: c.Texts("aud"), scopes: scopesOf(c), groups: list(c, i.groups())}
	if a.client == "" && i.LegacyType {
		a.client = c.Text("azp")
	}
	if act := c.Object("act"); act != nil {
		if a.actor = act.Text("sub"); act.Fault() != nil {
			c.Fail("act")
		}
	}
	exp, iat, nbf := c.Time("exp"), c.Time("iat"), c.Time("nbf")
	if fault := c.Fault(); fault != nil {
		if fault.Missing {
			return access{}, i.refuse(MissingClaim, fault.Claim)
		}
		return access{}, i.refuse(InvalidClaim, fault.Claim)
	}
	at, skew := now.Unix(), int64(Skew/time.Second)
	switch {
	case c.Has("cnf"):
		return access{}, i.refuse(Bound, "cnf")
	case at >= exp+skew:
		return access{}, i.refuse(Expired, "exp")
	case iat > at+skew:
		return access{}, i.refuse(NotYet, "iat")
	case nbf > at+skew:
		return access{}, i.refuse(NotYet, "nbf")
	}
	a.until = time.Unix(exp, 0)
	return a, nil
}

func (i Issuer) groups() string {
	if i.GroupsClaim != "" {
		return i.GroupsClaim
	}
	return DefaultGroups
}

// scopesOf reads scope (RFC 6749 section 3.3), or scp, which some servers write in its place.
func scopesOf(c *jose.Claims) []string {
	if c.Has("scope") {
		text, ok := jose.Unquote(c.Raw("scope"))
		if !ok {
			c.Fail("scope")
		}
		return strings.Fields(text)
	}
	return strings.Fields(strings.Join(list(c, "scp"), " "))
}

// list reads one text or an array of texts, which may be empty; nil if absent.
func list(c *jose.Claims, claim string) []string {
	raw := c.Raw(claim)
	if raw == nil {
		return nil
	}
	if one, ok := jose.Unquote(raw); ok {
		return []string{one}
	}
	many, ok := jose.UnquoteAll[string](&jose.Scanner{}, raw)
	if !ok {
		c.Fail(claim)
	}
	return many
}

// isFor reports whether a token is for an endpoint (RFC 8707 section 2): the URL of the endpoint, or
// an audience that the operator has named.
func (i Issuer) isFor(a access, resource string) bool {
	return slices.ContainsFunc(a.audience, func(audience string) bool {
		return resource != "" && audience == resource || slices.Contains(i.Audiences, audience)
	})
}
