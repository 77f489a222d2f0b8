package attacks

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/oauth/oauthtest"
	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// tokens is a gateway that takes the access tokens of two servers.
type tokens struct {
	*gatewaytest.Fixture
	t    *testing.T
	a, b *oauthtest.Server
}

func withTokens(t *testing.T) tokens {
	t.Helper()
	return withTokensWithin(t, config.Limits{Rate: 1000, Burst: 2000})
}

func withTokensWithin(t *testing.T, limits config.Limits) tokens {
	t.Helper()
	var certificate atomic.Pointer[tls.Certificate]
	shown := func() tls.Certificate { return *certificate.Load() }
	out := tokens{t: t, a: oauthtest.Start(t, shown), b: oauthtest.Start(t, shown)}
	out.b.Key = oauthtest.NewKey(t, "key-b")
	out.b.Change(func(s *oauthtest.State) { s.Keys = []oauthtest.Key{out.b.Key} })
	secret := filepath.Join(t.TempDir(), "secret")
	gatewaytest.Must(t, os.WriteFile(secret, []byte(oauthtest.Secret+"\n"), 0o600))
	users := []config.OAuthIdentity{{Group: "staff", Path: "users/{sub}"}, {Group: "robots", Path: "users/{sub}"}}
	out.Fixture = gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{
		Limits: limits,
		OAuth: map[string]config.OAuthIssuer{
			"a": {
				Issuer: out.a.URL, Identities: users, Proxies: []string{"spiffe://" + gatewaytest.TrustDomain + "/front"},
				Scopes: map[string]config.Patterns{"read": {"members#task.get"}, "write": {"members"}}, Initial: []string{"read"},
				Introspection: config.OAuthIntrospection{URL: out.a.URL + oauthtest.Introspect, ClientID: oauthtest.ClientID, SecretFile: secret},
			},
			"b": {Issuer: out.b.URL, Identities: users},
		},
	}})
	svid := gatewaytest.Issue(t, out.Dev.Authority, "/authorization-server", identity.SVIDRequest{})
	certificate.Store(new(svid.Certificate()))
	return out
}

// url is that of an endpoint of an agent.
func (s tokens) url(agent, protocol string) string {
	return s.At.Public + "/agents/" + agent + "/" + protocol
}

// ask sends a call to an agent.
func (s tokens) ask(via *http.Client, agent, query string, lines ...string) gatewaytest.Reply {
	s.t.Helper()
	request := s.Request(s.t, gatewaytest.HTTPRequest{Via: via, At: "/agents/" + agent + "/a2a" + query, Body: gatewaytest.AddBody(s.Number())})
	for _, line := range lines {
		request.Header.Add("Authorization", line)
	}
	got, err := gatewaytest.Receive(via, request)
	gatewaytest.Must(s.t, err)
	return got
}

