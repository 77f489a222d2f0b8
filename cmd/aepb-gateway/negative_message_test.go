package main

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
)

// The refusals of messages. All but those of size and media type come after the
// evidence held, and so leave some.
var (
	broken  = want{status: 400, code: "malformed_message", proof: "internal_error"}
	noPath  = want{status: 404, code: "no_translation_path", reason: "from "}
	lossy   = want{status: 422, code: "semantic_loss", proof: "semantic_loss"}
	noMedia = want{status: 415, code: "unsupported_media_type", reason: "want application/json"}
)

// because narrows a refusal to its reason.
func because(w want, reason string) want {
	w.reason = reason
	return w
}

// What is no JSON, or none that has one meaning.
func TestMalformedJSON(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	good := addBody(5)
	in := func(name, body string, w want) refusal { return posted(name, letter{body: body}, w) }
	refusals(t, b, []refusal{
		in("empty", "", because(broken, "truncated JSON")),
		in("blank", " \r\n\t", because(broken, "truncated JSON")),
		in("truncated", good[:len(good)/2], because(broken, "truncated JSON")),
		in("without its last brace", good[:len(good)-1], because(broken, "truncated JSON")),
		in("something behind it", good+"x", because(broken, "data after the JSON value")),
		in("twice", good+good, because(broken, "data after the JSON value")),
		in("null", "null", because(broken, "not an object")),
		in("a number", "7", because(broken, "not an object")),
		in("a string", `"SendMessage"`, because(broken, "not an object")),
		in("a batch", "["+good+"]", because(broken, "not an object")),
		in("an empty batch", "[]", because(broken, "not an object")),
		in("a mark before it", "\xef\xbb\xbf"+good, because(broken, "not valid JSON")),
		in("UTF-16", utf16(good), because(broken, "not valid JSON")),
		in("invalid UTF-8", strings.Replace(good, secret, "a\xc3(", 1), because(broken, "not valid JSON")),
		in("overlong UTF-8", strings.Replace(good, secret, "\xc0\xaf", 1), because(broken, "not valid JSON")),
		in("lone surrogate", strings.Replace(good, secret, `\ud800`, 1), because(broken, "not valid JSON")),
		in("surrogates in the wrong order", strings.Replace(good, secret, `\udc00\ud800`, 1), because(broken, "not valid JSON")),
		in("control character in a string", strings.Replace(good, secret, "a\x00b", 1), because(broken, "not valid JSON")),
		in("unknown escape", strings.Replace(good, secret, `\x41`, 1), because(broken, "not valid JSON")),
		in("single quotes", strings.ReplaceAll(good, `"`, "'"), because(broken, "not valid JSON")),
		in("trailing comma", strings.Replace(good, "}]}}}", "}],}}}", 1), because(broken, "not valid JSON")),
		in("a comment", "/* hello */"+good, because(broken, "not valid JSON")),
		in("NaN", strings.Replace(good, `"b":1`, `"b":NaN`, 1), because(broken, "not valid JSON")),
		in("number with a leading zero", strings.Replace(good, `"b":1`, `"b":01`, 1), because(broken, "not valid JSON")),
		in("method twice", strings.Replace(good, `"id"`, `"method":"GetTask","id"`, 1), because(broken, "duplicate member name")),
		in("method twice, once in disguise", strings.Replace(good, `"id"`, `"\u006dethod":"GetTask","id"`, 1), because(broken, "duplicate member name")),
		in("an argument twice", strings.Replace(good, `"b":1`, `"b":1,"b":2`, 1), because(broken, "duplicate member name")),
		in("129 levels", deep(129), because(broken, "nested deeper than 128 levels")),
		in("a million levels", strings.Repeat("[", 1_000_000), because(broken, "nested deeper than 128 levels")),
		in("16 MiB and one byte", hugeBody(16<<20+1), want{status: 413, code: "too_large"}),
		posted("text", letter{body: good, media: "text/plain"}, noMedia),
		posted("no media type", letter{body: good, media: "-"}, noMedia),
		posted("form", letter{body: good, media: "application/x-www-form-urlencoded"}, noMedia),
		posted("another JSON type", letter{body: good, media: "application/vnd.api+json"}, noMedia),
		posted("event stream", letter{body: good, media: "text/event-stream"}, noMedia),
		posted("compressed", letter{body: compressed(t, good), header: map[string]string{"Content-Encoding": "gzip"}}, noMedia),
	})
	t.Run("at the limits", func(t *testing.T) {
		for name, body := range map[string]string{"128 levels": deep(128), "16 MiB": hugeBody(16 << 20)} {
			if got := b.send(t, b.sealed(t, letter{at: toNobody, body: body})); got.status != http.StatusOK {
				t.Errorf("%s: got %d: %s", name, got.status, short(got.body))
			}
		}
	})
}

