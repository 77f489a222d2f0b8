package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity/oauth"
	"github.com/aepb/aepb-gateway/policy"
)

// OAuthIssuer is an authorization server whose access tokens are accepted (RFC 9068, RFC 7662).
type OAuthIssuer struct {
	Issuer        string              `yaml:"issuer"`         // https URL of the issuer, exactly as iss has it. Required.
	JWKS          string              `yaml:"jwks_url"`       // https URL of its keys. Default: from its metadata (RFC 8414, OpenID Connect Discovery).
	Audiences     []string            `yaml:"audiences"`      // Values of aud that are accepted at every endpoint. Default: only the URL of the endpoint, such as https://gw.example.com/agents/NAME/mcp, which is always accepted.
	Introspection OAuthIntrospection  `yaml:"introspection"`  // Where opaque tokens are judged (RFC 7662), at most one issuer. Default: opaque tokens are not accepted.
	Algorithms    []string            `yaml:"algorithms"`     // Algorithms of signatures. Default: RS256, PS256, ES256 and EdDSA.
	LegacyType    bool                `yaml:"legacy_type"`    // true: tokens may have no typ, or JWT, and may lack jti and client_id, for servers that do not follow RFC 9068. Default: false.
	Scopes        map[string]Patterns `yaml:"scopes"`         // What each scope permits: names of agents, exact or with * at the end, and optionally # and an operation. Default: a token may do all that its caller may.
	Initial       []string            `yaml:"initial_scopes"` // Scopes that a client without a token is told to ask for. Default: all of scopes.
	Identities    []OAuthIdentity     `yaml:"identities"`     // How claims become the SPIFFE ID of the caller. Exactly one rule must fit a token. Required.
	Groups        string              `yaml:"groups_claim"`   // Claim with the groups of the user. Default: groups.
	Proxies       []string            `yaml:"proxies"`        // SPIFFE IDs of programs that may show a token of this issuer beside their own client certificate. The caller is that of the token. Default: none.
	MaxKeyAge     Duration            `yaml:"max_key_age"`    // How long the last keys are used while the issuer cannot be reached, 1h to 168h. Default: 24h.
}

// Patterns are names of agents, with operations.
type Patterns []string

// OAuthIntrospection is where opaque tokens are judged.
type OAuthIntrospection struct {
	URL        string `yaml:"url"`                // https URL of the introspection endpoint.
	ClientID   string `yaml:"client_id"`          // Name of this gateway at the authorization server. Required with url.
	SecretFile string `yaml:"client_secret_file"` // File with the secret of this gateway there. Required with url.
}

// OAuthIdentity gives a caller to the tokens that fulfil all its conditions.
type OAuthIdentity struct {
	Subject string `yaml:"subject"` // Condition on sub: exact, or with * at the end. Default: any.
	Client  string `yaml:"client"`  // Condition on client_id: exact, or with * at the end. Default: any.
	Group   string `yaml:"group"`   // Condition on one of the groups: exact, or with * at the end. Default: any or none.
	Path    string `yaml:"path"`    // What follows spiffe://TRUST-DOMAIN/oauth/NAME/ in the ID, such as users/{sub}. {sub} and {client_id} each stand for a whole segment. Required.
}

// OAuthIssuers are the issuers of a section in the words of package oauth, by their names, without secrets.
func OAuthIssuers(section map[string]OAuthIssuer) []oauth.Issuer {
	var list []oauth.Issuer
	for _, name := range slices.Sorted(maps.Keys(section)) {
		list = append(list, section[name].as(name))
	}
	return list
}

func (o OAuthIssuer) as(name string) oauth.Issuer {
	out := oauth.Issuer{
		Name: name, URL: o.Issuer, JWKS: o.JWKS, Audiences: o.Audiences, Algorithms: o.Algorithms, LegacyType: o.LegacyType,
		Introspection: oauth.Introspection{URL: o.Introspection.URL, ClientID: o.Introspection.ClientID},
		Scopes:        oauth.Scopes{ByName: map[string][]string{}, Initial: o.Initial},
		GroupsClaim:   o.Groups, MaxKeyAge: time.Duration(o.MaxKeyAge),
	}
	for scope, patterns := range o.Scopes {
		out.Scopes.ByName[scope] = patterns
	}
	for _, rule := range o.Identities {
		out.Identities = append(out.Identities, oauth.Rule(rule))
	}
	for _, id := range o.Proxies {
		out.Proxies = append(out.Proxies, ect.Identity(id))
	}
	return out
}

