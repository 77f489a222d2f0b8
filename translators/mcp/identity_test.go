package mcp_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// sample is one valid native message.
type sample struct {
	name, version string
	re            canonical.Op
	body          string
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"C","version":"1","title":"T"},"io.modelcontextprotocol/clientCapabilities":{}`

func samples() []sample {
	block := func(blocks string) string {
		return `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[` + blocks + `]}}`
	}
	deep := strings.Repeat(`{"a":[`, 60) + "0" + strings.Repeat(`]}`, 60)
	list := []sample{
		{"call", mcp.Modern, "", `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"t","arguments":{"x":1},` + modernMeta + `}}}`},
		{"call without arguments", mcp.Modern, "", `{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/call","params":{"name":"t",` + modernMeta + `}}}`},
		{"call with everything", mcp.Modern, "", `{"jsonrpc":"2.0","id":-7,"method":"tools/call","params":{"name":"a b/ü","arguments":{"n":12345678901234567890123456789012345678901.5e-3,"e":"","z":null,"d":` + deep + `},"requestState":"s","inputResponses":{},"unknown":{"x":[]},` + modernMeta + `,"progressToken":9007199254740993,"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","tracestate":"a=b","io.modelcontextprotocol/logLevel":"debug","com.example/x":{"y":1}}}}`},
		{"call with capabilities", mcp.Modern, "", `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"","version":"","x":1},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`},
		{"P1 call", mcp.Modern, "", `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"message","arguments":{"message":"hi","context_id":"c","task_id":"t","files":[]},` + modernMeta + `}}}`},
		{"carried", mcp.Modern, "", `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"message","arguments":{"message":"hi"},` + modernMeta + `,"aepb.gateway/ext":{"canon":{"messageId":"m","contextId":"c","tenant":"","historyLength":7,"unheard":1,"turn":{"parts":[{"kind":"text","length":5}]}},"a2a-v1":{"metadata":{"k":1}}}}}}`},
		{"legacy call", mcp.Legacy, "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{},"_meta":{}}}`},
		{"legacy call with task", mcp.Legacy, "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","task":{"ttl":5},"_meta":{"progressToken":"p"}}}`},
		{"legacy call carried", mcp.Legacy, "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"aepb.gateway/ext":{"canon":{"logLevel":"info","fromName":"n","deadline":"2026-01-02T03:04:05Z"}}}}}`},
		{"list", mcp.Modern, "", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"c",` + modernMeta + `}}}`},
		{"list, empty cursor", mcp.Modern, "", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"",` + modernMeta + `}}}`},
		{"legacy list", mcp.Legacy, "", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`},
		{"legacy list, empty params", mcp.Legacy, "", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`},
		{"legacy list, empty meta", mcp.Legacy, "", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{}}}`},
		{"discover", mcp.Modern, "", `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + modernMeta + `}}}`},
		{"initialize", mcp.Legacy, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"roots":{"listChanged":true}},"clientInfo":{"name":"n","version":"v","icons":[]}}}`},
		{"initialize, plain", mcp.Legacy, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"n","version":"v"}}}`},
		{"initialize, nobody", mcp.Legacy, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`},
		{"ping", mcp.Legacy, "", `{"jsonrpc":"2.0","id":"p","method":"ping"}`},
		{"ping with params", mcp.Legacy, "", `{"jsonrpc":"2.0","id":"p","method":"ping","params":{"_meta":{"progressToken":1}}}`},
		{"initialized", mcp.Legacy, "", `{"jsonrpc":"2.0","method":"notifications/initialized"}`},
		{"cancelled", mcp.Modern, "", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"_meta":{"x/y":1}}}`},

		{"text", mcp.Modern, canonical.OpInvoke, block(`{"type":"text","text":""},{"type":"text","text":"𝄞\u0000󠁁\u2028","annotations":{"priority":0.70},"_meta":{"a/b":1},"x":null}`)},
		{"media", mcp.Modern, canonical.OpInvoke, block(`{"type":"image","data":"AP8=","mimeType":"image/png"},{"type":"image","data":"","mimeType":"application/x"},{"type":"audio","data":"AA==","mimeType":""}`)},
		{"links", mcp.Modern, canonical.OpInvoke, block(`{"type":"resource_link","uri":"file:///a","name":"a","size":12345678901234567890,"title":"","description":"d","mimeType":"x/y","icons":[{"src":"s"}]},{"type":"resource_link","uri":"","name":""}`)},
		{"link without a name", mcp.Modern, canonical.OpInvoke, block(`{"type":"resource_link","uri":"u"}`)},
		{"resources", mcp.Modern, canonical.OpInvoke, block(`{"type":"resource","resource":{"uri":"file:///a","text":"t","mimeType":"","_meta":{}}},{"type":"resource","resource":{"uri":"","text":""}},{"type":"resource","resource":{"uri":"a2a:///x","blob":"AA=="},"_meta":{"aepb.gateway/ext":{"canon":{"name":"x"}}}},{"type":"resource","resource":{"uri":"a2a:///x","blob":"AA=="},"_meta":{"aepb.gateway/ext":{"canon":{"name":"x","derived":"uri"}}}},{"type":"resource","resource":{"uri":"other:","blob":"AA=="},"_meta":{"aepb.gateway/ext":{"canon":{"name":"x","derived":"uri"}}}}`)},
		{"data mark", mcp.Modern, canonical.OpInvoke, block(`{"type":"text","text":"{\"a\": 1}","_meta":{"aepb.gateway/ext":{"canon":{"kind":"data","media":"application/json"}}}},{"type":"text","text":" 1","_meta":{"aepb.gateway/ext":{"canon":{"kind":"data"}}}},{"type":"text","text":"no","_meta":{"aepb.gateway/ext":{"canon":{"form":"embedded","uri":"u"}}}}`)},
		{"isError false", mcp.Modern, canonical.OpInvoke, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[],"isError":false,"structuredContent":null}}`},
		{"isError true", mcp.Modern, canonical.OpInvoke, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[],"isError":true,"structuredContent":[1.0,{"a":9007199254740993}],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1","icons":[]}}}}`},
		{"no result type", mcp.Modern, canonical.OpInvoke, `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`},
		{"legacy result", mcp.Legacy, canonical.OpInvoke, `{"jsonrpc":"2.0","id":1,"result":{"content":[],"structuredContent":{"a":1},"resultType":"task","_meta":{}}}`},
		{"legacy structured", mcp.Legacy, canonical.OpInvoke, `{"jsonrpc":"2.0","id":1,"result":{"content":[],"_meta":{"aepb.gateway/ext":{"canon":{"structured":[1]}}}}}`},
		{"unbelieved outline", mcp.Modern, canonical.OpInvoke, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[],"_meta":{"aepb.gateway/ext":{"canon":{"task":{"id":"t","contextId":"c","state":"working","artifacts":[{"parts":9}]}}}}}}`},
		{"tools", mcp.Modern, canonical.OpCapabilities, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"public","nextCursor":"","tools":[{"name":"a b","title":"","description":"x","inputSchema":{"type":"object"},"outputSchema":{"type":"array"},"annotations":{"readOnlyHint":true},"icons":[],"x-y":1,"_meta":{}}]}}`},
		{"legacy tools", mcp.Legacy, canonical.OpCapabilities, `{"jsonrpc":"2.0","id":1,"result":{"nextCursor":"n","tools":[{"name":"a","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}},{"name":"a","inputSchema":{"type":"object"}}]}}`},
		{"discovered", mcp.Modern, canonical.OpDescribe, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28","2030-01-01"],"capabilities":{"tools":{},"prompts":{}},"instructions":"","ttlMs":1,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"","websiteUrl":"https://x.example","icons":[{"src":"i"}],"description":"d"}}}}`},
		{"discovered, nobody", mcp.Modern, canonical.OpDescribe, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":1,"cacheScope":"private"}}`},
		{"initialized result", mcp.Legacy, canonical.OpDescribe, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-03-26","capabilities":{"logging":{}},"serverInfo":{"name":"s","version":"v","title":"t"},"instructions":"i"}}`},
		{"pong", mcp.Legacy, canonical.OpPing, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{"pong with meta", mcp.Legacy, canonical.OpPing, `{"jsonrpc":"2.0","id":1,"result":{"_meta":{"a":1},"b":2}}`},
		{"error", mcp.Modern, canonical.OpInvoke, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Unknown tool: x"}}`},
		{"error with data", mcp.Legacy, canonical.OpInvoke, `{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"","data":{"uri":"x"}}}`},
		{"error with more", mcp.Modern, canonical.OpInvoke, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"m","data":{"aepb.gateway/ext":{"canon":{"code":"task_not_found"}}},"x":{"y":1}}}`},
		{"error of nobody", mcp.Modern, canonical.OpInvoke, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"m","data":null}}`},
		{"error with a null id", mcp.Legacy, canonical.OpInvoke, `{"jsonrpc":"2.0","id":null,"error":{"code":7,"message":"m","data":[1]}}`},
		{"error carried", mcp.Modern, canonical.OpInvoke, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"m","data":{"aepb.gateway/ext":{"canon":{"code":"task_not_found","native":{"binding":"a2a-v1","code":-32001,"data":[{"a":1}]}}}}}}`},
		{"error carried, unbelieved", mcp.Modern, canonical.OpInvoke, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"m","data":{"more":1,"aepb.gateway/ext":{"canon":{"code":"task_not_found"}}}}}`},
	}
	return append(append(list, olderSamples(list)...), workSamples()...)
}

