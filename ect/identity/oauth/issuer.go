package oauth

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Bounds and defaults of an issuer.
const (
	Skew             = 60 * time.Second // tolerance for clocks
	MaxToken         = 16 << 10         // bytes of a token
	DefaultMaxKeyAge = 24 * time.Hour
	LeastMaxKeyAge   = time.Hour
	MostMaxKeyAge    = 7 * 24 * time.Hour
	DefaultGroups    = "groups"
)

// Issuer is an authorization server whose access tokens are accepted, as the operator describes
// it. It does not change.
type Issuer struct {
	Name          string   // in ids: 1 to 63 of a-z 0-9 - _, beginning with a letter or digit
	URL           string   // iss, exactly
	JWKS          string   // URL of its keys; empty: from its metadata
	Audiences     []string // that tokens may be for, besides the URL of the endpoint
	Introspection Introspection
	Algorithms    []string // none: DefaultAlgorithms
	LegacyType    bool     // tokens need not have the form of RFC 9068
	Scopes        Scopes
	Identities    []Rule
	GroupsClaim   string         // empty: DefaultGroups
	Proxies       []ect.Identity // whose certificates may stand beside a token of this issuer
	MaxKeyAge     time.Duration  // of keys that cannot be fetched again; 0: DefaultMaxKeyAge
}

// Introspection is where opaque tokens are judged (RFC 7662). The zero value: nowhere.
type Introspection struct{ URL, ClientID, Secret string }

// DefaultAlgorithms are those that signatures may have.
func DefaultAlgorithms() []string { return []string{"RS256", "PS256", "ES256", "EdDSA"} }

// Algorithms are all that an issuer may be given.
func Algorithms() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
}

// Prefix is what the ids of all tokens of a trust domain begin with.
func Prefix(trustDomain string) string { return "spiffe://" + trustDomain + "/oauth/" }

// Mistake is what is wrong with an issuer: Field is a key of the configuration.
type Mistake struct{ Field, Reason string }

// NamePattern is the form of the name of an issuer.
const NamePattern = `^[a-z0-9][a-z0-9_-]{0,62}$`

// Mistakes are all that is wrong with an issuer.
func (i Issuer) Mistakes() (list []Mistake) {
	say := func(field, reason string) { list = append(list, Mistake{field, reason}) }
	if !named(i.Name) {
		say("", "the name of an issuer is 1 to 63 of a-z 0-9 - _, and begins with a letter or digit")
	}
	if !secure(i.URL) || strings.ContainsAny(i.URL, "?#") {
		say("issuer", "expected an https URL without a query, exactly as it stands in iss")
	}
	if i.JWKS != "" && !secure(i.JWKS) {
		say("jwks_url", "expected an https URL")
	}
	for n, audience := range i.Audiences {
		if audience == "" {
			say("audiences["+strconv.Itoa(n)+"]", "is empty")
		}
	}
	switch in := i.Introspection; {
	case in == Introspection{}:
	case !secure(in.URL):
		say("introspection.url", "expected an https URL")
	case in.ClientID == "":
		say("introspection.client_id", "is missing: who introspects must say who it is (RFC 7662 section 2.1)")
	}
	i.mistakesOfJudging(say)
	i.Scopes.mistakes(say)
	mistakesOfRules(i.Identities, say)
	return list
}

func (i Issuer) mistakesOfJudging(say func(field, reason string)) {
	for n, alg := range i.Algorithms {
		if !slices.Contains(Algorithms(), alg) {
			say("algorithms["+strconv.Itoa(n)+"]", "expected one of "+strings.Join(Algorithms(), ", "))
		}
	}
	if age := i.MaxKeyAge; age != 0 && (age < LeastMaxKeyAge || age > MostMaxKeyAge) {
		say("max_key_age", "must be between 1h and 168h")
	}
}

// named reports whether a name is one of NamePattern.
func named(name string) bool {
	const signs = "abcdefghijklmnopqrstuvwxyz0123456789_-"
	return name != "" && len(name) <= 63 && strings.Trim(name, signs) == "" && !strings.ContainsAny(name[:1], "_-")
}

// secure: an https URL of a host, without a user and without a fragment.
func secure(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.Host != "" && u.User == nil && u.Fragment == "" && u.Opaque == ""
}