// checkOAuth finds issuers that could accept nothing, or more than is meant, and ids of others among
// those that tokens give.
func checkOAuth(c Config, say func(path, reason string)) {
	if len(c.OAuth) == 0 {
		return
	}
	urls, introspects := map[string]string{}, ""
	for _, issuer := range OAuthIssuers(c.OAuth) {
		path := "$.oauth.'" + issuer.Name + "'"
		for _, mistake := range issuer.Mistakes() {
			say(strings.TrimSuffix(path+"."+mistake.Field, "."), mistake.Reason)
		}
		if other, taken := urls[issuer.URL]; taken {
			say(path+".issuer", "is also that of "+strconv.Quote(other))
		}
		urls[issuer.URL] = issuer.Name
		o := c.OAuth[issuer.Name]
		o.checkIntrospection(path+".introspection", introspects, say)
		if o.Introspection.URL != "" {
			introspects = issuer.Name
		}
		o.checkOperations(path, say)
		for i, id := range o.Proxies {
			if (policy.Rules{Callers: []string{id}}).Validate() != nil || strings.ContainsAny(id, "*#") || ofToken(c.Identity.TrustDomain, id) {
				say(path+".proxies["+strconv.Itoa(i)+"]", strconv.Quote(id)+" is not the SPIFFE ID of a program with a client certificate")
			}
		}
	}
	checkOthers(c, say)
}

// checkOthers finds agents, peers and callers of other protocols with an id of those that tokens give: such a caller
// would have no scopes.
func checkOthers(c Config, say func(path, reason string)) {
	check := func(path, id string) {
		if ofToken(c.Identity.TrustDomain, id) {
			say(path, "lies under /oauth/, where the callers with access tokens are: choose another path")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Agents)) {
		check("$.agents.'"+name+"'.id", c.Agents[name].ID)
	}
	for _, id := range slices.Sorted(maps.Keys(c.Peers)) {
		check("$.peers.'"+id+"'", id)
	}
	for _, did := range slices.Sorted(maps.Keys(c.AINP.Callers)) {
		check("$.ainp.callers.'"+did+"'", c.AINP.Callers[did])
	}
	for i, node := range c.SLIM.Nodes {
		path := "$.slim.nodes[" + strconv.Itoa(i) + "]"
		check(path+".caller", node.Caller)
		if node.JWT == nil {
			continue
		}
		for _, sub := range slices.Sorted(maps.Keys(node.JWT.Callers)) {
			check(path+".jwt.callers.'"+sub+"'", node.JWT.Callers[sub])
		}
	}
}

func (o OAuthIssuer) checkIntrospection(path, other string, say func(path, reason string)) {
	switch in := o.Introspection; {
	case in == OAuthIntrospection{}:
	case in.URL == "":
		say(path+".url", "is missing")
	case in.SecretFile == "":
		say(path+".client_secret_file", "is missing")
	case other != "":
		say(path, strconv.Quote(other)+" has one too: an opaque token does not say whose it is, so at most one issuer may be asked")
	}
}

func (o OAuthIssuer) checkOperations(path string, say func(path, reason string)) {
	for _, scope := range slices.Sorted(maps.Keys(o.Scopes)) {
		for i, pattern := range o.Scopes[scope] {
			if operation := policy.Operation(pattern); operation != "" && !slices.Contains(operations, operation) {
				say(path+".scopes.'"+scope+"'["+strconv.Itoa(i)+"]", "no operation "+strconv.Quote(operation)+"; there are "+strings.Join(operations, ", "))
			}
		}
	}
}

// ofToken reports whether an id is one that only tokens give.
func ofToken(trustDomain, id string) bool {
	domain, path, _ := strings.Cut(strings.TrimPrefix(id, "spiffe://"), "/")
	return strings.HasPrefix(path, "oauth/") && (trustDomain == "" || domain == trustDomain)
}