// deep is a message of so many levels.
func deep(levels int) string {
	const above = 7 // the message, params, message, parts, part, data, input
	n := levels - above
	return strings.Replace(addBody(1), `"b":1`, `"b":`+strings.Repeat("[", n)+strings.Repeat("]", n), 1)
}

func utf16(text string) string {
	var out strings.Builder
	for _, c := range []byte(text) {
		out.Write([]byte{c, 0})
	}
	return out.String()
}

func compressed(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write([]byte(text))
	must(t, err)
	must(t, w.Close())
	return out.String()
}

// What is JSON and no message of its protocol, or one that the other protocol
// has no words for.
func TestUnsayableMessages(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	a2a := func(name, old, now string, w want) refusal {
		body := strings.Replace(addBody(5), old, now, 1)
		if body == addBody(5) {
			t.Fatalf("%s: the case changes nothing", name)
		}
		return posted(name, letter{body: body}, w)
	}
	method := func(name string, w want) refusal {
		return a2a("A2A "+name, `"SendMessage"`, strconv.Quote(name), w)
	}
	mcp := func(name, method, params string, w want) refusal {
		return posted("MCP "+name, letter{at: toConcierge, body: mcpBody(method, params)}, w)
	}
	refusals(t, b, []refusal{
		a2a("no jsonrpc", `"jsonrpc":"2.0",`, ``, because(broken, "at /jsonrpc")),
		a2a("jsonrpc 1.0", `"2.0"`, `"1.0"`, because(broken, "at /jsonrpc")),
		a2a("jsonrpc as a number", `"2.0"`, `2.0`, because(broken, "at /jsonrpc")),
		a2a("method in another case", `"method"`, `"Method"`, because(broken, "at ")),
		a2a("params as a list", `"params":{`, `"params":[1],"x":{`, because(broken, "/params: not an object")),
		a2a("a request and a result", `"id"`, `"result":{},"id"`, because(broken, "neither a request nor a result nor an error")),
		a2a("id is an object", `"id":"5"`, `"id":{}`, because(broken, "at /id")),
		a2a("id is a fraction", `"id":"5"`, `"id":1.5`, because(broken, "at /id")),
		a2a("id is null", `"id":"5"`, `"id":null`, because(broken, "at /id")),
		a2a("no id", `"id":"5",`, ``, because(broken, "needs an id")),
		a2a("no message", `"message"`, `"massage"`, because(broken, "/params/message")),
		a2a("parts is a string", `"parts":[{"text":"`+secret+`"},`, `"parts":"none","x":[`, because(broken, "/params/message/parts")),
		a2a("a part is a number", `{"text":"`+secret+`"}`, `7`, because(broken, "/params/message/parts/0")),
		a2a("text is a number", `{"text":"`+secret+`"}`, `{"text":7}`, because(broken, "/params/message/parts/0")),
		a2a("a part with two contents", `{"text":"`+secret+`"}`, `{"text":"a","url":"https://a.example"}`, because(broken, "/params/message/parts/0")),
		a2a("a part without content", `{"text":"`+secret+`"}`, `{}`, because(broken, "/params/message/parts/0")),
		a2a("file that is no base64", `{"text":"`+secret+`"}`, `{"raw":"***"}`, because(broken, "/params/message/parts/0")),
		a2a("unknown role", `"ROLE_USER"`, `"ROLE_KING"`, because(broken, "/params/message/role")),
		a2a("no messageId", `"messageId":"m1",`, ``, because(broken, "/params/message/messageId")),
		a2a("history length that is no integer", `"message":{`, `"configuration":{"historyLength":1e99},"message":{`, because(broken, "historyLength")),
		posted("a reply instead of a request", letter{body: `{"jsonrpc":"2.0","id":1,"result":{}}`}, because(broken, "a reply")),
		posted("an A2A version that is not spoken", letter{body: addBody(5), header: map[string]string{"A2A-Version": "0.3"}}, want{status: 404, code: "no_translation_path", proof: "internal_error"}),
		method("message/send", because(broken, "/params/message/role")), // which 0.3 writes otherwise
		method("GetTask", because(broken, "/params/id")),
		method("CancelTask", because(broken, "/params/id")),
		method("CreateTaskPushNotificationConfig", because(broken, "/params/url")),
		method("GetExtendedAgentCard", lossy),
		method("DoEverything", because(want{status: 422, code: "method_not_found", proof: "semantic_loss"}, "no such method")),
		a2a("unknown skill", `"add"`, `"divide"`, want{status: 404, code: "not_found", reason: "no such skill or tool; this agent has add", proof: "internal_error"}),
		posted("text for an agent with several tools", letter{body: textBody(secret)}, because(broken, "this agent has several skills")),
		mcp("tools/list", "tools/list", "", because(lossy, "L36")),
		mcp("server/discover", "server/discover", "", because(lossy, "L36")),
		mcp("resources/read", "resources/read", `"uri":"file:///x",`, because(lossy, "L13")),
		mcp("prompts/get", "prompts/get", `"name":"x",`, because(lossy, "L13")),
		mcp("no name", "tools/call", `"arguments":{},`, because(broken, "at /params/name")),
		mcp("empty name", "tools/call", `"name":"",`, because(broken, "name is empty")),
		mcp("arguments as a list", "tools/call", `"name":"concierge","arguments":[1],`, because(broken, "at /params/arguments")),
		mcp("unknown tool", "tools/call", `"name":"valet","arguments":{},`, want{status: 404, code: "not_found", reason: "no such skill or tool", proof: "internal_error"}),
		posted("an MCP notification", letter{at: toConcierge, body: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`}, because(lossy, "L36")),
		posted("a legacy MCP initialize", letter{at: toConcierge, body: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`}, because(lossy, "L36")),
		posted("an MCP batch", letter{at: toConcierge, body: "[" + callBody("concierge", "x") + "]"}, because(broken, "not an object")),
		posted("an MCP header that names another method", letter{at: toConcierge, body: callBody("concierge", "x"), header: map[string]string{"Mcp-Method": "tools/list"}}, because(broken, "another method")),
		posted("an MCP header that names another version", letter{at: toConcierge, body: callBody("concierge", "x"), header: map[string]string{"Mcp-Protocol-Version": "2025-11-25"}}, because(broken, "another")),
		posted("an MCP revision that is not spoken", letter{at: toConcierge, body: strings.Replace(callBody("concierge", "x"), "2026-07-28", "1999-01-01", 1)}, want{status: 404, code: "no_translation_path", proof: "internal_error"}),
	})
}

