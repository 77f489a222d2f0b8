package a2a

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/translatortest"
)

func raw(text string) json.RawMessage { return json.RawMessage(text) }

// from is a message of another protocol, stamped as the gateway does it.
func from(body canonical.Body, change func(*canonical.Message)) *canonical.Message {
	m := &canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseResponse, Body: body,
		Correlation: canonical.Correlation{WireID: raw(`"w"`)},
		Origin:      canonical.Origin{Binding: "mcp-v1", Version: "2026-07-28"},
	}
	switch body.(type) {
	case *canonical.Invoke:
		m.Phase, m.Correlation.MessageID = canonical.PhaseRequest, "m-1"
	case *canonical.Result:
		m.Conversation = canonical.Conversation{TaskID: "task-1", ContextID: "context-1"}
	case *canonical.Error:
		m.Phase = canonical.PhaseError
	}
	if change != nil {
		change(m)
	}
	return m
}

func call(name, args string) *canonical.Invoke {
	c := &canonical.Call{Name: name}
	if args != "" {
		c.Args = raw(args)
	}
	return &canonical.Invoke{Call: c}
}

func output(failed bool, structured string, parts ...canonical.Part) *canonical.Result {
	o := &canonical.Output{Failed: failed, Parts: parts}
	if structured != "" {
		o.Structured = raw(structured)
	}
	return &canonical.Result{Output: o}
}

func text(s string) canonical.Part { return canonical.Part{Kind: canonical.KindText, Text: s} }

// foreigners are one of everything that other protocols say.
func foreigners() []*canonical.Message {
	blocks := []canonical.Part{
		{Kind: canonical.KindText, Text: "t", Annotations: raw(`{"audience":["user"]}`), Extensions: canonical.Extensions{"mcp-v1": raw(`{"_meta":{"a":1}}`)}},
		{Kind: canonical.KindFile, Bytes: []byte{0, 1}, Media: "image/png", Form: canonical.FormImage},
		{Kind: canonical.KindFile, Bytes: []byte("x"), Media: "text/csv", URI: "file:///x", Form: canonical.FormEmbedded},
		{Kind: canonical.KindText, Text: "inside", URI: "file:///y", Form: canonical.FormEmbedded},
		{Kind: canonical.KindRef, URI: "https://e.x/y", Name: "y", Title: "Y", Description: "d", Size: raw("12345678901234567890"), Media: "text/plain"},
	}
	withExtensions := func(m *canonical.Message) {
		m.Extensions = canonical.Extensions{"mcp-v1": raw(`{"k":{"z":1}}`), "slim-v1": raw(`{"hop":3}`)}
		m.From = canonical.Party{Name: "client", Version: "2"}
	}
	result := output(false, `{"a":9007199254740993}`, blocks...)
	result.Extensions = canonical.Extensions{"mcp-v1": raw(`{"_meta":{"x":[1]},"later":true}`), "a2a-v1": raw(`{"later":{"y":1}}`)}
	return []*canonical.Message{
		from(call("add", `{"a":1,"b":12345678901234567890}`), nil),
		from(call("add", ""), nil),
		from(call("add", "{}"), withExtensions),
		from(call("ask", `{"message":"hi","data":{"n":1.10},"files":[{"name":"f","mediaType":"image/png","bytes":"AAE="},{"uri":"https://x/y"}],"context_id":"c","task_id":"t"}`), nil),
		from(call("odd", `{"a":"b"}`), func(m *canonical.Message) {
			withExtensions(m)
			m.Correlation.Progress, m.Preferences.LogLevel, m.Preferences.Stream = raw(`"p"`), "debug", true
			m.Deadline = time.Date(2026, 5, 1, 0, 0, 0, 1, time.UTC)
			m.Trace = canonical.Trace{Parent: "00-aa-bb-01", State: "bad\x01state"}
			m.Body.(*canonical.Invoke).Extensions = canonical.Extensions{"mcp-v1": raw(`{"_meta":{"m":1}}`)}
			m.To.Skill = "odd"
			n := 3
			m.Preferences.HistoryLength, m.Preferences.NoWait, m.Preferences.AcceptMedia = &n, true, []string{"text/plain"}
		}),
		from(&canonical.Invoke{
			Turn: canonical.Content{Role: canonical.RoleCaller, Parts: blocks, ExtensionURIs: []string{"urn:x"}, Extensions: canonical.Extensions{"slim-v1": raw(`{"q":1}`)}},
			Call: &canonical.Call{Name: "unsaid", Args: raw(`{"u":1}`)},
		}, nil),
		from(result, withExtensions),
		from(output(false, ""), nil),
		from(output(true, ""), nil),
		from(output(false, "null", text("null")), nil),
		from(output(false, `{"b":[1.0]}`, text(`{ "b" : [1.0] }`), text("and")), nil),
		from(output(true, `{"code":1}`, text("no")), nil),
		from(&canonical.Result{Turn: &canonical.Content{Parts: blocks}}, withExtensions),
		from(&canonical.Result{
			Task: &canonical.Task{
				Status:     canonical.Status{State: canonical.StateWorking, Message: &canonical.Content{Parts: blocks[:1], Role: canonical.RoleAgent}, At: time.Unix(1700000000, 5).UTC()},
				Artifacts:  []canonical.Artifact{{Parts: blocks, Name: "n", Extensions: canonical.Extensions{"slim-v1": raw(`{"w":1}`)}}},
				History:    []canonical.Content{{Parts: blocks[:1], Role: canonical.RoleCaller}},
				Extensions: canonical.Extensions{"mcp-v1": raw(`{"ttl":1}`)},
			},
			Extensions: canonical.Extensions{"mcp-v1": raw(`{"r":1}`)},
		}, withExtensions),
		from(&canonical.Error{
			Code: canonical.CodeResourceNotFound, Message: "gone", RetryAfter: 1500 * time.Millisecond, Schema: raw(`{"type":"object"}`),
			Details: []json.RawMessage{raw(`{"@type":"x","n":1}`)}, Native: &canonical.NativeError{Binding: "mcp-v1", Code: -32002, Data: raw(`{"uri":"u"}`)},
			Extensions: canonical.Extensions{"mcp-v1": raw(`{"e":1}`)},
		}, withExtensions),
		from(tools(), func(m *canonical.Message) { m.Op = canonical.OpDescribe }),
		from(nil, func(m *canonical.Message) { m.Op, m.Phase = canonical.OpPing, canonical.PhaseRequest }),
		from(&canonical.Page{}, func(m *canonical.Message) { m.Op, m.Phase = canonical.OpCapabilities, canonical.PhaseRequest }),
	}
}

