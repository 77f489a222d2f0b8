package slim_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
	"github.com/aepb/aepb-gateway/translators/translatortest"
)

func raw(text string) json.RawMessage { return json.RawMessage(text) }

// a2aWires are what agents say in A2A's words; the same in both forms.
func a2aWires() []translators.Wire {
	ask := func(method, params string) translators.Wire {
		return translators.Wire{Version: slim.VersionA2A, Body: []byte(`{"jsonrpc":"2.0","id":"r-1","method":"` + method + `","params":` + params + `}`)}
	}
	say := func(re canonical.Op, event bool, result string) translators.Wire {
		return translators.Wire{Version: slim.VersionA2A, Re: re, Event: event, Body: []byte(`{"jsonrpc":"2.0","id":"r-1","result":` + result + `}`)}
	}
	task := `{"id":"t-1","contextId":"c-1","status":{"state":"TASK_STATE_WORKING","timestamp":"2026-05-01T00:00:00Z"},"artifacts":[{"artifactId":"a","parts":[{"text":"x"}]}],"history":[{"messageId":"m","role":"ROLE_USER","parts":[{"text":"q"}]}]}`
	return []translators.Wire{
		ask("SendMessage", `{"message":{"messageId":"m-1","role":"ROLE_USER","contextId":"c","parts":[{"text":"hi"},{"data":{"n":1.5,"l":[null,true]}},{"raw":"AAE=","mediaType":"image/png","filename":"f"},{"url":"https://x/y"}],"metadata":{"k":"v"}},"configuration":{"acceptedOutputModes":["text/plain"],"historyLength":2}}`),
		ask("SendStreamingMessage", `{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"hi"}]}}`),
		ask("GetTask", `{"id":"t-1","historyLength":1}`),
		ask("ListTasks", `{"contextId":"c","pageSize":5}`),
		ask("CancelTask", `{"id":"t-1"}`),
		ask("SubscribeToTask", `{"id":"t-1"}`),
		ask("CreateTaskPushNotificationConfig", `{"taskId":"t-1","url":"https://x/hook","token":"t"}`),
		ask("GetTaskPushNotificationConfig", `{"taskId":"t-1","id":"p"}`),
		say(canonical.OpInvoke, false, `{"task":`+task+`}`),
		say(canonical.OpInvoke, false, `{"message":{"messageId":"m-2","role":"ROLE_AGENT","parts":[{"text":"done"}]}}`),
		say(canonical.OpTaskGet, false, task),
		say(canonical.OpTaskList, false, `{"tasks":[`+task+`],"nextPageToken":"","pageSize":1,"totalSize":1}`),
		say(canonical.OpInvoke, true, `{"task":`+task+`}`),
		say(canonical.OpInvoke, true, `{"statusUpdate":{"taskId":"t-1","contextId":"c-1","status":{"state":"TASK_STATE_COMPLETED"}}}`),
		say(canonical.OpInvoke, true, `{"artifactUpdate":{"taskId":"t-1","contextId":"c-1","artifact":{"artifactId":"a","parts":[{"text":"x"}]},"append":true,"lastChunk":true}}`),
	}
}

func mcpWires(revision string) []translators.Wire {
	meta := ""
	done := ""
	if revision == "2026-07-28" {
		meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
		done = `"resultType":"complete",`
	}
	version := slim.VersionMCP(revision)
	return []translators.Wire{
		{Version: version, Body: []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"add","arguments":{"a":1.50,"b":12345678901234567890}` + meta + `}}`)},
		{Version: version, Re: canonical.OpInvoke, Body: []byte(`{"jsonrpc":"2.0","id":7,"result":{` + done + `"content":[{"type":"text","text":"3"},{"type":"image","data":"AA==","mimeType":"image/png"}],"isError":true}}`)},
		{Version: version, Re: canonical.OpInvoke, Body: []byte(`{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no","data":{"x":1}}}`)},
	}
}

