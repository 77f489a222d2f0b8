package matrix_test

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
)

// testCase is one native message and the capability that the gateway chose.
type testCase struct {
	name       string
	re         canonical.Op
	body       string
	capability *canonical.Capability
}

func messageTool() *canonical.Capability {
	return &canonical.Capability{ID: "chat", Profile: canonical.ProfileMessage}
}

func typedTool() *canonical.Capability {
	return &canonical.Capability{
		ID: "search", Profile: canonical.ProfileTyped,
		InputSchema: json.RawMessage(`{"type":"object","properties":{"q":{"type":"string"},"n":{"type":"integer"}},"required":["q"]}`),
	}
}

func cases(from side) []testCase {
	switch from.name {
	case "a2a@1.0", "slim@a2a-1.0", "slim@a2a-1.0+slimrpc":
		return append(a2aRequests(), a2aReplies()...)
	case "a2a@1.0+http", "a2a@1.0+grpc":
		return bare(append(a2aRequests(), a2aReplies()...))
	case "a2a@0.3+http":
		return append(a2aOldHTTPRequests(), a2aOldHTTPReplies()...)
	case "a2a@0.3":
		return append(a2aOldRequests(), a2aOldReplies()...)
	}
	revision, inside := slim.Revision(from.version)
	switch {
	case inside:
		return append(mcpRequests(revision), mcpReplies(revision)...)
	case from.codec.Info().Binding != mcp.Binding:
		return nil // the messages of µACP and AINP take the whole road in cmd/aepb-gateway
	}
	return append(mcpRequests(from.version), mcpReplies(from.version)...)
}

func a2aRequests() []testCase {
	send := func(message, more string) string {
		return `{"jsonrpc":"2.0","id":"r1","method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER",` + message + `}` + more + `}}`
	}
	return []testCase{
		{name: "text", capability: messageTool(), body: send(`"parts":[{"text":"hello"}]`, "")},
		{name: "text-to-nobody-in-particular", body: send(`"parts":[{"text":"hello"}]`, "")},
		{name: "everything", capability: messageTool(), body: send(`"contextId":"c1","taskId":"t1","referenceTaskIds":["t0"],"extensions":["urn:x"],"metadata":{"k":9007199254740993},"parts":[`+
			`{"text":"one","metadata":{"p":1}},{"data":{"a":1.50},"mediaType":"application/json"},{"text":"two","mediaType":"text/markdown","filename":"two.md"},{"data":[1]},`+
			`{"raw":"AP8=","mediaType":"image/png","filename":"p.png"},{"url":"https://x.example/f"}]`,
			`,"tenant":"ten","metadata":{"r":null},"configuration":{"acceptedOutputModes":["text/plain"],"historyLength":3,"returnImmediately":true}`)},
		{name: "file-first", capability: messageTool(), body: send(`"parts":[{"raw":"AA==","filename":"a.bin"},{"text":"look"}]`, "")},
		{name: "no-text", capability: messageTool(), body: send(`"parts":[{"data":{"only":"data"}}]`, "")},
		{name: "typed", capability: typedTool(), body: send(`"extensions":["urn:aepb:translation:1"],"parts":[{"data":{"skill":"search","input":{"q":"x","n":12345678901234567890}},"mediaType":"application/json"}]`, "")},
		{name: "typed-with-advice", capability: typedTool(), body: send(`"contextId":"c1","parts":[{"text":"please"},{"data":{"input":{"q":"x"},"skill":"search"}}]`, "")},
		{name: "bound", capability: typedTool(), body: send(`"parts":[{"text":"find"},{"text":"this"}]`, "")},
	}
}

func a2aReplies() []testCase {
	task := func(state, more string) string {
		return `{"jsonrpc":"2.0","id":"r1","result":{"task":{"id":"t1","contextId":"c1","status":{"state":"` + state + `","timestamp":"2026-07-28T01:02:03.004Z"` + more + `}}}`
	}
	text := `,"message":{"messageId":"m2","role":"ROLE_AGENT","contextId":"c1","taskId":"t1","parts":[{"text":"words"}],"metadata":{"s":1}}`
	artifacts := `,"artifacts":[{"artifactId":"a1","name":"n","description":"d","parts":[{"text":"x","metadata":{"p":1}},{"data":{"k":[1.0]}},{"raw":"AA==","mediaType":"application/pdf","filename":"ü.pdf"}],"metadata":{"z":0}},{"artifactId":"a2","parts":[{"url":"https://x.example/y"}]}]`
	replies := []struct{ name, body string }{
		{"message", `{"jsonrpc":"2.0","id":"r1","result":{"message":{"messageId":"m9","contextId":"c1","role":"ROLE_AGENT","parts":[{"text":"hi"},{"data":{"a":1}},{"raw":"AP8=","mediaType":"image/png"}],"metadata":{"m":[]}}}}`},
		{"completed", task("TASK_STATE_COMPLETED", "}"+artifacts)},
		{"completed-with-words-and-history", task("TASK_STATE_COMPLETED", text+"}"+artifacts+`,"history":[{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"q"}]}],"metadata":{"t":1}`)},
		{"sole-data", task("TASK_STATE_COMPLETED", `},"artifacts":[{"artifactId":"a1","parts":[{"data":{"answer":42}}]}]`)},
		{"failed", task("TASK_STATE_FAILED", text+"}")},
		{"failed-silently", task("TASK_STATE_FAILED", "}")},
		{"rejected", task("TASK_STATE_REJECTED", text+"}")},
		{"input-required", task("TASK_STATE_INPUT_REQUIRED", text+"}")},
		{"working", task("TASK_STATE_WORKING", "}")},
		{"error", `{"jsonrpc":"2.0","id":"r1","error":{"code":-32001,"message":"no such task","data":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND","domain":"a2a-protocol.org"}]}}`},
		{"bad-params", `{"jsonrpc":"2.0","id":"r1","error":{"code":-32602,"message":"bad"}}`},
	}
	var out []testCase
	for _, r := range replies {
		out = append(out,
			testCase{name: r.name + "-of-message-tool", re: canonical.OpInvoke, body: r.body, capability: messageTool()},
			testCase{name: r.name + "-of-typed-tool", re: canonical.OpInvoke, body: r.body, capability: typedTool()})
	}
	return out
}

