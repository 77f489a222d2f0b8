package stories

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// marching are agents of every protocol but A2A, which test/interop has. The one named
// sums adds whatever it is called by.
func marching() []string {
	return []string{"calculator", "abacus", "beads", "scribe", "clerk", "sums", "adder"}
}

// TestMCP20250326_ClientOfEveryProtocol: the official client, held to 2025-03-26, has a session at the
// door of an agent of each protocol, and an answer in its own words.
func TestMCP20250326_ClientOfEveryProtocol(t *testing.T) {
	t.Parallel()
	b := gatewaytest.Five(t)
	for _, dest := range marching() {
		t.Run(dest, func(t *testing.T) {
			endpoint := b.At.Public + "/agents/" + dest + "/mcp"
			got, err := peers.MCPCallIn(t.Context(), b.Client, endpoint, mcp.LegacyMarch, "add", json.RawMessage(`{"a":40,"b":1}`))
			gatewaytest.Must(t, err)
			if got.Version != mcp.LegacyMarch || len(got.Tools) == 0 {
				t.Fatalf("it speaks %s, and has %d tools", got.Version, len(got.Tools))
			}
			for _, tool := range got.Tools {
				if tool.OutputSchema != nil || tool.Title != "" {
					t.Errorf("a tool is %+v", tool)
				}
			}
			if got.Result.IsError || got.Result.StructuredContent != nil || !strings.Contains(got.Text(), "41") {
				t.Errorf("the sum is %q, %v", got.Text(), got.Result.StructuredContent)
			}
			if _, err := peers.MCPCallIn(t.Context(), b.Client, endpoint, mcp.LegacyMarch, "nothing", json.RawMessage(`{"a":1,"b":1}`)); (err == nil) != (dest == "sums") {
				t.Errorf("of a tool named nothing it says %v", err)
			}
		})
	}
}

// TestMCP20250326_BatchesOfEveryProtocol: a batch is taken apart, whatever its agent speaks: each call is
// answered, and proven, by itself.
func TestMCP20250326_BatchesOfEveryProtocol(t *testing.T) {
	t.Parallel()
	b := gatewaytest.Five(t)
	for _, dest := range marching() {
		t.Run(dest, func(t *testing.T) {
			endpoint := gatewaytest.HTTPRequest{At: "/agents/" + dest + "/mcp", Body: `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`}
			began := b.Send(t, endpoint)
			id := began.Header.Get("Mcp-Session-Id")
			if began.Status != http.StatusOK || id == "" {
				t.Fatalf("got %d %s", began.Status, gatewaytest.Short(began.Body))
			}
			call := func(name string, n int) string {
				return `{"jsonrpc":"2.0","id":` + strconv.Itoa(n) + `,"method":"tools/call","params":{"name":"` + name + `","arguments":{"a":` + strconv.Itoa(n) + `,"b":1}}}`
			}
			endpoint.Header = map[string]string{"Mcp-Session-Id": id}
			endpoint.Body = "[" + strings.Join([]string{
				call("add", 40), `{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":"p","method":"ping"}`, call("nothing", 1), call("add", 50),
			}, ",") + "]"
			got := b.Send(t, endpoint)
			var answers []struct {
				ID     json.RawMessage
				Result struct {
					Content           json.RawMessage
					StructuredContent json.RawMessage
				}
				Error *struct{ Code int }
			}
			if err := json.Unmarshal(got.Body, &answers); err != nil || got.Status != http.StatusOK || len(answers) != 4 {
				t.Fatalf("got %d %s", got.Status, gatewaytest.Short(got.Body))
			}
			for i, want := range []string{"41", "", "", "51"} {
				a := answers[i]
				if string(a.ID) != []string{"40", `"p"`, "1", "50"}[i] || a.Result.StructuredContent != nil || !strings.Contains(string(a.Result.Content), want) ||
					(a.Error != nil) != (i == 2 && dest != "sums") {
					t.Errorf("answer %d is %s", i, gatewaytest.Short(got.Body))
				}
			}
			b.Proofs(t, got)
			gone := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodDelete, At: endpoint.At, Header: endpoint.Header})
			again := b.Send(t, endpoint)
			if gone.Status >= http.StatusBadRequest || again.Status != http.StatusNotFound {
				t.Errorf("ending the session gives %d, and using it then %d", gone.Status, again.Status)
			}
		})
	}
}
