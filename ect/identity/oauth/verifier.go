package oauth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/apikey"
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

// Verifier finds out who shows an access token. It is safe for concurrent use; Close ends it.
type Verifier struct {
	deps    Deps
	using   sync.Mutex // one Use at a time, and Close
	inForce atomic.Pointer[judges]
}

// judges are those of the configured issuers. They do not change.
type judges struct {
	byURL  map[string]*judge // by iss
	opaque *judge            // nil: no issuer judges opaque tokens
}

// judge judges the tokens of one issuer.
type judge struct {
	issuer       Issuer
	keys         *keys
	genuine      genuine
	introspector *introspector // nil: none
}

// New checks its dependencies, and puts the issuers in force as Use does.
func New(d Deps) (*Verifier, error) {
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.TrustDomain == "" || d.Exit == nil {
		return nil, errors.New("oauth: a trust domain and an exit are required")
	}
	v := &Verifier{deps: d}
	v.inForce.Store(&judges{})
	return v, v.Use(d.Issuers)
}

// Use puts issuers in force, in place of those that are. The keys of one whose URLs are the same stay, and so does what is
// known of opaque tokens of one that has not changed. At most one issuer may introspect: an opaque token does not say
// whose it is, and must not be shown to another's server. On an error nothing changes.
func (v *Verifier) Use(issuers []Issuer) error {
	if err := Check(issuers); err != nil {
		return err
	}
	v.using.Lock()
	defer v.using.Unlock()
	old, next := v.inForce.Load(), &judges{byURL: make(map[string]*judge, len(issuers))}
	for _, issuer := range issuers {
		j, former := &judge{issuer: issuer}, old.byURL[issuer.URL]
		if former != nil && former.keys.serve(issuer) {
			j.keys = former.keys
		} else {
			j.keys = newKeys(issuer, v.deps.Exit, v.deps.Now)
		}
		switch next.byURL[issuer.URL] = j; {
		case issuer.Introspection == Introspection{}:
			continue
		case former != nil && reflect.DeepEqual(former.issuer, issuer):
			j.introspector = former.introspector
		default:
			j.introspector = newIntrospector(issuer, v.deps.Exit, v.deps.Now)
		}
		next.opaque = j
	}
	v.inForce.Store(next)
	for url, former := range old.byURL {
		if now := next.byURL[url]; now == nil || now.keys != former.keys {
			former.keys.close()
		}
	}
	return nil
}

// Check finds the first mistake of issuers.
func Check(issuers []Issuer) error {
	urls, introspects := map[string]bool{}, false
	for _, issuer := range issuers {
		for _, mistake := range issuer.Mistakes() {
			return fmt.Errorf("oauth: %s: %s: %s", issuer.Name, mistake.Field, mistake.Reason)
		}
		if urls[issuer.URL] {
			return fmt.Errorf("oauth: two issuers have the URL %s", issuer.URL)
		}
		urls[issuer.URL] = true
		if issuer.Introspection == (Introspection{}) {
			continue
		}
		if introspects {
			return errors.New("oauth: two issuers have an introspection: an opaque token does not say whose it is")
		}
		introspects = true
	}
	return nil
}

// Close ends the fetches of keys and waits for them. Tokens that need other keys than those that are known are
// refused from then on, as not judgeable now.
func (v *Verifier) Close() {
	v.using.Lock()
	defer v.using.Unlock()
	for _, j := range v.inForce.Load().byURL {
		j.keys.close()
	}
}

// Caller is who sent a request; false if it shows no token of a configured issuer. Its errors are
// *TokenError, *RequestError, *IdentityError and *UnavailableError, and the context's.
func (v *Verifier) Caller(ctx context.Context, r credential.Request) (identity.Caller, bool, error) {
	now := v.inForce.Load()
	if len(now.byURL) == 0 {
		return identity.Caller{}, false, nil
	}
	token, shown, err := bearer(r)
	if err != nil || !shown {
		return identity.Caller{}, false, err
	}
	j, a, err := v.judge(ctx, now, token, r.Source)
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
	id, err := j.issuer.identify(v.deps.TrustDomain, a)
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
func (v *Verifier) judge(ctx context.Context, now *judges, compact, source string) (*judge, access, error) {
	token, err := jose.ParseJWT(compact, len(compact)) // the header that it came in has a bound
	if err != nil {
		if now.opaque == nil || looksLikeJWT(compact) || strings.HasPrefix(compact, apikey.Prefix) {
			return nil, access{}, nil // another judge refuses a JWT that cannot be read
		}
		if len(compact) > MaxToken {
			return nil, access{}, now.opaque.issuer.refuse(TooLong, "")
		}
		a, err := now.opaque.introspector.judge(ctx, compact, source)
		return now.opaque, a, err
	}
	iss, _ := jose.Unquote(token.Claims.Raw("iss"))
	j := now.byURL[iss]
	if j == nil {
		return nil, access{}, nil
	}
	if err := j.issuer.form(token, len(compact)); err != nil {
		return nil, access{}, err
	}
	key, err := j.keys.find(ctx, j.issuer, token.Algorithm, token.KeyID)
	if err != nil {
		return nil, access{}, err
	}
	if !j.genuine.verify(token, compact, key) {
		return nil, access{}, j.issuer.refuse(BadSignature, "")
	}
	a, err := j.issuer.claims(token.Claims, v.deps.Now())
	return j, a, err
}

// Known reports whether a request shows a token that names a key of its issuer, or an opaque one that was good a
// short time ago. It checks no signature, so anyone can make the former.
func (v *Verifier) Known(r credential.Request) bool {
	now := v.inForce.Load()
	compact, shown, err := bearer(r)
	if err != nil || !shown {
		return false
	}
	token, err := jose.ParseJWT(compact, MaxToken)
	if err != nil {
		return now.opaque != nil && now.opaque.introspector.knows(sha256.Sum256([]byte(compact)))
	}
	iss, _ := jose.Unquote(token.Claims.Raw("iss"))
	j := now.byURL[iss]
	return j != nil && j.issuer.form(token, len(compact)) == nil && j.keys.knows(token.Algorithm, token.KeyID)
}

// Shown is the access token of a request that Caller has accepted; empty: it shows none.
func Shown(r credential.Request) string {
	token, _, _ := bearer(r) // an error goes with no token
	return token
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
	for _, j := range v.inForce.Load().byURL {
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