// tasksOfOthers are tasks, events, questions and settings of other protocols.
func tasksOfOthers() []*canonical.Message {
	about := func(op canonical.Op, phase canonical.Phase) func(*canonical.Message) {
		return func(m *canonical.Message) { m.Op, m.Phase = op, phase }
	}
	event := func(e canonical.Event) *canonical.Message {
		return from(&e, func(m *canonical.Message) {
			m.Phase, m.Conversation = canonical.PhaseEvent, canonical.Conversation{TaskID: "task-1", ContextID: "context-1"}
		})
	}
	ttl, yes := 90*time.Second, true
	form := canonical.Input{Key: "k", Mode: canonical.ModeForm, Prompt: []canonical.Part{text("Which?")}, Schema: raw(`{"type":"object","properties":{"a":{"type":"string"}}}`)}
	asks := canonical.Status{State: canonical.StateInputRequired}
	saying := func(words ...string) canonical.Status {
		answer := &canonical.Content{ID: "s", Role: canonical.RoleAgent}
		for _, w := range words {
			answer.Parts = append(answer.Parts, text(w))
		}
		return canonical.Status{State: canonical.StateInputRequired, Message: answer}
	}
	return []*canonical.Message{
		from(&canonical.TaskQuery{ID: "t-1"}, about(canonical.OpTaskGet, canonical.PhaseRequest)),
		from(&canonical.TaskQuery{ID: "t-1", Extensions: canonical.Extensions{"mcp-v1": raw(`{"_meta":{"a":1}}`)}}, about(canonical.OpTaskCancel, canonical.PhaseRequest)),
		from(&canonical.TaskQuery{ID: "t-1", Extensions: canonical.Extensions{"mcp-v1": raw(`{"x":1}`)}}, func(m *canonical.Message) {
			m.Op, m.Phase, m.From.Name, m.Deadline = canonical.OpTaskSubscribe, canonical.PhaseRequest, "client", time.Unix(1800000000, 0).UTC()
		}),
		from(&canonical.TaskFilter{ContextID: "c", State: canonical.StateFailed, After: time.Unix(1700000000, 0).UTC(), Cursor: "p", Size: 3, IncludeArtifacts: &yes}, about(canonical.OpTaskList, canonical.PhaseRequest)),
		from(&canonical.TaskList{Tasks: []canonical.Task{{ID: "t", Status: canonical.Status{State: canonical.StateCompleted}}}, Next: "n", Size: 1, Total: 2}, about(canonical.OpTaskList, canonical.PhaseResponse)),
		from(&canonical.TaskList{Tasks: []canonical.Task{}}, about(canonical.OpTaskList, canonical.PhaseResponse)),
		from(&canonical.Result{Task: &canonical.Task{
			ID: "task-1", ContextID: "context-1", Status: canonical.Status{State: canonical.StateCompleted}, TTL: &ttl, Poll: 1500 * time.Millisecond,
			Created: time.Unix(1700000000, 7).UTC(), Output: &canonical.Output{Parts: []canonical.Part{text("out")}, Structured: raw(`{"n":1.0}`)},
		}}, about(canonical.OpTaskGet, canonical.PhaseResponse)),
		from(&canonical.Result{Task: &canonical.Task{
			ID: "task-1", ContextID: "context-1", Status: canonical.Status{State: canonical.StateCompleted}, Output: &canonical.Output{Failed: true, Parts: []canonical.Part{text("no")}},
		}}, about(canonical.OpTaskGet, canonical.PhaseResponse)),
		from(&canonical.Result{Task: &canonical.Task{
			ID: "task-1", ContextID: "context-1", Status: canonical.Status{State: canonical.StateFailed}, Failure: &canonical.Error{
				Code: canonical.CodeInternal, Message: "broke", Native: &canonical.NativeError{Binding: "mcp-v1", Code: -32603, Data: raw(`{"d":1}`)},
				Extensions: canonical.Extensions{"mcp-v1": raw(`{"e":1}`)},
			},
		}}, about(canonical.OpTaskGet, canonical.PhaseResponse)),
		from(&canonical.Result{Task: &canonical.Task{ID: "task-1", ContextID: "context-1", Status: asks, Inputs: []canonical.Input{form}}}, about(canonical.OpTaskGet, canonical.PhaseResponse)),
		from(&canonical.Result{Task: &canonical.Task{ID: "task-1", ContextID: "context-1", Status: asks, Inputs: []canonical.Input{
			form, {Key: "u", Mode: canonical.ModeURL, URL: "https://a.example/login", Prompt: []canonical.Part{text("Log in.")}}, {Key: "n", Mode: canonical.ModeNative, Native: &canonical.Native{Method: "sampling/createMessage"}},
		}}}, about(canonical.OpTaskGet, canonical.PhaseResponse)),
		from(&canonical.Result{Task: &canonical.Task{ID: "task-1", ContextID: "context-1", Status: saying("One moment."), Inputs: []canonical.Input{form}}}, about(canonical.OpTaskGet, canonical.PhaseResponse)),
		from(&canonical.Result{Task: &canonical.Task{ID: "task-1", ContextID: "context-1", Status: saying("One moment.", "Which?"), Inputs: []canonical.Input{
			form, {Key: "l", Mode: canonical.ModeForm, Schema: form.Schema, Prompt: []canonical.Part{text("And of those?"), text("Or none?")}},
		}}}, about(canonical.OpTaskGet, canonical.PhaseResponse)),
		from(&canonical.Result{Task: &canonical.Task{ID: "task-1", ContextID: "context-1", Status: saying("Which?"), Inputs: []canonical.Input{
			form, {Key: "l", Mode: canonical.ModeForm, Schema: form.Schema},
		}}}, about(canonical.OpTaskGet, canonical.PhaseResponse)),
		from(&canonical.Invoke{Answers: []canonical.Answer{{Key: "k", Action: canonical.Accept, Value: raw(`{"a":"b"}`)}, {Key: "l", Action: canonical.Decline}}}, nil),
		from(&canonical.Invoke{
			Turn: canonical.Content{Role: canonical.RoleCaller, Parts: []canonical.Part{text("declined")}}, TTL: &ttl,
			Answers: []canonical.Answer{{Key: "k", Action: canonical.Decline}}, Push: &canonical.PushConfig{URL: "https://h.example", Token: "secret"},
		}, nil),
		event(canonical.Event{Task: &canonical.Task{ID: "task-1", ContextID: "context-1", Status: canonical.Status{State: canonical.StateWorking}}}),
		event(canonical.Event{Turn: &canonical.Content{ID: "m", Role: canonical.RoleAgent, Parts: []canonical.Part{text("x")}}}),
		event(canonical.Event{Status: &canonical.Status{State: canonical.StateWorking, Message: &canonical.Content{ID: "w", Role: canonical.RoleAgent, Parts: []canonical.Part{text("at it")}}}, Extensions: canonical.Extensions{"mcp-v1": raw(`{"k":1}`)}}),
		event(canonical.Event{Status: &asks, Inputs: []canonical.Input{form}}),
		event(canonical.Event{Artifact: &canonical.ArtifactUpdate{Artifact: canonical.Artifact{ID: "a", Parts: []canonical.Part{text("x")}}, Append: true, Last: true}}),
		event(canonical.Event{Progress: &canonical.Progress{Value: raw("0.5"), Total: raw("1"), Message: "half"}}),
		event(canonical.Event{Progress: &canonical.Progress{Token: raw(`"p"`), Value: raw("3")}}),
		event(canonical.Event{Log: &canonical.Log{Level: "info", Data: raw(`1`)}}),
		from(&canonical.PushRequest{Verb: canonical.VerbCreate, Config: canonical.PushConfig{TaskID: "t", URL: "https://h.example", Credentials: "secret"}}, about(canonical.OpPush, canonical.PhaseRequest)),
		from(&canonical.PushRequest{Verb: canonical.VerbGet, Config: canonical.PushConfig{TaskID: "t", ID: "c"}}, about(canonical.OpPush, canonical.PhaseRequest)),
		from(&canonical.PushConfig{TaskID: "t", ID: "c", URL: "https://h.example", Scheme: "Bearer", Credentials: "k"}, about(canonical.OpPush, canonical.PhaseResponse)),
		from(&canonical.PushList{Configs: []canonical.PushConfig{{TaskID: "t", ID: "c", URL: "https://h.example"}}}, about(canonical.OpPush, canonical.PhaseResponse)),
		from(&canonical.Done{}, about(canonical.OpPush, canonical.PhaseResponse)),
		from(&canonical.Native{Method: "prompts/get"}, about(canonical.OpNative, canonical.PhaseRequest)),
	}
}