// TestAttack_AccessTokens: each token, or way to show one, that must not make a caller: the status and the challenge of its
// refusal, and that neither the answer nor the log has the token.
func TestAttack_AccessTokens(t *testing.T) {
	t.Parallel()
	s := withTokens(t)
	here := s.url("members", "a2a")
	type object = oauthtest.Object
	token := func(change func(h, c object)) []string { return []string{"Bearer " + s.a.Token(here, change)} }
	claim := func(name string, value any) []string { return token(func(_, c object) { c[name] = value }) }
	header := func(name string, value any) []string { return token(func(h, _ object) { h[name] = value }) }
	metadata := s.At.Public + "/.well-known/oauth-protected-resource/agents/members/a2a"
	invalid := func(reason string) string {
		return `Bearer error="invalid_token", error_description="access token of a refused: ` + reason + `", resource_metadata="` + metadata + `", scope="read"`
	}
	const twoPlaces = `Bearer error="invalid_request", error_description="`
	if got := s.ask(s.Anonymous, "members", "", token(nil)...); got.Status != http.StatusOK || !strings.Contains(string(got.Body), `"sum":`) {
		t.Fatalf("the good token: got %d %s %v", got.Status, got.Body, got.Header)
	}
	s.a.Opaque("opaque-good", s.a.Claims(here))
	s.a.Opaque("opaque-other", s.a.Claims(s.url("closed", "a2a")))
	if got := s.ask(s.Anonymous, "members", "", "Bearer opaque-good"); got.Status != http.StatusOK {
		t.Fatalf("the good opaque token: got %d %s", got.Status, got.Body)
	}
	front := s.Caller(t, s.SVID(t, "/front"))
	for name, tc := range map[string]struct {
		via       *http.Client // nil: without a certificate
		lines     []string
		query     string
		status    int
		challenge string
	}{
		"nothing":                    {nil, nil, "", 401, `Bearer resource_metadata="` + metadata + `", scope="read"`},
		"another agent":              {nil, claim("aud", s.url("closed", "a2a")), "", 401, invalid("audience_mismatch (aud)")},
		"another protocol":           {nil, claim("aud", s.url("members", "mcp")), "", 401, invalid("audience_mismatch (aud)")},
		"the gateway, not listed":    {nil, claim("aud", s.At.Public), "", 401, invalid("audience_mismatch (aud)")},
		"key of b, iss of a":         {nil, []string{"Bearer " + s.b.Token(here, func(_, c object) { c["iss"] = s.a.URL })}, "", 401, invalid("unknown_key (kid)")},
		"key of b, kid and iss of a": {nil, []string{"Bearer " + s.b.Token(here, func(h, c object) { c["iss"], h["kid"] = s.a.URL, s.a.Key.ID })}, "", 401, invalid("invalid_signature")},
		"alg none":                   {nil, header("alg", "none"), "", 401, invalid("unsupported_alg (alg)")},
		"alg HS256":                  {nil, header("alg", "HS256"), "", 401, invalid("unsupported_alg (alg)")},
		"expired":                    {nil, claim("exp", 1700000000), "", 401, invalid("expired (exp)")},
		"not yet valid":              {nil, claim("nbf", 4102444800), "", 401, invalid("not_yet_valid (nbf)")},
		"kid of b":                   {nil, header("kid", "key-b"), "", 401, invalid("unknown_key (kid)")},
		"no kid":                     {nil, header("kid", nil), "", 401, invalid("unknown_key (kid)")},
		"jku of a stranger":          {nil, token(func(h, _ object) { h["kid"], h["jku"] = "own", "https://127.0.0.1:1/keys" }), "", 401, invalid("unknown_key (kid)")},
		"no exp":                     {nil, claim("exp", nil), "", 401, invalid("missing_claim (exp)")},
		"no aud":                     {nil, claim("aud", nil), "", 401, invalid("missing_claim (aud)")},
		"no sub":                     {nil, claim("sub", nil), "", 401, invalid("missing_claim (sub)")},
		"no client_id":               {nil, claim("client_id", nil), "", 401, invalid("missing_claim (client_id)")},
		"no jti":                     {nil, claim("jti", nil), "", 401, invalid("missing_claim (jti)")},
		"issued later":               {nil, claim("iat", 4102444800), "", 401, invalid("not_yet_valid (iat)")},
		"no typ":                     {nil, header("typ", nil), "", 401, invalid("wrong_type (typ)")},
		"groups a number":            {nil, claim("groups", 1), "", 401, invalid("invalid_claim (groups)")},
		"an ID token":                {nil, header("typ", "JWT"), "", 401, invalid("wrong_type (typ)")},
		"crit":                       {nil, header("crit", []string{"x"}), "", 401, invalid("unsupported_critical (crit)")},
		"huge":                       {nil, claim("x", strings.Repeat("x", 17<<10)), "", 401, invalid("token_too_long")},
		"sender constrained":         {nil, claim("cnf", object{"jkt": "x"}), "", 401, invalid("sender_constrained (cnf)")},
		"opaque, unknown":            {nil, []string{"Bearer opaque-unknown"}, "", 401, invalid("not_active")},
		"opaque, for another":        {nil, []string{"Bearer opaque-other"}, "", 401, invalid("audience_mismatch (aud)")},
		"header and query":           {nil, token(nil), "?access_token=x", 400, twoPlaces + `an access token belongs in the Authorization field, not in the query"`},
		"query alone":                {nil, nil, "?access_token=" + s.a.Token(here, nil), 400, twoPlaces + `an access token belongs in the Authorization field, not in the query"`},
		"two headers":                {nil, append(token(nil), token(nil)...), "", 400, twoPlaces + `expected one Authorization field"`},
		"two in one header":          {nil, []string{token(nil)[0] + "," + token(nil)[0]}, "", 400, twoPlaces + `expected one bearer token (RFC 6750 section 2.1) in the Authorization field"`},
		"no rule":                    {nil, claim("groups", []string{"guests"}), "", 403, ""},
		"two rules":                  {nil, claim("groups", []string{"staff", "robots"}), "", 403, ""},
		"sub with a slash":           {nil, claim("sub", "x/../../somebody-else"), "", 403, ""},
		"sub of two dots":            {nil, claim("sub", ".."), "", 403, ""},
		"an SVID as sub":             {nil, claim("sub", s.Self()), "", 403, ""},
		"scope missing":              {nil, claim("scope", "other"), "", 403, `Bearer error="insufficient_scope", resource_metadata="` + metadata + `", scope="read write"`},
		"scope of another operation": {nil, claim("scope", "read"), "", 403, `Bearer error="insufficient_scope", resource_metadata="` + metadata + `", scope="write"`},
		"good, beside a certificate": {s.Client, token(nil), "", 400, ""},
		"bad, beside a certificate":  {s.Client, claim("exp", 1700000000), "", 401, invalid("expired (exp)")},
		"revoked, with a proxy":      {front, []string{"Bearer opaque-revoked"}, "", 401, invalid("not_active")},
		"of b, with a proxy of a":    {front, []string{"Bearer " + s.b.Token(here, nil)}, "", 400, ""},
		"nested":                     {nil, []string{"Bearer " + s.a.Key.Sign(t, `{"typ":"at+jwt","cty":"JWT","alg":"ES256","kid":"key-1"}`, s.a.Token(here, nil))}, "", 401, `Bearer error="invalid_token", error_description="no acceptable credentials were given", resource_metadata="` + metadata + `", scope="read"`},
		"a claim twice":              {s.Client, []string{"Bearer " + s.a.Key.Sign(t, `{"typ":"at+jwt","alg":"ES256","kid":"key-1"}`, `{"iss":"x","iss":"`+s.a.URL+`"}`)}, "", 401, `Bearer error="invalid_token", error_description="no acceptable credentials were given", resource_metadata="` + metadata + `", scope="read"`},
	} {
		via := tc.via
		if via == nil {
			via = s.Anonymous
		}
		got := s.ask(via, "members", tc.query, tc.lines...)
		if challenge := got.Header.Get("Www-Authenticate"); got.Status != tc.status || challenge != tc.challenge {
			t.Errorf("%s: got %d %s\n%s\nwant %d %s", name, got.Status, got.Body, challenge, tc.status, tc.challenge)
		}
		for _, line := range tc.lines {
			if _, secret, _ := strings.Cut(line, " "); len(secret) > 20 && (strings.Contains(string(got.Body), secret) || strings.Contains(s.Logs.String(), secret)) {
				t.Errorf("%s: an answer or the log has the token", name)
			}
		}
	}
	if got := s.ask(front, "members", "", token(nil)...); got.Status != http.StatusOK {
		t.Errorf("a proxy with the token of its user: got %d %s", got.Status, got.Body)
	}
	if got := s.ask(s.Anonymous, "closed", "", "Bearer "+s.a.Token(s.url("closed", "a2a"), nil)); got.Status != http.StatusForbidden {
		t.Errorf("an agent that does not list the caller: got %d %s", got.Status, got.Body)
	}
}

