package matrix_test

import (
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// bare are the cases of A2A 1.0 without JSON-RPC around them.
func bare(cases []testCase) []testCase {
	for i := range cases {
		var rpc struct{ Params, Result, Error json.RawMessage }
		if json.Unmarshal([]byte(cases[i].body), &rpc) != nil {
			continue
		}
		switch {
		case rpc.Params != nil:
			cases[i].body = string(rpc.Params)
		case rpc.Result != nil:
			cases[i].body = string(rpc.Result)
		case cases[i].name[:5] == "error":
			cases[i].body = `{"error":{"code":404,"status":"NOT_FOUND","message":"no such task","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND","domain":"a2a-protocol.org","metadata":{"taskId":"t"}}]}}`
		default:
			cases[i].body = `{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"bad"}}`
		}
	}
	return cases
}

// a2aOldRequests are in the words of A2A 0.3.
func a2aOldRequests() []testCase {
	send := func(message, more string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message","messageId":"m1","role":"user",` + message + `}` + more + `}}`
	}
	return []testCase{
		{name: "text", capability: messageTool(), body: send(`"parts":[{"kind":"text","text":"hello"}]`, "")},
		{name: "text-to-nobody-in-particular", body: send(`"parts":[{"kind":"text","text":"hello"}]`, "")},
		{name: "everything", capability: messageTool(), body: send(`"contextId":"c1","taskId":"t1","referenceTaskIds":["t0"],"extensions":["urn:x"],"metadata":{"k":9007199254740993},"parts":[`+
			`{"kind":"text","text":"one","metadata":{"p":1}},{"kind":"data","data":{"a":1.50}},{"kind":"text","text":"two"},{"kind":"data","data":{"value":[1]},"metadata":{"data_part_compat":true}},`+
			`{"kind":"file","file":{"bytes":"AP8=","mimeType":"image/png","name":"p.png","later":1}},{"kind":"file","file":{"uri":"https://x.example/f"}}]`,
			`,"metadata":{"r":null},"configuration":{"acceptedOutputModes":["text/plain"],"historyLength":3,"blocking":false}`)},
		{name: "typed", capability: typedTool(), body: send(`"extensions":["urn:aepb:translation:1"],"parts":[{"kind":"data","data":{"skill":"search","input":{"q":"x","n":12345678901234567890}}}]`, "")},
		{name: "typed-with-advice", capability: typedTool(), body: send(`"contextId":"c1","parts":[{"kind":"text","text":"please"},{"kind":"data","data":{"input":{"q":"x"},"skill":"search"}}]`, `,"configuration":{"blocking":true}`)},
		{name: "bound", capability: typedTool(), body: send(`"parts":[{"kind":"text","text":"find"}]`, "")},
	}
}

func a2aOldReplies() []testCase {
	task := func(state, more string) string {
		return `{"jsonrpc":"2.0","id":1,"result":{"kind":"task","id":"t1","contextId":"c1","status":{"state":"` + state + `","timestamp":"2026-07-28T01:02:03.004Z"` + more + `}}`
	}
	text := `,"message":{"kind":"message","messageId":"m2","role":"agent","contextId":"c1","taskId":"t1","parts":[{"kind":"text","text":"words"}],"metadata":{"s":1}}`
	artifacts := `,"artifacts":[{"artifactId":"a1","name":"n","description":"d","parts":[{"kind":"text","text":"x","metadata":{"p":1}},{"kind":"data","data":{"k":[1.0]}},{"kind":"file","file":{"bytes":"AA==","mimeType":"application/pdf","name":"ü.pdf"}}],"metadata":{"z":0}},{"artifactId":"a2","parts":[{"kind":"file","file":{"uri":"https://x.example/y"}}]}]`
	replies := []struct{ name, body string }{
		{"message", `{"jsonrpc":"2.0","id":1,"result":{"kind":"message","messageId":"m9","contextId":"c1","role":"agent","parts":[{"kind":"text","text":"hi"},{"kind":"data","data":{"a":1}},{"kind":"file","file":{"bytes":"AP8=","mimeType":"image/png"}}],"metadata":{"m":[]}}}`},
		{"completed", task("completed", "}"+artifacts)},
		{"completed-with-words-and-history", task("completed", text+"}"+artifacts+`,"history":[{"kind":"message","messageId":"m1","role":"user","parts":[{"kind":"text","text":"q"}]}],"metadata":{"t":1}`)},
		{"sole-data", task("completed", `},"artifacts":[{"artifactId":"a1","parts":[{"kind":"data","data":{"answer":42}}]}]`)},
		{"failed", task("failed", text+"}")},
		{"rejected", task("rejected", text+"}")},
		{"input-required", task("input-required", text+"}")},
		{"working", task("working", "}")},
		{"without-context", `{"jsonrpc":"2.0","id":1,"result":{"kind":"task","id":"t1","contextId":"","status":{"state":"canceled"}}}`},
		{"error", `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"no such task","data":{"task":"t"}}}`},
	}
	var out []testCase
	for _, r := range replies {
		out = append(out,
			testCase{name: r.name + "-of-message-tool", re: canonical.OpInvoke, body: r.body, capability: messageTool()},
			testCase{name: r.name + "-of-typed-tool", re: canonical.OpInvoke, body: r.body, capability: typedTool()})
	}
	return out
}