func from(body canonical.Body, phase canonical.Phase) *canonical.Message {
	m := &canonical.Message{
		Op: canonical.OpInvoke, Phase: phase, Body: body, Origin: canonical.Origin{Binding: "other-v1", Version: "1"},
		Correlation: canonical.Correlation{WireID: raw(`"w"`)},
	}
	if phase == canonical.PhaseRequest {
		m.Correlation.MessageID = "m-1"
	}
	if phase == canonical.PhaseResponse {
		m.Conversation = canonical.Conversation{TaskID: "task-1", ContextID: "context-1"}
	}
	return m
}

func foreign() []*canonical.Message {
	parts := []canonical.Part{
		{Kind: canonical.KindText, Text: "t", Annotations: raw(`{"audience":["user"]}`)},
		{Kind: canonical.KindFile, Bytes: []byte{0, 1}, Media: "image/png"},
	}
	out := []*canonical.Message{
		from(&canonical.Invoke{Call: &canonical.Call{Name: "add", Args: raw(`{"a":1,"b":12345678901234567890}`)}}, canonical.PhaseRequest),
		from(&canonical.Invoke{Turn: canonical.Content{ID: "m-1", Role: canonical.RoleCaller, Parts: parts}}, canonical.PhaseRequest),
		from(&canonical.Result{Output: &canonical.Output{Parts: parts, Structured: raw(`{"n":1.0}`)}}, canonical.PhaseResponse),
		from(&canonical.Result{Turn: &canonical.Content{ID: "m-2", Role: canonical.RoleAgent, Parts: parts}}, canonical.PhaseResponse),
		from(&canonical.Error{
			Code: canonical.CodeRateLimited, Message: "later", RetryAfter: time.Second, Schema: raw(`{"type":"object"}`),
			Details: []json.RawMessage{raw(`{"@type":"x"}`)}, Native: &canonical.NativeError{Binding: "other-v1", Code: 9},
			Extensions: canonical.Extensions{"other-v1": raw(`{"e":1}`)},
		}, canonical.PhaseError),
		from(&canonical.Error{Code: canonical.CodeTaskNotFound, Message: "gone"}, canonical.PhaseError),
	}
	out[0].Extensions = canonical.Extensions{"other-v1": raw(`{"k":{"z":1}}`)}
	return out
}

// signals are rollback requests and their results.
func signals() []*canonical.Message {
	request := from(&canonical.Signal{Token: "a.b.c"}, canonical.PhaseRequest)
	done := from(&canonical.Signal{Token: "d.e.f"}, canonical.PhaseResponse)
	request.Op, done.Op = canonical.OpRollback, canonical.OpRollback
	request.Correlation.MessageID, done.Conversation = "", canonical.Conversation{}
	return []*canonical.Message{request, done}
}

// TestSignals_RollbackAndCallback: a rollback request and a callback are carried, what cannot be
// said of them is refused or declared, and decisions are not SLIM's to tell.
// TestExtensions_AreCarriedInRequests: A2A-Extensions is a parameter of A2A 1.0, in MCP
// it says nothing (SLIMRPC binding, 3).
func TestExtensions_AreCarriedInRequests(t *testing.T) {
	t.Parallel()
	c := slim.New(translators.Config{})
	request := from(&canonical.Invoke{Turn: canonical.Content{ID: "m-1", Role: canonical.RoleCaller, Parts: []canonical.Part{{Kind: canonical.KindText, Text: "t"}}}}, canonical.PhaseRequest)
	request.Extensions = canonical.Extensions{a2a.Binding: raw(`{"A2A-Extensions":"https://x.example/a"}`)}
	wire, _, err := c.Encode(request, translators.Target{Version: slim.VersionA2A, Form: slim.FormRPC})
	if err != nil || wire.Header.Get("A2A-Extensions") != "https://x.example/a" {
		t.Fatalf("%v %v", err, wire.Header)
	}
	wire.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	again, err := c.Decode(wire)
	if err != nil || string(again.Extensions[a2a.Binding]) != `{"A2A-Extensions":"https://x.example/a"}` || again.Trace.Parent != "" {
		t.Errorf("%v %+v", err, again)
	}
}