// TestAttack_CertificateAmongTokens: who holds an SVID with the id that a token would give is not that caller.
func TestAttack_CertificateAmongTokens(t *testing.T) {
	t.Parallel()
	s := withTokens(t)
	for _, path := range []string{"/oauth/a/users/alice", "/oauth/c"} {
		if got := s.ask(s.Caller(t, s.SVID(t, path)), "members", ""); got.Status != http.StatusBadRequest || !strings.Contains(string(got.Body), "identity_invalid") {
			t.Errorf("%s: got %d %s", path, got.Status, got.Body)
		}
	}
	key := s.NewTokenKey(t)
	svid := key.Token(t, "spiffe://"+gatewaytest.TrustDomain+"/oauth/a/users/alice", s.Self(), 1e11)
	if got := s.ask(s.Anonymous, "members", "", "Bearer "+svid); got.Status != http.StatusBadRequest {
		t.Errorf("a JWT-SVID: got %d %s", got.Status, got.Body)
	}
	if got := s.ask(s.Anonymous, "members", "", "Bearer "+key.Token(t, "spiffe://"+gatewaytest.TrustDomain+"/x", s.Self(), 1e11)); got.Status != http.StatusOK {
		t.Errorf("a JWT-SVID with another id: got %d %s", got.Status, got.Body)
	}
}

