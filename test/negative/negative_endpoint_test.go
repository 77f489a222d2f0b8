package negative

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// native is a refusal at a native endpoint that HTTP knows nothing of.
func native(rpc int64, reason string) gatewaytest.Want {
	return gatewaytest.Want{Status: http.StatusOK, RPC: rpc, Reason: reason}
}

// answering is a refusal under the caller's own id.
func answering(w gatewaytest.Want, id string) gatewaytest.Want {
	w.ID = id
	return w
}

// The A2A endpoint: JSON-RPC of A2A 1.0 and 0.3, each in its own words.
func TestA2AEndpoint_Refuses(t *testing.T) {
	t.Parallel()
	b := shared()
	at := func(name string, l gatewaytest.HTTPRequest, w gatewaytest.Want) gatewaytest.Refusal {
		if l.At == "" {
			l.At = gatewaytest.EndpointA2A
		}
		return gatewaytest.Sent(name, l, w)
	}
	edit := func(name, old, now string, w gatewaytest.Want) gatewaytest.Refusal {
		body := strings.Replace(gatewaytest.AddBody(5), old, now, 1)
		if body == gatewaytest.AddBody(5) {
			t.Fatalf("%s: the case changes nothing", name)
		}
		return at(name, gatewaytest.HTTPRequest{Body: body}, w)
	}
	late := func(w gatewaytest.Want) gatewaytest.Want { return with(w, "internal_error") }
	method := func(name string, rpc int64) gatewaytest.Refusal {
		proof := "internal_error"
		if rpc == -32601 || rpc == -32004 || rpc == -32003 || rpc == -32007 {
			proof = "semantic_loss" // the operation has no counterpart
		}
		return edit("method "+name, `"SendMessage"`, strconv.Quote(name), with(answering(native(rpc, ""), `"5"`), proof))
	}
	older := func(name string) gatewaytest.Refusal { // a method of 0.3 in a message that says it is of 1.0
		return at("method "+name+" in 1.0", gatewaytest.HTTPRequest{
			Body: strings.Replace(gatewaytest.AddBody(5), "SendMessage", name, 1), Header: map[string]string{"A2A-Version": "1.0"},
		}, late(answering(native(-32009, "method "+name+" is A2A 0.3, but A2A-Version says 1.0"), `"5"`)))
	}
	version := func(v string) gatewaytest.Refusal {
		return at("A2A-Version "+v, gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(5), Header: map[string]string{"A2A-Version": v}}, late(answering(native(-32009, "A2A 1.0"), `"5"`)))
	}
	problem := func(status int, code string, rpc int64) gatewaytest.Want {
		return gatewaytest.Want{Status: status, Code: code, RPC: rpc}
	}
	gatewaytest.Refusals(t, b, []gatewaytest.Refusal{
		older("message/send"),
		version("2.0"),
		at("A2A-Version 0.3 in the query", gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A + "?A2A-Version=0.3", Body: gatewaytest.AddBody(5)}, late(native(-32009, "method SendMessage is A2A 1.0, but A2A-Version says 0.3"))),
		edit("a method of MCP", `"SendMessage"`, `"tools/call"`, with(answering(native(-32601, "this is a method of MCP, which the agent's URL that ends in /mcp serves"), `"5"`), "semantic_loss")),
		method("DoEverything", -32601),
		at("an unknown task", gatewaytest.HTTPRequest{Body: `{"jsonrpc":"2.0","id":"5","method":"GetTask","params":{"id":"none"}}`}, late(answering(native(-32001, "no such task"), `"5"`))),
		edit("no message", `"message"`, `"massage"`, late(answering(native(-32602, "/params/message"), `"5"`))),
		edit("unknown skill", `"add"`, `"divide"`, late(answering(native(-32602, "no such skill or tool; this agent has add"), `"5"`))),
		at("truncated", gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(5)[:40]}, late(answering(native(-32700, "truncated JSON"), "null"))),
		at("a batch", gatewaytest.HTTPRequest{Body: "[" + gatewaytest.AddBody(5) + "]"}, late(answering(native(-32600, "not an object"), "null"))),
		at("16 MiB and one byte", gatewaytest.HTTPRequest{Body: gatewaytest.HugeBody(16<<20 + 1)}, answering(problem(413, "too_large", -32600), "null")),
		at("text", gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(5), Media: "text/plain"}, problem(415, "unsupported_media_type", -32005)),
		at("GET", gatewaytest.HTTPRequest{Method: "GET"}, gatewaytest.Want{Status: 405, Code: "method_not_allowed", RPC: -32600, Reason: "POST a JSON-RPC message here; the card is at", Header: map[string]string{"Allow": "POST"}}),
		at("DELETE with a slash behind", gatewaytest.HTTPRequest{Method: "DELETE", At: gatewaytest.EndpointA2A + "/"}, gatewaytest.Want{Status: 405, Code: "method_not_allowed", RPC: -32600, Header: map[string]string{"Allow": "POST"}}),
		at("unknown agent", gatewaytest.HTTPRequest{At: "/agents/nobody/a2a", Body: gatewaytest.AddBody(5)}, late(answering(problem(404, "unknown_agent", -32602), `"5"`))),
		at("an agent's SPIFFE id in the path", gatewaytest.HTTPRequest{At: "/agents/spiffe:%2F%2Faepb.dev%2Fcalculator/a2a", Body: gatewaytest.AddBody(5)}, gatewaytest.Want{Status: 404, Code: "not_found"}),
		at("broken token", gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(5), Tokens: []string{"a.b"}}, answering(problem(400, "ect_invalid", -31403), `"5"`)),
		at("tokens of 16 KiB and more", gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(5), Tokens: ballast(3, 6<<10)}, answering(problem(431, "ect_invalid", -31403), `"5"`)),
		at("no token for an agent that demands one", gatewaytest.HTTPRequest{At: "/agents/strict/a2a", Body: gatewaytest.AddBody(5)}, late(answering(problem(403, "ect_required", -31403), `"5"`))),
		{Name: "token of another body", Want: problem(403, "ect_invalid", -31403), Make: func(t *testing.T, b *gatewaytest.Fixture) gatewaytest.HTTPRequest {
			t.Helper()
			return gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(5), Tokens: []string{b.Token(t, gatewaytest.AddBody(6))}}
		}},
		gatewaytest.Sent("POST the card", gatewaytest.HTTPRequest{At: "/agents/calculator/.well-known/agent-card.json"}, gatewaytest.Want{Status: 405, Code: "method_not_allowed", Header: map[string]string{"Allow": "GET, HEAD"}}),
		gatewaytest.Sent("card of nobody", gatewaytest.HTTPRequest{Method: "GET", At: "/agents/nobody/.well-known/agent-card.json"}, gatewaytest.Want{Status: 404, Code: "unknown_agent"}),
		gatewaytest.Sent("card of nobody below its endpoint", gatewaytest.HTTPRequest{Method: "GET", At: "/agents/nobody/a2a/.well-known/agent-card.json"}, gatewaytest.Want{Status: 404, Code: "unknown_agent"}),
		gatewaytest.Sent("HEAD the card of nobody", gatewaytest.HTTPRequest{Method: "HEAD", At: "/agents/nobody/.well-known/agent-card.json"}, gatewaytest.Want{Status: 404, Code: "unknown_agent"}),
	})
	t.Run("text for a typed tool is answered with a question", func(t *testing.T) { asksForArguments(t, b) })
}