// TestTranslator_InputAndTaskSupport: how MCP asks and keeps tasks, it does over SLIM too, but for
// what needs a stream.
func TestTranslator_InputAndTaskSupport(t *testing.T) {
	t.Parallel()
	c := slim.New(translators.Config{})
	for version, want := range map[string]struct {
		asks  translators.Asking
		tasks translators.Tasking
	}{
		slim.VersionA2A:                       {translators.AskTask, translators.TaskingNone},
		slim.VersionMCP(mcp.Modern):           {translators.AskReply, translators.TaskingWhole},
		slim.VersionMCP(mcp.Legacy):           {translators.AskNone, translators.TaskingApart},
		slim.VersionMCP(mcp.LegacyMarch):      {translators.AskNone, translators.TaskingNone},
		slim.VersionMCP("a revision to come"): {translators.AskNone, translators.TaskingNone},
	} {
		if asks, tasks := c.Asks(version, ""), c.Tasks(version); asks != want.asks || tasks != want.tasks {
			t.Errorf("%s: asks %q, keeps tasks %q", version, asks, tasks)
		}
	}
	only := canonical.Capability{Extensions: canonical.Extensions{mcp.Binding: json.RawMessage(`{"execution":{"taskSupport":"required"}}`)}}
	if !c.TaskOnly(&only) || c.TaskOnly(&canonical.Capability{}) {
		t.Error("TaskOnly")
	}
}

