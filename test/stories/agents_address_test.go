package stories

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// listServerFixture starts a server and lists it as an agent. What is returned has its URL.
func listServerFixture(t *testing.T, b *gatewaytest.Fixture, name string, binding canonical.Binding, path string, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.TLS = gatewaytest.Serving(b.SVID(t, "/"+name))
	server.StartTLS()
	t.Cleanup(server.Close)
	b.List(t, name, binding, server.URL+path, gatewaytest.Host{})
	return server
}

// describedAs is what the admin API says of an agent when it is asked for it.
func describedAs(t *testing.T, b *gatewaytest.Fixture, name string) admindoc.Summary {
	t.Helper()
	got := b.Send(t, b.Operator("GET", "/api/agents/"+name, "", nil))
	var doc admindoc.Agent
	if err := json.Unmarshal(got.Body, &doc); err != nil || doc.Description == nil {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	return *doc.Description
}

// TestAdminAgent_AsksAnew: an operator who asks for an agent, such as with the doctor,
// learns that its process is gone, though it has described itself a moment ago.
func TestAdminAgent_AsksAnew(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	server := listServerFixture(t, b, "gone", "mcp-v1", "/mcp", http.HandlerFunc((&gatewaytest.Fake{Conduct: gatewaytest.Well}).SpeakMCP))
	if about := describedAs(t, b, "gone"); about.Error != "" || len(about.Capabilities) == 0 {
		t.Fatalf("%+v", about)
	}
	server.Close()
	// Refused, or cut on a connection from before, of whose end the gateway has not heard yet.
	if about := describedAs(t, b, "gone"); !strings.Contains(about.Error, "agent gone cannot be reached") {
		t.Errorf("of a server that is closed: %+v", about)
	}
}

// TestAgentAddress_CardOfAnotherHost: the card of an agent was written for the host inside
// its container. Its path is called at the listed host, and an operator reads that and why.
// Where that fails too, an operator reads the URL.
func TestAgentAddress_CardOfAnotherHost(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	agent := &gatewaytest.Fake{Conduct: gatewaytest.Well, Silly: gatewaytest.Replacing(`/","protocolBinding"`, `:1/rpc","protocolBinding"`)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /rpc", agent.SpeakA2A)
	mux.HandleFunc("GET /.well-known/agent-card.json", func(w http.ResponseWriter, r *http.Request) {
		r.Host = "inner"
		agent.SpeakA2A(w, r)
	})
	server := listServerFixture(t, b, "inner", "a2a-v1", "", mux)
	got := b.Send(t, b.Sealed(t, gatewaytest.A2ATo(b.Client, "inner", gatewaytest.AddBody(b.Number()))))
	if got.Status != http.StatusOK || !strings.Contains(string(got.Body), "done") {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	about := describedAs(t, b, "inner")
	if about.URL != server.URL+"/rpc" || !strings.Contains(about.Why, "https://inner:1/rpc") {
		t.Errorf("called at %q: %q", about.URL, about.Why)
	}
}

// TestAgentAddress_RedirectToASlash: a server that mounts MCP at /mcp/ (Starlette does) sends
// those who ask at /mcp there. Discovery takes the target where it differs in the slash
// alone, and an operator reads that; calls go there at once. Any other target is named.
func TestAgentAddress_RedirectToASlash(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http"+"s://"+r.Host+"/mcp/", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/mcp/{$}", (&gatewaytest.Fake{Conduct: gatewaytest.Well}).SpeakMCP)
	mux.Handle("/else", http.RedirectHandler("/mcp/?key=secret", http.StatusPermanentRedirect))
	server := listServerFixture(t, b, "slash", "mcp-v1", "/mcp", mux)
	about := describedAs(t, b, "slash")
	if about.URL != server.URL+"/mcp/" || !strings.Contains(about.Why, "redirects") || len(about.Capabilities) == 0 {
		t.Errorf("%+v", about)
	}
	l := b.Sealed(t, gatewaytest.HTTPRequest{At: "/agents/slash/mcp", Body: gatewaytest.ModernCall("add", `{"a":1,"b":2}`), Header: gatewaytest.Mirror("tools/call", "add")})
	if got := b.Send(t, l); got.Status != http.StatusOK || !strings.Contains(string(got.Body), `"result":{`) {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	b.List(t, "else", "mcp-v1", server.URL+"/else", gatewaytest.Host{})
	about = describedAs(t, b, "else")
	if !strings.Contains(about.Error, "at "+server.URL+"/else, to "+server.URL+"/mcp/") || strings.Contains(about.Error, "secret") {
		t.Errorf("%q", about.Error)
	}
}