// asksForArguments: a caller that sends text to a tool with arguments is asked
// for them (profile P3), or which tool is meant, and neither the agent nor an error hears of it.
func asksForArguments(t *testing.T, b *gatewaytest.Fixture) {
	for _, at := range []string{"/agents/forecast/a2a", gatewaytest.EndpointA2A} {
		got := b.Send(t, gatewaytest.HTTPRequest{At: at, Body: gatewaytest.TextBody(gatewaytest.Secret)})
		if got.Status != 200 || !strings.Contains(string(got.Body), `"TASK_STATE_INPUT_REQUIRED"`) {
			t.Errorf("HTTP %d: %s", got.Status, got.Body)
		}
		if strings.Contains(string(got.Body), gatewaytest.Secret) {
			t.Error("the question quotes the message")
		}
	}
}

// The MCP endpoint: Streamable HTTP, 2026-07-28 and the sessionless part of older
// revisions.
func TestMCPEndpoint_Refuses(t *testing.T) {
	t.Parallel()
	b := shared()
	call := gatewaytest.CallBody("concierge", gatewaytest.Secret)
	// header is that of a good call, with one field changed; "": without it.
	header := func(name, value string) map[string]string {
		h := gatewaytest.Mirror("tools/call", "concierge")
		if h[name] = value; value == "" {
			delete(h, name)
		}
		return h
	}
	at := func(name string, l gatewaytest.HTTPRequest, w gatewaytest.Want) gatewaytest.Refusal {
		if l.At == "" {
			l.At = gatewaytest.EndpointMCP
		}
		if l.Header == nil {
			l.Header = header("X-Nothing", "")
		}
		return gatewaytest.Sent(name, l, w)
	}
	bad := func(rpc int64, reason string) gatewaytest.Want {
		return gatewaytest.Want{Status: 400, RPC: rpc, Reason: reason}
	}
	late := func(w gatewaytest.Want) gatewaytest.Want { return with(w, "internal_error") }
	one := func(w gatewaytest.Want) gatewaytest.Want { return answering(w, "1") }
	problem := func(status int, code string, rpc int64) gatewaytest.Want {
		return gatewaytest.Want{Status: status, Code: code, RPC: rpc}
	}
	request := func(name, method, params string, w gatewaytest.Want) gatewaytest.Refusal {
		return at(name, gatewaytest.HTTPRequest{Body: mcpBody(method, params), Header: gatewaytest.Mirror(method, "")}, w)
	}
	noMethod := gatewaytest.Want{Status: 405, Bare: true, Header: map[string]string{"Allow": "POST"}}
	both := func(v string) gatewaytest.HTTPRequest {
		return gatewaytest.HTTPRequest{Body: strings.Replace(call, "2026-07-28", v, 1), Header: header("Mcp-Protocol-Version", v)}
	}
	tasked := strings.Replace(mcpBody("tasks/get", `"taskId":"1",`), `Capabilities":{`, `Capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}`, 1)
	gatewaytest.Refusals(t, b, []gatewaytest.Refusal{
		at("no MCP-Protocol-Version", gatewaytest.HTTPRequest{Body: call, Header: header("Mcp-Protocol-Version", "")}, one(bad(-32020, "Mcp-Protocol-Version"))),
		at("unknown revision", both("1999-01-01"), one(bad(-32022, "Unsupported protocol version"))),
		request("prompts/list", "prompts/list", "", one(gatewaytest.Want{Status: 404, RPC: -32601, Proof: "semantic_loss"})),
		request("resources/read without its name", "resources/read", `"uri":"file:///etc/passwd",`, one(bad(-32020, "Mcp-Name"))),
		at("tasks/get without its name", gatewaytest.HTTPRequest{Body: tasked, Header: gatewaytest.Mirror("tasks/get", "")}, one(bad(-32020, "Mcp-Name"))),
		request("tasks/get without its extension", "tasks/get", `"taskId":"1",`, one(bad(-32021, "io.modelcontextprotocol/tasks"))),
		request("ping, which is legacy", "ping", "", one(gatewaytest.Want{Status: 404, RPC: -32601})),
		request("a method of A2A", "SendMessage", "", one(gatewaytest.Want{Status: 404, RPC: -32601, Proof: "semantic_loss"})),
		at("unknown method of an older revision", gatewaytest.HTTPRequest{Body: `{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`, Header: map[string]string{"Mcp-Protocol-Version": "2025-11-25"}}, one(with(native(-32601, ""), "semantic_loss"))),
		at("no name in an older revision", gatewaytest.HTTPRequest{Body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`, Header: map[string]string{"Mcp-Protocol-Version": "2025-11-25"}}, one(native(-32602, ""))),
		at("unknown tool", gatewaytest.HTTPRequest{Body: gatewaytest.CallBody("valet", "x"), Header: gatewaytest.Mirror("tools/call", "valet")}, late(one(native(-32602, "no such skill or tool; this agent has concierge")))),
		at("tool of another agent", gatewaytest.HTTPRequest{Body: gatewaytest.CallBody("add", "x"), Header: gatewaytest.Mirror("tools/call", "add")}, late(one(native(-32602, "no such skill or tool")))),
		at("no _meta", gatewaytest.HTTPRequest{Body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"concierge"}}`}, one(bad(-32602, "_meta"))),
		at("GET", gatewaytest.HTTPRequest{Method: "GET"}, noMethod),
		at("PUT", gatewaytest.HTTPRequest{Method: "PUT", Body: call}, noMethod),
		at("GET an event stream", gatewaytest.HTTPRequest{Method: "GET", Header: map[string]string{"Accept": "text/event-stream"}}, noMethod),
		at("foreign Origin", gatewaytest.HTTPRequest{Body: call, Header: header("Origin", "https://evil.example")}, gatewaytest.Want{Status: 403, RPC: -32600, Reason: "origin"}),
		at("Origin that begins like ours", gatewaytest.HTTPRequest{Body: call, Header: header("Origin", "https://127.0.0.1.evil.example")}, gatewaytest.Want{Status: 403, RPC: -32600, Reason: "origin"}),
		at("Accept of events alone", gatewaytest.HTTPRequest{Body: call, Header: header("Accept", "text/event-stream")}, gatewaytest.Want{Status: 406, RPC: -32600, Reason: "Accept"}),
		at("text", gatewaytest.HTTPRequest{Body: call, Media: "text/plain"}, problem(415, "unsupported_media_type", -32602)),
		at("16 MiB and one byte", gatewaytest.HTTPRequest{Body: gatewaytest.HugeBody(16<<20 + 1)}, problem(413, "too_large", -32600)),
		at("truncated", gatewaytest.HTTPRequest{Body: call[:len(call)-2]}, bad(-32700, "truncated JSON")),
		at("a batch", gatewaytest.HTTPRequest{Body: "[" + call + "]"}, bad(-32600, "batches")),
		at("a million levels", gatewaytest.HTTPRequest{Body: strings.Repeat(`{"a":`, 1_000_000)}, bad(-32600, "nested deeper")),
		at("unknown agent", gatewaytest.HTTPRequest{At: "/agents/nobody/mcp", Body: call}, late(one(problem(404, "unknown_agent", -32602)))),
		at("tools of an unknown agent", gatewaytest.HTTPRequest{At: "/agents/nobody/mcp", Body: mcpBody("tools/list", ""), Header: gatewaytest.Mirror("tools/list", "")}, one(problem(404, "unknown_agent", -32602))),
		at("discovery of an unknown agent", gatewaytest.HTTPRequest{At: "/agents/nobody/mcp", Body: mcpBody("server/discover", ""), Header: gatewaytest.Mirror("server/discover", "")}, one(problem(404, "unknown_agent", -32602))),
		at("broken token", gatewaytest.HTTPRequest{Body: call, Tokens: []string{"a.b"}}, problem(400, "ect_invalid", -32600)),
		at("33 tokens", gatewaytest.HTTPRequest{Body: call, Tokens: ballast(33, 8)}, problem(431, "ect_invalid", -32600)),
		{Name: "token of another body", Want: one(problem(403, "ect_invalid", -32600)), Make: func(t *testing.T, b *gatewaytest.Fixture) gatewaytest.HTTPRequest {
			t.Helper()
			return gatewaytest.HTTPRequest{At: gatewaytest.EndpointMCP, Body: call, Header: gatewaytest.Mirror("tools/call", "concierge"), Tokens: []string{b.Token(t, "another")}}
		}},
		at("no token for an agent that demands one", gatewaytest.HTTPRequest{At: "/agents/strict/mcp", Body: gatewaytest.CallBody("echo", "x"), Header: gatewaytest.Mirror("tools/call", "echo")}, late(one(problem(403, "ect_required", -32600)))),
	})
	t.Run("a notification is taken and not answered", func(t *testing.T) { takesNotice(t, b) })
	t.Run("the messages of a batch are refused one by one", func(t *testing.T) { refusesMembers(t, b) })
}

