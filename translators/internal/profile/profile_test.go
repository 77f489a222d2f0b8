package profile_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// same compares canonical values: JSON by value, empty as nil.
func same() cmp.Options {
	isRaw := func(p cmp.Path) bool { return p.Last().Type() == reflect.TypeFor[json.RawMessage]() }
	return cmp.Options{
		cmp.FilterPath(func(p cmp.Path) bool { return !isRaw(p) }, cmpopts.EquateEmpty()),
		cmp.FilterPath(isRaw, cmp.Comparer(func(a, b json.RawMessage) bool { return rawjson.Equal(a, b) })),
	}
}

// source makes canonical values that nobody would think of.
type source struct{ *rand.Rand }

func (s source) maybe() bool { return s.IntN(2) == 0 }

func (s source) text() string {
	all := []string{"", "a", "b c", "\n\n", "x\n\ny", "ü\U0001F600", "\x00\"\\"}
	return all[s.IntN(len(all))]
}

func (s source) value() json.RawMessage {
	all := []string{"null", "9007199254740993", `""`, `{}`, `{"a":1.50}`, `[[]]`, `{"skill":"x","input":{}}`}
	return json.RawMessage(all[s.IntN(len(all))])
}

func (s source) ext() canonical.Extensions {
	if s.maybe() {
		return nil
	}
	return canonical.Extensions{"a2a-v1": json.RawMessage(`{"metadata":{"k":[1.0]}}`)}
}

func (s source) part() canonical.Part {
	p := canonical.Part{Extensions: s.ext()}
	for _, to := range []*string{&p.Media, &p.Name, &p.Title, &p.Description} {
		if s.IntN(4) == 0 {
			*to = s.text()
		}
	}
	switch s.IntN(4) {
	case 0:
		p.Kind, p.Text = canonical.KindText, s.text()
	case 1:
		p.Kind, p.Data = canonical.KindData, s.value()
	case 2:
		p.Kind, p.Bytes = canonical.KindFile, []byte(s.text())
	default:
		p.Kind, p.URI = canonical.KindRef, "https://x.example/"+s.text()
	}
	return p
}

func (s source) parts() []canonical.Part {
	parts := make([]canonical.Part, 1+s.IntN(4))
	for i := range parts {
		parts[i] = s.part()
	}
	return parts
}

func (s source) content(role canonical.Role) canonical.Content {
	c := canonical.Content{ID: "m", Role: role, Parts: s.parts(), Extensions: s.ext()}
	if s.maybe() {
		c.ExtensionURIs = []string{"urn:x"}
	}
	return c
}

const rounds = 1000

