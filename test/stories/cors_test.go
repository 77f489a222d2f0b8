package stories

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestCORS_PagesOfAnotherOrigin: a page that the operator lists calls agents of both protocols from a browser, and reads what the
// answer says in its header. Another page does not.
func TestCORS_PagesOfAnotherOrigin(t *testing.T) {
	t.Parallel()
	const page = "https://app.example.com"
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{CORS: config.CORS{Origins: []string{page}}}})
	for name, l := range map[string]gatewaytest.HTTPRequest{
		"MCP": {At: "/agents/calculator/mcp", Header: gatewaytest.Mirror("tools/call", "add"), Body: gatewaytest.CallBody("add", "x")},
		"A2A": gatewaytest.A2ATo(b.Client, "calculator", gatewaytest.AddBody(b.Number())),
	} {
		from := func(origin, method string, more map[string]string) gatewaytest.Reply {
			sent := l
			sent.Header, sent.Method = map[string]string{"Origin": origin}, method
			maps.Copy(sent.Header, l.Header)
			maps.Copy(sent.Header, more)
			return b.Send(t, sent)
		}
		before := from(page, http.MethodOptions, map[string]string{"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,execution-context"})
		if before.Status != http.StatusNoContent || before.Header.Get("Access-Control-Allow-Origin") != page || before.Header.Get("Access-Control-Allow-Headers") != "authorization,execution-context" {
			t.Errorf("%s: before: %d %v", name, before.Status, before.Header)
		}
		if got := from(page, http.MethodPost, nil); got.Status != http.StatusOK || got.Header.Get("Access-Control-Allow-Origin") != page || !strings.Contains(got.Header.Get("Access-Control-Expose-Headers"), "Execution-Context") {
			t.Errorf("%s: %d %v %s", name, got.Status, got.Header, got.Body)
		}
		if got := from("https://evil.example", http.MethodPost, nil); got.Header.Get("Access-Control-Allow-Origin") != "" || got.Status == http.StatusOK && !strings.Contains(string(got.Body), "origin") {
			t.Errorf("%s: another page: %d %v %s", name, got.Status, got.Header, got.Body)
		}
	}
}
