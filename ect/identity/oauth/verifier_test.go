package oauth_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/ect/identity/oauth"
	"github.com/aepb/aepb-gateway/ect/identity/oauth/oauthtest"
)

type object = oauthtest.Object

const (
	domain   = "example.com"
	endpoint = "https://gw.example.com/agents/calc/mcp"
	other    = "https://gw.example.com/agents/bank/mcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scene is a gateway that accepts the tokens of two servers, the first of which introspects.
type scene struct {
	t        testing.TB
	a, b     *oauthtest.Server
	issuer   oauth.Issuer // of a
	verifier *oauth.Verifier
}

func newScene(t testing.TB, change func(*oauth.Issuer)) *scene {
	t.Helper()
	s := &scene{t: t, a: oauthtest.New(t, "https://a.example"), b: oauthtest.New(t, "https://b.example/tenant")}
	s.b.Key = oauthtest.NewKey(t, "key-b")
	s.b.Change(func(st *oauthtest.State) { st.Keys = []oauthtest.Key{s.b.Key} })
	users := []oauth.Rule{{Path: "users/{sub}"}}
	s.issuer = oauth.Issuer{
		Name: "a", URL: s.a.URL, Identities: users, Audiences: []string{"https://gw.example.com"},
		Introspection: oauth.Introspection{URL: s.a.URL + oauthtest.Introspect, ClientID: oauthtest.ClientID, Secret: oauthtest.Secret},
	}
	if change != nil {
		change(&s.issuer)
	}
	var err error
	s.verifier, err = oauth.New(oauth.Deps{TrustDomain: domain, Exit: s.exit, Issuers: []oauth.Issuer{
		s.issuer, {Name: "b", URL: s.b.URL, JWKS: "https://b.example/keys", Identities: users},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.verifier.Close)
	return s
}

func (s *scene) exit(r *http.Request, authorization string) (*http.Response, error) {
	switch r.URL.Host {
	case "a.example":
		return s.a.Exit(r, authorization)
	case "b.example":
		return s.b.Exit(r, authorization)
	}
	s.t.Errorf("asked %s, expected no such request", r.URL.Host)
	return nil, errors.New("no such host")
}

func (s *scene) show(lines ...string) (identity.Caller, bool, error) {
	return s.verifier.Caller(s.t.Context(), credential.Request{Fields: http.Header{"Authorization": lines}.Values, Target: endpoint, Source: "192.0.2.1"})
}

func bearer(token string) string { return "Bearer " + token }

func TestVerifier_Accepts(t *testing.T) {
	t.Parallel()
	type edit = func(header, claims object)
	legacy := func(i *oauth.Issuer) { i.LegacyType = true }
	for name, tc := range map[string]struct {
		issuer func(*oauth.Issuer)
		edit   edit
		want   string // path of the id
	}{
		"plain":               {nil, nil, "users/alice"},
		"one audience of two": {nil, func(_, c object) { c["aud"] = []string{"x", endpoint} }, "users/alice"},
		"a listed audience":   {nil, func(_, c object) { c["aud"] = "https://gw.example.com" }, "users/alice"},
		"a long typ":          {nil, func(h, _ object) { h["typ"] = "application/at+jwt" }, "users/alice"},
		"in its last second":  {nil, func(_, c object) { c["exp"] = time.Now().Unix() - 58 }, "users/alice"},
		"a clock before ours": {nil, func(_, c object) { c["iat"], c["nbf"] = time.Now().Unix()+58, time.Now().Unix()+58 }, "users/alice"},
		"no nbf, no scope":    {nil, func(_, c object) { c["nbf"], c["scope"] = nil, nil }, "users/alice"},
		"an empty scope":      {nil, func(_, c object) { c["scope"], c["groups"] = "", []string{} }, "users/alice"},
		"jku is not followed": {nil, func(h, _ object) { h["jku"], h["x5u"] = "https://evil.example/keys", "https://evil.example/x" }, "users/alice"},
		"a sub with signs":    {nil, func(_, c object) { c["sub"] = "auth0|a_b@x" }, "users/auth0_7Ca_5Fb_40x"},
		"legacy JWT":          {legacy, func(h, c object) { h["typ"], c["client_id"], c["azp"], c["jti"] = "JWT", nil, "desktop", nil }, "users/alice"},
		"legacy scp":          {legacy, func(h, c object) { h["typ"], c["scope"], c["scp"] = nil, nil, []string{"read"} }, "users/alice"},
		"a rule by group": {func(i *oauth.Issuer) {
			i.Identities = []oauth.Rule{{Group: "admins", Path: "admins/{sub}"}, {Group: "sta*", Path: "staff/{sub}"}}
		}, nil, "staff/alice"},
		"a rule by client": {func(i *oauth.Issuer) {
			i.Identities = []oauth.Rule{{Client: "desk*", Path: "clients/{client_id}"}, {Client: "other", Path: "users/{sub}"}}
		}, nil, "clients/desktop"},
		"another claim of groups": {func(i *oauth.Issuer) {
			i.GroupsClaim, i.Identities = "roles", []oauth.Rule{{Group: "x", Path: "all"}}
		}, func(_, c object) { c["roles"] = "x" }, "all"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, tc.issuer)
			who, ok, err := s.show(bearer(s.a.Token(endpoint, tc.edit)))
			if err != nil || !ok || who.ID != ect.Identity("spiffe://example.com/oauth/a/"+tc.want) || who.Anonymous || who.Key != nil || who.Until.IsZero() {
				t.Errorf("got %+v, %v, %v", who, ok, err)
			}
		})
	}
}

// refusal is one word for an error.
func refusal(err error) string {
	if e, ok := errors.AsType[*oauth.TokenError](err); ok {
		return strings.TrimSuffix(string(e.Reason)+" "+e.Claim, " ")
	}
	if _, ok := errors.AsType[*oauth.RequestError](err); ok {
		return "request"
	}
	if _, ok := errors.AsType[*oauth.IdentityError](err); ok {
		return "identity"
	}
	if _, ok := errors.AsType[*oauth.UnavailableError](err); ok {
		return "unavailable"
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// TestAttack_AccessTokenForms: tokens that are forged, altered, of another issuer, for another endpoint or of another kind, or
// whose claims give no caller, or that of an SVID.
func TestAttack_AccessTokenForms(t *testing.T) {
	t.Parallel()
	now := time.Now().Unix()
	claim := func(name string, value any) func(*scene) string {
		return func(s *scene) string { return s.a.Token(endpoint, func(_, c object) { c[name] = value }) }
	}
	header := func(name string, value any) func(*scene) string {
		return func(s *scene) string { return s.a.Token(endpoint, func(h, _ object) { h[name] = value }) }
	}
	legacy := func(i *oauth.Issuer) { i.LegacyType = true }
	for name, tc := range map[string]struct {
		issuer func(*oauth.Issuer)
		token  func(*scene) string
		want   string // "": it is not for this judge, and goes on to the others
	}{
		"another agent":       {nil, func(s *scene) string { return s.a.Token(other, nil) }, "audience_mismatch aud"},
		"another protocol":    {nil, func(s *scene) string { return s.a.Token("https://gw.example.com/agents/calc/a2a", nil) }, "audience_mismatch aud"},
		"the endpoint with /": {nil, func(s *scene) string { return s.a.Token(endpoint+"/", nil) }, "audience_mismatch aud"},
		"no audience":         {nil, claim("aud", nil), "missing_claim aud"},
		"an empty audience":   {nil, claim("aud", ""), "invalid_claim aud"},
		"audience a number":   {nil, claim("aud", 1), "invalid_claim aud"},
		"key of B, iss of A":  {nil, func(s *scene) string { return s.b.Token(endpoint, func(_, c object) { c["iss"] = s.a.URL }) }, "unknown_key kid"},
		"key of B, kid of A": {nil, func(s *scene) string {
			return s.b.Token(endpoint, func(h, c object) { h["kid"], c["iss"] = s.a.Key.ID, s.a.URL })
		}, "invalid_signature"},
		"key of A, iss of B":    {nil, claim("iss", "https://b.example/tenant"), "unknown_key kid"},
		"issuer with /":         {nil, claim("iss", "https://a.example/"), ""},
		"issuer in capitals":    {nil, claim("iss", "https://A.example"), ""},
		"issuer unknown":        {nil, claim("iss", "https://c.example"), ""},
		"no issuer":             {nil, claim("iss", nil), ""},
		"issuer a list":         {nil, claim("iss", []string{"https://a.example"}), ""},
		"alg none":              {nil, func(s *scene) string { return cut(s.a.Token(endpoint, func(h, _ object) { h["alg"] = "none" })) + "." }, "unsupported_alg alg"},
		"alg none, signed":      {nil, header("alg", "none"), "unsupported_alg alg"},
		"alg nOnE":              {nil, header("alg", "nOnE"), "unsupported_alg alg"},
		"alg HS256 of the key":  {nil, hmacOfKey, "unsupported_alg alg"},
		"alg not allowed":       {func(i *oauth.Issuer) { i.Algorithms = []string{"RS256"} }, header("alg", "ES256"), "unsupported_alg alg"},
		"alg of another kind":   {nil, header("alg", "RS256"), "unknown_key kid"},
		"no alg":                {nil, header("alg", nil), "unsupported_alg alg"},
		"no kid":                {nil, header("kid", nil), "unknown_key kid"},
		"kid unknown":           {nil, header("kid", "x"), "unknown_key kid"},
		"kid of another issuer": {nil, header("kid", "key-b"), "unknown_key kid"},
		"kid a path":            {nil, header("kid", "../../key-1"), "unknown_key kid"},
		"key in the header": {nil, func(s *scene) string {
			k := oauthtest.NewKey(t, "own")
			return k.Sign(t, `{"typ":"at+jwt","alg":"ES256","kid":"own","jwk":`+written(k.JWK(t))+`}`, written(s.a.Claims(endpoint)))
		}, "unknown_key kid"},
		"jku with its key": {nil, func(s *scene) string {
			k := oauthtest.NewKey(t, "own")
			return k.Sign(t, `{"typ":"at+jwt","alg":"ES256","kid":"own","jku":"https://evil.example/keys"}`, written(s.a.Claims(endpoint)))
		}, "unknown_key kid"},
		"x5u with its key": {nil, func(s *scene) string {
			k := oauthtest.NewKey(t, "key-1")
			return k.Sign(t, `{"typ":"at+jwt","alg":"ES256","kid":"key-1","x5u":"https://evil.example/x"}`, written(s.a.Claims(endpoint)))
		}, "invalid_signature"},
		"forged": {nil, func(s *scene) string {
			return cut(s.a.Token(endpoint, nil)) + "." + oauthtest.Encode(strings.Repeat("x", 64))
		}, "invalid_signature"},
		"no signature": {nil, func(s *scene) string { return cut(s.a.Token(endpoint, nil)) + "." }, "invalid_signature"},
		"claims of another": {nil, func(s *scene) string {
			return swapped(s.a.Token(endpoint, nil), s.a.Token(endpoint, func(_, c object) { c["sub"] = "bob" }))
		}, "invalid_signature"},
		"expired":                {nil, claim("exp", now-61), "expired exp"},
		"no end":                 {nil, claim("exp", nil), "missing_claim exp"},
		"an end in words":        {nil, claim("exp", "tomorrow"), "invalid_claim exp"},
		"an end with a fraction": {nil, claim("exp", float64(now)+300.5), "invalid_claim exp"},
		"not yet valid":          {nil, claim("nbf", now+120), "not_yet_valid nbf"},
		"issued later":           {nil, claim("iat", now+120), "not_yet_valid iat"},
		"no iat":                 {nil, claim("iat", nil), "missing_claim iat"},
		"no sub":                 {nil, claim("sub", nil), "missing_claim sub"},
		"an empty sub":           {nil, claim("sub", ""), "invalid_claim sub"},
		"no client":              {nil, claim("client_id", nil), "missing_claim client_id"},
		"no jti":                 {nil, claim("jti", nil), "missing_claim jti"},
		"an ID token":            {nil, header("typ", "JWT"), "wrong_type typ"},
		"no typ":                 {nil, header("typ", nil), "wrong_type typ"},
		"a logout token":         {legacy, header("typ", "logout+jwt"), "wrong_type typ"},
		"an ECT":                 {legacy, header("typ", "exec+jwt"), "wrong_type typ"},
		"a legacy ID token": {legacy, func(s *scene) string {
			return s.a.Token(endpoint, func(h, c object) { h["typ"], c["nonce"] = "JWT", "n" })
		}, "wrong_type"},
		"crit": {nil, header("crit", []string{"exp"}), "unsupported_critical crit"},
		"b64 false": {nil, func(s *scene) string {
			return s.a.Token(endpoint, func(h, _ object) { h["b64"], h["crit"] = false, []string{"b64"} })
		}, "unsupported_critical crit"},
		"nested": {nil, func(s *scene) string {
			return s.a.Key.Sign(t, `{"typ":"at+jwt","cty":"JWT","alg":"ES256","kid":"key-1"}`, s.a.Token(endpoint, nil))
		}, ""},
		"a claim twice": {nil, func(s *scene) string {
			return s.a.Key.Sign(t, `{"typ":"at+jwt","alg":"ES256","kid":"key-1"}`, strings.Replace(written(s.a.Claims(endpoint)), "{", `{"sub":"bob",`, 1))
		}, ""},
		"a header twice": {nil, func(s *scene) string {
			return s.a.Key.Sign(t, `{"typ":"at+jwt","alg":"none","alg":"ES256","kid":"key-1"}`, written(s.a.Claims(endpoint)))
		}, ""},
		"huge":                   {nil, claim("x", strings.Repeat("x", oauth.MaxToken)), "token_too_long"},
		"bound to a certificate": {nil, claim("cnf", object{"x5t#S256": "x"}), "sender_constrained cnf"},
		"bound to a key":         {nil, claim("cnf", object{"jkt": "x"}), "sender_constrained cnf"},
		"groups a number":        {nil, claim("groups", 1), "invalid_claim groups"},
		"scope a list":           {nil, claim("scope", []string{"read"}), "invalid_claim scope"},
		"act a text":             {nil, claim("act", "bob"), "invalid_claim act"},
		"sub with a slash":       {nil, claim("sub", "alice/admin"), "identity"},
		"sub of two dots":        {nil, claim("sub", ".."), "identity"},
		"sub of a dot":           {nil, claim("sub", "."), "identity"},
		"sub with a backslash":   {nil, claim("sub", `..\x`), "identity"},
		"sub with a line break":  {nil, claim("sub", "a\nb"), "identity"},
		"sub with a zero":        {nil, claim("sub", "a\x00b"), "identity"},
		"sub too long":           {nil, claim("sub", strings.Repeat("a", 2048)), "identity"},
		"an SVID as sub":         {nil, claim("sub", "spiffe://example.com/gateway"), "identity"},
		"no rule fits":           {func(i *oauth.Issuer) { i.Identities = []oauth.Rule{{Group: "x", Path: "{sub}"}} }, claim("x", 1), "identity"},
		"two rules fit": {func(i *oauth.Issuer) {
			i.Identities = []oauth.Rule{{Group: "staff", Path: "{sub}"}, {Client: "desktop", Path: "{sub}"}}
		}, claim("x", 1), "identity"},
		"a group that begins":      {func(i *oauth.Issuer) { i.Identities = []oauth.Rule{{Group: "staf", Path: "{sub}"}} }, claim("x", 1), "identity"},
		"an encrypted token":       {func(i *oauth.Issuer) { i.Introspection = oauth.Introspection{} }, func(*scene) string { return "e30.AA.AA.AA.AA" }, ""},
		"an opaque one, none asks": {func(i *oauth.Issuer) { i.Introspection = oauth.Introspection{} }, func(*scene) string { return "abc" }, ""},
		"an opaque one, unknown":   {nil, func(*scene) string { return "abc" }, "not_active"},
		"an opaque one, huge":      {nil, func(*scene) string { return strings.Repeat("x", oauth.MaxToken+1) }, "token_too_long"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, tc.issuer)
			token := tc.token(s)
			who, ok, err := s.show(bearer(token))
			if ok || who.ID != "" || who.Grant != nil || refusal(err) != tc.want {
				t.Errorf("got %+v, %v, %v, want %q", who, ok, err, tc.want)
			}
			if err != nil && (strings.Contains(err.Error(), token) || strings.Contains(err.Error(), "alice")) {
				t.Errorf("the refusal quotes the token: %v", err)
			}
		})
	}
}

// cut is a token without its signature.
func cut(token string) string { return token[:strings.LastIndexByte(token, '.')] }

// swapped is the first token with the claims of the second.
func swapped(token, claims string) string {
	a, b := strings.Split(token, "."), strings.Split(claims, ".")
	return a[0] + "." + b[1] + "." + a[2]
}

func written(o object) string {
	data, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// hmacOfKey is signed with the public key as a secret.
func hmacOfKey(s *scene) string {
	input := cut(s.a.Token(endpoint, func(h, _ object) { h["alg"] = "HS256" }))
	mac := hmac.New(sha256.New, []byte(written(s.a.Key.JWK(s.t))))
	mac.Write([]byte(input))
	return input + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// TestAttack_AccessTokenPlaces: a token in the query, where logs have it, or one beside another, of which some proxy reads
// the other one.
func TestAttack_AccessTokenPlaces(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil)
	good := s.a.Token(endpoint, nil)
	for name, tc := range map[string]struct {
		lines []string
		query string
		wit   string
		want  string
	}{
		"in the query alone":    {nil, "access_token=" + good, "", "request"},
		"in query and header":   {[]string{bearer(good)}, "a=b&access_token=" + good, "", "request"},
		"in the query, escaped": {nil, "access%5Ftoken=x", "", "request"},
		"in two fields":         {[]string{bearer(good), bearer(good)}, "", "", "request"},
		"beside another scheme": {[]string{"Basic YTpi", bearer(good)}, "", "", "request"},
		"two in one field":      {[]string{bearer(good) + ", " + bearer(good)}, "", "", "request"},
		"two with a blank":      {[]string{bearer(good) + " " + good}, "", "", "request"},
		"with a control sign":   {[]string{bearer(good + "\x01")}, "", "", "request"},
		"beside a WIT":          {[]string{bearer(good)}, "", "x.y.z", "request"},
		"another scheme alone":  {[]string{"DPoP " + good}, "", "", ""},
		"nothing":               {nil, "", "", ""},
		"an empty one":          {[]string{"Bearer "}, "", "", "request"},
	} {
		fields := http.Header{"Authorization": tc.lines}
		if tc.wit != "" {
			fields.Set(credential.IdentityField, tc.wit)
		}
		_, ok, err := s.verifier.Caller(t.Context(), credential.Request{Fields: fields.Values, Target: endpoint, Query: tc.query})
		if ok || refusal(err) != tc.want {
			t.Errorf("%s: got %v, %v, want %q", name, ok, err, tc.want)
		}
	}
}

func TestVerifier_Scopes(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(i *oauth.Issuer) {
		i.Scopes = oauth.Scopes{ByName: map[string][]string{"read": {"calc#task.get", "b*"}, "write": {"calc"}, "all": {"*"}}, Initial: []string{"read"}}
	})
	who, ok, err := s.show(bearer(s.a.Token(endpoint, func(_, c object) { c["scope"], c["act"] = "read x", object{"sub": "robot"} })))
	if err != nil || !ok || who.Grant.Client != "desktop" || who.Grant.Actor != "robot" {
		t.Fatalf("got %+v, %v", who, err)
	}
	for _, tc := range []struct {
		agent, operation string
		lacks            []string
	}{
		{"calc", "task.get", nil},
		{"calc", "", nil},
		{"calc", "invoke", []string{"all", "write"}},
		{"bank", "invoke", nil},
		{"cat", "", []string{"all"}},
	} {
		err := who.Permits(tc.agent, tc.operation)
		lacks, refused := errors.AsType[*oauth.ScopeError](err)
		if refused != (tc.lacks != nil) || refused && (!slices.Equal(lacks.Scopes, tc.lacks) || lacks.Metadata != "https://gw.example.com/.well-known/oauth-protected-resource/agents/calc/mcp") {
			t.Errorf("%s, %s: got %+v", tc.agent, tc.operation, err)
		}
	}
	if issuers, scopes, first := s.verifier.Servers(); len(issuers) != 2 || len(scopes) != 3 || !slices.Equal(first, []string{"read"}) {
		t.Errorf("got %v, %v, %v", issuers, scopes, first)
	}
}

func TestResourceOf_Paths(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{
		"https://gw/agents/calc/mcp":                          "https://gw/agents/calc/mcp",
		"https://gw/agents/calc/mcp/":                         "https://gw/agents/calc/mcp",
		"https://gw/agents/calc/a2a/v1/message:send":          "https://gw/agents/calc/a2a",
		"https://gw/agents/calc/.well-known/agent-card.json":  "https://gw/agents/calc/a2a",
		"https://gw/agents/calc":                              "https://gw/agents/calc/a2a",
		"https://gw/agents/b%2Fmcp":                           "",
		"https://gw/agents/%62/mcp":                           "",
		"https://gw/agents//mcp":                              "",
		"https://gw/aepb/translate":                           "",
		"https://gw/x/agents/calc/mcp":                        "",
		"/agents/calc/mcp":                                    "",
		"https://gw.example:443/aepb.a2a.v1.Service/SendTask": "",
	} {
		if got := oauth.ResourceOf(target); got.URL != want || (got.Metadata == "") != (want == "") {
			t.Errorf("%s: got %+v, want %q", target, got, want)
		}
	}
}