func (s sample) wire() translators.Wire {
	return translators.Wire{
		Binding: mcp.Binding, Version: s.version, Media: "application/json", Body: []byte(s.body), Re: s.re,
		Event: strings.HasPrefix(s.name, "event "),
	}
}

// TestIdentity_SameJSONValue: what comes in goes out as the same JSON value.
func TestIdentity_SameJSONValue(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	for _, s := range samples() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			home(t, tr, s.wire())
		})
	}
}

// home decodes and encodes and demands the same value without a loss.
func home(t testing.TB, tr *mcp.Translator, w translators.Wire) *canonical.Message {
	t.Helper()
	m, err := tr.Decode(w)
	if err != nil {
		t.Fatalf("Decode: %v\n%s", err, w.Body)
	}
	m.Origin.Raw = nil
	out, losses, err := tr.Encode(m, translators.Target{Version: m.Origin.Version})
	if err != nil {
		t.Fatalf("Encode: %v", err)
	}
	if len(losses)+len(m.Losses) > 0 {
		t.Errorf("losses on the way home: %v %v", m.Losses, losses)
	}
	if !rawjson.Equal(w.Body, out.Body) && !rawjson.Equal(mcp.WithoutNulls(w), out.Body) {
		t.Errorf("got  %s\nwant %s", out.Body, w.Body)
	}
	return m
}

