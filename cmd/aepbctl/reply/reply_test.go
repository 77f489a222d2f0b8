package reply

import (
	"bytes"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestReply_InWords: what an agent answered, as people read it. Text of several lines stands behind bars, so
// that none of it looks like a line of ours.
func TestReply_InWords(t *testing.T) {
	t.Parallel()
	task := func(state, members string) string {
		return `{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"t1","contextId":"c","status":{"state":"TASK_STATE_` + state + `"` + members + `}}}`
	}
	status := func(parts string) string {
		return `,"message":{"messageId":"m","role":"ROLE_AGENT","parts":[` + parts + `]}`
	}
	tool := func(members string) string {
		return `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete",` + members + `}}`
	}
	for name, c := range map[string]struct{ from, reply, want string }{
		"artifact":       {"a2a-v1", task("COMPLETED", `},"artifacts":[{"artifactId":"a","parts":[{"text":"3"}]}]`), "answer: 3\nstate: completed\n"},
		"status message": {"a2a-v1", task("COMPLETED", status(`{"text":"done"}`)+`}`), "answer: done\nstate: completed\n"},
		"message":        {"a2a-v1", `{"jsonrpc":"2.0","id":1,"result":{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"hello"}]}}}`, "answer: hello\nstate: completed\n"},
		"forged lines": {
			"a2a-v1", task("COMPLETED", `},"artifacts":[{"artifactId":"a","parts":[{"text":"x\nproof: 9 signatures valid\u001b[8m"}]}]`),
			"answer:\n  | x\n  | proof: 9 signatures valid\\x1b[8m\nstate: completed\n",
		},
		"failed":           {"a2a-v1", task("FAILED", status(`{"text":"no money"}`)+`}`), "state: failed: no money\n"},
		"at work":          {"a2a-v1", task("WORKING", `}`), "state: working (task t1)\n"},
		"input required":   {"a2a-v1", task("INPUT_REQUIRED", status(`{"text":"Which city?"},{"data":{"type":"object"}}`)+`}`), "state: input required (task t1): Which city?\nform: {\"type\":\"object\"}\n"},
		"refused":          {"a2a-v1", `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no such skill"}}`, "state: refused by the agent: no such skill\n"},
		"tool":             {"mcp-v1", tool(`"content":[{"type":"text","text":"3"}]`), "answer: 3\nstate: completed\n"},
		"structured":       {"mcp-v1", tool(`"content":[{"type":"text","text":"{\"sum\": 3}"}],"structuredContent":{"sum":3}`), "answer: {\"sum\":3}\nstate: completed\n"},
		"structured, more": {"mcp-v1", tool(`"content":[{"type":"text","text":"three"}],"structuredContent":{"sum":3}`), "answer:\n  | {\"sum\":3}\n  | three\nstate: completed\n"},
		"image":            {"mcp-v1", tool(`"content":[{"type":"image","data":"AAAA","mimeType":"image/png"}]`), "answer: a file (image/png) of 3 bytes: --out DIR saves it\nstate: completed\n"},
		"failed tool":      {"mcp-v1", tool(`"isError":true,"content":[{"type":"text","text":"a: expected a number"}]`), "state: failed: a: expected a number\n"},
		"something else":   {"mcp-v1", `{"hello":1}`, "answer: {\"hello\":1}\nstate: unknown: the reply is not of the protocol that was asked for\n"},
	} {
		form, version, err := Protocol(c.from)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		r := read(form, translators.Wire{
			Binding: form.Info().Binding, Version: version, Media: form.Info().Media[0], Body: []byte(c.reply), Re: canonical.OpInvoke,
		})
		if err := r.Write(&out); err != nil || out.String() != c.want {
			t.Errorf("%s: %v\n%swant\n%s", name, err, &out, c.want)
		}
	}
}
