package stories

import (
	"bytes"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/keys"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/test/harness/grpctest"
)

// oneHeader is what a user of an SDK puts below its client: each request has one header field more.
type oneHeader struct {
	to          http.RoundTripper
	name, value string
}

func (h oneHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(h.name, h.value)
	return h.to.RoundTrip(r)
}

// TestAPIKeys_SDKClientUntilRevoked: an operator makes a key. Clients of the SDKs of MCP and A2A that only set a header
// call an agent with it, without a certificate. The operator revokes the key, and the next calls get 401.
func TestAPIKeys_SDKClientUntilRevoked(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.yaml")
	aepbctl := func(args ...string) string {
		var out, failed bytes.Buffer
		if code := program.Run(t.Context(), keys.Commands, append([]string{"keys", args[0], "--file", file}, args[1:]...), nil, &out, &failed); code != program.ExitOK {
			t.Fatalf("%s: %d %s", args, code, &failed)
		}
		return strings.TrimSpace(out.String())
	}
	key := aepbctl("new", "--caller", "spiffe://"+gatewaytest.TrustDomain+"/reports", "--id", "reports")
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{APIKeys: config.APIKeys{File: file}}})
	clients := map[string]*http.Client{}
	for name, value := range map[string]string{"Authorization": "Bearer " + key, "X-API-Key": key} {
		clients[name] = &http.Client{Transport: oneHeader{b.Anonymous.Transport, name, value}, Timeout: gatewaytest.Patience}
	}
	at := b.At.Public + "/agents/members"
	overMCP := func(client *http.Client) error {
		got, err := peers.MCPCall(t.Context(), client, at+"/mcp", false, "add", json.RawMessage(`{"a":41,"b":1}`))
		if err == nil && !strings.Contains(got.Text(), "42") {
			t.Errorf("MCP: %s", got.Text())
		}
		return err
	}
	overA2A := func(client *http.Client) error {
		_, err := peers.A2ACall(t.Context(), client, at, grpctest.SkillMessage("add", map[string]any{"a": 41, "b": 1}))
		return err
	}
	for name, client := range clients {
		if err := overMCP(client); err != nil {
			t.Errorf("MCP, %s: %v", name, err)
		}
		if err := overA2A(client); err != nil {
			t.Errorf("A2A, %s: %v", name, err)
		}
	}
	if overMCP(b.Anonymous) == nil || overA2A(b.Anonymous) == nil {
		t.Error("a client without a key is let in")
	}
	aepbctl("revoke", "reports")
	gatewaytest.Must(t, b.Reload(t.Context(), gatewaytest.OnFiles(b)))
	for name, client := range clients {
		if err := overMCP(client); err == nil || !strings.Contains(err.Error(), "Unauthorized") {
			t.Errorf("MCP, %s, revoked: %v", name, err)
		}
		if err := overA2A(client); err == nil {
			t.Errorf("A2A, %s: the revoked key is taken", name)
		}
		got := b.Send(t, gatewaytest.HTTPRequest{Via: client, At: "/agents/members/a2a", Body: gatewaytest.AddBody(1)})
		if got.Status != http.StatusUnauthorized {
			t.Errorf("%s, revoked: %d %s", name, got.Status, got.Body)
		}
	}
	if lines := b.Logs.Lines(strings.TrimPrefix(key, "aepb_reports_")); len(lines) > 0 {
		t.Errorf("the log has the secret: %s", lines)
	}
}
