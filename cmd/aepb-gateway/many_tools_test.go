package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/toolstest"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/policy"
)

const manyTools = 5000

// listMany lists a server made with the official SDK that has 5,000 tools, each with this
// description, under a name. It is pinned.
func (b *bed) listMany(t *testing.T, name, about string) {
	t.Helper()
	server, err := peers.NewMCPServer(t.Context(), peers.MCPDeps{
		Deps: peers.Deps{TLS: serving(b.svid(t, "/"+name))}, Stateless: true, Tools: []string{"fail"}, Also: toolstest.Many(t, manyTools-1, about),
	})
	must(t, err)
	t.Cleanup(func() { stopWithin(t, server.Stop) })
	must(t, b.directory.Put(directory.Agent{
		Name: name, Pin: true, Rules: policy.Rules{Open: true}, Endpoints: []directory.Endpoint{{Binding: "mcp-v1", URL: server.URL()}},
	}))
}

// asksMCP sends one request of a revision; one with sessions has the header of its session.
func (b *bed) asksMCP(t *testing.T, agent, revision, session, method, params string) reply {
	t.Helper()
	l := letter{at: "/agents/" + agent + "/mcp", header: map[string]string{"Accept": "application/json, text/event-stream"}}
	if revision == "2026-07-28" {
		var tool struct{ Name string }
		_ = json.Unmarshal([]byte("{"+params+"}"), &tool)
		l.header = mirror(method, tool.Name)
		params = strings.TrimSuffix(params+","+modernMeta, ",")
		params = strings.TrimPrefix(params, ",")
	} else if session != "" {
		l.header["Mcp-Session-Id"], l.header["Mcp-Protocol-Version"] = session, revision
	}
	l.body = `{"jsonrpc":"2.0","id":2,"method":"` + method + `","params":{` + params + `}}`
	got := b.send(t, l)
	if got.status != http.StatusOK {
		t.Fatalf("%s %s: %d %s", revision, method, got.status, got.body)
	}
	return got
}

// A server with 5,000 tools is described and listed to the clients of each revision, page
// by page, and each of its tools can be called, over the relay and translated;
// what it says is pinned.
func TestManyTools_OfAServer(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	b.listMany(t, "many", "Does one thing of many.")
	for _, revision := range []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"} {
		session := ""
		if revision != "2026-07-28" {
			session = b.asksMCP(t, "many", revision, "", "initialize", `"protocolVersion":"`+revision+`","capabilities":{},"clientInfo":{"name":"c","version":"1"}`).header.Get("Mcp-Session-Id")
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
			got := b.asksMCP(t, "many", revision, session, "tools/list", params)
			must(t, json.Unmarshal(got.body, &page))
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
		if got := b.asksMCP(t, "many", revision, session, "tools/call", `"name":"tool-4987","arguments":{}`); !strings.Contains(string(got.body), "this is tool-4987") {
			t.Errorf("%s: a call: %s", revision, got.body)
		}
	}
	got := b.send(t, a2aTo(b.client, "many", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"tool-4987","input":{}}}]}}}`))
	if got.status != http.StatusOK || !strings.Contains(string(got.body), "this is tool-4987") {
		t.Errorf("translated: %d %s", got.status, got.body)
	}
	if card := b.skillsOf(t, "many"); len(card.Skills) != manyTools || strings.Contains(card.Description, "shows the first") {
		t.Errorf("the card has %d skills: %s", len(card.Skills), card.Description)
	}
	if strings.Contains(b.logs.String(), "cannot be compared") {
		t.Error("the description is not pinned")
	}
}

type skills struct {
	Description string
	Skills      []struct{ ID string }
	size        int
}

func (b *bed) skillsOf(t *testing.T, agent string) skills {
	t.Helper()
	got := b.send(t, letter{method: http.MethodGet, at: "/agents/" + agent + "/.well-known/agent-card.json", media: "-"})
	if got.status != http.StatusOK {
		t.Fatalf("the card: %d %.200s", got.status, got.body)
	}
	card := skills{size: len(got.body)}
	must(t, json.Unmarshal(got.body, &card))
	return card
}

// Where not all skills fit a card, it says so, and the others can still be called. What
// is more than one message holds is no description at all.
func TestManyTools_MoreThanACardHolds(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	b.listMany(t, "large", strings.Repeat("a word ", 300))
	card := b.skillsOf(t, "large")
	if n := len(card.Skills); n < 100 || n >= manyTools || card.size > 4<<20 || !strings.Contains(card.Description, fmt.Sprintf("first %d of 5000 skills", n)) {
		t.Errorf("%d skills in %d bytes: %s", n, card.size, card.Description)
	}
	got := b.send(t, a2aTo(b.client, "large", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"tool-4987","input":{}}}]}}}`))
	if got.status != http.StatusOK || !strings.Contains(string(got.body), "this is tool-4987") {
		t.Errorf("a skill that the card does not show: %d %s", got.status, got.body)
	}
	b.listMany(t, "endless", strings.Repeat("a word ", 700))
	if got := b.send(t, letter{method: http.MethodGet, at: "/agents/endless/.well-known/agent-card.json", media: "-"}); got.status != http.StatusBadGateway {
		t.Errorf("24 MB of tools: %d %.200s", got.status, got.body)
	}
}
