package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// listServer starts a server and lists it as an agent. What is returned has its URL.
func (b *bed) listServer(t *testing.T, name string, binding canonical.Binding, path string, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.TLS = serving(b.svid(t, "/"+name))
	server.StartTLS()
	t.Cleanup(server.Close)
	b.list(t, name, binding, server.URL+path, host{})
	return server
}

// describedAs is what the admin API says of an agent when it is asked for it.
func (b *bed) describedAs(t *testing.T, name string) admindoc.Summary {
	t.Helper()
	got := b.send(t, b.operator("GET", "/api/agents/"+name, "", nil))
	var doc admindoc.Agent
	if err := json.Unmarshal(got.body, &doc); err != nil || doc.Description == nil {
		t.Fatalf("%d %s", got.status, got.body)
	}
	return *doc.Description
}

// TestAdminAgent_AsksAnew: an operator who asks for an agent, such as with the doctor,
// learns that its process is gone, though it has described itself a moment ago.
func TestAdminAgent_AsksAnew(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	server := b.listServer(t, "gone", "mcp-v1", "/mcp", http.HandlerFunc((&fake{conduct: well}).speakMCP))
	if about := b.describedAs(t, "gone"); about.Error != "" || len(about.Capabilities) == 0 {
		t.Fatalf("%+v", about)
	}
	server.Close()
	// Refused, or cut on a connection from before, of whose end the gateway has not heard yet.
	if about := b.describedAs(t, "gone"); !strings.Contains(about.Error, "agent gone cannot be reached") {
		t.Errorf("of a server that is closed: %+v", about)
	}
}

// TestAgentAddress_CardOfAnotherHost: the card of an agent was written for the host inside
// its container. Its path is called at the listed host, and an operator reads that and why.
// Where that fails too, an operator reads the URL.
func TestAgentAddress_CardOfAnotherHost(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	agent := &fake{conduct: well, silly: replacing(`/","protocolBinding"`, `:1/rpc","protocolBinding"`)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /rpc", agent.speakA2A)
	mux.HandleFunc("GET /.well-known/agent-card.json", func(w http.ResponseWriter, r *http.Request) {
		r.Host = "inner"
		agent.speakA2A(w, r)
	})
	server := b.listServer(t, "inner", "a2a-v1", "", mux)
	got := b.send(t, b.sealed(t, a2aTo(b.client, "inner", addBody(b.number()))))
	if got.status != http.StatusOK || !strings.Contains(string(got.body), "done") {
		t.Errorf("%d %s", got.status, got.body)
	}
	about := b.describedAs(t, "inner")
	if about.URL != server.URL+"/rpc" || !strings.Contains(about.Why, "https://inner:1/rpc") {
		t.Errorf("called at %q: %q", about.URL, about.Why)
	}
}

// TestAgentAddress_RedirectToASlash: a server that mounts MCP at /mcp/ (Starlette does) sends
// those who ask at /mcp there. Discovery takes the target where it differs in the slash
// alone, and an operator reads that; calls go there at once. Any other target is named.
func TestAgentAddress_RedirectToASlash(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http"+"s://"+r.Host+"/mcp/", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/mcp/{$}", (&fake{conduct: well}).speakMCP)
	mux.Handle("/else", http.RedirectHandler("/mcp/?key=secret", http.StatusPermanentRedirect))
	server := b.listServer(t, "slash", "mcp-v1", "/mcp", mux)
	about := b.describedAs(t, "slash")
	if about.URL != server.URL+"/mcp/" || !strings.Contains(about.Why, "redirects") || len(about.Capabilities) == 0 {
		t.Errorf("%+v", about)
	}
	l := b.sealed(t, letter{at: "/agents/slash/mcp", body: modernCall("add", `{"a":1,"b":2}`), header: mirror("tools/call", "add")})
	if got := b.send(t, l); got.status != http.StatusOK || !strings.Contains(string(got.body), `"result":{`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	b.list(t, "else", "mcp-v1", server.URL+"/else", host{})
	about = b.describedAs(t, "else")
	if !strings.Contains(about.Error, "at "+server.URL+"/else, to "+server.URL+"/mcp/") || strings.Contains(about.Error, "secret") {
		t.Errorf("%q", about.Error)
	}
}