func mcpRequests(version string) []testCase {
	call := func(params string) string {
		if version == mcp.Modern {
			params = strings.Replace(params, `"_meta":{`, `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"C","version":"1"},"io.modelcontextprotocol/clientCapabilities":{},`, 1)
		}
		return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":` + params + `}`
	}
	return []testCase{
		{name: "message", capability: messageTool(), body: call(`{"name":"chat","arguments":{"message":"hi","data":{"a":9007199254740993},"files":[{"name":"f","mediaType":"a/b","bytes":"AA=="},{"uri":"https://x.example/"}],"context_id":"c1","task_id":"t1"},"_meta":{"progressToken":"p"}}`)},
		{name: "typed", capability: typedTool(), body: call(`{"name":"search","arguments":{"q":"","n":1e400,"x":null},"_meta":{"progressToken":1,"com.example/k":{"v":1.0},"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}`)},
		{name: "typed-without-arguments", capability: typedTool(), body: call(`{"name":"search","_meta":{"progressToken":1}}`)},
	}
}

func mcpReplies(version string) []testCase {
	result := func(inner string) string {
		if version == mcp.Modern {
			inner = `"resultType":"complete",` + inner
		}
		return `{"jsonrpc":"2.0","id":7,"result":{` + inner + `}}`
	}
	blocks := `{"type":"text","text":"a","annotations":{"priority":0.5}},{"type":"text","text":""},{"type":"image","data":"AP8=","mimeType":"image/png"},{"type":"audio","data":"AA==","mimeType":"audio/wav","_meta":{"x":1}},` +
		`{"type":"resource_link","uri":"file:///a","name":"a","title":"t","size":5},{"type":"resource","resource":{"uri":"file:///b","mimeType":"text/x-go","text":"package x"}},{"type":"resource","resource":{"uri":"file:///c","blob":"AA=="}}`
	if version == mcp.LegacyMarch { // neither links nor structured content, and no _meta in a block
		blocks = strings.Replace(blocks, `,"_meta":{"x":1}`, "", 1)
		blocks = strings.Replace(blocks, `{"type":"resource_link","uri":"file:///a","name":"a","title":"t","size":5},`, "", 1)
	}
	replies := []testCase{
		{name: "output-ok", re: canonical.OpInvoke, body: result(`"content":[` + blocks + `],"isError":false`), capability: typedTool()},
		{name: "output-empty", re: canonical.OpInvoke, body: result(`"content":[]`), capability: typedTool()},
		{name: "output-failed", re: canonical.OpInvoke, body: result(`"content":[{"type":"text","text":"no"}],"isError":true`), capability: typedTool()},
		{name: "output-failed-silently", re: canonical.OpInvoke, body: result(`"content":[],"isError":true`), capability: typedTool()},
		{name: "output-structured-with-copy", re: canonical.OpInvoke, body: result(`"content":[{"type":"text","text":"{\"b\": 2, \"a\": 1.0}"}],"structuredContent":{"a":1.0,"b":2},"_meta":{"k":1}`), capability: typedTool()},
		{name: "output-structured-alone", re: canonical.OpInvoke, body: result(`"content":[{"type":"text","text":"see"}],"structuredContent":{"a":null}`), capability: typedTool()},
		{name: "error", re: canonical.OpInvoke, body: `{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"Unknown tool: x","data":{"name":"x"}}}`, capability: typedTool()},
		{name: "own-error", re: canonical.OpInvoke, body: `{"jsonrpc":"2.0","id":7,"error":{"code":1234,"message":"odd"}}`, capability: typedTool()},
	}
	return slices.DeleteFunc(replies, func(c testCase) bool {
		return version == mcp.LegacyMarch && strings.Contains(c.name, "structured")
	})
}
