package stories

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestMCPNotice_UnreadableCostsOnlyItself: a notification that is not as it must be,
// such as progress of a server that repeats the token of a caller who gave none, is left
// out of the answer, and declared (loss L12). The result after it is given (JSON-RPC
// 2.0, section 4.1: a notification has no reply).
func TestMCPNotice_UnreadableCostsOnlyItself(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	for name, tc := range map[string]struct{ notice, missing string }{
		"progress":       {`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":null,"progress":1}}`, "L12 dropped /body/progress"},
		"progress-empty": {`{"jsonrpc":"2.0","method":"notifications/progress"}`, "L12 dropped /body/progress"},
		"log":            {`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"x"}}`, "L12 dropped /body/log"},
	} {
		b.Serve(t, name, "mcp-v1", &gatewaytest.Fake{Conduct: eventful(tc.notice)}, gatewaytest.Host{})
		progress := strings.Replace(gatewaytest.CallBody("echo", "x"), `"_meta":{`, `"_meta":{"progressToken":"p",`, 1)
		for caller, l := range map[string]gatewaytest.HTTPRequest{
			"A2A":           {At: "/agents/" + name + "/a2a", Header: map[string]string{"A2A-Version": "1.0"}, Body: gatewaytest.AddBody(5)},
			"A2A stream":    {At: "/agents/" + name + "/a2a", Header: map[string]string{"A2A-Version": "1.0"}, Body: gatewaytest.Streamed(gatewaytest.AddBody(5))},
			"MCP":           {At: "/agents/" + name + "/mcp", Header: gatewaytest.Mirror("tools/call", "echo"), Body: gatewaytest.CallBody("echo", "x")},
			"MCP, progress": {At: "/agents/" + name + "/mcp", Header: gatewaytest.Mirror("tools/call", "echo"), Body: progress},
			"MCP 2025":      {At: "/agents/" + name + "/mcp", Header: gatewaytest.MCPHeader("2025-11-25"), Body: gatewaytest.LegacyCall("echo", `{"message":"x"}`)},
		} {
			t.Run(name+" for "+caller, func(t *testing.T) {
				response, err := b.Client.Do(b.Request(t, l))
				gatewaytest.Must(t, err)
				defer func() { _ = response.Body.Close() }()
				body, err := io.ReadAll(response.Body)
				gatewaytest.Must(t, err)
				if text := string(body); response.StatusCode != http.StatusOK || !strings.Contains(text, "done") || strings.Contains(text, `"error"`) || strings.Contains(text, `"progressToken":null`) {
					t.Errorf("%d %s", response.StatusCode, body)
				}
				tokens := append(response.Header.Values(ect.HeaderName), response.Trailer.Values(ect.HeaderName)...)
				if w := warnings(t, b, tokens); !slices.Contains(w, tc.missing) {
					t.Errorf("the ECTs warn of %q, want %q among it", w, tc.missing)
				}
			})
		}
	}
}
