package mcp_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// typedID marks the messages that are for a typed tool.
const typedID = `"typed"`

// target is what the gateway would choose.
func target(m *canonical.Message) translators.Target {
	switch string(m.Correlation.WireID) {
	case typedID:
		return translators.Target{Capability: typedTool()}
	case messageID:
		return translators.Target{Capability: &canonical.Capability{ID: "talk", Profile: canonical.ProfileMessage}}
	default:
		return translators.Target{}
	}
}

func typedTool() *canonical.Capability {
	return &canonical.Capability{
		ID: "typed", Profile: canonical.ProfileTyped,
		InputSchema: json.RawMessage(`{"type":"object","properties":{"q":{"type":"string"}},"required":["q"]}`),
	}
}

func everyPart() []canonical.Part {
	return []canonical.Part{
		{Kind: canonical.KindText, Text: "one"},
		{Kind: canonical.KindText, Text: "", Media: "text/markdown", Name: "a.md", Extensions: canonical.Extensions{"a2a-v1": json.RawMessage(`{"metadata":{"k":9007199254740993}}`)}},
		{Kind: canonical.KindData, Data: json.RawMessage(`{"a":[1.50,null]}`), Media: "application/json"},
		{Kind: canonical.KindData, Data: json.RawMessage(`"second"`)},
		{Kind: canonical.KindFile, Bytes: []byte{0, 255}, Media: "image/png", Name: "p.png"},
		{Kind: canonical.KindFile, Bytes: []byte("x"), Media: "text/plain"},
		{Kind: canonical.KindFile, Bytes: []byte("y"), Name: "ä b", Title: "title", Size: json.RawMessage("1")},
		{Kind: canonical.KindRef, URI: "https://example.com/d/f.pdf?x#y", Media: "application/pdf", Description: "d"},
	}
}

// messageID is the wire id of what is said of a tool that stands for an agent.
const messageID = `"message"`

// messageReply is what such a tool answers.
func messageReply(r *canonical.Result) *canonical.Message {
	m := &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseResponse, Body: r}
	m.Correlation.WireID = json.RawMessage(messageID)
	m.Conversation = canonical.Conversation{ContextID: "c-1", TaskID: "t-9"}
	return m
}

