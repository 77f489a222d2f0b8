package matrix_test

import "github.com/aepb/aepb-gateway/translators/canonical"

// a2aOldHTTPRequests are in the words of the proto of A2A 0.3, bytes encoded twice.
func a2aOldHTTPRequests() []testCase {
	send := func(message, more string) string {
		return `{"message":{"messageId":"m1","role":"ROLE_USER",` + message + `},"configuration":{"blocking":` + more + `}`
	}
	const wait = "true}"
	return []testCase{
		{name: "text", capability: messageTool(), body: send(`"content":[{"text":"hello"}]`, wait)},
		{name: "text-to-nobody-in-particular", body: send(`"content":[{"text":"hello"}]`, wait)},
		{name: "everything", capability: messageTool(), body: send(`"contextId":"c1","taskId":"t1","referenceTaskIds":["t0"],"extensions":["urn:x"],"metadata":{"k":9007199254740993},"content":[`+
			`{"text":"one","metadata":{"p":1}},{"data":{"data":{"a":1.50}}},{"text":"two"},{"data":{"data":{"value":[1]}},"metadata":{"data_part_compat":true}},`+
			`{"file":{"fileWithBytes":"QVA4PQ==","mimeType":"image/png","name":"p.png","later":1}},{"file":{"fileWithUri":"https://x.example/f"}}]`,
			`false,"acceptedOutputModes":["text/plain"],"historyLength":3},"metadata":{"r":null}`)},
		{name: "typed", capability: typedTool(), body: send(`"extensions":["urn:aepb:translation:1"],"content":[{"data":{"data":{"skill":"search","input":{"q":"x","n":12345678901234567890}}}}]`, wait)},
		{name: "typed-with-advice", capability: typedTool(), body: send(`"contextId":"c1","content":[{"text":"please"},{"data":{"data":{"input":{"q":"x"},"skill":"search"}}}]`, `true,"historyLength":1}`)},
		{name: "bound", capability: typedTool(), body: send(`"content":[{"text":"find"}]`, wait)},
	}
}

func a2aOldHTTPReplies() []testCase {
	task := func(state, more string) string {
		return `{"task":{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_` + state + `","timestamp":"2026-07-28T01:02:03.004Z"` + more + `}}`
	}
	text := `,"message":{"messageId":"m2","role":"ROLE_AGENT","contextId":"c1","taskId":"t1","content":[{"text":"words"}],"metadata":{"s":1}}`
	artifacts := `,"artifacts":[{"artifactId":"a1","name":"n","description":"d","parts":[{"text":"x","metadata":{"p":1}},{"data":{"data":{"k":[1.0]}}},{"file":{"fileWithBytes":"QUE9PQ==","mimeType":"application/pdf","name":"ü.pdf"}}],"metadata":{"z":0}},{"artifactId":"a2","parts":[{"file":{"fileWithUri":"https://x.example/y"}}]}]`
	replies := []struct{ name, body string }{
		{"message", `{"message":{"messageId":"m9","contextId":"c1","role":"ROLE_AGENT","content":[{"text":"hi"},{"data":{"data":{"a":1}}},{"file":{"fileWithBytes":"QVA4PQ==","mimeType":"image/png"}}],"metadata":{"m":[]}}}`},
		{"completed", task("COMPLETED", "}"+artifacts)},
		{"completed-with-words-and-history", task("COMPLETED", text+"}"+artifacts+`,"history":[{"messageId":"m1","role":"ROLE_USER","content":[{"text":"q"}]}],"metadata":{"t":1}`)},
		{"sole-data", task("COMPLETED", `},"artifacts":[{"artifactId":"a1","parts":[{"data":{"data":{"answer":42}}}]}]`)},
		{"failed", task("FAILED", text+"}")},
		{"rejected", task("REJECTED", text+"}")},
		{"input-required", task("INPUT_REQUIRED", text+"}")},
		{"working", task("WORKING", "}")},
		{"without-context", `{"task":{"id":"t1","status":{"state":"TASK_STATE_CANCELLED"}}}`},
		{"error", `{"error":{"code":404,"status":"NOT_FOUND","message":"no such task","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND","domain":"a2a-protocol.org","metadata":{"taskId":"t"}}]}}`},
	}
	var out []testCase
	for _, r := range replies {
		out = append(out,
			testCase{name: r.name + "-of-message-tool", re: canonical.OpInvoke, body: r.body, capability: messageTool()},
			testCase{name: r.name + "-of-typed-tool", re: canonical.OpInvoke, body: r.body, capability: typedTool()})
	}
	return out
}
