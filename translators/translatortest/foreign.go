package translatortest

import (
	"encoding/json"
	"maps"
	"time"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
)

// TypedID is the wire id of the foreign messages that are for [TypedTool].
const TypedID = `"typed"`

// TypedTool is a capability of profile P2.
func TypedTool() *canonical.Capability {
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

// Foreign is what other protocols would ask and answer, for a codec whose own
// form says little of it natively.
func Foreign() map[string]*canonical.Message {
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
	response := answering
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
	bound.Correlation.WireID = json.RawMessage(TypedID)
	unbound := request(&canonical.Invoke{Turn: turn})
	unbound.Correlation.WireID = json.RawMessage(TypedID)
	sole := response(&canonical.Result{Task: &canonical.Task{ID: "task-7", ContextID: "context-7", Status: canonical.Status{State: canonical.StateCompleted}, Artifacts: []canonical.Artifact{{ID: "artifact-7", Parts: []canonical.Part{{Kind: canonical.KindData, Data: json.RawMessage(`{"x":1}`)}}}}}})
	sole.Correlation.WireID = json.RawMessage(TypedID)
	list := response(&canonical.Result{Task: &canonical.Task{ID: "task-7", Status: canonical.Status{State: canonical.StateCompleted}, Artifacts: []canonical.Artifact{{ID: "artifact-7", Parts: []canonical.Part{{Kind: canonical.KindData, Data: json.RawMessage(`[1]`)}}}}}})
	list.Correlation.WireID = json.RawMessage(TypedID)
	out := map[string]*canonical.Message{
		"sole list": list,
		"full turn": full, "typed": p2, "bound": bound, "unbound": unbound, "sole data": sole,
		"plain": request(&canonical.Invoke{Turn: canonical.Content{Role: canonical.RoleCaller, Parts: []canonical.Part{{Kind: canonical.KindText, Text: "hi"}}}}),
		"message reply": func() *canonical.Message {
			m := response(&canonical.Result{Turn: &canonical.Content{ID: "r-1", Role: canonical.RoleAgent, Parts: everyPart(), ExtensionURIs: []string{"urn:z"}}})
			m.Conversation = canonical.Conversation{ContextID: "c-1", TaskID: "t-9"}
			return m
		}(),
		"output":   response(&canonical.Result{Output: &canonical.Output{Parts: everyPart(), Structured: json.RawMessage(`[1]`), Failed: true}}),
		"no words": response(&canonical.Result{Task: &canonical.Task{ID: "task-7", Status: canonical.Status{State: canonical.StateFailed}}}),
	}
	maps.Copy(out, described())
	maps.Copy(out, asked())
	maps.Copy(out, work())
	for _, state := range []canonical.State{
		canonical.StateCompleted, canonical.StateFailed, canonical.StateRejected, canonical.StateCanceled, canonical.StateInputRequired,
		canonical.StateAuthRequired, canonical.StateSubmitted, canonical.StateWorking, canonical.StateUnknown,
	} {
		out["task "+string(state)] = response(&canonical.Result{Task: task(state)})
		typedOne := response(&canonical.Result{Task: task(state)})
		typedOne.Correlation.WireID = json.RawMessage(TypedID)
		out["typed task "+string(state)] = typedOne
	}
	return out
}

// answering is a response to a request.
func answering(r *canonical.Result) *canonical.Message {
	id := canonical.Correlation{WireID: json.RawMessage(`"id-1"`)}
	return &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseResponse, Correlation: id, Body: r}
}