// foreign is what other protocols would ask and answer.
func foreign() map[string]*canonical.Message {
	id := canonical.Correlation{WireID: json.RawMessage(`"id-1"`)}
	seven := 7
	turn := canonical.Content{
		ID: "m-1", Role: canonical.RoleCaller, Parts: everyPart(), ExtensionURIs: []string{"urn:x"},
		Extensions: canonical.Extensions{"a2a-v1": json.RawMessage(`{"metadata":{"m":1},"other":2}`)},
	}
	typed := &canonical.Call{Name: "typed", Args: json.RawMessage(`{"q":"x"}`)}
	at := time.Date(2026, 7, 28, 1, 2, 3, 4000, time.UTC)
	task := func(state canonical.State) *canonical.Task {
		return &canonical.Task{
			ID: "t-1", ContextID: "c-1",
			Status: canonical.Status{State: state, At: at, Message: &canonical.Content{
				ID: "m-2", Role: canonical.RoleAgent, Parts: []canonical.Part{{Kind: canonical.KindText, Text: "said"}},
				Extensions: canonical.Extensions{"a2a-v1": json.RawMessage(`{"metadata":{"s":1}}`)},
			}},
			Artifacts: []canonical.Artifact{
				{ID: "a-1", Name: "first", Description: "d", Parts: everyPart(), ExtensionURIs: []string{"urn:y"}},
				{ID: "a-2", Parts: []canonical.Part{{Kind: canonical.KindText, Text: "two"}}, Extensions: canonical.Extensions{"a2a-v1": json.RawMessage(`{"metadata":{"z":null}}`)}},
			},
			History:    []canonical.Content{turn},
			Extensions: canonical.Extensions{"a2a-v1": json.RawMessage(`{"metadata":{"t":1}}`)},
		}
	}
	request := func(i *canonical.Invoke) *canonical.Message {
		return &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Correlation: id, Body: i}
	}
	response := func(r *canonical.Result) *canonical.Message {
		return &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseResponse, Correlation: id, Body: r}
	}
	full := request(&canonical.Invoke{Turn: turn, Extensions: canonical.Extensions{"a2a-v1": json.RawMessage(`{"metadata":{"r":1}}`)}})
	full.Correlation.MessageID = "m-1"
	full.Conversation = canonical.Conversation{ContextID: "c", TaskID: "t", ReferenceTasks: []string{"r"}, Tenant: "ten"}
	full.Preferences = canonical.Preferences{Stream: true, NoWait: true, AcceptMedia: []string{"a/b"}, HistoryLength: &seven}
	full.Deadline = at
	full.Trace = canonical.Trace{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", State: "a=b", Baggage: "k=v"}
	full.From = canonical.Party{Name: "n", Version: "v"}
	full.Extensions = canonical.Extensions{"a2a-v1": json.RawMessage(`{"envelope":1}`)}

	p2 := request(&canonical.Invoke{
		Turn: canonical.Content{Role: canonical.RoleCaller, Parts: []canonical.Part{
			{Kind: canonical.KindText, Text: "please"},
			{Kind: canonical.KindData, Data: profile.TypedData(typed), Media: "application/json"},
		}},
		Call: typed,
	})
	p2.Conversation.ContextID = "c"
	bound := request(&canonical.Invoke{Turn: canonical.Content{Role: canonical.RoleCaller, Parts: []canonical.Part{{Kind: canonical.KindText, Text: "a"}, {Kind: canonical.KindText, Text: "b"}}}})
	bound.Correlation.WireID = json.RawMessage(typedID)
	unbound := request(&canonical.Invoke{Turn: turn})
	unbound.Correlation.WireID = json.RawMessage(typedID)
	sole := response(&canonical.Result{Task: &canonical.Task{ID: "t", ContextID: "c", Status: canonical.Status{State: canonical.StateCompleted}, Artifacts: []canonical.Artifact{{ID: "a", Parts: []canonical.Part{{Kind: canonical.KindData, Data: json.RawMessage(`{"x":1}`)}}}}}})
	sole.Correlation.WireID = json.RawMessage(typedID)
	list := response(&canonical.Result{Task: &canonical.Task{ID: "t", Status: canonical.Status{State: canonical.StateCompleted}, Artifacts: []canonical.Artifact{{ID: "a", Parts: []canonical.Part{{Kind: canonical.KindData, Data: json.RawMessage(`[1]`)}}}}}})
	list.Correlation.WireID = json.RawMessage(typedID)
	out := map[string]*canonical.Message{
		"sole list": list,
		"full turn": full, "typed": p2, "bound": bound, "unbound": unbound, "sole data": sole,
		"plain": request(&canonical.Invoke{Turn: canonical.Content{Role: canonical.RoleCaller, Parts: []canonical.Part{{Kind: canonical.KindText, Text: "hi"}}}}),
		"message reply": func() *canonical.Message {
			m := response(&canonical.Result{Turn: &canonical.Content{ID: "r-1", Role: canonical.RoleAgent, Parts: everyPart(), ExtensionURIs: []string{"urn:z"}}})
			m.Conversation = canonical.Conversation{ContextID: "c-1", TaskID: "t-9"}
			return m
		}(),
		"message output":      messageReply(&canonical.Result{Output: &canonical.Output{Parts: everyPart(), Structured: json.RawMessage(`{"sum":42}`)}}),
		"message output bare": messageReply(&canonical.Result{Output: &canonical.Output{Parts: everyPart()[:1]}}),
		"message output not":  messageReply(&canonical.Result{Output: &canonical.Output{Parts: everyPart()[:1], Failed: true}}),
		"output":              response(&canonical.Result{Output: &canonical.Output{Parts: everyPart(), Structured: json.RawMessage(`[1]`), Failed: true}}),
		"no words":            response(&canonical.Result{Task: &canonical.Task{ID: "t", Status: canonical.Status{State: canonical.StateFailed}}}),
		"description": {Op: canonical.OpDescribe, Phase: canonical.PhaseResponse, Correlation: id, Body: &canonical.Description{
			Name: "n", Title: "t", Version: "v", Description: "d", Instructions: "i", DocumentationURL: "https://d.example", IconURL: "https://i.example",
			Provider: &canonical.Provider{Organization: "o", URL: "u"}, Interfaces: []canonical.Interface{{URL: "u"}}, Versions: []string{"1.0"},
			InputModes: []string{"a/b"}, OutputModes: []string{"c/d"}, Capabilities: []canonical.Capability{{ID: "x"}},
			Extensions: canonical.Extensions{"a2a-v1": json.RawMessage(`{"securitySchemes":{}}`)},
		}},
		"skills": {Op: canonical.OpCapabilities, Phase: canonical.PhaseResponse, Correlation: id, Body: &canonical.CapabilityList{Next: "n", Capabilities: []canonical.Capability{
			{ID: "a skill!", Title: "T", Description: "D", Profile: canonical.ProfileMessage, Tags: []string{"t"}, Examples: []string{"e1", "e2"}, InputModes: []string{"i"}, OutputModes: []string{"o"}},
			{ID: "a_skill_", Profile: canonical.ProfileTyped, InputSchema: json.RawMessage(`{"oneOf":[]}`), OutputSchema: json.RawMessage(`{"type":"array"}`), Annotations: json.RawMessage(`{"readOnlyHint":true}`)},
			{ID: "a?skill_", Profile: canonical.ProfileTyped},
		}}},
		"ask who":  {Op: canonical.OpDescribe, Phase: canonical.PhaseRequest, Correlation: id, Body: &canonical.DescribeRequest{Client: canonical.Party{Name: "x"}}},
		"ask what": {Op: canonical.OpCapabilities, Phase: canonical.PhaseRequest, Correlation: id, Body: &canonical.Page{Cursor: "c"}},
		"error": {Op: canonical.OpInvoke, Phase: canonical.PhaseError, Correlation: id, Body: &canonical.Error{
			Code: canonical.CodeTaskNotFound, Message: "m", RetryAfter: 3 * time.Second, Details: []json.RawMessage{json.RawMessage(`{"@type":"x"}`)},
			Native: &canonical.NativeError{Binding: "a2a-v1", Code: -32001, Data: json.RawMessage(`[{"a":1}]`)},
		}},
		"bad params": {Op: canonical.OpInvoke, Phase: canonical.PhaseError, Correlation: id, Body: &canonical.Error{
			Code: canonical.CodeBadParams, Message: "m", Schema: json.RawMessage(`{"type":"object"}`),
		}},
	}
	for _, state := range []canonical.State{
		canonical.StateCompleted, canonical.StateFailed, canonical.StateRejected, canonical.StateCanceled, canonical.StateInputRequired,
		canonical.StateAuthRequired, canonical.StateSubmitted, canonical.StateWorking, canonical.StateUnknown,
	} {
		out["task "+string(state)] = response(&canonical.Result{Task: task(state)})
		typedOne := response(&canonical.Result{Task: task(state)})
		typedOne.Correlation.WireID = json.RawMessage(typedID)
		out["typed task "+string(state)] = typedOne
	}
	return out
}

