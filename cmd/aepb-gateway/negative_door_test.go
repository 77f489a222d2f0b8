package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
)

// native is a refusal at a native endpoint that HTTP knows nothing of.
func native(rpc int64, reason string) want {
	return want{status: http.StatusOK, rpc: rpc, reason: reason}
}

// answering is a refusal under the caller's own id.
func answering(w want, id string) want {
	w.id = id
	return w
}

// The A2A endpoint: JSON-RPC of A2A 1.0 and 0.3, each in its own words.
func TestA2ADoorRefuses(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	at := func(name string, l letter, w want) refusal {
		if l.at == "" {
			l.at = doorA2A
		}
		return sent(name, l, w)
	}
	edit := func(name, old, now string, w want) refusal {
		body := strings.Replace(addBody(5), old, now, 1)
		if body == addBody(5) {
			t.Fatalf("%s: the case changes nothing", name)
		}
		return at(name, letter{body: body}, w)
	}
	late := func(w want) want { return with(w, "internal_error") }
	method := func(name string, rpc int64) refusal {
		proof := "internal_error"
		if rpc == -32601 || rpc == -32004 || rpc == -32003 || rpc == -32007 {
			proof = "semantic_loss" // the operation has no counterpart
		}
		return edit("method "+name, `"SendMessage"`, strconv.Quote(name), with(answering(native(rpc, ""), `"5"`), proof))
	}
	older := func(name string) refusal { // a method of 0.3 in a message that says it is of 1.0
		return at("method "+name+" in 1.0", letter{
			body: strings.Replace(addBody(5), "SendMessage", name, 1), header: map[string]string{"A2A-Version": "1.0"},
		}, late(answering(native(-32009, "method "+name+" is A2A 0.3, but A2A-Version says 1.0"), `"5"`)))
	}
	version := func(v string) refusal {
		return at("A2A-Version "+v, letter{body: addBody(5), header: map[string]string{"A2A-Version": v}}, late(answering(native(-32009, "A2A 1.0"), `"5"`)))
	}
	problem := func(status int, code string, rpc int64) want { return want{status: status, code: code, rpc: rpc} }
	refusals(t, b, []refusal{
		older("message/send"),
		older("tasks/get"),
		older("tasks/pushNotificationConfig/set"),
		older("agent/getAuthenticatedExtendedCard"),
		method("tasks/get", -32602),
		method("tasks/cancel", -32602),
		method("tasks/pushNotificationConfig/set", -32602),
		edit("message/send in the words of 1.0", `"SendMessage"`, `"message/send"`, late(answering(native(-32602, "/params/message/role"), `"5"`))),
		version("0.3"),
		version("0.2.5"),
		version("2.0"),
		version("latest"),
		at("A2A-Version 0.3 in the query", letter{at: doorA2A + "?A2A-Version=0.3", body: addBody(5)}, late(native(-32009, "method SendMessage is A2A 1.0, but A2A-Version says 0.3"))),
		edit("a method of MCP", `"SendMessage"`, `"tools/call"`, with(answering(native(-32601, "this is a method of MCP, which the agent's URL that ends in /mcp serves"), `"5"`), "semantic_loss")),
		method("GetTask", -32602),
		method("CancelTask", -32602),
		method("CreateTaskPushNotificationConfig", -32602),
		method("GetTaskPushNotificationConfig", -32602),
		method("ListTaskPushNotificationConfigs", -32602),
		method("DeleteTaskPushNotificationConfig", -32602),
		method("DoEverything", -32601),
		method("sendMessage", -32601),
		method("tools/call", -32601),
		at("an unknown task", letter{body: `{"jsonrpc":"2.0","id":"5","method":"GetTask","params":{"id":"none"}}`}, late(answering(native(-32001, "no such task"), `"5"`))),
		edit("no message", `"message"`, `"massage"`, late(answering(native(-32602, "/params/message"), `"5"`))),
		edit("parts is a string", `"parts":[{"text":"`+secret+`"},`, `"parts":"none","x":[`, late(answering(native(-32602, "/params/message/parts"), `"5"`))),
		edit("no parts", `"parts":[{"text":"`+secret+`"},`, `"parts":[],"x":[`, late(answering(native(-32602, "/params/message/parts"), `"5"`))),
		edit("unknown role", `"ROLE_USER"`, `"user"`, late(answering(native(-32602, "/params/message/role"), `"5"`))),
		edit("unknown skill", `"add"`, `"divide"`, late(answering(native(-32602, "no such skill or tool; this agent has add"), `"5"`))),
		edit("params is a string", `"params":{`, `"params":"x","y":{`, late(answering(native(-32602, "/params: not an object"), `"5"`))),
		at("truncated", letter{body: addBody(5)[:40]}, late(answering(native(-32700, "truncated JSON"), "null"))),
		at("empty", letter{}, late(answering(native(-32700, "truncated JSON"), "null"))),
		at("duplicate members", letter{body: strings.Replace(addBody(5), `"b":1`, `"b":1,"b":2`, 1)}, late(answering(native(-32700, "duplicate member name"), "null"))),
		at("lone surrogate", letter{body: strings.Replace(addBody(5), secret, `\udfff`, 1)}, late(answering(native(-32700, "not valid JSON"), "null"))),
		at("invalid UTF-8", letter{body: strings.Replace(addBody(5), secret, "\xff", 1)}, late(answering(native(-32700, "not valid JSON"), "null"))),
		at("a batch", letter{body: "[" + addBody(5) + "]"}, late(answering(native(-32600, "not an object"), "null"))),
		at("129 levels", letter{body: deep(129)}, late(answering(native(-32600, "nested deeper"), "null"))),
		edit("jsonrpc 1.0", `"2.0"`, `"1.0"`, late(native(-32600, "at /jsonrpc"))),
		edit("no id", `"id":"5",`, ``, late(answering(native(-32600, "needs an id"), "null"))),
		edit("id is an object", `"id":"5"`, `"id":{"a":1}`, late(answering(native(-32600, "at /id"), "null"))),
		at("16 MiB and one byte", letter{body: hugeBody(16<<20 + 1)}, answering(problem(413, "too_large", -32600), "null")),
		at("text", letter{body: addBody(5), media: "text/plain"}, problem(415, "unsupported_media_type", -32005)),
		at("no media type", letter{body: addBody(5), media: "-"}, problem(415, "unsupported_media_type", -32005)),
		at("compressed", letter{body: compressed(t, addBody(5)), header: map[string]string{"Content-Encoding": "gzip"}}, problem(415, "unsupported_media_type", -32005)),
		at("GET", letter{method: "GET"}, want{status: 405, code: "method_not_allowed", rpc: -32600, reason: "POST a JSON-RPC message here; the card is at", header: map[string]string{"Allow": "POST"}}),
		at("PUT", letter{method: "PUT", body: addBody(5)}, want{status: 405, code: "method_not_allowed", rpc: -32600, header: map[string]string{"Allow": "POST"}}),
		at("DELETE with a slash behind", letter{method: "DELETE", at: doorA2A + "/"}, want{status: 405, code: "method_not_allowed", rpc: -32600, header: map[string]string{"Allow": "POST"}}),
		at("unknown agent", letter{at: "/agents/nobody/a2a", body: addBody(5)}, late(answering(problem(404, "unknown_agent", -32602), `"5"`))),
		at("an agent's SPIFFE id in the path", letter{at: "/agents/spiffe:%2F%2Faepb.dev%2Fcalculator/a2a", body: addBody(5)}, want{status: 404, code: "not_found"}),
		at("broken token", letter{body: addBody(5), tokens: []string{"a.b"}}, answering(problem(400, "ect_invalid", -31403), `"5"`)),
		at("tokens of 16 KiB and more", letter{body: addBody(5), tokens: ballast(3, 6<<10)}, answering(problem(431, "ect_invalid", -31403), `"5"`)),
		at("no token for an agent that demands one", letter{at: "/agents/strict/a2a", body: addBody(5)}, late(answering(problem(403, "ect_required", -31403), `"5"`))),
		{name: "token of another body", want: problem(403, "ect_invalid", -31403), make: func(t *testing.T, b *bed) letter {
			t.Helper()
			return letter{at: doorA2A, body: addBody(5), tokens: []string{b.token(t, addBody(6))}}
		}},
		{name: "unsigned token", want: problem(403, "ect_invalid", -31403), make: func(t *testing.T, b *bed) letter {
			t.Helper()
			return letter{at: doorA2A, body: addBody(5), tokens: []string{ecttest.MintUnsigned(t, b.me, b.recipe(addBody(5)))}}
		}},
		sent("POST the card", letter{at: "/agents/calculator/.well-known/agent-card.json"}, want{status: 405, code: "method_not_allowed", header: map[string]string{"Allow": "GET, HEAD"}}),
		sent("card of nobody", letter{method: "GET", at: "/agents/nobody/.well-known/agent-card.json"}, want{status: 404, code: "unknown_agent"}),
		sent("card of nobody below its door", letter{method: "GET", at: "/agents/nobody/a2a/.well-known/agent-card.json"}, want{status: 404, code: "unknown_agent"}),
		sent("HEAD the card of nobody", letter{method: "HEAD", at: "/agents/nobody/.well-known/agent-card.json"}, want{status: 404, code: "unknown_agent"}),
	})
	t.Run("text for a typed tool is answered with a question", b.asksForArguments)
}

