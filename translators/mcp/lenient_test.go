package mcp_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// replyTo is a successful reply.
func replyTo(result string) []byte { return []byte(`{"jsonrpc":"2.0","id":1,"result":` + result + `}`) }

// TestDecode_LenientResult: a result of a call is understood as far as it can be, in every revision; the
// rest goes on as data, and is declared.
func TestDecode_LenientResult(t *testing.T) {
	t.Parallel()
	text := canonical.Part{Kind: canonical.KindText, Text: "done"}
	data := func(raw string) canonical.Part {
		return canonical.Part{Kind: canonical.KindData, Data: json.RawMessage(raw)}
	}
	image := canonical.Part{Kind: canonical.KindFile, Bytes: []byte{255, 239, 190}, Media: "image/png"}
	const done = `{"type":"text","text":"done"}`
	for name, c := range map[string]struct {
		result string
		parts  []canonical.Part
		failed bool
		losses string
	}{
		"explicit nulls":       {`{"content":[{"type":"text","text":"done","annotations":null,"_meta":null}],"isError":null,"_meta":null}`, []canonical.Part{text}, false, ""},
		"null result":          {`null`, nil, false, "L26 dropped /result/content"},
		"no content":           {`{}`, nil, false, "L26 dropped /result/content"},
		"null content":         {`{"content":null}`, nil, false, "L26 dropped /result/content"},
		"unknown block":        {`{"content":[` + done + `,{"type":"video","uri":"u"}]}`, []canonical.Part{text, data(`{"type":"video","uri":"u"}`)}, false, "L29 carried /result/content/1"},
		"block without type":   {`{"content":[{"text":"x"}]}`, []canonical.Part{data(`{"text":"x"}`)}, false, "L29 carried /result/content/0"},
		"block is a string":    {`{"content":["x",` + done + `]}`, []canonical.Part{data(`"x"`), text}, false, "L29 carried /result/content/0"},
		"content is a string":  {`{"content":"x"}`, []canonical.Part{data(`{"content":"x"}`)}, false, "L29 carried /result/content"},
		"isError is a string":  {`{"content":[],"isError":"yes"}`, []canonical.Part{data(`{"content":[],"isError":"yes"}`)}, true, "L29 carried /result/isError"},
		"meta is a list":       {`{"content":[],"_meta":[]}`, []canonical.Part{data(`{"content":[],"_meta":[]}`)}, false, "L29 carried /result/_meta"},
		"base64 for URLs":      {`{"content":[{"type":"image","data":"_---","mimeType":"image/png"}]}`, []canonical.Part{image}, false, "L21 dropped /result/content/0/data"},
		"base64 in lines":      {`{"content":[{"type":"image","data":"/+\r\n++\n","mimeType":"image/png"}]}`, []canonical.Part{image}, false, "L21 dropped /result/content/0/data"},
		"image without a type": {`{"content":[{"type":"image","data":"/+++"}]}`, []canonical.Part{{Kind: canonical.KindFile, Bytes: image.Bytes, Form: canonical.FormImage}}, false, "L27 dropped /result/content/0/mimeType"},
		"resource of null":     {`{"content":[{"type":"resource","resource":{"uri":"u","mimeType":null,"text":"a"}}]}`, []canonical.Part{{Kind: canonical.KindText, Text: "a", URI: "u", Form: canonical.FormEmbedded}}, false, ""},
		"our own member":       {`{"content":[],"aepb.gateway/placed":["structuredContent"]}`, []canonical.Part{data(`{"content":[],"aepb.gateway/placed":["structuredContent"]}`)}, false, "L29 carried /result/aepb.gateway/placed"},
		"our own, in a block":  {`{"content":[{"type":"text","text":"","aepb.gateway/placed":[]}]}`, []canonical.Part{data(`{"type":"text","text":"","aepb.gateway/placed":[]}`)}, false, "L29 carried /result/content/0"},
		"resource of nothing":  {`{"content":[{"type":"resource","resource":{"uri":"u"}}]}`, []canonical.Part{data(`{"type":"resource","resource":{"uri":"u"}}`)}, false, "L29 carried /result/content/0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := mcp.New(translators.Config{})
			for _, version := range mcp.Revisions() {
				m, err := tr.Decode(translators.Wire{Version: version, Re: canonical.OpInvoke, Body: replyTo(c.result)})
				if err != nil {
					t.Fatalf("%s: %v", version, err)
				}
				result, _ := m.Body.(*canonical.Result)
				if len(result.Output.Parts)+len(c.parts) > 0 {
					if diff := cmp.Diff(c.parts, result.Output.Parts); diff != "" {
						t.Errorf("%s: %s", version, diff)
					}
				}
				if got := lossesOf(m); got != c.losses || result.Output.Failed != c.failed {
					t.Errorf("%s: lost is %q, failed %t", version, got, result.Output.Failed)
				}
				for _, other := range mcp.Revisions() {
					w, _, err := tr.Encode(m, translators.Target{Version: other})
					if err != nil || strings.Contains(string(w.Body), "null") {
						t.Errorf("from %s in %s: %v, %s", version, other, err, w.Body)
					}
				}
			}
		})
	}
}

