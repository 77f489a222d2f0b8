package negative

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// The refusals of messages. All but those of size and media type come after the
// evidence held, and so leave some.
var (
	broken  = gatewaytest.Want{Status: 400, Code: "malformed_message", Proof: "internal_error"}
	noPath  = gatewaytest.Want{Status: 404, Code: "no_translation_path", Reason: "from "}
	lossy   = gatewaytest.Want{Status: 422, Code: "semantic_loss", Proof: "semantic_loss"}
	noMedia = gatewaytest.Want{Status: 415, Code: "unsupported_media_type", Reason: "want application/json"}
)

// because narrows a refusal to its reason.
func because(w gatewaytest.Want, reason string) gatewaytest.Want {
	w.Reason = reason
	return w
}

// What is no JSON, or none that has one meaning.
func TestMessage_MalformedJSON(t *testing.T) {
	t.Parallel()
	b := shared()
	good := gatewaytest.AddBody(5)
	in := func(name, body string, w gatewaytest.Want) gatewaytest.Refusal {
		return gatewaytest.Posted(name, gatewaytest.HTTPRequest{Body: body}, w)
	}
	gatewaytest.Refusals(t, b, []gatewaytest.Refusal{
		in("empty", "", because(broken, "truncated JSON")),
		in("truncated", good[:len(good)/2], because(broken, "truncated JSON")),
		in("something behind it", good+"x", because(broken, "data after the JSON value")),
		in("a batch", "["+good+"]", because(broken, "not an object")),
		in("lone surrogate", strings.Replace(good, gatewaytest.Secret, `\ud800`, 1), because(broken, "not valid JSON")),
		in("an argument twice", strings.Replace(good, `"b":1`, `"b":1,"b":2`, 1), because(broken, "duplicate member name")),
		in("129 levels", deep(129), because(broken, "nested deeper than 128 levels")),
		in("16 MiB and one byte", gatewaytest.HugeBody(16<<20+1), gatewaytest.Want{Status: 413, Code: "too_large"}),
		gatewaytest.Posted("text", gatewaytest.HTTPRequest{Body: good, Media: "text/plain"}, noMedia),
		gatewaytest.Posted("no media type", gatewaytest.HTTPRequest{Body: good, Media: "-"}, noMedia),
		gatewaytest.Posted("form", gatewaytest.HTTPRequest{Body: good, Media: "application/x-www-form-urlencoded"}, noMedia),
		gatewaytest.Posted("another JSON type", gatewaytest.HTTPRequest{Body: good, Media: "application/vnd.api+json"}, noMedia),
		gatewaytest.Posted("event stream", gatewaytest.HTTPRequest{Body: good, Media: "text/event-stream"}, noMedia),
		gatewaytest.Posted("compressed", gatewaytest.HTTPRequest{Body: compressed(t, good), Header: map[string]string{"Content-Encoding": "gzip"}}, noMedia),
	})
	t.Run("at the limits", func(t *testing.T) {
		for name, body := range map[string]string{"128 levels": deep(128), "16 MiB": gatewaytest.HugeBody(16 << 20)} {
			if got := b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: gatewaytest.ToNobody, Body: body})); got.Status != http.StatusOK {
				t.Errorf("%s: got %d: %s", name, got.Status, gatewaytest.Short(got.Body))
			}
		}
	})
}

// deep is a message of so many levels.
func deep(levels int) string {
	const above = 7 // the message, params, message, parts, part, data, input
	n := levels - above
	return strings.Replace(gatewaytest.AddBody(1), `"b":1`, `"b":`+strings.Repeat("[", n)+strings.Repeat("]", n), 1)
}

func compressed(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write([]byte(text))
	gatewaytest.Must(t, err)
	gatewaytest.Must(t, w.Close())
	return out.String()
}