// TestEncode_ValidUnderSchema: whatever is written for a revision is valid under its
// official schema.
func TestEncode_ValidUnderSchema(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	definitions := map[canonical.Op][2]string{
		canonical.OpInvoke:       {"CallToolRequest", "CallToolResult"},
		canonical.OpCapabilities: {"ListToolsRequest", "ListToolsResult"},
	}
	for _, version := range tr.Info().Versions {
		official := loadSchemas(t, version)
		definitions[canonical.OpDescribe] = [2]string{"InitializeRequest", "InitializeResult"}
		if version == mcp.Modern {
			definitions[canonical.OpDescribe] = [2]string{"DiscoverRequest", "DiscoverResult"}
		}
		failed := "JSONRPCErrorResponse"
		if version < mcp.Legacy {
			failed = "JSONRPCError"
		}
		for name, m := range foreign() {
			t.Run(version+" "+name, func(t *testing.T) {
				to := target(m)
				to.Version = version
				w, _, err := tr.Encode(m, to)
				if err != nil {
					if name != "unbound" || !hasCode(err, canonical.CodeBadParams) {
						t.Fatal(err)
					}
					return
				}
				switch m.Phase {
				case canonical.PhaseRequest:
					official.check(t, definitions[m.Op][0], w.Body)
				case canonical.PhaseResponse:
					official.check(t, definitions[m.Op][1], resultOf(t, w.Body))
				default:
					official.check(t, failed, w.Body)
				}
			})
		}
	}
}

