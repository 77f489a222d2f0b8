package oauth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// Deps is what a Verifier needs.
type Deps struct {
	TrustDomain string // of the ids that tokens give; required
	Issuers     []Issuer
	Exit        Exit             // required
	Now         func() time.Time // nil: time.Now
}

// Verifier finds out who shows an access token. It is safe for concurrent use.
type Verifier struct {
	trustDomain string
	issuers     map[string]*judge // by iss
	opaque      *judge            // nil: no issuer judges opaque tokens
	now         func() time.Time
}

// judge judges the tokens of one issuer.
type judge struct {
	issuer       Issuer
	keys         *keys
	genuine      genuine
	introspector *introspector // nil: none
}

// New checks its dependencies. At most one issuer may introspect: an opaque token does not say whose it
// is, and must not be shown to another's server.
func New(d Deps) (*Verifier, error) {
	v := &Verifier{trustDomain: d.TrustDomain, issuers: map[string]*judge{}, now: d.Now}
	if v.now == nil {
		v.now = time.Now
	}
	if d.TrustDomain == "" || d.Exit == nil {
		return nil, errors.New("oauth: a trust domain and an exit are required")
	}
	for _, issuer := range d.Issuers {
		for _, mistake := range issuer.Mistakes() {
			return nil, fmt.Errorf("oauth: %s: %s: %s", issuer.Name, mistake.Field, mistake.Reason)
		}
		if v.issuers[issuer.URL] != nil {
			return nil, fmt.Errorf("oauth: two issuers have the URL %s", issuer.URL)
		}
		j := &judge{issuer: issuer, keys: &keys{issuer: issuer, exit: d.Exit, now: v.now}}
		v.issuers[issuer.URL] = j
		if issuer.Introspection != (Introspection{}) {
			if v.opaque != nil {
				return nil, errors.New("oauth: two issuers have an introspection: an opaque token does not say whose it is")
			}
			j.introspector = newIntrospector(issuer, d.Exit, v.now)
			v.opaque = j
		}
	}
	return v, nil
}

// Caller is who sent a request; false if it shows no token of a configured issuer. Its errors are
// *TokenError, *RequestError, *IdentityError and *UnavailableError, and the context's.
func (v *Verifier) Caller(ctx context.Context, r credential.Request) (identity.Caller, bool, error) {
	token, shown, err := bearer(r)
	if err != nil || !shown {
		return identity.Caller{}, false, err
	}
	j, a, err := v.judge(ctx, token, r.Source)
	if err != nil || j == nil {
		return identity.Caller{}, false, err
	}
	if len(r.Fields(credential.IdentityField)) > 0 {
		return identity.Caller{}, false, &RequestError{"an access token and a workload identity token name two callers: show one of them"}
	}
	resource := ResourceOf(r.Target)
	if !j.issuer.isFor(a, resource.URL) {
		return identity.Caller{}, false, j.issuer.refuse(WrongAudience, "aud")
	}
	id, err := j.issuer.identify(v.trustDomain, a)
	if err != nil {
		return identity.Caller{}, false, err
	}
	return identity.Caller{Peer: ect.Peer{ID: id}, Until: a.until.Add(Skew), Grant: j.issuer.grant(a, resource)}, true, nil
}

// grant is what a token says beside who its caller is.
func (i Issuer) grant(a access, resource Resource) *identity.Grant {
	return &identity.Grant{
		Client: a.client, Actor: a.actor, Proxies: i.Proxies,
		May: func(agent, operation string) error {
			if i.Scopes.permits(a.scopes, agent, operation) {
				return nil
			}
			return &ScopeError{Scopes: i.Scopes.permitting(agent, operation), Metadata: resource.Metadata}
		},
	}
}

// judge is what a token says, and whose it is; nil: that of no configured issuer.
func (v *Verifier) judge(ctx context.Context, compact, source string) (*judge, access, error) {
	token, err := jose.ParseJWT(compact, len(compact)) // the header that it came in has a bound
	if err != nil {
		if v.opaque == nil || looksLikeJWT(compact) {
			return nil, access{}, nil // another judge refuses a JWT that cannot be read
		}
		if len(compact) > MaxToken {
			return nil, access{}, v.opaque.issuer.refuse(TooLong, "")
		}
		a, err := v.opaque.introspector.judge(ctx, compact, source)
		return v.opaque, a, err
	}
	iss, _ := jose.Unquote(token.Claims.Raw("iss"))
	j := v.issuers[iss]
	if j == nil {
		return nil, access{}, nil
	}
	if err := j.issuer.form(token, len(compact)); err != nil {
		return nil, access{}, err
	}
	key, err := j.keys.find(ctx, token.Algorithm, token.KeyID)
	if err != nil {
		return nil, access{}, err
	}
	if !j.genuine.verify(token, compact, key) {
		return nil, access{}, j.issuer.refuse(BadSignature, "")
	}
	a, err := j.issuer.claims(token.Claims, v.now())
	return j, a, err
}

