package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
)

// TestMCPServer_RefusesWithText: a server that refuses a request with HTTP status 400
// and a text, as the MCP SDK for Go does of params that are missing, has answered with
// an error. Its text is quoted, as far as it is short (MCP 2025-11-25, Streamable HTTP,
// Sending Messages: the body of such a response may be anything).
func TestMCPServer_RefusesWithText(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	server, err := peers.NewMCPServer(t.Context(), peers.MCPDeps{Deps: peers.Deps{TLS: serving(b.svid(t, "/sessions"))}})
	must(t, err)
	t.Cleanup(func() { stopWithin(t, server.Stop) })
	b.list(t, "sessions", "mcp-v1", server.URL(), host{})
	t.Run("the SDK's own server", func(t *testing.T) {
		for _, method := range []string{"prompts/get", "resources/read"} {
			header := mcpHeader("2025-06-18")
			header["Mcp-Session-Id"] = b.initialize(t, b.client, "sessions")
			got := b.send(t, letter{at: "/agents/sessions/mcp", header: header, body: `{"jsonrpc":"2.0","id":7,"method":"` + method + `"}`})
			body := string(got.body)
			if !strings.Contains(body, `"id":7`) || !strings.Contains(body, `"code":-32600,"message":"the agent refused the request with HTTP status 400: \"`) || !strings.Contains(body, "params") {
				t.Errorf("%s: %d %s", method, got.status, body)
			}
			if len(b.proofs(t, got)) == 0 {
				t.Errorf("%s: the answer has no ECT", method)
			}
		}
	})
	t.Run("a method that the SDK's own server lacks", func(t *testing.T) {
		const method = "foo/bar"
		got := b.send(t, letter{at: "/agents/sessions/mcp", header: mirror(method, ""), body: `{"jsonrpc":"2.0","id":7,"method":"` + method + `","params":{` + modernMeta + `}}`})
		if body := string(got.body); got.status != http.StatusNotFound || !strings.Contains(body, `"code":-32601,`) {
			t.Errorf("%d %s, want 404 and -32601 (MCP 2026-07-28, Streamable HTTP)", got.status, body)
		}
	})
	long := "no\x00thing \u202e" + strings.Repeat("x", 4096)
	b.serve(t, "wordy", "mcp-v1", &fake{conduct: calling(http.StatusBadRequest, "text/plain; charset=utf-8", long)}, host{})
	for caller, l := range map[string]letter{
		"MCP": {at: "/agents/wordy/mcp", header: mirror("tools/call", "echo"), body: callBody("echo", "x")},
		"MCP with progress": {
			at: "/agents/wordy/mcp", header: mirror("tools/call", "echo"),
			body: strings.Replace(callBody("echo", "x"), `"_meta":{`, `"_meta":{"progressToken":"p",`, 1),
		},
		"MCP 2025": {at: "/agents/wordy/mcp", header: mcpHeader("2025-11-25"), body: legacyCall("echo", `{"message":"x"}`)},
		"A2A":      {at: "/agents/wordy/a2a", header: map[string]string{"A2A-Version": "1.0"}, body: addBody(5)},
		"stream":   {at: "/agents/wordy/a2a", header: map[string]string{"A2A-Version": "1.0"}, body: streamed(addBody(5))},
	} {
		t.Run("a long text for "+caller, func(t *testing.T) {
			got := b.send(t, l)
			body := string(got.body)
			if !strings.Contains(body, "the agent refused the request with HTTP status 400") || !strings.Contains(body, `no\\x00thing \\u202exxx`) {
				t.Errorf("%d %s", got.status, body)
			}
			if strings.Contains(body, strings.Repeat("x", 512)) || strings.Contains(body, "no reply") {
				t.Errorf("%d %s, want at most 512 bytes of the text", got.status, body)
			}
		})
	}
}