// TestIdentity_OfficialExamples sends every published example that is about tools,
// discovery or errors home; the fragments among them are put into an envelope.
func TestIdentity_OfficialExamples(t *testing.T) {
	t.Parallel()
	dir := published(t)
	if dir == "" {
		return
	}
	files, err := filepath.Glob(filepath.Join(dir, "examples-2026-07-28", "*", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	tr := mcp.New(translators.Config{})
	served, whole, complete := 0, 0, 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		w, ok := example(filepath.Base(filepath.Dir(file)), data)
		if completeMessage(data) {
			complete++
			if ok {
				whole++
			}
		}
		if !ok {
			continue
		}
		served++
		t.Run(filepath.Base(file), func(t *testing.T) { home(t, tr, w) })
	}
	t.Logf("official MCP messages: %d complete, %d re-encoded equal, %d refused with a reason; %d of %d parts re-encoded equal", complete, whole, complete-whole, served-whole, len(files)-complete)
	if complete != 32 || whole != 32 || served-whole < 49 {
		t.Errorf("%d complete messages, %d of them served, %d parts", complete, whole, served-whole)
	}
}

// completeMessage: nothing had to be put around it.
func completeMessage(data []byte) bool {
	var env struct {
		Version string `json:"jsonrpc"`
	}
	return json.Unmarshal(data, &env) == nil && env.Version != ""
}

// example makes a whole message of an example; ok is false for those of
// features that this codec does not serve.
func example(kind string, data []byte) (w translators.Wire, ok bool) {
	w = translators.Wire{Binding: mcp.Binding, Version: mcp.Modern, Body: data}
	result := func(re canonical.Op, inner string) translators.Wire {
		w.Re, w.Body = re, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"result":%s}`, inner)
		return w
	}
	switch kind {
	case "CallToolRequest", "ListToolsRequest", "DiscoverRequest":
		return w, true
	case "CallToolRequestParams", "PaginatedRequestParams":
		method := map[string]string{"CallToolRequestParams": "tools/call", "PaginatedRequestParams": "tools/list"}[kind]
		w.Body = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, data)
		return w, true
	case "CallToolResult":
		return result(canonical.OpInvoke, string(data)), true
	case "ListToolsResult":
		return result(canonical.OpCapabilities, string(data)), true
	case "DiscoverResult":
		return result(canonical.OpDescribe, string(data)), true
	case "CallToolResultResponse":
		w.Re = canonical.OpInvoke
	case "ListToolsResultResponse":
		w.Re = canonical.OpCapabilities
	case "DiscoverResultResponse":
		w.Re = canonical.OpDescribe
	case "Tool":
		return result(canonical.OpCapabilities, `{"resultType":"complete","ttlMs":1,"cacheScope":"public","tools":[`+string(data)+`]}`), true
	case "TextContent", "ImageContent", "AudioContent", "ResourceLink", "EmbeddedResource":
		return result(canonical.OpInvoke, `{"resultType":"complete","content":[`+string(data)+`]}`), true
	case "TextResourceContents", "BlobResourceContents":
		return result(canonical.OpInvoke, `{"resultType":"complete","content":[{"type":"resource","resource":`+string(data)+`}]}`), true
	case "HeaderMismatchError", "MissingRequiredClientCapabilityError", "UnsupportedProtocolVersionError":
		w.Re = canonical.OpInvoke
	case "InternalError", "InvalidParamsError", "MethodNotFoundError", "ParseError":
		w.Re, w.Body = canonical.OpInvoke, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"error":%s}`, data)
	case "InputRequiredResult":
		return result(canonical.OpInvoke, string(data)), true
	case "InputRequests":
		return result(canonical.OpInvoke, `{"resultType":"input_required","inputRequests":`+string(data)+`}`), true
	case "ElicitRequest", "CreateMessageRequest", "ListRootsRequest":
		return result(canonical.OpInvoke, `{"resultType":"input_required","inputRequests":{"k":`+string(data)+`}}`), true
	case "ElicitRequestFormParams", "ElicitRequestURLParams":
		return result(canonical.OpInvoke, `{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":`+string(data)+`}}}`), true
	case "InputResponses", "ElicitResult", "CreateMessageResult", "ListRootsResult":
		answers := string(data)
		if kind != "InputResponses" {
			answers = `{"k":` + answers + `}`
		}
		w.Body = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","inputResponses":%s,%s}}}`, answers, modernMeta)
	default:
		return more(w, kind, data)
	}
	return w, true
}