// TestAttack_MetadataTellNoAgents: what strangers can read is the same for agents that exist and for others.
func TestAttack_MetadataTellNoAgents(t *testing.T) {
	t.Parallel()
	s := withTokens(t)
	read := func(agent, path string) (int, string) {
		got := s.Send(t, gatewaytest.HTTPRequest{Via: s.Anonymous, Method: http.MethodGet, At: "/.well-known/oauth-protected-resource/agents/" + path})
		return got.Status, strings.ReplaceAll(string(got.Body), agent, "AGENT")
	}
	want := fmt.Sprintf(`{"resource":"%s/agents/AGENT/mcp","authorization_servers":[%q,%q],"scopes_supported":["read","write"],"bearer_methods_supported":["header"]}`, s.At.Public, min(s.a.URL, s.b.URL), max(s.a.URL, s.b.URL))
	for _, agent := range []string{"members", "closed", "nobody-at-all"} {
		if status, body := read(agent, agent+"/mcp"); status != http.StatusOK || body != want {
			t.Errorf("%s: got %d %s, want %s", agent, status, body, want)
		}
	}
	refused := map[string]int{}
	for _, path := range []string{"members/ftp", "members", "..%2Fx/mcp", "Members/mcp", "members/.well-known"} {
		status, _ := read("members", path)
		refused[path] = status
	}
	for path, status := range maps.All(refused) {
		if status != http.StatusNotFound {
			t.Errorf("%s: got %d", path, status)
		}
	}
	for _, agent := range []string{"members", "nobody-at-all"} {
		got := s.ask(s.Anonymous, agent, "")
		if challenge := strings.ReplaceAll(got.Header.Get("Www-Authenticate"), agent, "AGENT"); got.Status != 401 || challenge != `Bearer resource_metadata="`+s.At.Public+`/.well-known/oauth-protected-resource/agents/AGENT/a2a", scope="read"` {
			t.Errorf("%s: got %d %s", agent, got.Status, challenge)
		}
	}
}

// TestAttack_AccessTokensWhileTheIssuerIsAway: an issuer that is down opens nothing and locks out none whose token can be
// judged by the keys that are known; what cannot be judged is refused for now (503), not as bad.
func TestAttack_AccessTokensWhileTheIssuerIsAway(t *testing.T) {
	t.Parallel()
	s := withTokens(t)
	here := s.url("members", "a2a")
	down := func(now bool) { s.a.Change(func(st *oauthtest.State) { st.Down = now }) }
	want := func(name, token string, status int) {
		t.Helper()
		got := s.ask(s.Anonymous, "members", "", "Bearer "+token)
		if away := got.Status == http.StatusServiceUnavailable; got.Status != status || away != (got.Header.Get("Retry-After") != "") || away && got.Header.Get("Www-Authenticate") != "" {
			t.Errorf("%s: got %d %s %v, want %d", name, got.Status, got.Body, got.Header, status)
		}
	}
	down(true)
	want("no keys are known", s.a.Token(here, nil), 503)
	want("an opaque token", "opaque-1", 503)
	want("of another issuer", s.b.Token(here, nil), 200)
	down(false)
	s.a.Opaque("opaque-1", s.a.Claims(here))
	want("it is there again, and the token is opaque", "opaque-1", 200)
	s.a.Change(func(st *oauthtest.State) { st.Delay = 4 * time.Second })
	want("introspection is slow", "opaque-2", 503)
	want("what was judged before", "opaque-1", 200)

	s = withTokens(t)
	here = s.url("members", "a2a")
	want("the first token", s.a.Token(here, nil), 200)
	former := s.a.Token(here, nil)
	s.a.Key = oauthtest.NewKey(t, "key-2")
	s.a.Change(func(st *oauthtest.State) { st.Keys = []oauthtest.Key{s.a.Key} })
	want("a key that is not known yet", s.a.Token(here, nil), 401)
	want("the key that is known", former, 200)
	down(true)
	want("the key that is known, without its issuer", former, 200)
}