// described is who agents are, what they can do, and how they fail.
func described() map[string]*canonical.Message {
	id := canonical.Correlation{WireID: json.RawMessage(`"id-1"`)}
	return map[string]*canonical.Message{
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
}

// asked is what is about questions, and about tasks that are kept.
func asked() map[string]*canonical.Message {
	id := canonical.Correlation{WireID: json.RawMessage(`"id-1"`)}
	hour := time.Hour
	prompt := []canonical.Part{{Kind: canonical.KindText, Text: "which colour is it to be"}}
	questions := []canonical.Input{
		{Key: "colour-key", Mode: canonical.ModeForm, Prompt: prompt, Schema: json.RawMessage(`{"type":"object"}`)},
		{Key: "url-key", Mode: canonical.ModeURL, URL: "https://x.example/act", Extensions: canonical.Extensions{"mcp-v1": json.RawMessage(`{"elicitationId":"e"}`)}},
		{Key: "native-key", Mode: canonical.ModeNative, Native: &canonical.Native{Method: "sampling/createMessage", Params: json.RawMessage(`{"maxTokens":10}`)}},
	}
	again := &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Correlation: id, Body: &canonical.Invoke{
		Call: &canonical.Call{Name: "paint", Args: json.RawMessage(`{"what":"door"}`)}, State: "opaque-state", TTL: &hour,
		Push: &canonical.PushConfig{URL: "https://hook.example", Token: "hook-token"},
		Answers: []canonical.Answer{
			{Key: "colour-key", Action: canonical.Accept, Value: json.RawMessage(`{"colour":"blue"}`)},
			{Key: "url-key", Action: canonical.Decline, Parts: prompt},
		},
	}}
	again.Preferences = canonical.Preferences{TaskOK: true, CanAnswer: []canonical.Mode{canonical.ModeForm, canonical.ModeURL, canonical.ModeSampling, canonical.ModeRoots}}
	task := &canonical.Task{
		ID: "task-77", Status: canonical.Status{State: canonical.StateInputRequired}, Inputs: questions,
		Created: time.Date(2026, 7, 28, 1, 2, 3, 0, time.UTC), TTL: &hour, Poll: time.Second,
	}
	kept := &canonical.Task{
		ID: "task-78", Status: canonical.Status{State: canonical.StateCompleted},
		Output: &canonical.Output{Parts: prompt, Structured: json.RawMessage(`{"done":[1.50]}`)},
	}
	broken := &canonical.Task{
		ID: "task-79", Status: canonical.Status{State: canonical.StateFailed},
		Failure: &canonical.Error{Code: canonical.CodeTimeout, Message: "too late for that", Native: &canonical.NativeError{Binding: "mcp-v1", Code: -32000}},
	}
	response := func(r *canonical.Result) *canonical.Message {
		return &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseResponse, Correlation: id, Body: r}
	}
	waiting := &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Correlation: id, Callback: "https://a.example/hook", Body: &canonical.Invoke{
		Turn: canonical.Content{Role: canonical.RoleCaller, Parts: prompt},
	}}
	signal := func(op canonical.Op, phase canonical.Phase, body canonical.Body) *canonical.Message {
		return &canonical.Message{Op: op, Phase: phase, Correlation: id, Conversation: canonical.Conversation{ContextID: "c"}, Body: body}
	}
	return map[string]*canonical.Message{
		"with a callback": waiting,
		"rollback":        signal(canonical.OpRollback, canonical.PhaseRequest, &canonical.Signal{Token: "aaa.bbb.ccc"}),
		"rolled back":     signal(canonical.OpRollback, canonical.PhaseResponse, &canonical.Signal{Token: "ddd.eee.fff"}),
		"decision":        signal(canonical.OpDecision, canonical.PhaseRequest, &canonical.Signal{Token: "aaa.bbb.ccc", Approval: "a-1"}),
		"decision heard":  signal(canonical.OpDecision, canonical.PhaseResponse, &canonical.Done{}),
		"again":           again, "task that asks": response(&canonical.Result{Task: task}), "task with output": response(&canonical.Result{Task: kept}),
		"task that tells and asks": response(&canonical.Result{Task: &canonical.Task{
			ID: "task-80", Inputs: questions[:1], Status: canonical.Status{State: canonical.StateInputRequired, Message: &canonical.Content{
				ID: "m-80", Role: canonical.RoleAgent, Parts: []canonical.Part{{Kind: canonical.KindText, Text: "waiting for you"}},
			}},
		}}),
		"task with failure": response(&canonical.Result{Task: broken}),
		"pending":           response(&canonical.Result{Pending: &canonical.Pending{Inputs: questions, State: "opaque-state"}}),
		"able": {Op: canonical.OpDescribe, Phase: canonical.PhaseResponse, Correlation: id, Body: &canonical.Description{
			Name: "able", Streams: true, Pushes: true, Tasks: true,
		}},
	}
}