// tools describes an MCP server.
func tools() *canonical.Description {
	return &canonical.Description{
		Name: "calc", Title: "Calculator", Version: "3", Instructions: "Add.", Versions: []string{"2026-07-28"},
		Interfaces: []canonical.Interface{
			{URL: "https://gw.example/agents/calc/a2a", Transport: TransportJSONRPC, Version: Version},
			{URL: "https://gw.example/agents/calc/a2a", Transport: TransportJSONRPC, Version: Version03},
		},
		Capabilities: []canonical.Capability{
			{
				ID: "add", Profile: canonical.ProfileTyped, InputSchema: raw(`{"type":"object","properties":{"a":{"type":"number"}}}`), OutputSchema: raw(`{"type":"object"}`),
				Annotations: raw(`{"readOnlyHint":true,"destructiveHint":false}`), Extensions: canonical.Extensions{"mcp-v1": raw(`{"icons":[]}`)},
			},
			{ID: "ask", Title: "Ask", Description: "Asks", Profile: canonical.ProfileMessage, Tags: []string{"x"}},
		},
		Extensions: canonical.Extensions{"mcp-v1": raw(`{"capabilities":{"tools":{}}}`)},
	}
}

// pinned is the codec in one version and form, whatever the laws ask for.
type pinned struct {
	*Translator
	version, form string
}

