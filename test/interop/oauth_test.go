package interop

import (
	"bufio"
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/policy"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// protected is a gateway whose callers show tokens of a real authorization server, oidc-provider: those with the
// scope read may see what the A2A agent "helpdesk" can do and call "lounge", those with the scope call may call both.
type protected struct {
	*gatewaytest.Fixture
	js     javascript
	issuer string // URL of the authorization server
	caFile string
}

// The clients that the authorization server knows without a registration, and their secret.
const (
	userClient    = "desktop"
	jobClient     = "job-reports"
	gatewayClient = "gateway"
	clientSecret  = "a-secret-of-32-characters-at-least"
)

// newProtected starts both, the server below a path of its host. They end with the test.
func newProtected(t *testing.T, path string) *protected {
	t.Helper()
	h := &protected{js: newJavascript(t)}
	certify := h.authorizationServer(t, path)
	h.Fixture = gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{OAuth: map[string]config.OAuthIssuer{"corp": {
		Issuer: h.issuer, Initial: []string{"read"},
		Identities: []config.OAuthIdentity{{Client: jobClient, Path: "jobs/{client_id}"}, {Subject: "ann", Path: "users/{sub}"}},
		Scopes:     map[string]config.Patterns{"read": {"helpdesk#describe", "lounge"}, "call": {"helpdesk", "lounge"}},
	}}}})
	h.caFile = filepath.Join(h.Dir, "ca.pem")
	certify(h.SVID(t, "/authorization-server"))
	agent, found := h.Directory().Find("concierge")
	if !found {
		t.Fatal("no concierge")
	}
	agent.Rules = policy.Rules{Callers: []string{"spiffe://" + gatewaytest.TrustDomain + "/oauth/corp/*"}}
	for _, agent.Name = range []string{"helpdesk", "lounge"} {
		gatewaytest.Must(t, h.Directory().Put(agent))
	}
	return h
}

// authorizationServer starts the server below a path, which answers once it is given its certificate.
func (h *protected) authorizationServer(t *testing.T, path string) (certify func(*identity.SVID)) {
	t.Helper()
	clients := []map[string]any{{"client_id": userClient, "redirect_uris": []string{"http://127.0.0.1:9/done"}, "token_endpoint_auth_method": "none"}}
	for _, id := range []string{jobClient, gatewayClient} {
		clients = append(clients, map[string]any{
			"client_id": id, "client_secret": clientSecret, "grant_types": []string{"client_credentials"}, "redirect_uris": []string{}, "response_types": []string{},
		})
	}
	job := map[string]any{"path": path, "scopes": []string{"read", "call"}, "clients": clients}
	cmd := exec.CommandContext(t.Context(), h.js.node, "oauth-server.mjs", string(mustJSON(job)))
	var failures strings.Builder
	cmd.Dir, cmd.Stderr = "js", &failures
	input, err := cmd.StdinPipe()
	gatewaytest.Must(t, err)
	output, err := cmd.StdoutPipe()
	gatewaytest.Must(t, err)
	gatewaytest.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the authorization server:\n%s", failures.String())
		}
	})
	lines := bufio.NewReader(output)
	line, err := lines.ReadString('\n')
	gatewaytest.Must(t, err)
	h.issuer = strings.TrimSpace(line)
	return func(svid *identity.SVID) {
		cert, key := inPEM(t, svid)
		_, err := io.WriteString(input, string(mustJSON(map[string]string{"cert": cert, "key": key}))+"\n")
		gatewaytest.Must(t, err)
		if line, err := lines.ReadString('\n'); strings.TrimSpace(line) != "serving" {
			t.Fatalf("the authorization server says %q, %v", line, err)
		}
	}
}

