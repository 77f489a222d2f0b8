package stories

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/policy"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/test/harness/toolstest"
)

const manyTools = 5000

// listMany lists a server made with the official SDK that has 5,000 tools, each with this
// description, under a name. It is pinned.
func listMany(t *testing.T, b *gatewaytest.Fixture, name, about string) {
	t.Helper()
	server, err := peers.NewMCPServer(t.Context(), peers.MCPDeps{
		Deps: peers.Deps{TLS: gatewaytest.Serving(b.SVID(t, "/"+name))}, Stateless: true, Tools: []string{"fail"}, Also: toolstest.Many(t, manyTools-1, about),
	})
	gatewaytest.Must(t, err)
	t.Cleanup(func() { gatewaytest.StopWithin(t, server.Stop) })
	gatewaytest.Must(t, b.Directory().Put(directory.Agent{
		Name: name, Pin: true, Rules: policy.Rules{Open: true}, Endpoints: []directory.Endpoint{{Binding: "mcp-v1", URL: server.URL()}},
	}))
}

// asksMCP sends one request of a revision; one with sessions has the header of its session.
func asksMCP(t *testing.T, b *gatewaytest.Fixture, agent, revision, session, method, params string) gatewaytest.Reply {
	t.Helper()
	l := gatewaytest.HTTPRequest{At: "/agents/" + agent + "/mcp", Header: map[string]string{"Accept": "application/json, text/event-stream"}}
	if revision == "2026-07-28" {
		var tool struct{ Name string }
		_ = json.Unmarshal([]byte("{"+params+"}"), &tool)
		l.Header = gatewaytest.Mirror(method, tool.Name)
		params = strings.TrimSuffix(params+","+gatewaytest.ModernMeta, ",")
		params = strings.TrimPrefix(params, ",")
	} else if session != "" {
		l.Header["Mcp-Session-Id"], l.Header["Mcp-Protocol-Version"] = session, revision
	}
	l.Body = `{"jsonrpc":"2.0","id":2,"method":"` + method + `","params":{` + params + `}}`
	got := b.Send(t, l)
	if got.Status != http.StatusOK {
		t.Fatalf("%s %s: %d %s", revision, method, got.Status, got.Body)
	}
	return got
}

// A server with 5,000 tools is described and listed to the clients of each revision, page
// by page, and each of its tools can be called, over the relay and translated;
// what it says is pinned.
func TestManyTools_OfAServer(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	listMany(t, b, "many", "Does one thing of many.")
	for _, revision := range []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"} {
		session := ""
		if revision != "2026-07-28" {
			session = asksMCP(t, b, "many", revision, "", "initialize", `"protocolVersion":"`+revision+`","capabilities":{},"clientInfo":{"name":"c","version":"1"}`).Header.Get("Mcp-Session-Id")
		}
		found, cursor := map[string]bool{}, ""
		for pages := 0; pages == 0 || cursor != ""; pages++ {
			var params string
			if cursor != "" {
				params = `"cursor":"` + cursor + `"`
			}
			var page struct {
				Result struct {
					Tools      []struct{ Name string }
					NextCursor string
				}
			}
			got := asksMCP(t, b, "many", revision, session, "tools/list", params)
			gatewaytest.Must(t, json.Unmarshal(got.Body, &page))
			if n := len(page.Result.Tools); n == 0 || n > 1000 || pages > 5 {
				t.Fatalf("%s: page %d has %d tools", revision, pages, n)
			}
			for _, tool := range page.Result.Tools {
				found[tool.Name] = true
			}
			cursor = page.Result.NextCursor
		}
		if len(found) != manyTools {
			t.Errorf("%s: %d tools are listed", revision, len(found))
		}
		if got := asksMCP(t, b, "many", revision, session, "tools/call", `"name":"tool-4987","arguments":{}`); !strings.Contains(string(got.Body), "this is tool-4987") {
			t.Errorf("%s: a call: %s", revision, got.Body)
		}
	}
	got := b.Send(t, gatewaytest.A2ATo(b.Client, "many", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"tool-4987","input":{}}}]}}}`))
	if got.Status != http.StatusOK || !strings.Contains(string(got.Body), "this is tool-4987") {
		t.Errorf("translated: %d %s", got.Status, got.Body)
	}
	if card := skillsOf(t, b, "many"); len(card.Skills) != manyTools || strings.Contains(card.Description, "shows the first") {
		t.Errorf("the card has %d skills: %s", len(card.Skills), card.Description)
	}
	if strings.Contains(b.Logs.String(), "cannot be compared") {
		t.Error("the description is not pinned")
	}
}

type skills struct {
	Description string
	Skills      []struct{ ID string }
	size        int
}

func skillsOf(t *testing.T, b *gatewaytest.Fixture, agent string) skills {
	t.Helper()
	got := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/agents/" + agent + "/.well-known/agent-card.json", Media: "-"})
	if got.Status != http.StatusOK {
		t.Fatalf("the card: %d %.200s", got.Status, got.Body)
	}
	card := skills{size: len(got.Body)}
	gatewaytest.Must(t, json.Unmarshal(got.Body, &card))
	return card
}

// Where not all skills fit a card, it says so, and the others can still be called. What
// is more than one message holds is no description at all.
func TestManyTools_MoreThanACardHolds(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	listMany(t, b, "large", strings.Repeat("a word ", 300))
	card := skillsOf(t, b, "large")
	if n := len(card.Skills); n < 100 || n >= manyTools || card.size > 4<<20 || !strings.Contains(card.Description, fmt.Sprintf("first %d of 5000 skills", n)) {
		t.Errorf("%d skills in %d bytes: %s", n, card.size, card.Description)
	}
	got := b.Send(t, gatewaytest.A2ATo(b.Client, "large", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"tool-4987","input":{}}}]}}}`))
	if got.Status != http.StatusOK || !strings.Contains(string(got.Body), "this is tool-4987") {
		t.Errorf("a skill that the card does not show: %d %s", got.Status, got.Body)
	}
	listMany(t, b, "endless", strings.Repeat("a word ", 700))
	if got := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/agents/endless/.well-known/agent-card.json", Media: "-"}); got.Status != http.StatusBadGateway {
		t.Errorf("24 MB of tools: %d %.200s", got.Status, got.Body)
	}
}
