package stories

import (
	"net/http"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestMCPServer_RefusesWithText: a server that refuses a request with HTTP status 400
// and a text, as the MCP SDK for Go does of params that are missing, has answered with
// an error. Its text is quoted, as far as it is short (MCP 2025-11-25, Streamable HTTP,
// Sending Messages: the body of such a response may be anything).
func TestMCPServer_RefusesWithText(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	server, err := peers.NewMCPServer(t.Context(), peers.MCPDeps{Deps: peers.Deps{TLS: gatewaytest.Serving(b.SVID(t, "/sessions"))}})
	gatewaytest.Must(t, err)
	t.Cleanup(func() { gatewaytest.StopWithin(t, server.Stop) })
	b.List(t, "sessions", "mcp-v1", server.URL(), gatewaytest.Host{})
	t.Run("the SDK's own server", func(t *testing.T) {
		for _, method := range []string{"prompts/get", "resources/read"} {
			header := gatewaytest.MCPHeader("2025-06-18")
			header["Mcp-Session-Id"] = b.Initialize(t, b.Client, "sessions")
			got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/sessions/mcp", Header: header, Body: `{"jsonrpc":"2.0","id":7,"method":"` + method + `"}`})
			body := string(got.Body)
			if !strings.Contains(body, `"id":7`) || !strings.Contains(body, `"code":-32600,"message":"the agent refused the request with HTTP status 400: \"`) || !strings.Contains(body, "params") {
				t.Errorf("%s: %d %s", method, got.Status, body)
			}
			if len(b.Proofs(t, got)) == 0 {
				t.Errorf("%s: the answer has no ECT", method)
			}
		}
	})
	t.Run("a method that the SDK's own server lacks", func(t *testing.T) {
		const method = "foo/bar"
		got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/sessions/mcp", Header: gatewaytest.Mirror(method, ""), Body: `{"jsonrpc":"2.0","id":7,"method":"` + method + `","params":{` + gatewaytest.ModernMeta + `}}`})
		if body := string(got.Body); got.Status != http.StatusNotFound || !strings.Contains(body, `"code":-32601,`) {
			t.Errorf("%d %s, want 404 and -32601 (MCP 2026-07-28, Streamable HTTP)", got.Status, body)
		}
	})
	long := "no\x00thing \u202e" + strings.Repeat("x", 4096)
	b.Serve(t, "wordy", "mcp-v1", &gatewaytest.Fake{Conduct: gatewaytest.Calling(http.StatusBadRequest, "text/plain; charset=utf-8", long)}, gatewaytest.Host{})
	for caller, l := range map[string]gatewaytest.HTTPRequest{
		"MCP": {At: "/agents/wordy/mcp", Header: gatewaytest.Mirror("tools/call", "echo"), Body: gatewaytest.CallBody("echo", "x")},
		"MCP with progress": {
			At: "/agents/wordy/mcp", Header: gatewaytest.Mirror("tools/call", "echo"),
			Body: strings.Replace(gatewaytest.CallBody("echo", "x"), `"_meta":{`, `"_meta":{"progressToken":"p",`, 1),
		},
		"MCP 2025": {At: "/agents/wordy/mcp", Header: gatewaytest.MCPHeader("2025-11-25"), Body: gatewaytest.LegacyCall("echo", `{"message":"x"}`)},
		"A2A":      {At: "/agents/wordy/a2a", Header: map[string]string{"A2A-Version": "1.0"}, Body: gatewaytest.AddBody(5)},
		"stream":   {At: "/agents/wordy/a2a", Header: map[string]string{"A2A-Version": "1.0"}, Body: gatewaytest.Streamed(gatewaytest.AddBody(5))},
	} {
		t.Run("a long text for "+caller, func(t *testing.T) {
			got := b.Send(t, l)
			body := string(got.Body)
			if !strings.Contains(body, "the agent refused the request with HTTP status 400") || !strings.Contains(body, `no\\x00thing \\u202exxx`) {
				t.Errorf("%d %s", got.Status, body)
			}
			if strings.Contains(body, strings.Repeat("x", 512)) || strings.Contains(body, "no reply") {
				t.Errorf("%d %s, want at most 512 bytes of the text", got.Status, body)
			}
		})
	}
}
