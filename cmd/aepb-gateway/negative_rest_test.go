package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// statusError judges a google.rpc.Status (A2A 11.6), the same in both versions.
func statusError(t *testing.T, got reply, w want) {
	t.Helper()
	if media := got.header.Get("Content-Type"); media != "application/json" {
		t.Fatalf("media type %q: %s", media, short(got.body))
	}
	var doc struct {
		Error struct {
			Code            int
			Status, Message string
			Details         json.RawMessage
		}
	}
	jsonIn(t, got.body, &doc)
	if doc.Error.Status == "" || !strings.Contains(doc.Error.Message, w.reason) || doc.Error.Message == "" {
		t.Errorf("status %q, message %q, want %q in it", doc.Error.Status, doc.Error.Message, w.reason)
	}
	if first := `[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"` + w.rest + `"`; !strings.HasPrefix(string(doc.Error.Details), first) {
		t.Errorf("details %s, want the reason %s", doc.Error.Details, w.rest)
	}
	if w.code != "" && !bytes.Contains(got.body, []byte(`"urn:aepb:problem:`+w.code+`"`)) {
		t.Errorf("the details do not name %s: %s", w.code, short(got.body))
	}
}

// rest03 is a call of the tool add in the words of A2A 0.3 over HTTP.
const rest03 = `{"configuration":{"blocking":true},"message":{"messageId":"m1","role":"ROLE_USER","content":[{"text":"` + secret + `"},` +
	`{"data":{"data":{"skill":"add","input":{"a":1,"b":2}}}}]}}`

// The A2A endpoint of 0.3 without JSON-RPC.
func TestOldA2ARESTDoorRefuses(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	const send, params = doorA2A + "/v1/message:send", "INVALID_PARAMS"
	late := func(status int, reason, message string) want {
		return want{status: status, rest: reason, reason: message, proof: "internal_error"}
	}
	at := func(name string, l letter, w want) refusal {
		if l.at == "" {
			l.at = send
		}
		return sent(name, l, w)
	}
	edit := func(name, old, now, message string) refusal {
		body := strings.Replace(rest03, old, now, 1)
		if body == rest03 {
			t.Fatalf("%s: the case changes nothing", name)
		}
		return at(name, letter{body: body}, late(400, params, message))
	}
	part := func(name, now, message string) refusal {
		return edit(name, `{"text":"`+secret+`"}`, now, message)
	}
	place := func(name, method, path string, status int, reason string) refusal {
		return at(name, letter{method: method, at: doorA2A + path, body: rest03}, want{status: status, rest: reason})
	}
	noMedia := want{status: 415, code: "unsupported_media_type", rest: "CONTENT_TYPE_NOT_SUPPORTED"}
	refusals(t, b, []refusal{
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
		at("the words of JSON-RPC", letter{body: `{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]}}`}, late(400, params, "another version")),
		at("JSON-RPC", letter{body: addBody(5)}, late(400, params, "/params/message")),
		at("unknown skill", letter{body: strings.Replace(rest03, `"add"`, `"divide"`, 1)}, late(400, "SKILL_NOT_FOUND", "no such skill or tool")),
		at("A2A-Version 1.0", letter{body: rest03, header: map[string]string{"A2A-Version": "1.0"}}, late(400, "HEADER_MISMATCH", "")),
		at("A2A-Version 0.2", letter{body: rest03, header: map[string]string{"A2A-Version": "0.2"}}, late(400, "VERSION_NOT_SUPPORTED", "")),
		at("A2A-Version 0.2 in the query", letter{at: send + "?A2A-Version=0.2", body: rest03}, late(400, "VERSION_NOT_SUPPORTED", "")),
		at("the words of 0.3 where those of 1.0 belong", letter{at: doorA2A + "/message:send", body: rest03}, late(400, params, "/params/message")),
		at("A2A-Version 0.3 where 1.0 belongs", letter{at: doorA2A + "/message:send", body: rest03, header: map[string]string{"A2A-Version": "0.3"}}, late(400, "VERSION_NOT_SUPPORTED", "")),
		at("truncated", letter{body: rest03[:40]}, late(400, "PARSE", "truncated JSON")),
		at("nothing but a space", letter{body: " "}, late(400, "PARSE", "truncated JSON")),
		at("a list", letter{body: "[" + rest03 + "]"}, late(400, "INVALID_REQUEST", "not an object")),
		at("duplicate members", letter{body: strings.Replace(rest03, `"b":2`, `"b":2,"b":3`, 1)}, late(400, "PARSE", "duplicate member name")),
		at("16 MiB and one byte", letter{body: hugeBody(16<<20 + 1)}, want{status: 413, code: "too_large", rest: "INVALID_REQUEST"}),
		at("text", letter{body: rest03, media: "text/plain"}, noMedia),
		at("the media type of 1.0", letter{body: rest03, media: "application/a2a+json"}, noMedia),
		at("no media type", letter{body: rest03, media: "-"}, noMedia),
		at("compressed", letter{body: compressed(t, rest03), header: map[string]string{"Content-Encoding": "gzip"}}, noMedia),
		at("unknown agent", letter{at: "/agents/nobody/a2a/v1/message:send", body: rest03}, want{status: 404, code: "unknown_agent", rest: "SKILL_NOT_FOUND", proof: "internal_error"}),
		at("broken token", letter{body: rest03, tokens: []string{"a.b"}}, want{status: 400, code: "ect_invalid", rest: "FORBIDDEN"}),
		at("GET", letter{method: http.MethodGet}, want{status: 405, rest: "INVALID_REQUEST", header: map[string]string{"Allow": "POST"}}),
		place("no operation", "POST", "/v1/message:sing", 404, "METHOD_NOT_FOUND"),
		place("an operation of 1.0", "GET", "/v1/extendedAgentCard", 404, "METHOD_NOT_FOUND"),
		place("the well-known card", "GET", "/v1/.well-known/agent-card.json", 404, "METHOD_NOT_FOUND"),
		place("another version", "POST", "/v2/message:send", 404, "METHOD_NOT_FOUND"),
		place("a version twice", "POST", "/v1/v1/message:send", 404, "METHOD_NOT_FOUND"),
		place("no version", "POST", "/v1message:send", 404, "METHOD_NOT_FOUND"),
	})
	t.Run("and a good one is answered", func(t *testing.T) {
		got := b.send(t, letter{at: send, body: rest03})
		if got.status != http.StatusOK || !bytes.Contains(got.body, []byte(`"state":"TASK_STATE_COMPLETED"`)) || got.header.Get("A2A-Version") != "" {
			t.Errorf("got %d: %s", got.status, short(got.body))
		}
		b.proofs(t, got)
	})
}