// inPEM are the chain and the key of an SVID.
func inPEM(t *testing.T, svid *identity.SVID) (cert, key string) {
	t.Helper()
	var chain []byte
	for _, der := range svid.Certificate().Certificate {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	der, err := x509.MarshalPKCS8PrivateKey(svid.Key)
	gatewaytest.Must(t, err)
	return string(chain), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// tokenJob is what the clients of each language do.
type tokenJob struct {
	SDK      string      `json:"sdk,omitempty"` // of two
	Endpoint string      `json:"endpoint"`
	As       tokenClient `json:"as"`
	Call     jsCall      `json:"call"`
}

// tokenClient is who it is at the authorization server. Without a secret it has a user, and without an id it registers.
type tokenClient struct {
	ID     string `json:"clientId,omitempty"`
	Secret string `json:"clientSecret,omitempty"`
	Scope  string `json:"scope,omitempty"`
}

// tokenReport is what a client saw.
type tokenReport struct {
	Tools   []string `json:"tools"`
	Text    string   `json:"text"`
	Granted []string `json:"granted"` // scopes of each token
	Trail   []string `json:"trail"`   // status and path of each answer
}

func (h *protected) job(sdk, agent string, as tokenClient) tokenJob {
	return tokenJob{
		SDK: sdk, Endpoint: h.At.Public + "/agents/" + agent + "/mcp", As: as,
		Call: jsCall{Name: peers.ConciergeSkill, Arguments: json.RawMessage(`{"message":"hello"}`)},
	}
}

// judge compares what a client saw with the way that RFC 9728 and MCP describe: it steps up where it has more than one token.
func (r tokenReport) judge(t *testing.T, agent string, granted ...string) {
	t.Helper()
	at := "/agents/" + agent + "/mcp"
	if !slices.Equal(r.Tools, []string{peers.ConciergeSkill}) || !strings.Contains(r.Text, "You said: hello") {
		t.Errorf("tools %q, text %q", r.Tools, r.Text)
	}
	if !slices.Equal(r.Granted, granted) {
		t.Errorf("tokens with the scopes %q, want %q", r.Granted, granted)
	}
	if len(r.Trail) == 0 || r.Trail[0] != "401 "+at || !slices.Contains(r.Trail, "200 /.well-known/oauth-protected-resource"+at) {
		t.Errorf("the way was %q, want a refusal first, and the metadata of the endpoint", r.Trail)
	}
	if stepped := slices.Contains(r.Trail, "403 "+at); stepped != (len(granted) > 1) {
		t.Errorf("refused for its scope: %t, with the scopes %q", stepped, granted)
	}
}

// token asks the authorization server for a token of a client for itself.
func (h *protected) token(t *testing.T, agent, scope string) string {
	t.Helper()
	got := h.Send(t, gatewaytest.HTTPRequest{
		Via: h.Anonymous, At: h.issuer + "/token", Media: "application/x-www-form-urlencoded",
		Body:   url.Values{"grant_type": {"client_credentials"}, "scope": {scope}, "resource": {h.At.Public + "/agents/" + agent + "/mcp"}}.Encode(),
		Header: map[string]string{"Authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte(jobClient+":"+clientSecret))},
	})
	var grant struct {
		Token string `json:"access_token"`
	}
	if got.Status != http.StatusOK || json.Unmarshal(got.Body, &grant) != nil {
		t.Fatalf("no token: %d %s", got.Status, got.Body)
	}
	return grant.Token
}

// checks that tokens of this server are judged: by their signature, their endpoint and their scope.
func (h *protected) checks(t *testing.T) {
	t.Helper()
	good := h.token(t, "helpdesk", "call")
	forged := good[:len(good)-40] + strings.Repeat("A", 40)
	for name, c := range map[string]struct {
		token  string
		status int
		want   string // in the challenge
	}{
		"good":                 {good, http.StatusOK, ""},
		"forged":               {forged, http.StatusUnauthorized, `error="invalid_token"`},
		"for another endpoint": {h.token(t, "lounge", "call"), http.StatusUnauthorized, `error="invalid_token"`},
		"of a lesser scope":    {h.token(t, "helpdesk", "read"), http.StatusForbidden, `error="insufficient_scope"`},
	} {
		header := gatewaytest.MCPHeader("2025-11-25")
		header["Authorization"] = "Bearer " + c.token
		got := h.Send(t, gatewaytest.HTTPRequest{
			Via: h.Anonymous, At: "/agents/helpdesk/mcp", Header: header, Body: gatewaytest.LegacyCall(peers.ConciergeSkill, `{"message":"hello"}`),
		})
		if challenge := got.Header.Get("WWW-Authenticate"); got.Status != c.status || !strings.Contains(challenge, c.want) {
			t.Errorf("a token %s: %d %q, want %d %q", name, got.Status, challenge, c.status, c.want)
		}
	}
}

// TestOAuth_JavaScript: clients of both official SDKs of JavaScript, with nothing but the URL of an endpoint, find an
// authorization server that is not ours, get a token for this endpoint, list tools, and step up for a call.
func TestOAuth_JavaScript(t *testing.T) {
	t.Parallel()
	h := newProtected(t, "")
	h.checks(t)
	for name, c := range map[string]struct {
		sdk, agent string
		as         tokenClient
		granted    []string
	}{
		"1.x, a user":       {"sdk", "helpdesk", tokenClient{ID: userClient}, []string{"read", "call"}},
		"2.x, a user":       {"client", "helpdesk", tokenClient{ID: userClient}, []string{"read", "read call"}},
		"1.x, it registers": {"sdk", "lounge", tokenClient{}, []string{"read"}},
		"2.x, it registers": {"client", "lounge", tokenClient{}, []string{"read"}},
		// 1.x asks for the scope that its user has set, whatever the challenge says.
		"1.x, itself": {"sdk", "helpdesk", tokenClient{jobClient, clientSecret, "read call"}, []string{"read call"}},
		"2.x, itself": {"client", "helpdesk", tokenClient{ID: jobClient, Secret: clientSecret}, []string{"read", "read call"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got tokenReport
			h.js.run(t, h.caFile, "oauth-client.mjs", h.job(c.sdk, c.agent, c.as), &got)
			got.judge(t, c.agent, c.granted...)
		})
	}
}

// TestOAuth_Python: the same with both official SDKs of Python, where the issuer has a path: its metadata are not where RFC 8414
// has them, but where OpenID Connect has them.
func TestOAuth_Python(t *testing.T) {
	t.Parallel()
	h := newProtected(t, "/tenants/one")
	h.checks(t)
	for name, c := range map[string]struct {
		of, agent string
		as        tokenClient
		granted   []string
	}{
		"1.x, a user":       {"old", "helpdesk", tokenClient{ID: userClient}, []string{"read", "call"}},
		"2.x, a user":       {"new", "helpdesk", tokenClient{ID: userClient}, []string{"read", "read call"}},
		"1.x, it registers": {"old", "lounge", tokenClient{}, []string{"read"}},
		"2.x, it registers": {"new", "lounge", tokenClient{}, []string{"read"}},
		"1.x, itself":       {"old", "helpdesk", tokenClient{ID: jobClient, Secret: clientSecret}, []string{"read", "call"}},
		"2.x, itself":       {"new", "helpdesk", tokenClient{ID: jobClient, Secret: clientSecret}, []string{"read", "read call"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			interpreter, err := filepath.Abs(filepath.Join("..", "..", ".tmp", "python-"+c.of, "bin", "python"))
			gatewaytest.Must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), scriptTimeout)
			defer cancel()
			cmd := exec.CommandContext(ctx, interpreter, "-W", "ignore", filepath.Join("..", "python", "peers", "oauth_client.py"), string(mustJSON(h.job("", c.agent, c.as))))
			var failures strings.Builder
			cmd.Env, cmd.Stderr = append(os.Environ(), "SSL_CERT_FILE="+h.caFile), &failures
			out, err := cmd.Output()
			var got tokenReport
			if err != nil || json.Unmarshal(out, &got) != nil {
				t.Fatalf("%v (make test installs the Python SDKs)\n%s%s", err, out, &failures)
			}
			got.judge(t, c.agent, c.granted...)
		})
	}
}

// keyOf finds the key of a token among those that the authorization server publishes, by the standard library alone.
func (h *protected) keyOf(t *testing.T) jwt.Keyfunc {
	t.Helper()
	got := h.Send(t, gatewaytest.HTTPRequest{Via: h.Anonymous, Method: http.MethodGet, Media: "-", At: h.issuer + "/jwks"})
	var set struct {
		Keys []struct{ Kid, N string }
	}
	if err := json.Unmarshal(got.Body, &set); err != nil {
		t.Fatalf("no keys: %v in %s", err, got.Body)
	}
	return func(token *jwt.Token) (any, error) {
		for _, key := range set.Keys {
			if n, err := base64.RawURLEncoding.DecodeString(key.N); err == nil && token.Header["kid"] == key.Kid && token.Header["typ"] == "at+jwt" {
				return &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: 65537}, nil
			}
		}
		return nil, errors.New("not an access token, or an unknown key")
	}
}

