package mcp_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// workSamples are messages of work that takes several: questions, events, and
// what only MCP has.
func workSamples() []sample {
	modern := func(method, params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + modernMeta + `}}}`
	}
	tasking := func(method, params string) string {
		return strings.Replace(modern(method, params), `Capabilities":{}`, `Capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, 1)
	}
	return []sample{
		{"asks", mcp.Modern, canonical.OpInvoke, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"mode":"form","message":"","requestedSchema":{"type":"object","properties":{"n":{"type":"string"}}},"x":1}},"b":{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://x.example"},"y":{}},"c":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5}},"d":{"method":"roots/list"},"e":{"method":"elicitation/create","params":{"mode":"dance"}}},"requestState":"s","z":1,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}}`},
		{"asks with a state only", mcp.Modern, canonical.OpInvoke, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"","inputRequests":{}}}`},
		{"answers", mcp.Modern, "", modern("tools/call", `"name":"t","inputResponses":{"a":{"action":"accept","content":{"n":1}},"b":{"action":"decline","x":1},"c":{"role":"assistant","content":{"type":"text","text":"t"},"model":"m"},"d":{"roots":[]},"e":{"action":"accept","content":[]}},"requestState":"s",`)},
		{"can answer", mcp.Modern, "", `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"C","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"url":{}},"roots":{},"extensions":{"io.modelcontextprotocol/tasks":{},"x/y":{}}},"progressToken":7}}}`},
		{"legacy initialize that can answer", mcp.Legacy, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"form":{},"url":{}},"sampling":{}},"clientInfo":{"name":"n","version":"v"}}}`},
		{"legacy task, odd", mcp.Legacy, "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","task":{"ttl":6e4,"x":1}}}`},
		{"answer", mcp.Legacy, "", `{"jsonrpc":"2.0","id":7,"result":{"action":"accept","content":{"a":"b"},"_meta":{"k":1}}}`},
		{"sampled", mcp.LegacyMarch, "", `{"jsonrpc":"2.0","id":"s-1","result":{"role":"assistant","content":{"type":"text","text":"x"},"model":"m"}}`},
		{"answer that failed", mcp.LegacyJune, "", `{"jsonrpc":"2.0","id":"s-1","error":{"code":-1,"message":"User rejected","data":{"a":1},"b":2}}`},
		{"abort", mcp.Legacy, "", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"r","reason":"no need","_meta":{"a":1}}}`},
		{"abort without a word", mcp.Legacy, "", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0,"reason":""}}`},

		{"event progress", mcp.Modern, canonical.OpInvoke, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":0.50,"total":9007199254740993,"message":"m","x":1,"_meta":{"a/b":1}}}`},
		{"event progress, little", mcp.LegacyMarch, canonical.OpInvoke, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":0,"progress":1,"message":""}}`},
		{"event log", mcp.Legacy, canonical.OpInvoke, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","logger":"l","data":{"n":1.0}}}`},
		{"event log of null", mcp.Modern, canonical.OpNative, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"","data":null}}`},
		{"event asks for a form", mcp.Legacy, canonical.OpInvoke, `{"jsonrpc":"2.0","id":3,"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}},"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}}}`},
		{"event asks for a visit", mcp.Legacy, canonical.OpInvoke, `{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://x.example","elicitationId":"i"}}`},
		{"event asks for a sample", mcp.LegacyMarch, canonical.OpInvoke, `{"jsonrpc":"2.0","id":"e","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}`},
		{"event asks for roots", mcp.LegacyJune, canonical.OpNative, `{"jsonrpc":"2.0","id":"e","method":"roots/list"}`},
		{"event of MCP alone", mcp.Legacy, canonical.OpNative, `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"u"}}`},
		{"event without params", mcp.Modern, canonical.OpInvoke, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`},
		{"event that is the reply", mcp.Modern, canonical.OpInvoke, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}`},
		{"event that is an error", mcp.Legacy, canonical.OpInvoke, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"m"}}`},

		{"task created", mcp.Modern, canonical.OpInvoke, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"task","taskId":"t","status":"working","statusMessage":"m","createdAt":"2026-07-28T01:02:03Z","lastUpdatedAt":"2026-07-28T01:02:03.500+02:00","ttlMs":60000,"pollIntervalMs":500,"x":1,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}}`},
		{"task created, odd", mcp.Modern, canonical.OpInvoke, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"task","taskId":"","status":"input_required","statusMessage":"","createdAt":"yesterday","lastUpdatedAt":"2026-07-28T01:02:03Z","ttlMs":null,"pollIntervalMs":0}}`},
		{"legacy task created", mcp.Legacy, canonical.OpInvoke, `{"jsonrpc":"2.0","id":1,"result":{"task":{"taskId":"t","status":"working","createdAt":"2026-07-28T01:02:03Z","lastUpdatedAt":"2026-07-28T01:02:03Z","ttl":6e4,"pollInterval":500,"x":1},"_meta":{"a/b":1}}}`},
		{"task get", mcp.Modern, "", tasking("tasks/get", `"taskId":"t","x":1,`)},
		{"task update", mcp.Modern, "", tasking("tasks/update", `"taskId":"t","inputResponses":{"k":{"action":"accept","content":{}}},`)},
		{"task update, nothing", mcp.Modern, "", tasking("tasks/update", `"taskId":"t","inputResponses":{},`)},
		{"task cancel", mcp.Modern, "", tasking("tasks/cancel", `"taskId":"t",`)},
		{"legacy task get", mcp.Legacy, "", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"t"}}`},
		{"legacy task result", mcp.Legacy, "", `{"jsonrpc":"2.0","id":1,"method":"tasks/result","params":{"taskId":"t","_meta":{}}}`},
		{"legacy task list", mcp.Legacy, "", `{"jsonrpc":"2.0","id":1,"method":"tasks/list"}`},
		{"legacy task list, more", mcp.Legacy, "", `{"jsonrpc":"2.0","id":1,"method":"tasks/list","params":{"cursor":"c"}}`},
		{"task done", mcp.Modern, canonical.OpTaskGet, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","taskId":"t","status":"completed","createdAt":"2026-07-28T01:02:03Z","lastUpdatedAt":"2026-07-28T01:02:03Z","ttlMs":1,"result":{"content":[{"type":"text","text":"x"}],"isError":true,"x":1}}}`},
		{"task broken", mcp.Modern, canonical.OpTaskGet, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","taskId":"t","status":"failed","createdAt":"2026-07-28T01:02:03Z","lastUpdatedAt":"2026-07-28T01:02:03Z","ttlMs":1,"error":{"code":-32603,"message":"m","data":1,"x":2}}}`},
		{"task asks", mcp.Modern, canonical.OpTaskGet, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","taskId":"t","status":"input_required","createdAt":"2026-07-28T01:02:03Z","lastUpdatedAt":"2026-07-28T01:02:03Z","ttlMs":1,"inputRequests":{"k":{"method":"roots/list"}}}}`},
		{"legacy task failed", mcp.Legacy, canonical.OpTaskGet, `{"jsonrpc":"2.0","id":1,"result":{"taskId":"t","status":"failed","statusMessage":"m","createdAt":"2026-07-28T01:02:03Z","lastUpdatedAt":"2026-07-28T01:02:03Z","ttl":1,"_meta":{}}}`},
		{"legacy task cancelled", mcp.Legacy, canonical.OpTaskCancel, `{"jsonrpc":"2.0","id":1,"result":{"taskId":"t","status":"cancelled","createdAt":"2026-07-28T01:02:03Z","lastUpdatedAt":"2026-07-28T01:02:03Z","ttl":null}}`},
		{"cancel taken", mcp.Modern, canonical.OpTaskCancel, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}`},
		{"update taken", mcp.Modern, canonical.OpTaskAnswer, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","x":1}}`},
		{"legacy task's result", mcp.Legacy, canonical.OpTaskResult, `{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":true,"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}}}`},
		{"legacy tasks", mcp.Legacy, canonical.OpTaskList, `{"jsonrpc":"2.0","id":1,"result":{"tasks":[{"taskId":"t","status":"working","createdAt":"2026-07-28T01:02:03Z","lastUpdatedAt":"2026-07-28T01:02:03Z","ttl":1,"x":1}],"nextCursor":"c"}}`},

		{"prompt", mcp.Modern, "", modern("prompts/get", `"name":"p","arguments":{"a":"b"},"x":null,`)},
		{"legacy prompts", mcp.LegacyJune, "", `{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`},
		{"legacy level", mcp.Legacy, "", `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info","_meta":{"progressToken":1}}}`},
		{"listen", mcp.Modern, "", modern("subscriptions/listen", `"notifications":{"toolsListChanged":true},`)},
		{"somebody's own", mcp.Modern, "", modern("com.example/dance", `"style":"tango",`)},
		{"read", mcp.Modern, canonical.OpNative, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":5,"cacheScope":"public","contents":[{"uri":"u","text":"t"}],"_meta":{"aepb.gateway/ext":{"canon":{"a":1}}}}}`},
		{"prompt that asks", mcp.Modern, canonical.OpNative, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s"}}`},
		{"legacy done", mcp.Legacy, canonical.OpNative, `{"jsonrpc":"2.0","id":1,"result":{}}`},
	}
}

// TestClientCapabilities_InEachRevision: a client's capabilities, read and written in each revision.
func TestClientCapabilities_InEachRevision(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	all := []canonical.Mode{canonical.ModeForm, canonical.ModeURL, canonical.ModeSampling, canonical.ModeRoots}
	for version, want := range map[string]struct {
		written string
		read    []canonical.Mode
	}{
		mcp.Modern:      {`{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`, all},
		mcp.Legacy:      {`{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}`, all},
		mcp.LegacyJune:  {`{"elicitation":{},"sampling":{},"roots":{}}`, []canonical.Mode{canonical.ModeForm, canonical.ModeSampling, canonical.ModeRoots}},
		mcp.LegacyMarch: {`{"sampling":{},"roots":{}}`, []canonical.Mode{canonical.ModeSampling, canonical.ModeRoots}},
	} {
		m := &canonical.Message{
			Op: canonical.OpDescribe, Phase: canonical.PhaseRequest, Body: &canonical.DescribeRequest{},
			Correlation: canonical.Correlation{WireID: json.RawMessage("1")},
			Preferences: canonical.Preferences{CanAnswer: all, TaskOK: true},
		}
		w, _, err := tr.Encode(m, translators.Target{Version: version})
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Params struct {
				Capabilities json.RawMessage
				Meta         struct {
					Modern json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities"`
				} `json:"_meta"`
			}
		}
		if err := json.Unmarshal(w.Body, &answer); err != nil {
			t.Fatal(err)
		}
		if got := string(answer.Params.Capabilities) + string(answer.Params.Meta.Modern); got != want.written {
			t.Errorf("%s: got %s, want %s", version, got, want.written)
		}
		back, err := tr.Decode(w)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.read, back.Preferences.CanAnswer); diff != "" {
			t.Errorf("%s: %s", version, diff)
		}
	}
}