// more are the messages that only MCP has, and the notifications.
func more(w translators.Wire, kind string, data []byte) (translators.Wire, bool) {
	notice := map[string]string{
		"CancelledNotificationParams": "notifications/cancelled", "LoggingMessageNotificationParams": "notifications/message",
		"ProgressNotificationParams": "notifications/progress", "ResourceUpdatedNotificationParams": "notifications/resources/updated",
	}
	switch {
	case notice[kind] != "":
		w.Re, w.Event = canonical.OpInvoke, kind != "CancelledNotificationParams"
		if !w.Event {
			w.Re = ""
		}
		w.Body = fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q,"params":%s}`, notice[kind], data)
	case strings.HasSuffix(kind, "Notification"):
		w.Re, w.Event = canonical.OpNative, kind != "CancelledNotification"
		if !w.Event {
			w.Re = ""
		}
	case strings.HasSuffix(kind, "ResultResponse"):
		w.Re = canonical.OpNative
	case strings.HasSuffix(kind, "Request"):
	case strings.HasSuffix(kind, "Result"):
		w.Re, w.Body = canonical.OpNative, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"result":%s}`, data)
	default:
		return w, false
	}
	return w, true
}

// TestIdentity_HardValues puts hard values into arguments, structured content
// and text, and demands them back to the digit and the byte.
func TestIdentity_HardValues(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	for name, value := range hardValues() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, version := range []string{mcp.LegacyJune, mcp.LegacyMarch, mcp.LegacyFirst} {
				home(t, tr, translators.Wire{Version: version, Re: canonical.OpInvoke, Body: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"result":{"structuredContent":%s,"content":[],"x":%s,"_meta":{"k":%s}}}`, value, value, value)})
			}
			call := home(t, tr, translators.Wire{Version: mcp.Legacy, Body: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"v":%s}}}`, value)})
			if got := string(call.Body.(*canonical.Invoke).Call.Args); got != `{"v":`+value+`}` {
				t.Errorf("arguments: got %s", got)
			}
			quoted, _ := json.Marshal(value)
			result := home(t, tr, translators.Wire{Version: mcp.Modern, Re: canonical.OpInvoke, Body: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","structuredContent":%s,"content":[{"type":"text","text":%s}]}}`, value, quoted)})
			out := result.Body.(*canonical.Result).Output
			if string(out.Structured) != value || out.Parts[0].Text != value {
				t.Errorf("result: got %s and %q", out.Structured, out.Parts[0].Text)
			}
		})
	}
}