// TestOAuth_TowardAnAgent: an agent accepts only tokens of the authorization server, for itself and for the client that
// the gateway is there. The gateway gets one by client credentials, and callers of the gateway need to know nothing of that.
func TestOAuth_TowardAnAgent(t *testing.T) {
	t.Parallel()
	h := &protected{js: newJavascript(t)}
	certify := h.authorizationServer(t, "")
	h.Fixture = gatewaytest.NewFixture(t, gatewaytest.Plan{})
	certify(h.SVID(t, "/authorization-server"))
	secret := filepath.Join(t.TempDir(), "secret")
	gatewaytest.Must(t, os.WriteFile(secret, []byte(clientSecret+"\n"), 0o600))

	behind, err := url.Parse(h.Talker.URL())
	gatewaytest.Must(t, err)
	through := httputil.NewSingleHostReverseProxy(behind)
	through.Transport = h.Client.Transport
	var accepted, refused atomic.Int64
	key := h.keyOf(t)
	agent := httptest.NewUnstartedServer(nil)
	agent.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		claims := jwt.MapClaims{}
		_, err := jwt.ParseWithClaims(shown, claims, key, jwt.WithValidMethods([]string{"RS256"}), jwt.WithExpirationRequired(), jwt.WithIssuer(h.issuer), jwt.WithAudience(agent.URL))
		if err != nil || claims["client_id"] != gatewayClient || claims["scope"] != "call" {
			refused.Add(1)
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		accepted.Add(1)
		through.ServeHTTP(w, r)
	})
	agent.TLS = gatewaytest.Serving(h.SVID(t, "/front"))
	agent.StartTLS()
	t.Cleanup(agent.Close)

	listed := func(credential *config.Credential) config.Agent {
		return config.Agent{ID: "spiffe://" + gatewaytest.TrustDomain + "/front", Credential: credential, Endpoints: []config.Endpoint{{Binding: "a2a-v1", URL: agent.URL}}}
	}
	c := h.Settings()
	c.Agents = maps.Clone(c.Agents)
	c.Agents["bare"] = listed(nil)
	c.Agents["desk"] = listed(&config.Credential{OAuth: &config.CredentialOAuth{
		TokenURL: h.issuer + "/token", ClientID: gatewayClient, SecretFile: secret, Scopes: []string{"call"}, Resource: []string{agent.URL},
	}})
	c.Agents["elsewhere"] = listed(&config.Credential{OAuth: &config.CredentialOAuth{
		TokenURL: h.issuer + "/token", ClientID: gatewayClient, SecretFile: secret, Scopes: []string{"call"}, Resource: []string{"https://elsewhere.example"},
	}})
	gatewaytest.Must(t, h.Reload(t.Context(), c))

	call := func(name string) (string, error) {
		got, err := peers.MCPCall(t.Context(), h.Client, h.At.Public+"/agents/"+name+"/mcp", true, peers.ConciergeSkill, json.RawMessage(`{"message":"hello"}`))
		return got.Text(), err
	}
	if text, err := call("desk"); err != nil || !strings.Contains(text, "You said: hello") || accepted.Load() == 0 || refused.Load() != 0 {
		t.Errorf("got %q, %v; %d requests accepted and %d refused", text, err, accepted.Load(), refused.Load())
	}
	before := accepted.Load()
	for _, name := range []string{"bare", "elsewhere"} {
		if text, err := call(name); strings.Contains(text, "You said") || refused.Load() == 0 || accepted.Load() != before {
			t.Errorf("%s: got %q, %v; %d requests refused", name, text, err, refused.Load())
		}
		refused.Store(0)
	}
}