func TestSignals_RollbackAndCallback(t *testing.T) {
	t.Parallel()
	codec := slim.New(translators.Config{})
	for op, want := range map[canonical.Op]bool{canonical.OpRollback: true, canonical.OpInvoke: true, canonical.OpDecision: false, canonical.OpTaskGet: false} {
		if codec.Signals(op, translators.Target{}) != want {
			t.Errorf("%s", op)
		}
	}
	asking := foreign()[1]
	asking.Callback = "https://caller.example/decided"
	wire, _, err := codec.Encode(asking, translators.Target{})
	if err != nil || wire.Header.Get(slim.FieldCallback) != asking.Callback {
		t.Fatalf("%v %v", wire.Header, err)
	}
	if m, err := codec.Decode(wire); err != nil || m.Callback != asking.Callback {
		t.Errorf("%v", err)
	}
	done := signals()[1]
	if wire, _, err = codec.Encode(done, translators.Target{Form: slim.FormRPC}); err != nil || wire.Re != canonical.OpRollback {
		t.Errorf("on SLIMRPC nothing says that a result is a token: %q, %v", wire.Re, err)
	}
	if a, m := codec.StreamsIn(slim.VersionA2A), codec.StreamsIn(slim.VersionMCP("2026-07-28")); a != translators.StreamsTask || m != translators.StreamsReply {
		t.Errorf("A2A streams as %q, and MCP as %q", a, m)
	}
	answer := signals()[0]
	answer.Body = &canonical.Signal{Token: "a.b.c", Extensions: canonical.Extensions{"other-v1": raw(`{"x":1}`)}}
	if _, losses, err := codec.Encode(answer, translators.Target{}); err != nil || len(losses) != 1 || losses[0].String() != "L29 dropped /body/extensions/other-v1" {
		t.Errorf("%v %v", losses, err)
	}
	answer.Op = canonical.OpDecision
	if _, _, err := codec.Encode(answer, translators.Target{}); !is(err, canonical.CodeUnsupportedOp) {
		t.Errorf("a decision: %v", err)
	}
	for token, good := range map[string]bool{"": false, "a.b": false, "a.b.c.d": false, "a.b.c d": false, "a.b.\u00e4": false, "A-_.9.z": true} {
		body := `{"jsonrpc":"2.0","id":1,"method":"aepb/rollback","params":{"token":"` + token + `"}}`
		m, err := codec.Decode(translators.Wire{Body: []byte(body)})
		if good != (err == nil) || good && m.Op != canonical.OpRollback || !good && token != "" && !is(err, canonical.CodeBadParams) {
			t.Errorf("%q: %v", token, err)
		}
	}
	failed, err := codec.Decode(translators.Wire{
		Version: slim.VersionA2A, Re: canonical.OpRollback, Body: []byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32004,"message":"no"}}`),
	})
	if err != nil || failed.Phase != canonical.PhaseError || failed.Op != canonical.OpRollback {
		t.Errorf("%+v %v", failed, err)
	}
}

func is(err error, code canonical.Code) bool {
	refused, ok := errors.AsType[*canonical.Error](err)
	return ok && refused.Code == code
}

// pinned is the codec in one version and form, whatever the laws ask for.
type pinned struct {
	*slim.Translator
	version, form string
}

func (p pinned) Info() translators.Info {
	info := p.Translator.Info()
	info.Versions = []string{p.version}
	return info
}

func (p pinned) Decode(w translators.Wire) (*canonical.Message, error) {
	w.Form = p.form
	if w.Re != "" {
		w.Version = p.version // which no reply shows
	}
	return p.Translator.Decode(w)
}

func (p pinned) Encode(m *canonical.Message, target translators.Target) (translators.Wire, []canonical.Loss, error) {
	if target.Form = p.form; target.Version == "" {
		target.Version = p.version
	}
	return p.Translator.Encode(m, target)
}

// TestTranslator_ContractOfEachProfile holds every profile to the laws.
func TestTranslator_ContractOfEachProfile(t *testing.T) {
	t.Parallel()
	codec := slim.New(translators.Config{})
	malformed := [][]byte{nil, []byte("{"), []byte(`[]`), []byte(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"parts":[]},"message":1}}`)}
	failure := func(data string) translators.Wire {
		return translators.Wire{Version: slim.VersionA2A, Re: canonical.OpInvoke, Body: []byte(`{"jsonrpc":"2.0","id":"r-1","error":{"code":-32001,"message":"no such task","data":[` + data + `]}}`)}
	}
	info := `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND","domain":"a2a-protocol.org"}`
	for _, version := range codec.Info().Versions {
		revision, byMCP := slim.Revision(version)
		forms := []string{""}
		if !byMCP {
			forms = append(forms, slim.FormRPC)
		}
		for _, form := range forms {
			t.Run(version+" "+form, func(t *testing.T) {
				t.Parallel()
				s := translatortest.Samples{Malformed: malformed, Foreign: append(foreign(), signals()...)}
				if s.Wires = mcpWires(revision); byMCP {
					s.Foreign = append(append(s.Foreign[:4:4], s.Foreign[5]), signals()...) // what MCP's codec does with errors is tested there
				} else {
					s.Wires = append(a2aWires(), failure(info))
				}
				s.Wires = append(s.Wires,
					translators.Wire{Version: version, Body: []byte(`{"jsonrpc":"2.0","id":"r-1","method":"aepb/rollback","params":{"token":"a.b.c"}}`)},
					translators.Wire{Version: version, Re: canonical.OpRollback, Body: []byte(`{"jsonrpc":"2.0","id":"r-1","result":{"token":"d.e.f"}}`)})
				translatortest.Run(t, pinned{codec, version, form}, s)
			})
		}
	}
}

// TestEncode_RPCDeclaresLosses: SLIMRPC has a code and a text for an error,
// and doubles for numbers.
func TestEncode_RPCDeclaresLosses(t *testing.T) {
	t.Parallel()
	codec := slim.New(translators.Config{})
	for name, c := range map[string]struct {
		message *canonical.Message
		form    string
		want    string
	}{
		"error on SLIMRPC":       {foreign()[4], slim.FormRPC, "L31 dropped /body/details,L31 dropped /body/extensions,L31 dropped /body/native,L31 dropped /body/retryAfter,L31 dropped /body/schema"},
		"number in JSON":         {foreign()[0], "", "L16 carried"},
		"nothing to lose":        {foreign()[1], slim.FormRPC, ""},
		"an error without parts": {foreign()[5], slim.FormRPC, ""},
	} {
		_, losses, err := codec.Encode(c.message, translators.Target{Form: c.form})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var texts []string
		for _, loss := range losses {
			if loss.Code == canonical.LossNumbers || loss.Fate == canonical.Dropped {
				texts = append(texts, loss.String())
			}
		}
		for want := range strings.SplitSeq(c.want, ",") {
			if !strings.Contains(strings.Join(texts, ","), want) || c.want == "" && len(texts) > 0 {
				t.Errorf("%s: %q, want %q", name, texts, want)
			}
		}
	}
}