func (p pinned) Info() translators.Info {
	info := p.Translator.Info()
	info.Versions = []string{p.version}
	return info
}

func (p pinned) Decode(w translators.Wire) (*canonical.Message, error) {
	w.Form = p.form
	if p.form == FormHTTP { // whose messages do not show it
		w.Version = p.version
	}
	return p.Translator.Decode(w)
}

func (p pinned) Encode(m *canonical.Message, target translators.Target) (translators.Wire, []canonical.Loss, error) {
	if target.Form = p.form; target.Version == "" {
		target.Version = p.version
	}
	return p.Translator.Encode(m, target)
}

// TestTranslator_ContractOfEachVersion holds every version and form to the laws.
func TestTranslator_ContractOfEachVersion(t *testing.T) {
	t.Parallel()
	for name, tr := range map[string]pinned{
		"1.0": {version: Version}, "0.3": {version: Version03}, "HTTP": {version: Version, form: FormHTTP},
		"0.3 over HTTP": {version: Version03, form: FormHTTP},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr.Translator = New(translators.Config{})
			s := translatortest.Samples{Foreign: append(foreigners(), tasksOfOthers()...), Target: func(m *canonical.Message) translators.Target {
				if invoke, ok := m.Body.(*canonical.Invoke); ok && invoke.Call != nil && invoke.Call.Name == "ask" {
					return translators.Target{Capability: &canonical.Capability{ID: "ask", Profile: canonical.ProfileMessage}}
				}
				return translators.Target{}
			}}
			for _, v := range vectors(t, "identity") {
				m, err := tr.Translator.Decode(v.wire)
				if v.wire.Form == tr.form && err == nil && (m.Origin.Version == tr.version || m.Phase == canonical.PhaseError) {
					s.Wires = append(s.Wires, v.wire)
				}
			}
			for _, v := range vectors(t, "refused") {
				if v.want == "malformed" && v.wire.Re == "" && v.wire.Form == tr.form && v.wire.Version == "" {
					s.Malformed = append(s.Malformed, v.wire.Body)
				}
			}
			translatortest.Run(t, tr, s)
		})
	}
}