// TestNative_AcrossRevisions: what only MCP has, told in another revision of it.
func TestNative_AcrossRevisions(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	for name, tc := range map[string]struct {
		in     sample
		to     string
		want   string
		losses int
		code   canonical.Code
	}{
		"request to legacy":   {sample{"", mcp.Modern, "", `{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"p","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":1,"k":2}}}`}, mcp.Legacy, `{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"p","_meta":{"progressToken":1,"k":2}}}`, 2, ""},
		"request to modern":   {sample{"", mcp.Legacy, "", `{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`}, mcp.Modern, `{"jsonrpc":"2.0","id":1,"method":"prompts/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"aepb-gateway","version":""}}}}`, 0, ""},
		"subscribe to modern": {sample{"", mcp.Legacy, "", `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"u"}}`}, mcp.Modern, "", 0, canonical.CodeNoMethod},
		"result to legacy":    {sample{"", mcp.Modern, canonical.OpNative, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":1,"cacheScope":"public","prompts":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":""}}}}`}, mcp.Legacy, `{"jsonrpc":"2.0","id":1,"result":{"prompts":[]}}`, 3, ""},
		"result to modern":    {sample{"", mcp.Legacy, canonical.OpNative, `{"jsonrpc":"2.0","id":1,"result":{"contents":[]}}`}, mcp.Modern, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","contents":[]}}`, 0, ""},
		"asks legacy":         {sample{"", mcp.Modern, canonical.OpNative, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s"}}`}, mcp.Legacy, "", 0, canonical.CodeCapabilityRequired},
		"event to modern":     {sample{"event ", mcp.Legacy, canonical.OpInvoke, `{"jsonrpc":"2.0","id":1,"method":"roots/list"}`}, mcp.Modern, "", 0, canonical.CodeUnsupportedOp},
		"form to March":       {sample{"event ", mcp.Legacy, canonical.OpInvoke, `{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}`}, mcp.LegacyMarch, "", 0, canonical.CodeUnsupportedOp},
		"visit to June":       {sample{"event ", mcp.Legacy, canonical.OpInvoke, `{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://x.example"}}`}, mcp.LegacyJune, `{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"m\n\nhttps://x.example","requestedSchema":{"type":"object","properties":{}}}}`, 1, ""},
		"question to legacy":  {sample{"", mcp.Modern, canonical.OpInvoke, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s"}}`}, mcp.Legacy, "", 0, canonical.CodeCapabilityRequired},
	} {
		m, err := tr.Decode(tc.in.wire())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		w, losses, err := tr.Encode(m, translators.Target{Version: tc.to})
		if tc.code != "" {
			if !hasCode(err, tc.code) {
				t.Errorf("%s: got %v, want %s", name, err, tc.code)
			}
			continue
		}
		if err != nil || string(w.Body) != tc.want || len(losses) != tc.losses {
			t.Errorf("%s: %v %v\n got %s\nwant %s", name, err, losses, w.Body, tc.want)
		}
	}
}