// Known reports whether a request shows a token that names a key of its issuer, or an opaque one that was good a
// short time ago. It checks no signature, so anyone can make the former.
func (v *Verifier) Known(r credential.Request) bool {
	compact, shown, err := bearer(r)
	if err != nil || !shown {
		return false
	}
	token, err := jose.ParseJWT(compact, MaxToken)
	if err != nil {
		return v.opaque != nil && v.opaque.introspector.knows(sha256.Sum256([]byte(compact)))
	}
	iss, _ := jose.Unquote(token.Claims.Raw("iss"))
	j := v.issuers[iss]
	return j != nil && j.issuer.form(token, len(compact)) == nil && j.keys.knows(token.Algorithm, token.KeyID)
}

const fieldAuthorization = "Authorization"

// bearer is the token of a request (RFC 6750 section 2.1); false if it shows none. A token in the query
// (section 2.3), and more than one, are refused with a *RequestError.
func bearer(r credential.Request) (token string, shown bool, err error) {
	query, _ := url.ParseQuery(r.Query) // what cannot be read of it is not used
	if query.Has("access_token") {
		return "", false, &RequestError{"an access token belongs in the Authorization field, not in the query"}
	}
	var tokens []string
	for _, value := range r.Fields(fieldAuthorization) {
		scheme, rest, _ := strings.Cut(strings.Trim(value, " \t"), " ")
		if strings.EqualFold(scheme, "Bearer") {
			tokens = append(tokens, strings.Trim(rest, " "))
		}
	}
	switch {
	case len(tokens) == 0:
		return "", false, nil
	case len(r.Fields(fieldAuthorization)) > 1:
		return "", false, &RequestError{"expected one Authorization field"}
	case tokens[0] == "" || strings.ContainsFunc(tokens[0], notOfToken):
		return "", false, &RequestError{"expected one bearer token (RFC 6750 section 2.1) in the Authorization field"}
	}
	return tokens[0], true, nil
}

// notOfToken reports whether a character cannot be in a bearer token (RFC 6750 section 2.1).
func notOfToken(r rune) bool { return !plain(r) && !strings.ContainsRune("_~+/=", r) }

// looksLikeJWT: three parts, the first of which is a JSON object.
func looksLikeJWT(compact string) bool {
	parts := strings.Split(compact, ".")
	header, err := jose.Decode(parts[0], "header")
	return len(parts) == 3 && err == nil && strings.HasPrefix(strings.TrimSpace(string(header)), "{")
}

// Resource is an endpoint as tokens and metadata name it. The zero Resource has no name of its own.
type Resource struct {
	URL      string // canonical, as in aud (RFC 8707)
	Metadata string // URL of its metadata (RFC 9728 section 3.1)
}

// WellKnown is the path before that of a resource whose metadata are asked for (RFC 9728 section 3).
const WellKnown = "/.well-known/oauth-protected-resource"

// ResourceOf is the endpoint of an agent that a target URI belongs to: https://HOST/agents/NAME/PROTOCOL. The
// agent's card belongs to its A2A endpoint. It is zero for other endpoints, and for a path with escapes.
func ResourceOf(target string) Resource {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || strings.Contains(target, "%") {
		return Resource{}
	}
	segments := strings.Split(u.Path, "/") // "", "agents", NAME, PROTOCOL, ...
	if len(segments) < 3 || segments[1] != "agents" || segments[2] == "" {
		return Resource{}
	}
	protocol := "a2a"
	if len(segments) > 3 && segments[3] != "" && segments[3] != ".well-known" {
		protocol = segments[3]
	}
	origin, path := u.Scheme+"://"+u.Host, "/agents/"+segments[2]+"/"+protocol
	return Resource{URL: origin + path, Metadata: origin + WellKnown + path}
}

// Servers are the URLs of the issuers, and the scopes that they give, sorted.
func (v *Verifier) Servers() (issuers, scopes, first []string) {
	for _, j := range v.issuers {
		issuers = append(issuers, j.issuer.URL)
		scopes = append(scopes, j.issuer.Scopes.Names()...)
		first = append(first, j.issuer.Scopes.First()...)
	}
	for _, list := range []*[]string{&issuers, &scopes, &first} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return issuers, scopes, first
}