// TestTurn_RoundtripAsArguments: a turn said as arguments and outline is the turn again.
func TestTurn_RoundtripAsArguments(t *testing.T) {
	t.Parallel()
	s := source{rand.New(rand.NewPCG(1, 2))}
	for range rounds {
		turn := s.content(canonical.RoleCaller)
		conv := canonical.Conversation{ContextID: strings.TrimSpace(s.text())}
		always := s.maybe()
		name := profile.MessageTool
		if always {
			name = "any"
		}
		args, outline, _ := profile.ArgsFromTurn(turn, conv, always)
		invoke := &canonical.Invoke{Turn: canonical.Content{ID: "m"}, Call: &canonical.Call{Name: name, Args: args}, Extensions: carried(profile.OutlineTurn, outline)}
		back, err := profile.TurnOf(invoke, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(turn, back.Content, same()); diff != "" || back.Conversation.ContextID != conv.ContextID {
			t.Fatalf("-went +came:\n%s\nargs %s\noutline %s", diff, args, outline)
		}
		if back.Extensions != nil {
			t.Errorf("the outline is still there: %v", back.Extensions)
		}
	}
}

func carried(name string, outline json.RawMessage) canonical.Extensions {
	if outline == nil {
		return nil
	}
	return canonical.Extensions{profile.CanonKey: rawjson.NewBuilder().Raw(name, outline).Bytes()}
}

// TestResult_RoundtripAsOutput: a task or turn said as a tool's output is itself again.
func TestResult_RoundtripAsOutput(t *testing.T) {
	t.Parallel()
	s := source{rand.New(rand.NewPCG(3, 4))}
	states := []canonical.State{
		canonical.StateCompleted, canonical.StateFailed, canonical.StateRejected, canonical.StateCanceled,
		canonical.StateInputRequired, canonical.StateAuthRequired, canonical.StateSubmitted, canonical.StateWorking, canonical.StateUnknown,
	}
	for range rounds {
		want, conv := &canonical.Result{}, canonical.Conversation{}
		if s.IntN(3) == 0 {
			turn := s.content(canonical.RoleAgent)
			want.Turn, conv.ContextID, conv.TaskID = &turn, "c", "t"
		} else {
			want.Task = s.task(states[s.IntN(len(states))])
		}
		message := s.maybe()
		f := profile.Flatten(want, conv, message)
		output := &canonical.Output{Parts: f.Parts, Failed: f.Failed, Structured: f.Structure}
		if !message && !f.Failed {
			output.Structured = profile.SoleData(f.Parts)
		}
		got, gotConv, ok := profile.ResultOf(&canonical.Result{Output: output, Extensions: carried(f.Name, f.Outline)})
		if diff := cmp.Diff(want, got, same()); diff != "" || !ok || gotConv.ContextID != conv.ContextID {
			t.Fatalf("ok %v (-went +came):\n%s\noutline %s", ok, diff, f.Outline)
		}
		if f.Failed && words(f.Parts) == "" {
			t.Errorf("a failure without a word: %+v", f.Parts)
		}
	}
}

func words(parts []canonical.Part) string {
	var text strings.Builder
	for _, p := range parts {
		text.WriteString(p.Text)
	}
	return text.String()
}

func (s source) task(state canonical.State) *canonical.Task {
	task := &canonical.Task{ID: "t", ContextID: "c", Status: canonical.Status{State: state}, Extensions: s.ext()}
	if s.maybe() {
		task.Status.At = time.Date(2026, 7, 28, 1, 2, 3, 450, time.UTC)
	}
	if s.maybe() {
		m := s.content(canonical.RoleAgent)
		task.Status.Message = &m
	}
	for range s.IntN(3) {
		task.Artifacts = append(task.Artifacts, canonical.Artifact{ID: "a", Name: s.text(), Description: s.text(), Parts: s.parts(), Extensions: s.ext()})
	}
	for range s.IntN(3) {
		task.History = append(task.History, s.content(canonical.RoleCaller))
	}
	return task
}

// TestOutline_MismatchIsIgnored: an outline that does not fit what arrived changes
// nothing, whoever wrote it.
func TestOutline_MismatchIsIgnored(t *testing.T) {
	t.Parallel()
	args := json.RawMessage(`{"message":"pay 5"}`)
	for name, outline := range map[string]string{
		"other words":       `{"parts":[{"kind":"text","text":"pay 500"}]}`,
		"too few":           `{"parts":[{"length":3,"kind":"text"}]}`,
		"too many":          `{"parts":[{"length":6,"kind":"text"}]}`,
		"twice":             `{"parts":[{"length":5,"kind":"text"},{"length":5,"kind":"text"}]}`,
		"a file":            `{"parts":[{"file":0,"kind":"file"}]}`,
		"data":              `{"parts":[{"arg":"data","kind":"data"}]}`,
		"unknown members":   `{"parts":[{"length":5,"kind":"text","x":1}]}`,
		"unknown role":      `{"role":"boss","parts":[{"length":5,"kind":"text"}]}`,
		"no parts":          `{}`,
		"another call":      `{"parts":[{"arg":"call","kind":"data"},{"arg":"call","kind":"data"}]}`,
		"parts are a word":  `{"parts":"all"}`,
		"bound to nothing":  `{"bind":"other","parts":[{"length":5,"kind":"text"}]}`,
		"negative":          `{"parts":[{"length":-1,"kind":"text"}]}`,
		"split in a letter": `{"parts":[{"length":1e0,"kind":"text"}]}`,
	} {
		invoke := &canonical.Invoke{Call: &canonical.Call{Name: "message", Args: args}, Extensions: carried(profile.OutlineTurn, json.RawMessage(outline))}
		turn, err := profile.TurnOf(invoke, nil)
		if err != nil || len(turn.Content.Parts) != 1 || turn.Content.Parts[0].Text != "pay 5" {
			t.Errorf("%s: got %+v %v", name, turn.Content, err)
		}
		if turn.Extensions == nil {
			t.Errorf("%s: what was not believed must be kept", name)
		}
	}
	output := &canonical.Output{Parts: []canonical.Part{{Kind: canonical.KindText, Text: "no"}}, Failed: true}
	for name, outline := range map[string]string{
		"success":  `{"id":"t","contextId":"c","state":"completed","artifacts":[{"id":"a","parts":1}]}`,
		"too many": `{"id":"t","contextId":"c","state":"failed","message":{"parts":2}}`,
		"too few":  `{"id":"t","contextId":"c","state":"failed"}`,
		"extra":    `{"id":"t","contextId":"c","state":"failed","message":{"parts":1},"x":1}`,
		"time":     `{"id":"t","contextId":"c","state":"failed","at":"now","message":{"parts":1}}`,
	} {
		got, _, ok := profile.ResultOf(&canonical.Result{Output: output, Extensions: carried(profile.OutlineTask, json.RawMessage(outline))})
		if ok || got.Output == nil || got.Extensions == nil {
			t.Errorf("%s: believed: %+v", name, got)
		}
	}
	hidden := &canonical.Output{Parts: []canonical.Part{{Kind: canonical.KindText, Text: "ok"}}, Structured: json.RawMessage(`{"price":5}`)}
	fitting := `{"id":"t","contextId":"c","state":"completed","artifacts":[{"id":"a","parts":1}]}`
	if _, _, ok := profile.ResultOf(&canonical.Result{Output: hidden, Extensions: carried(profile.OutlineTask, json.RawMessage(fitting))}); ok {
		t.Error("structured content that no task would have made was lost to an outline")
	}
}

func TestArgs_OfTheMessageTool(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args string
		want []canonical.Part // nil: refused
	}{
		"text":       {`{"message":"hi"}`, []canonical.Part{{Kind: canonical.KindText, Text: "hi"}}},
		"empty":      {`{"message":""}`, []canonical.Part{{Kind: canonical.KindText}}},
		"data alone": {`{"message":"","data":{"a":1}}`, []canonical.Part{{Kind: canonical.KindData, Data: json.RawMessage(`{"a":1}`)}}},
		"all": {
			`{"message":"m","data":{},"files":[{"name":"n","mediaType":"a/b","bytes":"AA=="},{"uri":"u:x"}],"context_id":"c","task_id":"t"}`,
			[]canonical.Part{{Kind: canonical.KindText, Text: "m"}, {Kind: canonical.KindData, Data: json.RawMessage(`{}`)}, {Kind: canonical.KindFile, Bytes: []byte{0}, Name: "n", Media: "a/b"}, {Kind: canonical.KindRef, URI: "u:x"}},
		},
		"no message":     {`{}`, nil},
		"unknown":        {`{"message":"m","more":1}`, nil},
		"wrong type":     {`{"message":5}`, nil},
		"data is a list": {`{"message":"m","data":[]}`, nil},
		"file of both":   {`{"message":"m","files":[{"bytes":"AA==","uri":"u"}]}`, nil},
		"file of none":   {`{"message":"m","files":[{"name":"x"}]}`, nil},
		"file is text":   {`{"message":"m","files":["x"]}`, nil},
		"no base64":      {`{"message":"m","files":[{"bytes":"?"}]}`, nil},
	} {
		content, _, err := profile.TurnFromArgs(json.RawMessage(tc.args))
		var answer *canonical.Error
		if tc.want == nil {
			if !errors.As(err, &answer) || answer.Code != canonical.CodeBadParams || answer.Schema == nil {
				t.Errorf("%s: got %v, want bad params with the schema", name, err)
			}
			continue
		}
		if diff := cmp.Diff(tc.want, content.Parts, same()); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
	if _, _, err := profile.TurnFromArgs(nil); err == nil {
		t.Error("absent arguments are no message")
	}
}

// TestArgs_FaultsAreNamed: a caller reads which arguments are wrong, and no value and nothing that is not a
// name is repeated.
func TestArgs_FaultsAreNamed(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		`{"text":"hidden"}`:           `arguments of chat: missing "message"; unknown "text"`,
		`{"message":"m","more":1}`:    `arguments of chat: unknown "more"`,
		`{}`:                          `arguments of chat: missing "message"`,
		`{"message":5}`:               `arguments of chat: at /message: `,
		`{"message":"m","a\u001b":1}`: `arguments of chat: unknown "…"`,
		`{"message":"m","a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1}`: `unknown "a", "b", "c", "d", "e", …`,
		`{"message":"m","` + strings.Repeat("x", 100) + `":1}`:      `unknown "…"`,
	} {
		_, _, err := profile.TurnFromArgs(json.RawMessage(args))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") || len(err.Error()) > 400 {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

func TestArgs_FromTypedTurnAndBoundText(t *testing.T) {
	t.Parallel()
	data := func(raw string) canonical.Part {
		return canonical.Part{Kind: canonical.KindData, Data: json.RawMessage(raw)}
	}
	text := canonical.Part{Kind: canonical.KindText, Text: "x"}
	for name, tc := range map[string]struct {
		parts []canonical.Part
		want  string
	}{
		"typed":         {[]canonical.Part{data(`{"skill":"s","input":{"a":1}}`)}, `s {"a":1}`},
		"with advice":   {[]canonical.Part{text, data(`{"input":{},"skill":"s"}`), text}, `s {}`},
		"two of them":   {[]canonical.Part{data(`{"skill":"s","input":{}}`), data(`{"skill":"s","input":{}}`)}, ""},
		"with a file":   {[]canonical.Part{data(`{"skill":"s","input":{}}`), {Kind: canonical.KindFile}}, ""},
		"more members":  {[]canonical.Part{data(`{"skill":"s","input":{},"x":1}`)}, ""},
		"input a list":  {[]canonical.Part{data(`{"skill":"s","input":[]}`)}, ""},
		"no input":      {[]canonical.Part{data(`{"skill":"s"}`)}, `s {}`},
		"input null":    {[]canonical.Part{data(`{"skill":"s","input":null}`)}, ""},
		"nameless":      {[]canonical.Part{data(`{"skill":"","input":{}}`)}, ""},
		"not an object": {[]canonical.Part{data(`"skill"`)}, ""},
		"only text":     {[]canonical.Part{text}, ""},
	} {
		call, ok := profile.TypedTurn(tc.parts)
		got := ""
		if ok {
			got = call.Name + " " + string(call.Args)
		}
		if got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
	for schema, want := range map[string]string{
		`{"required":["q"],"properties":{"q":{"type":"string"},"n":{"type":"integer"}}}`: `{"q":"x"}`,
		`{"required":["message"],"properties":{"message":{"type":"string"}}}`:            `{"message":"x"}`,
		`{"required":["q","r"],"properties":{"q":{"type":"string"}}}`:                    "",
		`{"required":["q"],"properties":{"q":{"type":"integer"}}}`:                       "",
		`{"required":["q"],"properties":{}}`:                                             "",
		`{"required":["q"]}`:                                                             "",
		`{"properties":{"q":{"type":"string"}}}`:                                         "",
		`true`:                                                                           "",
		``:                                                                               "",
	} {
		args, _, _ := profile.Bind(json.RawMessage(schema), "x")
		if string(args) != want {
			t.Errorf("%s: got %s, want %s", schema, args, want)
		}
	}
}

// TestWrap_Roundtrip: what a level carries comes apart again, and nothing else is taken.
func TestWrap_Roundtrip(t *testing.T) {
	t.Parallel()
	ext := canonical.Extensions{
		profile.A2A: json.RawMessage(`{"metadata":{}}`), profile.MCP: json.RawMessage(`{"own":1}`),
		profile.CanonKey: json.RawMessage(`{"old":1,"new":0}`),
	}
	raw := profile.Wrap(json.RawMessage(`{"new":2}`), ext, profile.MCP)
	if want := `{"canon":{"new":2,"old":1},"a2a-v1":{"metadata":{}}}`; string(raw) != want {
		t.Errorf("got %s, want %s", raw, want)
	}
	c, err := profile.Unwrap(raw, "/x", profile.MCP)
	if err != nil {
		t.Fatal(err)
	}
	c.Canon.Take("new")
	got := c.Extensions(profile.MCP, json.RawMessage(`{"own":1}`))
	want := canonical.Extensions{profile.A2A: ext[profile.A2A], profile.MCP: ext[profile.MCP], profile.CanonKey: json.RawMessage(`{"old":1}`)}
	if diff := cmp.Diff(want, got, same()); diff != "" {
		t.Error(diff)
	}
	if profile.Wrap(nil, canonical.Extensions{profile.MCP: json.RawMessage(`{}`)}, profile.MCP) != nil {
		t.Error("nothing was carried, and something written")
	}
	for _, bad := range []string{`[]`, `{}`, `{"canon":[]}`, `{"canon":{}}`, `{"mcp-v1":{}}`, `{"a2a-v1":1}`} {
		if _, err := profile.Unwrap(json.RawMessage(bad), "/x", profile.MCP); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

// TestCarryMessage_Roundtrip: every field comes back; a value that would not be written
// stays where it is.
func TestCarryMessage_Roundtrip(t *testing.T) {
	t.Parallel()
	n := 0
	m := &canonical.Message{
		Correlation:  canonical.Correlation{MessageID: "m", Progress: json.RawMessage("1")},
		Conversation: canonical.Conversation{ContextID: "c", TaskID: "t", ReferenceTasks: []string{"", "r"}, Tenant: "x"},
		Preferences:  canonical.Preferences{Stream: true, NoWait: true, AcceptMedia: []string{"a/b"}, HistoryLength: &n, LogLevel: "l"},
		Deadline:     time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), From: canonical.Party{Name: "n", Version: "v"}, To: canonical.Party{Skill: "s"},
		Extensions: canonical.Extensions{"x": json.RawMessage(`{"y":1}`)},
		Body:       &canonical.Invoke{Call: &canonical.Call{Name: "t"}},
	}
	all := []profile.Field{
		profile.FieldMessageID, profile.FieldContextID, profile.FieldTaskID, profile.FieldReferences, profile.FieldTenant, profile.FieldSkill,
		profile.FieldAccept, profile.FieldHistory, profile.FieldNoWait, profile.FieldStream, profile.FieldDeadline, profile.FieldProgress,
		profile.FieldLogLevel, profile.FieldFromName, profile.FieldFromVersion, profile.FieldArgsAbsent, profile.FieldMessageExt,
	}
	b := rawjson.NewBuilder()
	losses := profile.CarryMessage(b, m, all...)
	if len(losses) != len(all) {
		t.Errorf("%d losses for %d fields", len(losses), len(all))
	}
	got := &canonical.Message{Body: &canonical.Invoke{Call: &canonical.Call{Name: "t", Args: json.RawMessage("{}")}}}
	canon := rawjson.Parse(b.Bytes(), "")
	profile.RestoreMessage(canon, got, all...)
	if diff := cmp.Diff(m, got, same()); diff != "" || canon.Rest() != nil {
		t.Errorf("%s\nleft: %s", diff, canon.Rest())
	}
	odd := `{"messageId":"","contextId":1,"referenceTaskIds":[],"historyLength":1.0,"returnImmediately":false,"deadline":"tomorrow","argumentsAbsent":false,"message":{},"stream":null}`
	canon = rawjson.Parse([]byte(odd), "")
	got = &canonical.Message{}
	profile.RestoreMessage(canon, got, all...)
	if diff := cmp.Diff(&canonical.Message{}, got, same()); diff != "" || !rawjson.Equal(canon.Rest(), json.RawMessage(odd)) {
		t.Errorf("believed: %s\nleft: %s", diff, canon.Rest())
	}
}