// mcpBody is a request of 2026-07-28.
func mcpBody(method, params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + modernMeta + `}}`
}

// Where a message is sent: methods, paths, pairs, versions, agents.
func TestWrongWays(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	noMethod := func(allow string) want {
		return want{status: 405, code: "method_not_allowed", reason: "use ", header: map[string]string{"Allow": allow}}
	}
	to := func(name, query string, w want) refusal {
		return posted(name, letter{at: "/aepb/translate" + query, body: addBody(5)}, w)
	}
	late := func(w want) want { return with(w, "internal_error") }
	refusals(t, b, []refusal{
		sent("GET translate", letter{method: "GET"}, noMethod("POST")),
		sent("PUT translate", letter{method: "PUT", body: addBody(5)}, noMethod("POST")),
		sent("DELETE translate", letter{method: "DELETE"}, noMethod("POST")),
		sent("HEAD translate", letter{method: "HEAD"}, noMethod("POST")),
		sent("POST the capability document", letter{at: "/.well-known/aepb"}, noMethod("GET")),
		sent("DELETE the gateway document", letter{method: "DELETE", at: "/.well-known/aepb/gateway"}, noMethod("GET")),
		sent("POST an ECT", letter{at: "/ects/" + string(ect.NewID())}, noMethod("GET")),
		sent("nothing there", letter{method: "GET", at: "/nothing"}, want{status: 404, code: "not_found"}),
		sent("the root", letter{method: "GET", at: "/"}, want{status: 404, code: "not_found"}),
		sent("a translate endpoint below the translate endpoint", letter{at: "/aepb/translate/x"}, want{status: 404, code: "not_found"}),
		sent("dots in the path", letter{at: "/agents/../aepb/translate"}, want{status: 404, code: "not_found"}),
		sent("the admin API on the public listener", letter{method: "GET", at: "/api/agents"}, want{status: 404, code: "not_found"}),
		sent("the metrics on the public listener", letter{method: "GET", at: "/metrics"}, want{status: 404, code: "not_found"}),
		sent("a door without an agent", letter{at: "/agents//a2a"}, want{status: 404, code: "not_found"}),
		sent("a door of no protocol", letter{at: "/agents/calculator/smtp"}, want{status: 404, code: "not_found"}),
		to("no from", "?dest=calculator", noPath),
		to("no destination", "?from=a2a-v1", noPath),
		to("nothing at all", "", noPath),
		to("unknown source protocol", "?from=soap-v1&dest=calculator", noPath),
		to("unknown destination protocol", "?from=a2a-v1&to=none-v1", noPath),
		to("unknown destination protocol of an agent", "?from=a2a-v1&to=none-v1&dest=calculator", noPath),
		to("protocol in another case", "?from=A2A-V1&dest=calculator", noPath),
		to("unknown version of the source", "?from=a2a-v1@0.1&dest=calculator", because(noPath, "unsupported_version")),
		to("unknown version of the destination", "?from=a2a-v1&to=mcp-v1@1999-01-01", because(noPath, "unsupported_version")),
		to("unknown version of the destination of an agent", "?from=a2a-v1&to=mcp-v1@1999-01-01&dest=calculator", because(noPath, "unsupported_version")),
		to("a protocol that the agent does not speak", "?from=a2a-v1&to=a2a-v1&dest=calculator", late(noPath)),
		to("unknown agent", "?from=a2a-v1&dest=nobody", late(because(noPath, "unknown_agent"))),
		to("unknown SPIFFE id", "?from=a2a-v1&dest=spiffe%3A%2F%2Faepb.dev%2Fnobody", late(because(noPath, "unknown_agent"))),
		to("address of a cloud's metadata", "?from=a2a-v1&dest=http%3A%2F%2F169.254.169.254%2Flatest", want{status: 403, code: "policy_violation", reason: "egress policy", proof: "policy_violation"}),
		to("name with a line break", "?from=a2a-v1&dest=a%0d%0ab", late(because(noPath, "unknown_agent"))),
		sent("unknown pair at the pair query", letter{method: "GET", at: "/.well-known/aepb/gateway?from=a2a-v1&to=none-v1"}, noPath),
		sent("half a pair", letter{method: "GET", at: "/.well-known/aepb/gateway?from=a2a-v1"}, want{status: 400, code: "malformed_message", reason: "go together"}),
	})
	t.Run("128 KiB of header", b.refusesHugeHeader)
}