// TestEncode_IsErrorByTaskState: isError, and never without a word.
func TestEncode_IsErrorByTaskState(t *testing.T) {
	t.Parallel()
	for state, want := range map[canonical.State][2]bool{ // of a message tool, of a typed one
		canonical.StateCompleted: {false, false}, canonical.StateInputRequired: {false, true}, canonical.StateAuthRequired: {false, true},
		canonical.StateFailed: {true, true}, canonical.StateRejected: {true, true}, canonical.StateCanceled: {true, true},
		canonical.StateSubmitted: {true, true}, canonical.StateWorking: {true, true}, canonical.StateUnknown: {true, true},
	} {
		for i, capability := range []*canonical.Capability{{Profile: canonical.ProfileMessage}, typedTool()} {
			m := foreign()["task "+string(state)]
			m.Body.(*canonical.Result).Task.Status.Message = nil
			w, _, err := mcp.New(translators.Config{}).Encode(m, translators.Target{Capability: capability})
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				IsError           bool
				Content           []struct{ Text string }
				StructuredContent struct {
					State  string
					TaskID string `json:"task_id"`
				}
			}
			if err := json.Unmarshal(resultOf(t, w.Body), &got); err != nil {
				t.Fatal(err)
			}
			if got.IsError != want[i] || got.Content[0].Text == "" {
				t.Errorf("%s, tool %d: got %+v", state, i, got)
			}
			if i == 0 && (got.StructuredContent.State != string(state) || got.StructuredContent.TaskID != "t-1") {
				t.Errorf("%s: structured %+v", state, got.StructuredContent)
			}
		}
	}
}

func TestCapabilityNames_ValidAndUnique(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200)
	ids := []string{"plain.id-1", "a b", "a_b", "a?b", "", long, long + "y", "same", "same", "ü"}
	capabilities := make([]canonical.Capability, len(ids))
	for i := range ids {
		capabilities[i].ID = ids[i]
	}
	tr := mcp.New(translators.Config{})
	names := tr.CapabilityNames(capabilities)
	if diff := cmp.Diff(names, tr.CapabilityNames(capabilities)); diff != "" {
		t.Errorf("not deterministic: %s", diff)
	}
	allowed := regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)
	seen := map[string]bool{}
	for i, name := range names {
		if !allowed.MatchString(name) || seen[name] {
			t.Errorf("%q became %q", ids[i], name)
		}
		seen[name] = true
	}
	for i, want := range map[int]string{0: "plain.id-1", 1: "a_b_c8687a", 2: "a_b", 7: "same", 9: "__"} {
		if names[i] != want {
			t.Errorf("%q became %q, want %q", ids[i], names[i], want)
		}
	}
}

