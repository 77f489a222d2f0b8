package main

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
)

// TestMCPNotice_UnreadableCostsOnlyItself: a notification that is not as it must be,
// such as progress of a server that repeats the token of a caller who gave none, is left
// out of the answer, and declared (loss L12). The result after it is given (JSON-RPC
// 2.0, section 4.1: a notification has no reply).
func TestMCPNotice_UnreadableCostsOnlyItself(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	for name, tc := range map[string]struct{ notice, lost string }{
		"progress":       {`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":null,"progress":1}}`, "L12 dropped /body/progress"},
		"progress-empty": {`{"jsonrpc":"2.0","method":"notifications/progress"}`, "L12 dropped /body/progress"},
		"log":            {`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"x"}}`, "L12 dropped /body/log"},
	} {
		b.serve(t, name, "mcp-v1", &fake{conduct: eventful(tc.notice)}, host{})
		progress := strings.Replace(callBody("echo", "x"), `"_meta":{`, `"_meta":{"progressToken":"p",`, 1)
		for caller, l := range map[string]letter{
			"A2A":           {at: "/agents/" + name + "/a2a", header: map[string]string{"A2A-Version": "1.0"}, body: addBody(5)},
			"A2A stream":    {at: "/agents/" + name + "/a2a", header: map[string]string{"A2A-Version": "1.0"}, body: streamed(addBody(5))},
			"MCP":           {at: "/agents/" + name + "/mcp", header: mirror("tools/call", "echo"), body: callBody("echo", "x")},
			"MCP, progress": {at: "/agents/" + name + "/mcp", header: mirror("tools/call", "echo"), body: progress},
			"MCP 2025":      {at: "/agents/" + name + "/mcp", header: mcpHeader("2025-11-25"), body: legacyCall("echo", `{"message":"x"}`)},
		} {
			t.Run(name+" for "+caller, func(t *testing.T) {
				response, err := b.client.Do(b.request(t, l))
				must(t, err)
				defer func() { _ = response.Body.Close() }()
				body, err := io.ReadAll(response.Body)
				must(t, err)
				if text := string(body); response.StatusCode != http.StatusOK || !strings.Contains(text, "done") || strings.Contains(text, `"error"`) || strings.Contains(text, `"progressToken":null`) {
					t.Errorf("%d %s", response.StatusCode, body)
				}
				tokens := append(response.Header.Values(ect.HeaderName), response.Trailer.Values(ect.HeaderName)...)
				if w := b.warnings(t, tokens); !slices.Contains(w, tc.lost) {
					t.Errorf("the ECTs warn of %q, want %q among it", w, tc.lost)
				}
			})
		}
	}
}