// work is what other protocols say about work that goes on, and ask about it.
func work() map[string]*canonical.Message {
	id := canonical.Correlation{WireID: json.RawMessage(`"id-1"`)}
	at := time.Date(2026, 7, 28, 1, 2, 3, 0, time.UTC)
	said := func(text string) *canonical.Content {
		return &canonical.Content{ID: "m-7", Role: canonical.RoleAgent, Parts: []canonical.Part{{Kind: canonical.KindText, Text: text}}}
	}
	event := func(e canonical.Event) *canonical.Message {
		return &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseEvent, Correlation: id, Body: &e}
	}
	request := func(op canonical.Op, body canonical.Body) *canonical.Message {
		return &canonical.Message{Op: op, Phase: canonical.PhaseRequest, Correlation: id, Body: body}
	}
	reply := func(op canonical.Op, body canonical.Body) *canonical.Message {
		m := request(op, body)
		m.Phase = canonical.PhaseResponse
		return m
	}
	yes, form := true, canonical.Input{
		Key: "colour-key", Mode: canonical.ModeForm, Schema: json.RawMessage(`{"type":"object"}`),
		Prompt: []canonical.Part{{Kind: canonical.KindText, Text: "which colour"}},
	}
	answer := canonical.Answer{Key: "colour-key", Action: canonical.Accept, Value: json.RawMessage(`{"colour":"blue"}`)}
	task := canonical.Task{
		ID: "task-9", ContextID: "context-9", Status: canonical.Status{State: canonical.StateWorking, At: at, Message: said("at it")},
		Artifacts: []canonical.Artifact{{ID: "a-9", Name: "n", Parts: everyPart()}}, Created: at, Poll: time.Second,
	}
	return map[string]*canonical.Message{
		"event task":      event(canonical.Event{Task: &task}),
		"event turn":      event(canonical.Event{Turn: said("hello there")}),
		"event status":    event(canonical.Event{Status: &canonical.Status{State: canonical.StateWorking, At: at, Message: said("reading")}}),
		"event asks":      event(canonical.Event{Status: &canonical.Status{State: canonical.StateInputRequired}, Inputs: []canonical.Input{form}}),
		"event completed": event(canonical.Event{Status: &canonical.Status{State: canonical.StateCompleted, Message: said("it is done")}}),
		"event failed":    event(canonical.Event{Status: &canonical.Status{State: canonical.StateFailed}}),
		"event artifact": event(canonical.Event{Artifact: &canonical.ArtifactUpdate{
			Artifact: canonical.Artifact{ID: "a-9", Parts: everyPart()}, Append: true, Last: true,
		}}),
		"event progress": event(canonical.Event{Progress: &canonical.Progress{
			Token: json.RawMessage(`7`), Value: json.RawMessage(`0.50`), Total: json.RawMessage(`2`), Message: "halfway",
		}}),
		"event progress bare": event(canonical.Event{Progress: &canonical.Progress{Token: json.RawMessage(`7`), Value: json.RawMessage(`1`)}}),
		"event log":           event(canonical.Event{Log: &canonical.Log{Level: "warning", Logger: "l", Data: json.RawMessage(`{"a":1.50}`)}}),
		"event ask":           event(canonical.Event{Ask: &canonical.Ask{ID: json.RawMessage(`"770e8400-e29b-41d4-a716-446655440002"`), Input: form}}),
		"event native":        event(canonical.Event{Native: &canonical.Native{Method: "notifications/x"}}),
		"task get":            request(canonical.OpTaskGet, &canonical.TaskQuery{ID: "task-9"}),
		"task cancel":         request(canonical.OpTaskCancel, &canonical.TaskQuery{ID: "task-9"}),
		"task subscribe":      request(canonical.OpTaskSubscribe, &canonical.TaskQuery{ID: "task-9"}),
		"task answer":         request(canonical.OpTaskAnswer, &canonical.TaskQuery{ID: "task-9", Answers: []canonical.Answer{answer}}),
		"task list": request(canonical.OpTaskList, &canonical.TaskFilter{
			ContextID: "context-9", State: canonical.StateWorking, After: at, Cursor: "cursor-9", Size: 3, IncludeArtifacts: &yes,
		}),
		"abort":         request(canonical.OpAbort, &canonical.Abort{Request: json.RawMessage(`"770e8400-e29b-41d4-a716-446655440002"`), Reason: "too slow"}),
		"answer":        request(canonical.OpAnswer, &canonical.Reply{ID: json.RawMessage(`"770e8400-e29b-41d4-a716-446655440002"`), Answer: answer}),
		"answer failed": request(canonical.OpAnswer, &canonical.Reply{ID: json.RawMessage(`"770e8400-e29b-41d4-a716-446655440002"`), Failure: &canonical.Error{Code: canonical.CodeTimeout, Message: "no answer"}}),
		"native":        request(canonical.OpNative, &canonical.Native{Method: "prompts/list"}),
		"task got":      reply(canonical.OpTaskGet, &canonical.Result{Task: &task}),
		"task canceled": reply(canonical.OpTaskCancel, &canonical.Result{Task: &canonical.Task{ID: "task-9", Status: canonical.Status{State: canonical.StateCanceled}}}),
		"acknowledged":  reply(canonical.OpTaskCancel, &canonical.Done{}),
		"answered":      reply(canonical.OpTaskAnswer, &canonical.Done{}),
		"tasks":         reply(canonical.OpTaskList, &canonical.TaskList{Tasks: []canonical.Task{task, {ID: "task-10"}}, Next: "next-page", Size: 2, Total: 12}),
	}
}