// What is JSON and no message of its protocol, or one that the other protocol
// has no words for.
func TestMessage_WithoutCounterpart(t *testing.T) {
	t.Parallel()
	b := shared()
	a2a := func(name, old, now string, w gatewaytest.Want) gatewaytest.Refusal {
		body := strings.Replace(gatewaytest.AddBody(5), old, now, 1)
		if body == gatewaytest.AddBody(5) {
			t.Fatalf("%s: the case changes nothing", name)
		}
		return gatewaytest.Posted(name, gatewaytest.HTTPRequest{Body: body}, w)
	}
	method := func(name string, w gatewaytest.Want) gatewaytest.Refusal {
		return a2a("A2A "+name, `"SendMessage"`, strconv.Quote(name), w)
	}
	mcp := func(name, method, params string, w gatewaytest.Want) gatewaytest.Refusal {
		return gatewaytest.Posted("MCP "+name, gatewaytest.HTTPRequest{At: gatewaytest.ToConcierge, Body: mcpBody(method, params)}, w)
	}
	gatewaytest.Refusals(t, b, []gatewaytest.Refusal{
		a2a("no message", `"message"`, `"massage"`, because(broken, "/params/message")),
		gatewaytest.Posted("a reply instead of a request", gatewaytest.HTTPRequest{Body: `{"jsonrpc":"2.0","id":1,"result":{}}`}, because(broken, "a reply")),
		gatewaytest.Posted("an A2A version that is not spoken", gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(5), Header: map[string]string{"A2A-Version": "0.3"}}, gatewaytest.Want{Status: 404, Code: "no_translation_path", Proof: "internal_error"}),
		method("GetExtendedAgentCard", lossy),
		method("DoEverything", because(gatewaytest.Want{Status: 422, Code: "method_not_found", Proof: "semantic_loss"}, "no such method")),
		a2a("unknown skill", `"add"`, `"divide"`, gatewaytest.Want{Status: 404, Code: "not_found", Reason: "no such skill or tool; this agent has add", Proof: "internal_error"}),
		gatewaytest.Posted("text for an agent with several tools", gatewaytest.HTTPRequest{Body: gatewaytest.TextBody(gatewaytest.Secret)}, because(broken, "this agent has several skills")),
		mcp("tools/list", "tools/list", "", because(lossy, "L36")),
		mcp("server/discover", "server/discover", "", because(lossy, "L36")),
		mcp("resources/read", "resources/read", `"uri":"file:///x",`, because(lossy, "L13")),
		mcp("prompts/get", "prompts/get", `"name":"x",`, because(lossy, "L13")),
		mcp("no name", "tools/call", `"arguments":{},`, because(broken, "at /params/name")),
		mcp("unknown tool", "tools/call", `"name":"valet","arguments":{},`, gatewaytest.Want{Status: 404, Code: "not_found", Reason: "no such skill or tool", Proof: "internal_error"}),
		gatewaytest.Posted("an MCP notification", gatewaytest.HTTPRequest{At: gatewaytest.ToConcierge, Body: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`}, because(lossy, "L36")),
		gatewaytest.Posted("a legacy MCP initialize", gatewaytest.HTTPRequest{At: gatewaytest.ToConcierge, Body: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`}, because(lossy, "L36")),
		gatewaytest.Posted("an MCP batch", gatewaytest.HTTPRequest{At: gatewaytest.ToConcierge, Body: "[" + gatewaytest.CallBody("concierge", "x") + "]"}, because(broken, "not an object")),
		gatewaytest.Posted("an MCP header that names another method", gatewaytest.HTTPRequest{At: gatewaytest.ToConcierge, Body: gatewaytest.CallBody("concierge", "x"), Header: map[string]string{"Mcp-Method": "tools/list"}}, because(broken, "another method")),
		gatewaytest.Posted("an MCP revision that is not spoken", gatewaytest.HTTPRequest{At: gatewaytest.ToConcierge, Body: strings.Replace(gatewaytest.CallBody("concierge", "x"), "2026-07-28", "1999-01-01", 1)}, gatewaytest.Want{Status: 404, Code: "no_translation_path", Proof: "internal_error"}),
	})
}

// mcpBody is a request of 2026-07-28.
func mcpBody(method, params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + gatewaytest.ModernMeta + `}}`
}

