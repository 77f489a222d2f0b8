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
	place := func(name, method, path string, status int, reason string) gatewaytest.Refusal {
		return at(name, gatewaytest.HTTPRequest{Method: method, At: gatewaytest.EndpointA2A + path, Body: gatewaytest.Rest03}, gatewaytest.Want{Status: status, Rest: reason})
	}
	noMedia := gatewaytest.Want{Status: 415, Code: "unsupported_media_type", Rest: "CONTENT_TYPE_NOT_SUPPORTED"}
	gatewaytest.Refusals(t, b, []gatewaytest.Refusal{
		edit("no message", `"message"`, `"massage"`, "/params/message"),
		at("unknown skill", gatewaytest.HTTPRequest{Body: strings.Replace(gatewaytest.Rest03, `"add"`, `"divide"`, 1)}, late(400, "SKILL_NOT_FOUND", "no such skill or tool")),
		at("A2A-Version 1.0", gatewaytest.HTTPRequest{Body: gatewaytest.Rest03, Header: map[string]string{"A2A-Version": "1.0"}}, late(400, "HEADER_MISMATCH", "")),
		at("A2A-Version 0.2", gatewaytest.HTTPRequest{Body: gatewaytest.Rest03, Header: map[string]string{"A2A-Version": "0.2"}}, late(400, "VERSION_NOT_SUPPORTED", "")),
		at("the words of 0.3 where those of 1.0 belong", gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A + "/message:send", Body: gatewaytest.Rest03}, late(400, params, "/params/message")),
		at("truncated", gatewaytest.HTTPRequest{Body: gatewaytest.Rest03[:40]}, late(400, "PARSE", "truncated JSON")),
		at("a list", gatewaytest.HTTPRequest{Body: "[" + gatewaytest.Rest03 + "]"}, late(400, "INVALID_REQUEST", "not an object")),
		at("16 MiB and one byte", gatewaytest.HTTPRequest{Body: gatewaytest.HugeBody(16<<20 + 1)}, gatewaytest.Want{Status: 413, Code: "too_large", Rest: "INVALID_REQUEST"}),
		at("text", gatewaytest.HTTPRequest{Body: gatewaytest.Rest03, Media: "text/plain"}, noMedia),
		at("no media type", gatewaytest.HTTPRequest{Body: gatewaytest.Rest03, Media: "-"}, noMedia),
		at("compressed", gatewaytest.HTTPRequest{Body: compressed(t, gatewaytest.Rest03), Header: map[string]string{"Content-Encoding": "gzip"}}, noMedia),
		at("unknown agent", gatewaytest.HTTPRequest{At: "/agents/nobody/a2a/v1/message:send", Body: gatewaytest.Rest03}, gatewaytest.Want{Status: 404, Code: "unknown_agent", Rest: "SKILL_NOT_FOUND", Proof: "internal_error"}),
		at("broken token", gatewaytest.HTTPRequest{Body: gatewaytest.Rest03, Tokens: []string{"a.b"}}, gatewaytest.Want{Status: 400, Code: "ect_invalid", Rest: "FORBIDDEN"}),
		at("GET", gatewaytest.HTTPRequest{Method: http.MethodGet}, gatewaytest.Want{Status: 405, Rest: "INVALID_REQUEST", Header: map[string]string{"Allow": "POST"}}),
		place("no operation", "POST", "/v1/message:sing", 404, "METHOD_NOT_FOUND"),
		place("the well-known card", "GET", "/v1/.well-known/agent-card.json", 404, "METHOD_NOT_FOUND"),
		place("another version", "POST", "/v2/message:send", 404, "METHOD_NOT_FOUND"),
		place("a version twice", "POST", "/v1/v1/message:send", 404, "METHOD_NOT_FOUND"),
	})
	t.Run("and a good one is answered", func(t *testing.T) {
		got := b.Send(t, gatewaytest.HTTPRequest{At: send, Body: gatewaytest.Rest03})
		if got.Status != http.StatusOK || !bytes.Contains(got.Body, []byte(`"state":"TASK_STATE_COMPLETED"`)) || got.Header.Get("A2A-Version") != "" {
			t.Errorf("got %d: %s", got.Status, gatewaytest.Short(got.Body))
		}
		b.Proofs(t, got)
	})
}