func hardValues() map[string]string {
	planes := make([]string, 17)
	for i := range planes {
		planes[i] = string(rune(i<<16 | 0x0041))
	}
	return map[string]string{
		"above 2^53":    "9007199254740993",
		"forty digits":  "1234567890123456789012345678901234567890",
		"long decimal":  "0.1234567890123456789012345678901234567890",
		"exponent":      "1.50E+400",
		"minus zero":    "-0.0",
		"empty string":  `""`,
		"null":          "null",
		"empty object":  "{}",
		"empty array":   "[]",
		"every plane":   `"` + strings.Join(planes, "") + `"`,
		"controls":      `"\u0000\u001f\u007f"`,
		"odd names":     `{"":1,"a/b":2,"~":3,"A":4,"a":5}`,
		"nested enough": strings.Repeat("[", 100) + strings.Repeat("]", 100),
	}
}

// TestHeaders_OfAModernRequest: what a modern request repeats in its header fields.
func TestHeaders_OfAModernRequest(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	schema := json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"in":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}},"big":{"type":"integer","x-mcp-header":"Big"}}}`)
	m := &canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Correlation: canonical.Correlation{WireID: json.RawMessage("1")},
		Trace: canonical.Trace{Parent: "00-a-b-01", State: "bad\r\nvalue"},
		Body:  &canonical.Invoke{Call: &canonical.Call{Name: "häßlich", Args: json.RawMessage(`{"region":"eu ","in":{"n":5},"big":9007199254740993}`)}},
	}
	w, _, err := tr.Encode(m, translators.Target{Capability: &canonical.Capability{Profile: canonical.ProfileTyped, InputSchema: schema}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Mcp-Protocol-Version": mcp.Modern, "Mcp-Method": "tools/call", "Mcp-Name": "=?base64?aMOkw59saWNo?=",
		"Traceparent": "00-a-b-01", "Tracestate": "", "Mcp-Param-Region": "=?base64?ZXUg?=", "Mcp-Param-N": "5", "Mcp-Param-Big": "",
	} {
		if got := w.Header.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if _, err := tr.Decode(translators.Wire{Header: w.Header, Body: w.Body}); err != nil {
		t.Errorf("what was written is not read: %v", err)
	}
	w.Header = http.Header{"Mcp-Name": {"h"}}
	if _, err := tr.Decode(w); !hasCode(err, canonical.CodeHeaderMismatch) {
		t.Errorf("a wrong Mcp-Name: got %v", err)
	}
}