// Where a message is sent: methods, paths, pairs, versions, agents.
func TestRequest_WrongTargets(t *testing.T) {
	t.Parallel()
	b := shared()
	noMethod := func(allow string) gatewaytest.Want {
		return gatewaytest.Want{Status: 405, Code: "method_not_allowed", Reason: "use ", Header: map[string]string{"Allow": allow}}
	}
	to := func(name, query string, w gatewaytest.Want) gatewaytest.Refusal {
		return gatewaytest.Posted(name, gatewaytest.HTTPRequest{At: "/aepb/translate" + query, Body: gatewaytest.AddBody(5)}, w)
	}
	late := func(w gatewaytest.Want) gatewaytest.Want { return with(w, "internal_error") }
	gatewaytest.Refusals(t, b, []gatewaytest.Refusal{
		gatewaytest.Sent("GET translate", gatewaytest.HTTPRequest{Method: "GET"}, noMethod("POST")),
		gatewaytest.Sent("HEAD translate", gatewaytest.HTTPRequest{Method: "HEAD"}, noMethod("POST")),
		gatewaytest.Sent("POST the capability document", gatewaytest.HTTPRequest{At: "/.well-known/aepb"}, noMethod("GET")),
		gatewaytest.Sent("DELETE the gateway document", gatewaytest.HTTPRequest{Method: "DELETE", At: "/.well-known/aepb/gateway"}, noMethod("GET")),
		gatewaytest.Sent("POST an ECT", gatewaytest.HTTPRequest{At: "/ects/" + string(ect.NewID())}, noMethod("GET")),
		gatewaytest.Sent("nothing there", gatewaytest.HTTPRequest{Method: "GET", At: "/nothing"}, gatewaytest.Want{Status: 404, Code: "not_found"}),
		gatewaytest.Sent("the root", gatewaytest.HTTPRequest{Method: "GET", At: "/"}, gatewaytest.Want{Status: 404, Code: "not_found"}),
		gatewaytest.Sent("a translate endpoint below the translate endpoint", gatewaytest.HTTPRequest{At: "/aepb/translate/x"}, gatewaytest.Want{Status: 404, Code: "not_found"}),
		gatewaytest.Sent("dots in the path", gatewaytest.HTTPRequest{At: "/agents/../aepb/translate"}, gatewaytest.Want{Status: 404, Code: "not_found"}),
		gatewaytest.Sent("the admin API on the public listener", gatewaytest.HTTPRequest{Method: "GET", At: "/api/agents"}, gatewaytest.Want{Status: 404, Code: "not_found"}),
		gatewaytest.Sent("the metrics on the public listener", gatewaytest.HTTPRequest{Method: "GET", At: "/metrics"}, gatewaytest.Want{Status: 404, Code: "not_found"}),
		gatewaytest.Sent("an endpoint without an agent", gatewaytest.HTTPRequest{At: "/agents//a2a"}, gatewaytest.Want{Status: 404, Code: "not_found"}),
		gatewaytest.Sent("an endpoint of no protocol", gatewaytest.HTTPRequest{At: "/agents/calculator/smtp"}, gatewaytest.Want{Status: 404, Code: "not_found"}),
		to("no from", "?dest=calculator", noPath),
		to("nothing at all", "", noPath),
		to("unknown destination protocol", "?from=a2a-v1&to=none-v1", noPath),
		to("unknown destination protocol of an agent", "?from=a2a-v1&to=none-v1&dest=calculator", noPath),
		to("protocol in another case", "?from=A2A-V1&dest=calculator", noPath),
		to("unknown version of the destination", "?from=a2a-v1&to=mcp-v1@1999-01-01", because(noPath, "unsupported_version")),
		to("unknown version of the destination of an agent", "?from=a2a-v1&to=mcp-v1@1999-01-01&dest=calculator", because(noPath, "unsupported_version")),
		to("a protocol that the agent does not speak", "?from=a2a-v1&to=a2a-v1&dest=calculator", late(noPath)),
		to("unknown agent", "?from=a2a-v1&dest=nobody", late(because(noPath, "unknown_agent"))),
		to("unknown SPIFFE id", "?from=a2a-v1&dest=spiffe%3A%2F%2Faepb.dev%2Fnobody", late(because(noPath, "unknown_agent"))),
		to("address of a cloud's metadata", "?from=a2a-v1&dest=http%3A%2F%2F169.254.169.254%2Flatest", gatewaytest.Want{Status: 403, Code: "policy_violation", Reason: "egress policy", Proof: "policy_violation"}),
		to("name with a line break", "?from=a2a-v1&dest=a%0d%0ab", late(because(noPath, "unknown_agent"))),
		gatewaytest.Sent("unknown pair at the pair query", gatewaytest.HTTPRequest{Method: "GET", At: "/.well-known/aepb/gateway?from=a2a-v1&to=none-v1"}, noPath),
		gatewaytest.Sent("half a pair", gatewaytest.HTTPRequest{Method: "GET", At: "/.well-known/aepb/gateway?from=a2a-v1"}, gatewaytest.Want{Status: 400, Code: "malformed_message", Reason: "go together"}),
	})
	t.Run("128 KiB of header", func(t *testing.T) { refusesHugeHeader(t, b) })
}

// The same endpoint under CPAT's names: the same refusals, the same evidence.
func TestCPAT_Refuses(t *testing.T) {
	t.Parallel()
	b := shared()
	at := func(query string) string { return "/cpat/translate?from=a2a-v1" + query }
	known, endpoint := gatewaytest.AddBody(5), at("&dest=calculator")
	gatewaytest.Refusals(t, b, []gatewaytest.Refusal{
		gatewaytest.Sent("no token", gatewaytest.HTTPRequest{At: endpoint, Body: known}, gatewaytest.Want{Status: 403, Code: "ect_required", Proof: "internal_error"}),
		gatewaytest.Sent("no certificate", gatewaytest.HTTPRequest{Via: b.Anonymous, At: endpoint, Body: known}, gatewaytest.Want{Status: 401, Code: "unauthenticated", Header: challenge}),
		gatewaytest.Sent("GET", gatewaytest.HTTPRequest{Method: "GET", At: endpoint}, gatewaytest.Want{Status: 405, Code: "method_not_allowed", Header: map[string]string{"Allow": "POST"}}),
		gatewaytest.Sent("POST the capability document", gatewaytest.HTTPRequest{At: "/.well-known/cpat"}, gatewaytest.Want{Status: 405, Code: "method_not_allowed", Header: map[string]string{"Allow": "GET"}}),
		gatewaytest.Posted("truncated", gatewaytest.HTTPRequest{At: endpoint, Body: known[:50]}, because(broken, "truncated JSON")),
		gatewaytest.Sent("unknown pair at the pair query", gatewaytest.HTTPRequest{Method: "GET", At: "/.well-known/cpat/gateway?from=a2a-v1&to=none-v1"}, noPath),
	})
}

// refusesHugeHeader: more header than any request needs is refused by the
// server itself, before there is a handler that could write a document.
func refusesHugeHeader(t *testing.T, b *gatewaytest.Fixture) {
	got := raw(t, b, b.ClientTLS(t, b.Dev.Client), "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Padding: "+strings.Repeat("x", 128<<10)+"\r\n\r\n")
	if got.Status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got %d, want 431", got.Status)
	}
}
