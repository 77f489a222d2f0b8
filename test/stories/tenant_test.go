package stories

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/policy"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestTenant_InEveryRequest: an interface of a card that names a tenant gets it
// in every request (A2A 1.0): as a member, and over HTTP+JSON before the path.
func TestTenant_InEveryRequest(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	for name, tc := range map[string]struct{ binding, tenant, path, member string }{
		"JSON-RPC":            {"JSONRPC", "acme", "/", "acme"},
		"HTTP":                {"HTTP+JSON", "acme", "/acme/message:send", "acme"},
		"HTTP, none":          {"HTTP+JSON", "", "/message:send", ""},
		"HTTP, a path":        {"HTTP+JSON", "../admin", "/..%2Fadmin/message:send", "../admin"},
		"HTTP, a step":        {"HTTP+JSON", "..", "/%2E%2E/message:send", ".."},
		"HTTP, a query":       {"HTTP+JSON", "a?b=c#d", "/a%3Fb=c%23d/message:send", "a?b=c#d"},
		"JSON-RPC, odd names": {"JSONRPC", "a\"b\\", "/", "a\"b\\"},
	} {
		path, body := "", []byte(nil)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.Method == http.MethodGet {
				tenant, _ := json.Marshal(tc.tenant)
				_, _ = io.WriteString(w, `{"name":"T","description":"d","version":"1","capabilities":{},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],`+
					`"supportedInterfaces":[{"url":"https://`+r.Host+`/","protocolBinding":"`+tc.binding+`","protocolVersion":"1.0","tenant":`+string(tenant)+`}],`+
					`"skills":[{"id":"s","name":"S","description":"d","tags":["x"]}]}`)
				return
			}
			path = r.URL.EscapedPath()
			body, _ = io.ReadAll(r.Body)
			var request struct{ ID json.RawMessage }
			_ = json.Unmarshal(body, &request)
			message := `{"message":{"messageId":"r","role":"ROLE_AGENT","parts":[{"text":"done"}]}}`
			if tc.binding == "JSONRPC" {
				message = `{"jsonrpc":"2.0","id":` + string(request.ID) + `,"result":` + message + `}`
			}
			_, _ = io.WriteString(w, message)
		}))
		server.TLS = gatewaytest.Serving(b.SVID(t, "/tenants"))
		server.StartTLS()
		gatewaytest.Must(t, b.Directory().Put(directory.Agent{
			Name: "tenants", Rules: policy.Rules{Open: true},
			Endpoints: []directory.Endpoint{{Binding: "a2a-v1", URL: server.URL}},
		}))
		for _, at := range []string{"/aepb/translate?from=mcp-v1&dest=tenants", "/aepb/translate?from=a2a-v1&dest=tenants"} {
			l := gatewaytest.HTTPRequest{At: at, Body: gatewaytest.CallBody("s", "hi"), Header: gatewaytest.Mirror("tools/call", "s")}
			if strings.Contains(at, "a2a") {
				l.Body, l.Header = gatewaytest.TextBody("hi"), nil
			}
			got := b.Send(t, b.Sealed(t, l))
			var answer struct {
				Tenant string
				Params struct{ Tenant string }
			}
			if err := json.Unmarshal(body, &answer); err != nil || got.Status != 200 || path != tc.path || answer.Tenant+answer.Params.Tenant != tc.member {
				t.Errorf("%s, %s: %d %s; the agent got %s %s", name, at, got.Status, got.Body, path, body)
			}
		}
		b.Directory().Remove("tenants")
		server.Close()
	}
}