// The same road under CPAT's names: the same refusals, the same evidence.
func TestCPATRefuses(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	at := func(query string) string { return "/cpat/translate?from=a2a-v1" + query }
	known, door := addBody(5), at("&dest=calculator")
	refusals(t, b, []refusal{
		sent("no token", letter{at: door, body: known}, want{status: 403, code: "ect_required", proof: "internal_error"}),
		sent("no certificate", letter{via: b.anonymous, at: door, body: known}, want{status: 401, code: "unauthenticated", header: challenge}),
		sent("GET", letter{method: "GET", at: door}, want{status: 405, code: "method_not_allowed", header: map[string]string{"Allow": "POST"}}),
		sent("POST the capability document", letter{at: "/.well-known/cpat"}, want{status: 405, code: "method_not_allowed", header: map[string]string{"Allow": "GET"}}),
		sent("garbage for a token", letter{at: door, body: known, tokens: []string{"%%%"}}, malformed("outside base64url")),
		sent("token of another body", letter{at: door, body: known, tokens: []string{b.token(t, "another")}}, invalid(ect.ReasonHashMismatch, "out_hash")),
		posted("truncated", letter{at: door, body: known[:50]}, because(broken, "truncated JSON")),
		posted("text", letter{at: door, body: known, media: "text/plain"}, noMedia),
		posted("an operation without a counterpart", letter{at: door, body: strings.Replace(known, "SendMessage", "GetExtendedAgentCard", 1)}, lossy),
		posted("unknown agent", letter{at: at("&dest=nobody"), body: known}, with(because(noPath, "unknown_agent"), "internal_error")),
		posted("an agent for others", letter{at: at("&dest=closed"), body: known}, want{status: 403, code: "forbidden", proof: "internal_error"}),
		posted("unknown pair", letter{at: at("&to=none-v1"), body: known}, noPath),
		sent("unknown pair at the pair query", letter{method: "GET", at: "/.well-known/cpat/gateway?from=a2a-v1&to=none-v1"}, noPath),
	})
}

// refusesHugeHeader: more header than any request needs is refused by the
// server itself, before there is a handler that could write a document.
func (b *bed) refusesHugeHeader(t *testing.T) {
	got := b.raw(t, b.clientTLS(t, b.dev.Client), "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Padding: "+strings.Repeat("x", 128<<10)+"\r\n\r\n")
	if got.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got %d, want 431", got.status)
	}
}