// TestCapabilityNames_NoIDOfAnother: no skill is listed under the id of another one, also
// where that id looks like the name that it would get, in whichever order they come.
func TestCapabilityNames_NoIDOfAnother(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	odd := []canonical.Capability{{ID: "a b"}, {ID: "a/b"}}
	hashed := canonical.Capability{ID: tr.CapabilityNames(odd)[0]}
	for _, list := range [][]canonical.Capability{
		{odd[0], odd[1], hashed}, {hashed, odd[1], odd[0]}, {odd[0], {ID: "a_b"}}, {{ID: "a_b"}, odd[0]},
	} {
		names := tr.CapabilityNames(list)
		for i, name := range names {
			if j := slices.IndexFunc(list, func(c canonical.Capability) bool { return c.ID == name }); j >= 0 && j != i {
				t.Errorf("%q is listed as %q, which is the id of another skill", list[i].ID, name)
			}
			if slices.Index(names, name) != i {
				t.Errorf("two skills are listed as %q", name)
			}
		}
	}
}

// TestEncode_MessageToolResultFitsItsSchema: what a tool that stands for an agent answers
// is valid under the schema that is listed for it, whoever the agent is, as a
// result and as the result within a task.
func TestEncode_MessageToolResultFitsItsSchema(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	talk := canonical.Capability{ID: "talk", Profile: canonical.ProfileMessage}
	output := canonical.Output{Parts: everyPart(), Structured: json.RawMessage(`{"sum":42}`)}
	within := messageReply(&canonical.Result{Task: &canonical.Task{
		ID: "t-9", ContextID: "c-1", Status: canonical.Status{State: canonical.StateCompleted}, Output: &output,
	}})
	within.Op = canonical.OpTaskGet
	for name, tc := range map[string]struct {
		version string
		m       *canonical.Message
		task    bool
	}{
		"2026-07-28":                {mcp.Modern, messageReply(&canonical.Result{Output: &output}), false},
		"2025-11-25":                {mcp.Legacy, messageReply(&canonical.Result{Output: &output}), false},
		"2025-06-18":                {mcp.LegacyJune, messageReply(&canonical.Result{Output: &output}), false},
		"within a task, 2026-07-28": {mcp.Modern, within, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := translators.Target{Version: tc.version, Capability: &talk}
			list := &canonical.Message{Op: canonical.OpCapabilities, Phase: canonical.PhaseResponse, Body: &canonical.CapabilityList{Capabilities: []canonical.Capability{talk}}}
			list.Correlation.WireID = json.RawMessage("1")
			var listed struct {
				Tools []struct{ OutputSchema json.RawMessage }
			}
			encoded := func(m *canonical.Message, out any) {
				t.Helper()
				w, losses, err := tr.Encode(m, to)
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range losses {
					if strings.HasPrefix(l.Path, "/body/turn") {
						t.Errorf("there is no such place: %s", l)
					}
				}
				if err := json.Unmarshal(resultOf(t, w.Body), out); err != nil {
					t.Fatal(err)
				}
			}
			encoded(list, &listed)
			type toolResult struct{ StructuredContent json.RawMessage }
			var got struct {
				toolResult

				Result toolResult
			}
			encoded(tc.m, &got)
			answer := got.StructuredContent
			if tc.task {
				answer = got.Result.StructuredContent
			}
			schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(listed.Tools[0].OutputSchema))
			if err != nil {
				t.Fatal(err)
			}
			compiler := jsonschema.NewCompiler()
			if err := compiler.AddResource("mem:///out.json", schema); err != nil {
				t.Fatal(err)
			}
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(answer))
			if err != nil {
				t.Fatalf("%v: %s", err, answer)
			}
			if err := compiler.MustCompile("mem:///out.json").Validate(value); err != nil {
				t.Errorf("%s: %v", answer, err)
			}
			if !bytes.Contains(answer, []byte(`"context_id":"c-1"`)) {
				t.Errorf("it names no dialogue: %s", answer)
			}
		})
	}
}