// TestDecode_Refuses says how each message that cannot be served is refused.
func TestDecode_Refuses(t *testing.T) {
	t.Parallel()
	codec := slim.New(translators.Config{BodyLimit: 4096, Depth: 16})
	for name, c := range map[string]struct {
		version, form, body string
		want                canonical.Code // empty: malformed
	}{
		"unknown version":        {"a2a-9.9", "", `{}`, canonical.CodeUnsupportedVersion},
		"version without words":  {"1.0", "", `{}`, canonical.CodeUnsupportedVersion},
		"A2A 0.3":                {"a2a-0.3", "", `{}`, canonical.CodeUnsupportedVersion},
		"MCP of 2023":            {"mcp-2023-11-05", "", `{}`, canonical.CodeUnsupportedVersion},
		"no method of A2A":       {"", slim.FormRPC, `{"jsonrpc":"2.0","id":1,"method":"Nothing","params":{}}`, canonical.CodeNoMethod},
		"MCP on SLIMRPC":         {"", slim.FormRPC, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`, canonical.CodeNoMethod},
		"method of A2A 0.3":      {slim.VersionA2A, "", `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{}}`, canonical.CodeUnsupportedVersion},
		"no message":             {"", "", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{}}`, canonical.CodeBadParams},
		"no id":                  {"", "", `{"jsonrpc":"2.0","method":"SendMessage","params":{}}`, canonical.CodeInvalidRequest},
		"a call without a name":  {"", "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`, ""},
		"truncated":              {"", "", `{"jsonrpc":"2.0"`, ""},
		"a batch":                {"", "", `[{"jsonrpc":"2.0","id":1,"method":"SendMessage"}]`, ""},
		"a member twice":         {"", "", `{"jsonrpc":"2.0","id":1,"id":2,"method":"SendMessage","params":{}}`, ""},
		"no JSON-RPC":            {"", "", `{"id":1,"method":"SendMessage"}`, ""},
		"too long":               {"", "", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"x":"` + strings.Repeat("x", 4096) + `"}}`, ""},
		"too deep":               {"", "", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"x":` + strings.Repeat("[", 17) + strings.Repeat("]", 17) + `}}`, ""},
		"bytes that are no text": {"", "", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", ""},
		"nothing":                {"", "", ``, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := codec.Decode(translators.Wire{Version: c.version, Form: c.form, Body: []byte(c.body)})
			refused, ok := err.(*canonical.Error) //nolint:errorlint // the codec's own, unwrapped
			switch {
			case err == nil:
				t.Error("accepted")
			case ok && refused.Code != c.want, !ok && c.want != "":
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func FuzzDecode_AnyMessage(f *testing.F) {
	for _, w := range append(a2aWires(), mcpWires("2025-11-25")...) {
		f.Add(w.Body, string(w.Re), w.Event)
	}
	codec := slim.New(translators.Config{})
	f.Fuzz(func(t *testing.T, body []byte, re string, event bool) {
		for _, form := range []string{"", slim.FormRPC} {
			m, err := codec.Decode(translators.Wire{Body: body, Form: form, Re: canonical.Op(re), Event: event})
			if err != nil {
				continue
			}
			if _, _, err := codec.Encode(m, translators.Target{Version: m.Origin.Version, Form: form}); err != nil {
				t.Skip() // what cannot be said again is refused, and that is an answer
			}
		}
	})
}
