package uacp_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/translatortest"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// outcome names what Decode did: malformed, too large, a code, or ok.
func outcome(err error) string {
	var answer *canonical.Error
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, translators.ErrTooLarge):
		return "too large"
	case errors.Is(err, translators.ErrMalformed):
		return "malformed"
	case errors.As(err, &answer):
		return string(answer.Code)
	default:
		return err.Error()
	}
}

func ask(topic, kind, payload string) uacp.Frame {
	f := uacp.Frame{Verb: uacp.Ask, QoS: 1, ID: 42, Payload: []byte(payload)}
	if topic != "" {
		f.Options = append(f.Options, option(uacp.OptTopic, topic))
	}
	if kind != "" {
		f.Options = append(f.Options, option(uacp.OptContentType, kind))
	}
	return f
}

func observe(topic string) uacp.Frame {
	return uacp.Frame{Verb: uacp.Observe, QoS: 1, ID: 42, Options: []uacp.Option{option(uacp.OptTopic, topic)}}
}

// TestDecode_Refuses: what is refused, and as what.
func TestDecode_Refuses(t *testing.T) {
	t.Parallel()
	rpc := func(method, params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
	}
	reply := func(f uacp.Frame) uacp.Frame { return f }
	invoke := canonical.OpInvoke
	for name, tc := range map[string]struct {
		raw   []byte
		frame uacp.Frame
		re    canonical.Op
		event bool
		want  string
	}{
		"empty":                   {raw: []byte{}, want: "malformed"},
		"seven bytes":             {raw: make([]byte, 7), want: "malformed"},
		"version 0":               {raw: make([]byte, 8), want: "malformed"},
		"version 2":               {raw: []byte{0x80, 0, 0, 0, 4, 0, 0, 0}, want: "malformed"},
		"version 3":               {raw: []byte{0xff, 255, 255, 255, 255, 255, 255, 255}, want: "malformed"},
		"the other uACP":          {raw: []byte("\x01\x00\x00\x00\x2a\x00\x00\x01\x8b\xcf\xe5\x68\x00\x00\x06node-1\x00\x00\x00\x00"), want: "malformed"},
		"qos 3":                   {raw: []byte{0x6c, 0, 0, 0, 4, 0, 0, 0}, want: "malformed"},
		"unused bits":             {raw: []byte{0x40, 0, 0, 0, 4, 0, 0, 1}, want: "malformed"},
		"options missing":         {raw: []byte{0x60, 0, 0, 0, 4, 4, 0, 0}, want: "malformed"},
		"half an option":          {raw: []byte{0x60, 0, 0, 0, 4, 4, 0, 0, 3}, want: "malformed"},
		"option cut":              {raw: []byte{0x60, 0, 0, 0, 4, 4, 0, 0, 3, 2, 'a'}, want: "malformed"},
		"second option cut":       {raw: []byte{0x60, 0, 0, 0, 4, 8, 0, 0, 3, 1, 'a', 4, 4, 0}, want: "malformed"},
		"too long":                {raw: make([]byte, uacp.MaxFrame+1), want: "too large"},
		"qos 2":                   {frame: uacp.Frame{Verb: uacp.Ask, QoS: 2}, want: "unsupported_op"},
		"observe":                 {frame: uacp.Frame{Verb: uacp.Observe, QoS: 1, Options: []uacp.Option{option(uacp.OptTopic, "alerts/#")}}, want: "ok"},
		"observe a list":          {frame: uacp.Frame{Verb: uacp.Observe, QoS: 1, Options: []uacp.Option{option(uacp.OptTopic, uacp.TopicList)}}, want: "no_method"},
		"observe a rollback":      {frame: uacp.Frame{Verb: uacp.Observe, QoS: 1, Options: []uacp.Option{option(uacp.OptTopic, uacp.TopicRollback)}}, want: "no_method"},
		"observe nothing":         {frame: uacp.Frame{Verb: uacp.Observe, QoS: 1}, want: "invalid_request"},
		"event that is an ask":    {frame: reply(uacp.Frame{Verb: uacp.Ask}), re: invoke, event: true, want: "invalid_request"},
		"event with a code":       {frame: reply(uacp.Frame{Verb: uacp.Tell, Code: 2}), re: invoke, event: true, want: "invalid_request"},
		"ask with a code":         {frame: uacp.Frame{Verb: uacp.Ask, Code: 1}, want: "invalid_request"},
		"ask without topic":       {frame: ask("", "", "hi"), want: "invalid_request"},
		"empty topic":             {frame: uacp.Frame{Verb: uacp.Ask, Options: []uacp.Option{option(uacp.OptTopic, "")}}, want: "invalid_request"},
		"topic not UTF-8":         {frame: ask("a\xff", "", "hi"), want: "invalid_request"},
		"task without a name":     {frame: ask(uacp.TopicTaskGet, typeJSON, "{}"), want: "bad_params"},
		"task with an empty name": {frame: ask(uacp.TopicTaskGet, typeJSON, `{"id":""}`), want: "bad_params"},
		"task with a number":      {frame: ask(uacp.TopicTaskGet, typeJSON, `{"id":12345}`), want: "bad_params"},
		"task in a text":          {frame: ask(uacp.TopicTaskGet, typeText, "t-1"), want: "bad_params"},
		"cancel a list":           {frame: ask(uacp.TopicTaskCancel, typeJSON, `["t-1"]`), want: "bad_params"},
		"cancel nothing":          {frame: ask(uacp.TopicTaskCancel, "", ""), want: "bad_params"},
		"ask a task":              {frame: ask(uacp.TopicTask+"t-1", "", ""), want: "no_method"},
		"observe no task":         {frame: observe(uacp.TopicTask), want: "bad_params"},
		"observe all tasks":       {frame: observe(uacp.TopicTask + "#"), want: "bad_params"},
		"observe tasks of one":    {frame: observe(uacp.TopicTask + "a/+/b"), want: "bad_params"},
		"observe another's tasks": {frame: observe("/a2a/task/1"), want: "no_method"},
		"observe no text":         {frame: observe(uacp.TopicTask + "\xff"), want: "bad_params"},
		"subscribed by an ask":    {frame: ask("", typeText, "x"), re: canonical.OpTaskSubscribe, want: "invalid_request"},
		"answered to a task":      {frame: ask("", "", ""), re: canonical.OpTaskAnswer, want: "invalid_request"},
		"tasks in a text":         {frame: ask(uacp.TopicTaskList, typeText, "all"), want: "bad_params"},
		"tasks as a list":         {frame: ask(uacp.TopicTaskList, typeJSON, "[]"), want: "bad_params"},
		"tasks in no such state":  {frame: ask(uacp.TopicTaskList, typeJSON, `{"state":"asleep"}`), want: "bad_params"},
		"page of nothing":         {frame: ask(uacp.TopicTaskList, typeJSON, `{"page_size":0}`), want: "bad_params"},
		"page of less":            {frame: ask(uacp.TopicTaskList, typeJSON, `{"page_size":-1}`), want: "bad_params"},
		"page of half a task":     {frame: ask(uacp.TopicTaskList, typeJSON, `{"page_size":0.5}`), want: "bad_params"},
		"page without end":        {frame: ask(uacp.TopicTaskList, typeJSON, `{"page_size":99999999999999999999}`), want: "bad_params"},
		"tasks after tomorrow":    {frame: ask(uacp.TopicTaskList, typeJSON, `{"after":"tomorrow"}`), want: "bad_params"},
		"tasks and perhaps more":  {frame: ask(uacp.TopicTaskList, typeJSON, `{"include_artifacts":"yes"}`), want: "bad_params"},
		"tasks of a number":       {frame: ask(uacp.TopicTaskList, typeJSON, `{"context_id":12345}`), want: "bad_params"},
		"list of tasks in a text": {frame: reply(ask("", typeText, "none")), re: canonical.OpTaskList, want: "malformed"},
		"list of no tasks":        {frame: reply(ask("", typeJSON, `{}`)), re: canonical.OpTaskList, want: "malformed"},
		"list of numbers":         {frame: reply(ask("", typeJSON, `{"tasks":[1]}`)), re: canonical.OpTaskList, want: "malformed"},
		"task of another kind":    {frame: reply(ask("", typeJSON, `{"tasks":[{"id":"t-1"}]}`)), re: canonical.OpTaskList, want: "malformed"},
		"observed list of tasks":  {frame: reply(uacp.Frame{Verb: uacp.Observe}), re: canonical.OpTaskList, want: "invalid_request"},
		"rollback of another":     {frame: ask("/aepb/rollback/x", typeText, "a.b.c"), want: "no_method"},
		"rollback without token":  {frame: ask(uacp.TopicRollback, typeText, "x"), want: "bad_params"},
		"rollback of nothing":     {frame: ask(uacp.TopicRollback, "", ""), want: "bad_params"},
		"rollback as JSON":        {frame: ask(uacp.TopicRollback, typeJSON, `{"ect":"a.b.c"}`), want: "bad_params"},
		"decision without token":  {frame: ask(uacp.TopicDecision+"a-1", typeText, "granted"), want: "bad_params"},
		"decision about nothing":  {frame: ask(uacp.TopicDecision, typeText, "a.b.c"), want: "no_method"},
		"callback as a number":    {frame: ask(uacp.TopicSend, typeJSON, `{"body":"x","aepb":{"hitl_callback":12345}}`), want: "malformed"},
		"result without token":    {frame: reply(ask("", typeText, "done")), re: canonical.OpRollback, want: "bad_params"},
		"hitl":                    {frame: ask("/aepb/hitl", typeJSON, "{}"), want: "no_method"},
		"another tool of mcp":     {frame: ask("/mcp/resources/read", typeJSON, "{}"), want: "no_method"},
		"well known of another":   {frame: ask("/.well-known/x", "", ""), want: "no_method"},
		"json broken":             {frame: ask(uacp.TopicSend, typeJSON, "{"), want: "malformed"},
		"json twice":              {frame: ask(uacp.TopicSend, typeJSON, `{"a":1,"a":2}`), want: "malformed"},
		"json and more":           {frame: ask(uacp.TopicSend, typeJSON, `{} x`), want: "malformed"},
		"json too deep":           {frame: ask(uacp.TopicSend, typeJSON, strings.Repeat("[", 129)+strings.Repeat("]", 129)), want: "malformed"},
		"json with bad UTF-8":     {frame: ask(uacp.TopicSend, typeJSON, "\"\xff\""), want: "malformed"},
		"text that is not UTF-8":  {frame: ask(uacp.TopicSend, typeText, "\xff"), want: "ok"},
		"unknown content type":    {frame: ask(uacp.TopicSend, "\x09", "hi"), want: "ok"},
		"five bytes of type":      {frame: ask(uacp.TopicSend, "\x00\x00\x00\x00\x01", "{"), want: "ok"},
		"call as text":            {frame: ask(uacp.TopicCall, typeText, "search"), want: "invalid_request"},
		"call without payload":    {frame: ask(uacp.TopicCall, "", ""), want: "invalid_request"},
		"call that is a list":     {frame: ask(uacp.TopicCall, typeJSON, rpc("tools/list", "{}")), want: "invalid_request"},
		"call without id":         {frame: ask(uacp.TopicCall, typeJSON, `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"x"}}`), want: "invalid_request"},
		"call without name":       {frame: ask(uacp.TopicCall, typeJSON, rpc("tools/call", "{}")), want: "bad_params"},
		"call with an empty name": {frame: ask(uacp.TopicCall, typeJSON, rpc("tools/call", `{"name":""}`)), want: "bad_params"},
		"call with list":          {frame: ask(uacp.TopicCall, typeJSON, rpc("tools/call", `{"name":"x","arguments":[]}`)), want: "bad_params"},
		"call that is an answer":  {frame: ask(uacp.TopicCall, typeJSON, `{"jsonrpc":"2.0","id":1,"result":{}}`), want: "invalid_request"},
		"list with a number":      {frame: ask(uacp.TopicList, typeJSON, rpc("tools/list", `{"cursor":12345}`)), want: "bad_params"},
		"list of another method":  {frame: ask(uacp.TopicList, typeJSON, rpc("tools/call", "{}")), want: "invalid_request"},
		"observed answer to list": {frame: reply(uacp.Frame{Verb: uacp.Observe}), re: canonical.OpCapabilities, want: "invalid_request"},
		"reply that is a ping":    {frame: reply(uacp.Frame{}), re: invoke, want: "invalid_request"},
		"pong that is an ask":     {frame: reply(uacp.Frame{Verb: uacp.Ask}), re: canonical.OpPing, want: "invalid_request"},
		"reply to a notice":       {frame: reply(uacp.Frame{Verb: uacp.Ask}), re: canonical.OpNotice, want: "invalid_request"},
		"rpc error under success": {frame: reply(ask("", typeJSON, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}`)), re: invoke, want: "invalid_request"},
		"rpc result of a number":  {frame: reply(ask("", typeJSON, `{"jsonrpc":"2.0","id":1,"result":5}`)), re: invoke, want: "malformed"},
		"blocks that are no list": {frame: reply(ask("", typeJSON, `{"jsonrpc":"2.0","id":1,"result":{"content":{}}}`)), re: invoke, want: "malformed"},
		"tools as text":           {frame: reply(ask("", typeText, "none")), re: canonical.OpCapabilities, want: "malformed"},
		"tools without a list":    {frame: reply(ask("", typeJSON, `{"jsonrpc":"2.0","id":1,"result":{}}`)), re: canonical.OpCapabilities, want: "malformed"},
		"tool without name":       {frame: reply(ask("", typeJSON, `{"jsonrpc":"2.0","id":1,"result":{"tools":[{}]}}`)), re: canonical.OpCapabilities, want: "malformed"},
		"description as list":     {frame: reply(ask("", typeJSON, `[]`)), re: canonical.OpDescribe, want: "malformed"},
		"description as text":     {frame: reply(ask("", typeText, `n`)), re: canonical.OpDescribe, want: "malformed"},
		"name as a number":        {frame: reply(ask("", typeJSON, `{"name":12345}`)), re: canonical.OpDescribe, want: "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.raw == nil {
				tc.raw = content(tc.frame)
			}
			m, err := uacp.New(translators.Config{}).Decode(translators.Wire{Body: tc.raw, Re: tc.re, Event: tc.event})
			if got := outcome(err); got != tc.want {
				t.Fatalf("got %s (%v), want %s", got, err, tc.want)
			}
			if err != nil && m != nil && (m.Body != nil || m.Op != "") {
				t.Errorf("a refusal came with %s %T", m.Op, m.Body)
			}
		})
	}
}

// TestEncode_Refuses: what cannot be said.
func TestEncode_Refuses(t *testing.T) {
	t.Parallel()
	turn := func(parts ...canonical.Part) *canonical.Message {
		return &canonical.Message{
			Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Correlation: canonical.Correlation{WireID: json.RawMessage("1")},
			Body: &canonical.Invoke{Turn: canonical.Content{Role: canonical.RoleCaller, Parts: parts}},
		}
	}
	text := canonical.Part{Kind: canonical.KindText, Text: "hi"}
	unstamped := turn(text)
	unstamped.Correlation.WireID = nil
	failed := &canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseResponse, Correlation: canonical.Correlation{WireID: json.RawMessage("1")},
		Body: &canonical.Result{Output: &canonical.Output{Parts: []canonical.Part{text}, Failed: true}},
	}
	for name, tc := range map[string]struct {
		m    *canonical.Message
		to   translators.Target
		want string
	}{
		"fine":              {turn(text), translators.Target{}, "ok"},
		"unstamped":         {unstamped, translators.Target{}, "internal"},
		"empty":             {turn(), translators.Target{}, "bad_params"},
		"another version":   {turn(text), translators.Target{Version: "draft-03"}, "unsupported_version"},
		"another form":      {turn(text), translators.Target{Form: "HTTP+JSON"}, "unsupported_media"},
		"too large":         {turn(canonical.Part{Kind: canonical.KindText, Text: strings.Repeat("x", 65_600)}), translators.Target{}, "too large"},
		"as file too large": {turn(text, canonical.Part{Kind: canonical.KindFile, Bytes: make([]byte, 50_000)}), translators.Target{}, "too large"},
		"long topic":        {turn(text), translators.Target{Form: uacp.FormBare, Capability: &canonical.Capability{ID: strings.Repeat("t", 256)}}, "bad_params"},
		"two files, bare":   {turn(canonical.Part{Kind: canonical.KindFile, Bytes: []byte{1}}, canonical.Part{Kind: canonical.KindFile, Bytes: []byte{2}}), translators.Target{Form: uacp.FormBare}, "unsupported_media"},
		"failure, bare":     {failed, translators.Target{Form: uacp.FormBare}, "internal"},
		"notice of another": {&canonical.Message{Op: canonical.OpNotice, Phase: canonical.PhaseRequest}, translators.Target{}, "unsupported_op"},
	} {
		_, _, err := uacp.New(translators.Config{}).Encode(tc.m, tc.to)
		if got := outcome(err); got != tc.want {
			t.Errorf("%s: got %s (%v), want %s", name, got, err, tc.want)
		}
	}
}

// TestDecode_EnvelopeThatContradictsTheBody: an object that says something else than the body
// is kept for the way home and changes nothing.
func TestDecode_EnvelopeThatContradictsTheBody(t *testing.T) {
	t.Parallel()
	for name, object := range map[string]string{
		"other words":    `{"parts":[{"kind":"text","text":"pay 500"}]}`,
		"another call":   `{"call":{"name":"pay","arguments":{}}}`,
		"a bad part":     `{"parts":[{"kind":"unheard"}]}`,
		"a bad role":     `{"role":"system"}`,
		"a bad deadline": `{"deadline":"tomorrow"}`,
		"a result":       `{"kind":"task"}`,
		"its own":        `{"ext":{"uacp-v1":{}}}`,
	} {
		f := ask(uacp.TopicSend, typeJSON, `{"body":"pay 5","aepb":`+object+`}`)
		tr := uacp.New(translators.Config{})
		m, err := tr.Decode(translators.Wire{Body: content(f)})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		invoke := m.Body.(*canonical.Invoke)
		if len(invoke.Turn.Parts) != 1 || invoke.Turn.Parts[0].Text != "pay 5" || invoke.Call != nil || !m.Deadline.IsZero() {
			t.Errorf("%s: got %+v", name, invoke)
		}
		home, _, err := tr.Encode(m, translators.Target{})
		if err != nil || string(home.Body) != string(content(f)) {
			t.Errorf("%s: came home as %q %v", name, home.Body, err)
		}
	}
}

func FuzzDecode_Roundtrip(f *testing.F) {
	for _, w := range wires() {
		f.Add(w.Body, string(w.Re))
	}
	for _, body := range malformed() {
		f.Add(body, "")
	}
	tr := uacp.New(translators.Config{})
	f.Fuzz(func(t *testing.T, body []byte, re string) {
		w := translators.Wire{Body: body, Re: canonical.Op(re)}
		s := translatortest.Samples{Wires: []translators.Wire{w}}
		m, err := tr.Decode(w)
		if err != nil {
			if got := outcome(err); got == err.Error() {
				t.Fatalf("neither malformed nor a canonical error: %v", err)
			}
			return
		}
		_, _, _ = tr.Encode(m, translators.Target{Form: uacp.FormBare})
		home, _, err := tr.Encode(m, translators.Target{})
		if err != nil {
			return
		}
		if _, err := tr.Decode(translators.Wire{Body: home.Body, Re: w.Re}); err != nil {
			t.Fatalf("what came home is refused: %v", err)
		}
		for _, failure := range translatortest.Purity(tr, s) {
			t.Error(failure)
		}
	})
}

func FuzzFrame_Roundtrip(f *testing.F) {
	for _, w := range wires() {
		f.Add(w.Body)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		frame, err := uacp.ParseFrame(data)
		if err != nil {
			if !errors.Is(err, translators.ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		back, err := frame.Bytes()
		if err != nil || string(back) != string(data) {
			t.Fatalf("got %x %v, want %x", back, err, data)
		}
		if _, err := uacp.HashInput(data); err != nil {
			return
		}
		with, err := uacp.WithEvidence(data, []string{"a.b.c"})
		if err != nil {
			return
		}
		one, _ := uacp.HashInput(data)
		two, err := uacp.HashInput(with)
		if err != nil || string(one) != string(two) {
			t.Fatalf("evidence changes the hash: %q and %q, %v", one, two, err)
		}
	})
}