// TestAttack_OpaqueTokensLockOutOthers: a stranger with random tokens uses up the failures of its address, and a caller with
// a certificate is served.
func TestAttack_OpaqueTokensLockOutOthers(t *testing.T) {
	t.Parallel()
	s := withTokens(t)
	s.a.Opaque("good", s.a.Claims(s.url("members", "a2a")))
	if got := s.ask(s.Anonymous, "members", "", "Bearer good"); got.Status != http.StatusOK {
		t.Fatalf("got %d %s", got.Status, got.Body)
	}
	for i := range 300 {
		if got := s.ask(s.Anonymous, "members", "", fmt.Sprint("Bearer random-", i)); got.Status != 401 && got.Status != 429 {
			t.Fatalf("got %d %s", got.Status, got.Body)
		}
	}
	if got := s.ask(s.Anonymous, "members", "", "Bearer good"); got.Status != http.StatusOK {
		t.Errorf("a token that was judged before: got %d %s", got.Status, got.Body)
	}
	if got := s.ask(s.Client, "members", ""); got.Status != http.StatusOK {
		t.Errorf("a certificate: got %d %s", got.Status, got.Body)
	}
}

// TestAttack_OddOpaqueTokens: a stranger shows 1,000 opaque tokens that the introspection server does not take, or that are
// not active. The stranger is refused before long, and the token of a caller at another address is judged.
func TestAttack_OddOpaqueTokens(t *testing.T) {
	t.Parallel()
	s := withTokensWithin(t, config.Limits{Rate: 10, Burst: 100})
	claims := s.a.Claims(s.url("members", "a2a"))
	s.a.Change(func(st *oauthtest.State) {
		st.Introspect = func(w http.ResponseWriter, r *http.Request) {
			switch token := r.PostFormValue("token"); {
			case strings.HasPrefix(token, "good"):
				claims["active"] = true
				gatewaytest.Must(t, json.NewEncoder(w).Encode(claims))
			case strings.HasPrefix(token, "odd"):
				http.Error(w, `{"error":"invalid_request"}`, http.StatusBadRequest)
			default:
				_, _ = w.Write([]byte(`{"active":false}`))
			}
		}
	})
	elsewhere := s.Anonymous.Transport.(*http.Transport).Clone()
	elsewhere.DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext
	t.Cleanup(elsewhere.CloseIdleConnections)
	answers := map[int]int{}
	for i := range 1000 {
		kind := "odd"
		if i%2 == 1 {
			kind = "ended"
		}
		answers[s.ask(s.Anonymous, "members", "", fmt.Sprint("Bearer ", kind, "-", i)).Status]++
		if i%250 == 249 {
			if got := s.ask(&http.Client{Transport: elsewhere}, "members", "", fmt.Sprint("Bearer good-", i)); got.Status != http.StatusOK {
				t.Errorf("another caller, after %d: got %d %s", i+1, got.Status, got.Body)
			}
		}
	}
	if requests := s.a.Requests(oauthtest.Introspect); requests > 600 || answers[401]+answers[429] != 1000 || answers[429] < 400 {
		t.Errorf("%d requests at the server, and the answers to the stranger are %v", requests, answers)
	}
}
