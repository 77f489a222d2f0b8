package interop

import (
	"bufio"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/policy"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// tokenHouse is a gateway whose callers show tokens of a real authorization server, oidc-provider: those with the
// scope read may see what the A2A agent "helpdesk" can do and call "lounge", those with the scope call may call both.
type tokenHouse struct {
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

// newTokenHouse starts both. They end with the test.
func newTokenHouse(t *testing.T) *tokenHouse {
	t.Helper()
	h := &tokenHouse{js: newJavascript(t)}
	certify := h.authorizationServer(t)
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

// authorizationServer starts the server, which answers once it is given its certificate.
func (h *tokenHouse) authorizationServer(t *testing.T) (certify func(*identity.SVID)) {
	t.Helper()
	clients := []map[string]any{{"client_id": userClient, "redirect_uris": []string{"http://127.0.0.1:9/done"}, "token_endpoint_auth_method": "none"}}
	for _, id := range []string{jobClient, gatewayClient} {
		clients = append(clients, map[string]any{
			"client_id": id, "client_secret": clientSecret, "grant_types": []string{"client_credentials"}, "redirect_uris": []string{}, "response_types": []string{},
		})
	}
	job := map[string]any{"scopes": []string{"read", "call"}, "clients": clients}
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

func (h *tokenHouse) job(sdk, agent string, as tokenClient) tokenJob {
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

// TestOAuth_JavaScript: clients of both official SDKs of JavaScript, with nothing but the URL of an endpoint, find an
// authorization server that is not ours, get a token for this endpoint, list tools, and step up for a call.
func TestOAuth_JavaScript(t *testing.T) {
	t.Parallel()
	h := newTokenHouse(t)
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