func lossesOf(m *canonical.Message) string {
	var all []string
	for _, l := range m.Losses {
		all = append(all, fmt.Sprintf("%s %s %s", l.Code, l.Fate, l.Path))
	}
	return strings.Join(all, ", ")
}

// TestDecode_StrictResult: what would be told wrongly is refused all the same: a question, a task, an
// answer to something else. The error says where, and what was expected.
func TestDecode_StrictResult(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":7}}}}}`: "/result/inputRequests/k/params/message: not a string, but a number",
		`{"jsonrpc":"2.0","id":1,"result":{"resultType":"task","taskId":7}}`:                                                                             "/result/taskId: not a string, but a number",
		`{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"m"}}`:                                                                          "neither a request nor a result nor an error",
		`{"jsonrpc":"2.0","id":1,"result":7}`:                                                                                                            "/result: not an object",
	} {
		_, err := mcp.New(translators.Config{}).Decode(translators.Wire{Version: mcp.Modern, Re: canonical.OpInvoke, Body: []byte(body)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}

// TestDecode_LenientTools: one bad tool of a list costs that tool, and is named; nulls cost nothing.
func TestDecode_LenientTools(t *testing.T) {
	t.Parallel()
	const good = `{"name":"good","inputSchema":{"type":"object"}}`
	for bad, want := range map[string]canonical.Omission{
		`{"inputSchema":{"type":"object"}}`:             {Reason: "/result/tools/0/name: required"},
		`{"name":null,"inputSchema":{"type":"object"}}`: {Reason: "/result/tools/0/name: required"},
		`{"name":"bad"}`:                                                 {Name: "bad", Reason: "/result/tools/0/inputSchema: required"},
		`{"name":"bad","inputSchema":null}`:                              {Name: "bad", Reason: "/result/tools/0/inputSchema: required"},
		`{"name":"bad","inputSchema":true}`:                              {Name: "bad", Reason: "/result/tools/0/inputSchema: not an object, but a boolean"},
		`{"name":"bad","inputSchema":{"type":"object"},"description":7}`: {Name: "bad", Reason: "/result/tools/0/description: not a string, but a number"},
		`7`: {Reason: "/result/tools/0: not an object"},
	} {
		for _, version := range mcp.Revisions() {
			m, err := mcp.New(translators.Config{}).Decode(translators.Wire{Version: version, Re: canonical.OpCapabilities, Body: replyTo(`{"tools":[` + bad + `,` + good + `],"nextCursor":null}`)})
			if err != nil {
				t.Errorf("%s, %s: %v", bad, version, err)
				continue
			}
			list, _ := m.Body.(*canonical.CapabilityList)
			if len(list.Capabilities) != 1 || list.Capabilities[0].ID != "good" || len(list.Omitted) != 1 || list.Omitted[0] != want {
				t.Errorf("%s, %s: %+v, left out is %+v", bad, version, list.Capabilities, list.Omitted)
			}
		}
	}
	nulls := `{"name":"t","inputSchema":{"type":"object","default":null},"title":null,"description":null,"annotations":{"title":null},"outputSchema":null,"icons":null,"_meta":null,"execution":null}`
	for _, version := range mcp.Revisions() {
		m, err := mcp.New(translators.Config{}).Decode(translators.Wire{Version: version, Re: canonical.OpCapabilities, Body: replyTo(`{"tools":[` + nulls + `]}`)})
		if err != nil {
			t.Fatal(err)
		}
		list, _ := m.Body.(*canonical.CapabilityList)
		if len(list.Capabilities) != 1 || len(list.Omitted) != 0 || string(list.Capabilities[0].InputSchema) != `{"type":"object","default":null}` {
			t.Errorf("%s: %+v, left out is %+v", version, list.Capabilities, list.Omitted)
		}
	}
}

// TestDecode_NullsOfCallers: a caller may write null for a member that it leaves out; what is null
// among the arguments of a tool belongs to the tool.
func TestDecode_NullsOfCallers(t *testing.T) {
	t.Parallel()
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":null,"progressToken":null,"vendor":null}`
	for name, c := range map[string]struct{ version, method, params string }{
		"arguments":          {mcp.Legacy, "tools/call", `{"name":"t","arguments":null}`},
		"meta":               {mcp.Legacy, "tools/call", `{"name":"t","arguments":{},"_meta":null}`},
		"cursor":             {mcp.Legacy, "tools/list", `{"cursor":null}`},
		"client info":        {mcp.Legacy, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":null}`},
		"capabilities":       {mcp.Legacy, "initialize", `{"protocolVersion":"2025-11-25","capabilities":null,"clientInfo":{"name":"n","version":"v"}}`},
		"params":             {mcp.Legacy, "tools/list", `null`},
		"all of the newest":  {mcp.Modern, "tools/call", `{"name":"t","arguments":null,"requestState":null,"inputResponses":null,` + meta + `}`},
		"tasks":              {mcp.Legacy, "tools/call", `{"name":"t","task":null}`},
		"prompt":             {mcp.Legacy, "prompts/get", `{"name":"p","arguments":null}`},
		"completion context": {mcp.Legacy, "completion/complete", `{"ref":{"type":"ref/prompt","name":"p","title":null},"argument":{"name":"a","value":""},"context":null}`},
	} {
		body := `{"jsonrpc":"2.0","id":1,"method":"` + c.method + `","params":` + c.params + `}`
		if _, err := mcp.New(translators.Config{}).Decode(translators.Wire{Version: c.version, Body: []byte(body)}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	m, err := mcp.New(translators.Config{}).Decode(translators.Wire{Version: mcp.Legacy, Body: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":null,"b":{"c":null}}}}`)})
	if err != nil {
		t.Fatal(err)
	}
	if invoke, _ := m.Body.(*canonical.Invoke); string(invoke.Call.Args) != `{"a":null,"b":{"c":null}}` {
		t.Errorf("the arguments are %s", invoke.Call.Args)
	}
}

// TestDecode_DeepNullsCostLittle: a message that nests as deep as is allowed costs no more for a null in it than a
// few times its own reading.
func TestDecode_DeepNullsCostLittle(t *testing.T) {
	deep := strings.Repeat("[", 120) + `"` + strings.Repeat("x", 1<<20) + `",null` + strings.Repeat("]", 120)
	w := translators.Wire{Version: mcp.Legacy, Re: canonical.OpNative, Body: replyTo(`{"contents":` + deep + `}`)}
	if count := testing.AllocsPerRun(3, func() {
		if _, err := mcp.New(translators.Config{}).Decode(w); err != nil {
			t.Error(err)
		}
	}); count > 200 {
		t.Errorf("it takes %v allocations", count)
	}
}
