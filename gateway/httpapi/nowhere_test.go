package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestNowhere_SaysWhereAgentsAre: clients that are given the URL of an agent without a protocol or a slash at
// its end are told the right one, and what is not about agents gets no such advice.
func TestNowhere_SaysWhereAgentsAre(t *testing.T) {
	t.Parallel()
	s := newSurface(t, "spiffe://example.com/anonymous")
	for path, want := range map[string]string{
		"/agents/.well-known/agent-card.json": "with a slash at its end, /agents/NAME/a2a or /agents/NAME/",
		"/agents/x":                           "an A2A agent at /agents/NAME/a2a, an MCP server at /agents/NAME/mcp",
		"/agents/x/grpc":                      "an A2A agent at /agents/NAME/a2a, an MCP server at /agents/NAME/mcp",
		"/nowhere":                            `"no such resource"`,
	} {
		if w := s.do("GET", path, "", nil, nil); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s, want %s", path, w.Code, w.Body, want)
		}
	}
	if w := s.do("POST", "/agents/x", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, nil, nil); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "an MCP server at /agents/NAME/mcp") {
		t.Errorf("a message to an agent without a protocol: %d %s", w.Code, w.Body)
	}
	if w := s.do("GET", "/aepb/translate", "", nil, nil); w.Code != http.StatusMethodNotAllowed || !strings.Contains(w.Body.String(), `"use POST"`) {
		t.Errorf("a GET to translate: %d %s", w.Code, w.Body)
	}
}