func takesNotice(t *testing.T, b *gatewaytest.Fixture) {
	got := b.Send(t, gatewaytest.HTTPRequest{At: gatewaytest.EndpointMCP, Header: gatewaytest.Mirror("notifications/cancelled", ""), Body: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9,` + gatewaytest.ModernMeta + `}}`})
	if got.Status != http.StatusAccepted || len(got.Body) > 0 || got.Header.Get(ect.HeaderName) != "" {
		t.Errorf("got %d: %s", got.Status, got.Body)
	}
}

// refusesMembers: one bad message does not spoil the others of its batch (R8).
func refusesMembers(t *testing.T, b *gatewaytest.Fixture) {
	call := func(id int, method, params string) string {
		return `{"jsonrpc":"2.0","id":` + strconv.Itoa(id) + `,"method":"` + method + `","params":{` + params + `}}`
	}
	body := "[" + strings.Join([]string{
		call(1, "prompts/list", ""),
		call(2, "tools/call", `"name":"valet"`),
		call(3, "tools/call", `"name":7`),
		call(4, "tools/call", `"name":"concierge","arguments":{"message":"hello"}`),
	}, ",") + "]"
	got := b.Send(t, gatewaytest.HTTPRequest{At: gatewaytest.EndpointMCP, Body: body, Header: map[string]string{"Mcp-Protocol-Version": "2025-03-26"}})
	var answers []struct {
		ID     int
		Error  struct{ Code int }
		Result json.RawMessage
	}
	if err := json.Unmarshal(got.Body, &answers); err != nil || got.Status != http.StatusOK || len(answers) != 4 {
		t.Fatalf("got %d: %s", got.Status, gatewaytest.Short(got.Body))
	}
	for i, want := range []int{-32601, -32602, -32602, 0} {
		if a := answers[i]; a.ID != i+1 || a.Error.Code != want || (want == 0) != strings.Contains(string(a.Result), "You said: hello") {
			t.Errorf("message %d: got %+v", i+1, a)
		}
	}
	b.Proofs(t, got)
}
