package negative

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// The A2A endpoint of 0.3 without JSON-RPC.
func TestA2A03RESTEndpoint_Refuses(t *testing.T) {
	t.Parallel()
	b := shared()
	const send, params = gatewaytest.EndpointA2A + "/v1/message:send", "INVALID_PARAMS"
	late := func(status int, reason, message string) gatewaytest.Want {
		return gatewaytest.Want{Status: status, Rest: reason, Reason: message, Proof: "internal_error"}
	}
	at := func(name string, l gatewaytest.HTTPRequest, w gatewaytest.Want) gatewaytest.Refusal {
		if l.At == "" {
			l.At = send
		}
		return gatewaytest.Sent(name, l, w)
	}
	edit := func(name, old, now, message string) gatewaytest.Refusal {
		body := strings.Replace(gatewaytest.Rest03, old, now, 1)
		if body == gatewaytest.Rest03 {
			t.Fatalf("%s: the case changes nothing", name)
		}
		return at(name, gatewaytest.HTTPRequest{Body: body}, late(400, params, message))
	}
	part := func(name, now, message string) gatewaytest.Refusal {
		return edit(name, `{"text":"`+gatewaytest.Secret+`"}`, now, message)
	}
	place := func(name, method, path string, status int, reason string) gatewaytest.Refusal {
		return at(name, gatewaytest.HTTPRequest{Method: method, At: gatewaytest.EndpointA2A + path, Body: gatewaytest.Rest03}, gatewaytest.Want{Status: status, Rest: reason})
	}
	noMedia := gatewaytest.Want{Status: 415, Code: "unsupported_media_type", Rest: "CONTENT_TYPE_NOT_SUPPORTED"}
	gatewaytest.Refusals(t, b, []gatewaytest.Refusal{
		part("bytes that are not base64", `{"file":{"fileWithBytes":"***"}}`, "/file/fileWithBytes: not base64"),
		part("bytes that are base64 once", `{"file":{"fileWithBytes":"AAH/"}}`, "/file/fileWithBytes: not base64"),
		part("bytes that are a number", `{"file":{"fileWithBytes":7}}`, "/content/0/file/fileWithBytes"),
		part("bytes and an address", `{"file":{"fileWithBytes":"QUE9PQ==","fileWithUri":"https://a.example"}}`, "/content/0/file"),
		part("a file that is nowhere", `{"file":{"name":"x"}}`, "/content/0/file"),
		part("bytes as JSON-RPC has them", `{"kind":"file","file":{"bytes":"AAH/"}}`, "another version"),
		part("bytes as 1.0 has them", `{"raw":"AAH/"}`, "/params/message"),
		part("data as 1.0 has it", `{"data":[1]}`, "/params/message"),
		part("two contents", `{"text":"a","file":{"fileWithUri":"https://a.example"}}`, "one content"),
		part("no content", `{}`, "needs a content"),
		edit("role of JSON-RPC", `"ROLE_USER"`, `"user"`, "/params/message/role"),
		edit("unknown role", `"ROLE_USER"`, `"ROLE_KING"`, "/params/message/role"),
		edit("role as a number", `"ROLE_USER"`, `1`, "/params/message/role"),
		edit("parts for content", `"content"`, `"parts"`, "another version"),
		edit("content in another case", `"content"`, `"Content"`, "misspelt"),
		edit("blocking is a string", `true`, `"yes"`, "/configuration/blocking"),
		edit("the flag of 1.0", `"blocking"`, `"returnImmediately"`, "another version"),
		edit("no message", `"message"`, `"massage"`, "/params/message"),
		edit("a tenant", `"configuration"`, `"tenant":"x","configuration"`, "another version"),
		at("the words of JSON-RPC", gatewaytest.HTTPRequest{Body: `{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]}}`}, late(400, params, "another version")),
		at("JSON-RPC", gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(5)}, late(400, params, "/params/message")),
		at("unknown skill", gatewaytest.HTTPRequest{Body: strings.Replace(gatewaytest.Rest03, `"add"`, `"divide"`, 1)}, late(400, "SKILL_NOT_FOUND", "no such skill or tool")),
		at("A2A-Version 1.0", gatewaytest.HTTPRequest{Body: gatewaytest.Rest03, Header: map[string]string{"A2A-Version": "1.0"}}, late(400, "HEADER_MISMATCH", "")),
		at("A2A-Version 0.2", gatewaytest.HTTPRequest{Body: gatewaytest.Rest03, Header: map[string]string{"A2A-Version": "0.2"}}, late(400, "VERSION_NOT_SUPPORTED", "")),
		at("A2A-Version 0.2 in the query", gatewaytest.HTTPRequest{At: send + "?A2A-Version=0.2", Body: gatewaytest.Rest03}, late(400, "VERSION_NOT_SUPPORTED", "")),
		at("the words of 0.3 where those of 1.0 belong", gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A + "/message:send", Body: gatewaytest.Rest03}, late(400, params, "/params/message")),
		at("A2A-Version 0.3 where 1.0 belongs", gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A + "/message:send", Body: gatewaytest.Rest03, Header: map[string]string{"A2A-Version": "0.3"}}, late(400, "VERSION_NOT_SUPPORTED", "")),
		at("truncated", gatewaytest.HTTPRequest{Body: gatewaytest.Rest03[:40]}, late(400, "PARSE", "truncated JSON")),
		at("nothing but a space", gatewaytest.HTTPRequest{Body: " "}, late(400, "PARSE", "truncated JSON")),
		at("a list", gatewaytest.HTTPRequest{Body: "[" + gatewaytest.Rest03 + "]"}, late(400, "INVALID_REQUEST", "not an object")),
		at("duplicate members", gatewaytest.HTTPRequest{Body: strings.Replace(gatewaytest.Rest03, `"b":2`, `"b":2,"b":3`, 1)}, late(400, "PARSE", "duplicate member name")),
		at("16 MiB and one byte", gatewaytest.HTTPRequest{Body: gatewaytest.HugeBody(16<<20 + 1)}, gatewaytest.Want{Status: 413, Code: "too_large", Rest: "INVALID_REQUEST"}),
		at("text", gatewaytest.HTTPRequest{Body: gatewaytest.Rest03, Media: "text/plain"}, noMedia),
		at("the media type of 1.0", gatewaytest.HTTPRequest{Body: gatewaytest.Rest03, Media: "application/a2a+json"}, noMedia),
		at("no media type", gatewaytest.HTTPRequest{Body: gatewaytest.Rest03, Media: "-"}, noMedia),
		at("compressed", gatewaytest.HTTPRequest{Body: compressed(t, gatewaytest.Rest03), Header: map[string]string{"Content-Encoding": "gzip"}}, noMedia),
		at("unknown agent", gatewaytest.HTTPRequest{At: "/agents/nobody/a2a/v1/message:send", Body: gatewaytest.Rest03}, gatewaytest.Want{Status: 404, Code: "unknown_agent", Rest: "SKILL_NOT_FOUND", Proof: "internal_error"}),
		at("broken token", gatewaytest.HTTPRequest{Body: gatewaytest.Rest03, Tokens: []string{"a.b"}}, gatewaytest.Want{Status: 400, Code: "ect_invalid", Rest: "FORBIDDEN"}),
		at("GET", gatewaytest.HTTPRequest{Method: http.MethodGet}, gatewaytest.Want{Status: 405, Rest: "INVALID_REQUEST", Header: map[string]string{"Allow": "POST"}}),
		place("no operation", "POST", "/v1/message:sing", 404, "METHOD_NOT_FOUND"),
		place("an operation of 1.0", "GET", "/v1/extendedAgentCard", 404, "METHOD_NOT_FOUND"),
		place("the well-known card", "GET", "/v1/.well-known/agent-card.json", 404, "METHOD_NOT_FOUND"),
		place("another version", "POST", "/v2/message:send", 404, "METHOD_NOT_FOUND"),
		place("a version twice", "POST", "/v1/v1/message:send", 404, "METHOD_NOT_FOUND"),
		place("no version", "POST", "/v1message:send", 404, "METHOD_NOT_FOUND"),
	})
	t.Run("and a good one is answered", func(t *testing.T) {
		got := b.Send(t, gatewaytest.HTTPRequest{At: send, Body: gatewaytest.Rest03})
		if got.Status != http.StatusOK || !bytes.Contains(got.Body, []byte(`"state":"TASK_STATE_COMPLETED"`)) || got.Header.Get("A2A-Version") != "" {
			t.Errorf("got %d: %s", got.Status, gatewaytest.Short(got.Body))
		}
		b.Proofs(t, got)
	})
}
