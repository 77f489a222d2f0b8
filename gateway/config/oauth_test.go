package config_test

import (
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/config"
)

const goodIssuer = `issuer: "https://as.example", identities: [{path: "users/{sub}"}]`

func TestOAuth_Accepts(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"the least":           goodIssuer,
		"everything":          goodIssuer + `, jwks_url: "https://as.example/keys", audiences: ["https://gw.example"], algorithms: [ES384], legacy_type: true, scopes: {read: [calc, "c*#invoke"]}, initial_scopes: [read], groups_claim: roles, proxies: ["spiffe://example.com/web"], max_key_age: 48h, introspection: {url: "https://as.example/i", client_id: gw, client_secret_file: s}`,
		"two rules, one path": `issuer: "https://as.example", identities: [{group: a, path: "users/{sub}"}, {group: b, path: "users/{sub}"}]`,
	} {
		c, err := config.Parse([]byte(`{oauth: {corp: {` + text + `}}}`))
		if err != nil || len(config.OAuthIssuers(c.OAuth)) != 1 || config.OAuthIssuers(c.OAuth)[0].Name != "corp" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOAuth_Mistakes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, want string }{
		"a name":                {`oauth: {Corp: {` + goodIssuer + `}}`, "the name of an issuer"},
		"no issuer":             {`oauth: {corp: {identities: [{path: "{sub}"}]}}`, "expected an https URL"},
		"plain http":            {`oauth: {corp: {issuer: "http://as.example", identities: [{path: "{sub}"}]}}`, "expected an https URL"},
		"a query":               {`oauth: {corp: {issuer: "https://as.example?x", identities: [{path: "{sub}"}]}}`, "expected an https URL"},
		"keys over http":        {`oauth: {corp: {` + goodIssuer + `, jwks_url: "http://x"}}`, "expected an https URL"},
		"alg none":              {`oauth: {corp: {` + goodIssuer + `, algorithms: [none]}}`, "expected one of RS256"},
		"alg HS256":             {`oauth: {corp: {` + goodIssuer + `, algorithms: [HS256]}}`, "expected one of RS256"},
		"no identities":         {`oauth: {corp: {issuer: "https://as.example"}}`, "at least one rule"},
		"a path with dots":      {`oauth: {corp: {issuer: "https://as.example", identities: [{path: "../{sub}"}]}}`, "expected segments"},
		"an empty segment":      {`oauth: {corp: {issuer: "https://as.example", identities: [{path: "users//{sub}"}]}}`, "expected segments"},
		"half a segment":        {`oauth: {corp: {issuer: "https://as.example", identities: [{path: "u-{sub}"}]}}`, "expected segments"},
		"another claim":         {`oauth: {corp: {issuer: "https://as.example", identities: [{path: "{email}"}]}}`, "expected segments"},
		"paths that meet":       {`oauth: {corp: {issuer: "https://as.example", identities: [{path: "users/{sub}"}, {path: "{client_id}/{sub}"}]}}`, "could give the same id"},
		"a star inside":         {`oauth: {corp: {issuer: "https://as.example", identities: [{group: "a*b", path: "{sub}"}]}}`, "with * at its end"},
		"an operation":          {`oauth: {corp: {` + goodIssuer + `, scopes: {read: ["calc#fly"]}}}`, "no operation"},
		"a scope with a blank":  {`oauth: {corp: {` + goodIssuer + `, scopes: {"a b": [calc]}}}`, "a scope has no spaces"},
		"an unknown scope":      {`oauth: {corp: {` + goodIssuer + `, initial_scopes: [x]}}`, "not among scopes"},
		"a proxy that is many":  {`oauth: {corp: {` + goodIssuer + `, proxies: ["spiffe://x/*"]}}`, "not the SPIFFE ID"},
		"a proxy by token":      {`oauth: {corp: {` + goodIssuer + `, proxies: ["spiffe://x/oauth/corp/a"]}}`, "not the SPIFFE ID"},
		"keys too old":          {`oauth: {corp: {` + goodIssuer + `, max_key_age: 1m}}`, "between 1h and 168h"},
		"no secret":             {`oauth: {corp: {` + goodIssuer + `, introspection: {url: "https://x", client_id: a}}}`, "client_secret_file"},
		"no client":             {`oauth: {corp: {` + goodIssuer + `, introspection: {url: "https://x", client_secret_file: a}}}`, "client_id"},
		"one issuer twice":      {`oauth: {corp: {` + goodIssuer + `}, other: {` + goodIssuer + `}}`, "is also that of"},
		"two that introspect":   {`oauth: {corp: {` + goodIssuer + `, introspection: {url: "https://x", client_id: a, client_secret_file: a}}, other: {issuer: "https://b.example", identities: [{path: "{sub}"}], introspection: {url: "https://x", client_id: a, client_secret_file: a}}}`, "has one too"},
		"an agent among tokens": {`identity: {trust_domain: example.com}, oauth: {corp: {` + goodIssuer + `}}, agents: {a: {id: "spiffe://example.com/oauth/corp/a", endpoints: [{binding: mcp-v1, url: "https://a"}]}}`, "lies under /oauth/"},
		"a peer among tokens":   {`identity: {trust_domain: example.com}, oauth: {corp: {` + goodIssuer + `}}, peers: {"spiffe://example.com/oauth/x": {}}`, "lies under /oauth/"},
		"a DID among tokens":    {`identity: {trust_domain: example.com}, oauth: {corp: {` + goodIssuer + `}}, ainp: {callers: {"did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK": "spiffe://example.com/oauth/corp/a"}}`, "ainp.callers"},
		"a member among tokens": {`identity: {trust_domain: example.com}, oauth: {corp: {` + goodIssuer + `}}, slim: {nodes: [{url: "https://n", organization: o, namespace: n, shared_secret_file: f, caller: "spiffe://example.com/oauth/corp/a"}]}`, "lies under /oauth/"},
		"a sub among tokens":    {`identity: {trust_domain: example.com}, oauth: {corp: {` + goodIssuer + `}}, slim: {nodes: [{url: "https://n", organization: o, namespace: n, jwt: {key: k, keys: j, issuer: i, callers: {a: "spiffe://example.com/oauth/corp/a"}}}]}`, "lies under /oauth/"},
	} {
		if _, err := config.Parse([]byte(`{` + tc.text + `}`)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}

// TestOAuth_OtherDomains: only our own ids under /oauth/ are those of tokens.
func TestOAuth_OtherDomains(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`identity: {trust_domain: example.com}, oauth: {corp: {` + goodIssuer + `}}, peers: {"spiffe://partner.example/oauth/x": {}}`,
		`identity: {trust_domain: example.com}, peers: {"spiffe://example.com/oauth/x": {}}`, // no tokens are accepted
	} {
		if _, err := config.Parse([]byte(`{` + text + `}`)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
