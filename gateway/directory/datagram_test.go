package directory_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/directory"
)

// TestDatagrams_OnlyLocalInDevelopment: an agent of datagrams has an address of this
// machine, and only a development gateway has such agents (AEPB, Protocol
// Downgrade Prevention).
func TestDatagrams_OnlyLocalInDevelopment(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"uacp://127.0.0.1:8888":        "",
		"uacp://[::1]:8888/":           "",
		"uacps://agent.example:8888":   "",
		"uacp://192.0.2.1:8888":        "datagrams",
		"uacp://agent.example:8888":    "datagrams",
		"uacp://localhost:8888":        "datagrams", // whoever answers for the name would decide
		"uacp://127.0.0.1":             "uacps://host:port",
		"uacp://127.0.0.1:8888/agent":  "uacps://host:port",
		"uacp://user@127.0.0.1:8888":   "uacps://host:port",
		"uacp://127.0.0.1:8888?a=b":    "uacps://host:port",
		"uacpx://127.0.0.1:8888":       "uacps://host:port",
		"https://127.0.0.1:8888/agent": "uacps://host:port",
	} {
		a := directory.Agent{Name: "a", Endpoints: []directory.Endpoint{{Binding: "uacp-v1", URL: url}}}
		if err := directory.Validate(a, true); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", url, err)
		}
		var invalid *directory.InvalidAgentError
		if err := directory.Validate(a, false); strings.HasPrefix(url, "uacp:") && (!errors.As(err, &invalid) || !strings.Contains(err.Error(), "only dev")) {
			t.Errorf("%s, outside dev: %v", url, err)
		}
	}
	a := directory.Agent{Name: "a", Endpoints: []directory.Endpoint{{Binding: "mcp-v1", URL: "uacp://127.0.0.1:8888"}}}
	if err := directory.Validate(a, true); err == nil {
		t.Error("an MCP server is reached in datagrams")
	}
}