// asksForArguments: a caller that sends text to a tool with arguments is asked
// for them (profile P3), or which tool is meant, and neither the agent nor an error hears of it.
func (b *bed) asksForArguments(t *testing.T) {
	for _, at := range []string{"/agents/forecast/a2a", doorA2A} {
		got := b.send(t, letter{at: at, body: textBody(secret)})
		if got.status != 200 || !strings.Contains(string(got.body), `"TASK_STATE_INPUT_REQUIRED"`) {
			t.Errorf("HTTP %d: %s", got.status, got.body)
		}
		if strings.Contains(string(got.body), secret) {
			t.Error("the question quotes the message")
		}
	}
}

// The MCP door: Streamable HTTP, 2026-07-28 and the sessionless part of older
// revisions.
func TestMCPDoorRefuses(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	call := callBody("concierge", secret)
	// header is that of a good call, with one field changed; "": without it.
	header := func(name, value string) map[string]string {
		h := mirror("tools/call", "concierge")
		if h[name] = value; value == "" {
			delete(h, name)
		}
		return h
	}
	at := func(name string, l letter, w want) refusal {
		if l.at == "" {
			l.at = doorMCP
		}
		if l.header == nil {
			l.header = header("X-Nothing", "")
		}
		return sent(name, l, w)
	}
	bad := func(rpc int64, reason string) want { return want{status: 400, rpc: rpc, reason: reason} }
	late := func(w want) want { return with(w, "internal_error") }
	one := func(w want) want { return answering(w, "1") }
	problem := func(status int, code string, rpc int64) want { return want{status: status, code: code, rpc: rpc} }
	request := func(name, method, params string, w want) refusal {
		return at(name, letter{body: mcpBody(method, params), header: mirror(method, "")}, w)
	}
	noMethod := want{status: 405, bare: true, header: map[string]string{"Allow": "POST"}}
	march, ping := map[string]string{"Mcp-Protocol-Version": "2025-03-26"}, `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	both := func(v string) letter {
		return letter{body: strings.Replace(call, "2026-07-28", v, 1), header: header("Mcp-Protocol-Version", v)}
	}
	tasked := strings.Replace(mcpBody("tasks/get", `"taskId":"1",`), `Capabilities":{`, `Capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}`, 1)
	refusals(t, b, []refusal{
		at("no MCP-Protocol-Version", letter{body: call, header: header("Mcp-Protocol-Version", "")}, one(bad(-32020, "Mcp-Protocol-Version"))),
		at("no Mcp-Method", letter{body: call, header: header("Mcp-Method", "")}, one(bad(-32020, "Mcp-Method"))),
		at("no Mcp-Name", letter{body: call, header: header("Mcp-Name", "")}, one(bad(-32020, "Mcp-Name"))),
		at("version header of another revision", letter{body: call, header: header("Mcp-Protocol-Version", "2025-11-25")}, one(bad(-32020, "version"))),
		at("method header of another method", letter{body: call, header: header("Mcp-Method", "tools/list")}, one(bad(-32020, "method"))),
		at("name header of another tool", letter{body: call, header: header("Mcp-Name", "valet")}, one(bad(-32020, "Mcp-Name"))),
		at("name header in another case", letter{body: call, header: header("Mcp-Name", "Concierge")}, one(bad(-32020, "Mcp-Name"))),
		at("name header with broken base64", letter{body: call, header: header("Mcp-Name", "=?base64?***?=")}, one(bad(-32020, "Mcp-Name"))),
		at("unknown revision", both("1999-01-01"), one(bad(-32022, "Unsupported protocol version"))),
		at("revision of the future", both("2030-01-01"), one(bad(-32022, "Unsupported protocol version"))),
		at("unknown revision in the header alone", letter{body: call, header: header("Mcp-Protocol-Version", "1999-01-01")}, one(bad(-32022, "Unsupported protocol version"))),
		request("prompts/list", "prompts/list", "", one(want{status: 404, rpc: -32601, proof: "semantic_loss"})),
		request("resources/read without its name", "resources/read", `"uri":"file:///etc/passwd",`, one(bad(-32020, "Mcp-Name"))),
		at("tasks/get without its name", letter{body: tasked, header: mirror("tasks/get", "")}, one(bad(-32020, "Mcp-Name"))),
		request("tasks/get without its extension", "tasks/get", `"taskId":"1",`, one(bad(-32021, "io.modelcontextprotocol/tasks"))),
		request("ping, which is legacy", "ping", "", one(want{status: 404, rpc: -32601})),
		request("initialize, which is legacy", "initialize", "", one(want{status: 404, rpc: -32601})),
		request("a method of A2A", "SendMessage", "", one(want{status: 404, rpc: -32601, proof: "semantic_loss"})),
		at("unknown method of an older revision", letter{body: `{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`, header: map[string]string{"Mcp-Protocol-Version": "2025-11-25"}}, one(with(native(-32601, ""), "semantic_loss"))),
		at("unknown tool", letter{body: callBody("valet", "x"), header: mirror("tools/call", "valet")}, late(one(native(-32602, "no such skill or tool; this agent has concierge")))),
		at("tool of another agent", letter{body: callBody("add", "x"), header: mirror("tools/call", "add")}, late(one(native(-32602, "no such skill or tool")))),
		request("cursor of nobody", "tools/list", `"cursor":"7",`, one(native(-32602, "cursor"))),
		at("no _meta", letter{body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"concierge"}}`}, one(bad(-32602, "_meta"))),
		at("no client capabilities", letter{body: strings.Replace(call, `,"io.modelcontextprotocol/clientCapabilities":{}`, "", 1)}, one(bad(-32602, "clientCapabilities"))),
		at("GET", letter{method: "GET"}, noMethod),
		at("DELETE", letter{method: "DELETE"}, noMethod),
		at("PUT", letter{method: "PUT", body: call}, noMethod),
		at("GET an event stream", letter{method: "GET", header: map[string]string{"Accept": "text/event-stream"}}, noMethod),
		at("foreign Origin", letter{body: call, header: header("Origin", "https://evil.example")}, want{status: 403, rpc: -32600, reason: "origin"}),
		at("opaque Origin", letter{body: call, header: header("Origin", "null")}, want{status: 403, rpc: -32600, reason: "origin"}),
		at("Origin that begins like ours", letter{body: call, header: header("Origin", "https://127.0.0.1.evil.example")}, want{status: 403, rpc: -32600, reason: "origin"}),
		at("Accept of events alone", letter{body: call, header: header("Accept", "text/event-stream")}, want{status: 406, rpc: -32600, reason: "Accept"}),
		at("Accept of pictures", letter{body: call, header: header("Accept", "image/*")}, want{status: 406, rpc: -32600, reason: "Accept"}),
		at("Accept that refuses JSON", letter{body: call, header: header("Accept", "application/json;q=0, text/event-stream")}, want{status: 406, rpc: -32600, reason: "Accept"}),
		at("text", letter{body: call, media: "text/plain"}, problem(415, "unsupported_media_type", -32602)),
		at("no media type", letter{body: call, media: "-"}, problem(415, "unsupported_media_type", -32602)),
		at("compressed", letter{body: compressed(t, call), header: header("Content-Encoding", "gzip")}, problem(415, "unsupported_media_type", -32602)),
		at("16 MiB and one byte", letter{body: hugeBody(16<<20 + 1)}, problem(413, "too_large", -32600)),
		at("truncated", letter{body: call[:len(call)-2]}, bad(-32700, "truncated JSON")),
		at("empty", letter{}, bad(-32700, "truncated JSON")),
		at("duplicate members", letter{body: strings.Replace(call, `"id"`, `"id":2,"id"`, 1)}, bad(-32700, "duplicate member name")),
		at("lone surrogate", letter{body: strings.Replace(call, secret, `\ud800`, 1)}, bad(-32700, "not valid JSON")),
		at("invalid UTF-8", letter{body: strings.Replace(call, secret, "\xff", 1)}, bad(-32700, "not valid JSON")),
		at("a batch", letter{body: "[" + call + "]"}, bad(-32600, "batches")),
		at("a batch of the revision that abolished them", letter{body: "[" + call + "]", header: map[string]string{"Mcp-Protocol-Version": "2025-06-18"}}, bad(-32600, "batches")),
		at("an empty batch", letter{body: "[]", header: march}, bad(-32600, "empty")),
		at("a batch cut off", letter{body: "[" + ping + ",", header: march}, bad(-32700, "")),
		at("a batch and more", letter{body: "[" + ping + "] x", header: march}, bad(-32700, "")),
		at("a batch with a token", letter{body: "[" + ping + "]", header: march, tokens: []string{b.token(t, "["+ping+"]")}}, bad(-32600, "one message")),
		at("a batch beyond all measure", letter{body: "[" + strings.Repeat(ping+",", 10_000) + ping + "]", header: march}, bad(-32600, "at most")),
		at("a million levels", letter{body: strings.Repeat(`{"a":`, 1_000_000)}, bad(-32600, "nested deeper")),
		at("no id", letter{body: strings.Replace(call, `"id":1,`, "", 1)}, bad(-32600, "id")),
		at("a notification with an id", letter{body: mcpBody("notifications/cancelled", ""), header: mirror("notifications/cancelled", "")}, bad(-32600, "notification")),
		at("a reply that is no object", letter{body: `{"jsonrpc":"2.0","id":1,"result":[]}`, header: map[string]string{"Mcp-Protocol-Version": "2025-11-25"}}, bad(-32600, "no object")),
		at("unknown agent", letter{at: "/agents/nobody/mcp", body: call}, late(one(problem(404, "unknown_agent", -32602)))),
		at("tools of an unknown agent", letter{at: "/agents/nobody/mcp", body: mcpBody("tools/list", ""), header: mirror("tools/list", "")}, one(problem(404, "unknown_agent", -32602))),
		at("discovery of an unknown agent", letter{at: "/agents/nobody/mcp", body: mcpBody("server/discover", ""), header: mirror("server/discover", "")}, one(problem(404, "unknown_agent", -32602))),
		at("broken token", letter{body: call, tokens: []string{"a.b"}}, problem(400, "ect_invalid", -32600)),
		at("33 tokens", letter{body: call, tokens: ballast(33, 8)}, problem(431, "ect_invalid", -32600)),
		{name: "token of another body", want: one(problem(403, "ect_invalid", -32600)), make: func(t *testing.T, b *bed) letter {
			t.Helper()
			return letter{at: doorMCP, body: call, header: mirror("tools/call", "concierge"), tokens: []string{b.token(t, "another")}}
		}},
		at("no token for an agent that demands one", letter{at: "/agents/strict/mcp", body: callBody("echo", "x"), header: mirror("tools/call", "echo")}, late(one(problem(403, "ect_required", -32600)))),
	})
	t.Run("wrong params", b.refusesParams)
	t.Run("an unknown revision gets the list of known ones", b.toldTheVersions)
	t.Run("a notification is taken and not answered", b.takesNotice)
	t.Run("the messages of a batch are refused one by one", b.refusesMembers)
}

// refusesParams: params that are not those of the method are invalid params
// (JSON-RPC 2.0, error object), whatever the era.
func (b *bed) refusesParams(t *testing.T) {
	for name, change := range map[string][2]string{
		"no name":             {`"name":"concierge",`, ``},
		"name is a number":    {`"concierge"`, `7`},
		"empty name":          {`"concierge"`, `""`},
		"arguments is a list": {`{"message":"x"}`, `["x"]`},
	} {
		body := strings.Replace(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"concierge","arguments":{"message":"x"}}}`, change[0], change[1], 1)
		l := letter{at: doorMCP, body: body, header: map[string]string{"Mcp-Protocol-Version": "2025-11-25"}}
		t.Run(name, func(t *testing.T) { b.refused(t, l, b.send(t, l), answering(native(-32602, ""), "1")) })
	}
}

func (b *bed) toldTheVersions(t *testing.T) {
	h := mirror("server/discover", "")
	h["Mcp-Protocol-Version"] = "1999-01-01"
	got := b.send(t, letter{at: doorMCP, header: h, body: strings.Replace(mcpBody("server/discover", ""), "2026-07-28", "1999-01-01", 1)})
	var doc rpcError
	jsonIn(t, got.body, &doc)
	if said := string(doc.Error.Data); !strings.Contains(said, `"2026-07-28"`) || !strings.Contains(said, `"requested":"1999-01-01"`) {
		t.Errorf("the data: %s", said)
	}
}

func (b *bed) takesNotice(t *testing.T) {
	got := b.send(t, letter{at: doorMCP, header: mirror("notifications/cancelled", ""), body: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9,` + modernMeta + `}}`})
	if got.status != http.StatusAccepted || len(got.body) > 0 || got.header.Get(ect.HeaderName) != "" {
		t.Errorf("got %d: %s", got.status, got.body)
	}
}

// refusesMembers: one bad message does not spoil the others of its batch (R8).
func (b *bed) refusesMembers(t *testing.T) {
	call := func(id int, method, params string) string {
		return `{"jsonrpc":"2.0","id":` + strconv.Itoa(id) + `,"method":"` + method + `","params":{` + params + `}}`
	}
	body := "[" + strings.Join([]string{
		call(1, "prompts/list", ""),
		call(2, "tools/call", `"name":"valet"`),
		call(3, "tools/call", `"name":7`),
		call(4, "tools/call", `"name":"concierge","arguments":{"message":"hello"}`),
	}, ",") + "]"
	got := b.send(t, letter{at: doorMCP, body: body, header: map[string]string{"Mcp-Protocol-Version": "2025-03-26"}})
	var answers []struct {
		ID     int
		Error  struct{ Code int }
		Result json.RawMessage
	}
	if err := json.Unmarshal(got.body, &answers); err != nil || got.status != http.StatusOK || len(answers) != 4 {
		t.Fatalf("got %d: %s", got.status, short(got.body))
	}
	for i, want := range []int{-32601, -32602, -32602, 0} {
		if a := answers[i]; a.ID != i+1 || a.Error.Code != want || (want == 0) != strings.Contains(string(a.Result), "You said: hello") {
			t.Errorf("message %d: got %+v", i+1, a)
		}
	}
	b.proofs(t, got)
}
