package uacp_test

import (
	"encoding/json"
	"time"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// happened is what is told while work goes on, born in another protocol.
func happened() map[string]*canonical.Message {
	answer := &canonical.Content{ID: "m-2", Role: canonical.RoleAgent, Parts: []canonical.Part{{Kind: canonical.KindText, Text: "said that"}}}
	parts := []canonical.Part{
		{Kind: canonical.KindText, Text: "one"},
		{Kind: canonical.KindData, Data: json.RawMessage(`{"a":[1.50,null]}`), Media: "application/json"},
		{Kind: canonical.KindFile, Bytes: []byte{0, 255}, Media: "image/png", Name: "p.png"},
	}
	out := map[string]*canonical.Message{}
	add := func(name string, e *canonical.Event) {
		out["event "+name] = &canonical.Message{
			Op: canonical.OpInvoke, Phase: canonical.PhaseEvent, Correlation: canonical.Correlation{WireID: json.RawMessage(`"id-1"`)},
			Conversation: canonical.Conversation{ContextID: "c-1", TaskID: "t-1"}, Body: e,
		}
	}
	for _, state := range []canonical.State{canonical.StateSubmitted, canonical.StateWorking, canonical.StateCompleted, canonical.StateFailed} {
		status := canonical.Status{State: state, Message: answer, At: time.Date(2026, 7, 28, 1, 2, 3, 0, time.UTC)}
		add("task "+string(state), &canonical.Event{Task: &canonical.Task{
			ID: "t-1", ContextID: "c-1", Status: status, History: []canonical.Content{*answer},
			Artifacts:  []canonical.Artifact{{ID: "a-1", Name: "first", Description: "d", Parts: parts}},
			Extensions: canonical.Extensions{"a2a-v1": json.RawMessage(`{"metadata":{"t":1}}`)},
		}})
		add("status "+string(state), &canonical.Event{
			Status: &status, Extensions: canonical.Extensions{"a2a-v1": json.RawMessage(`{"metadata":{"e":1}}`)},
		})
		add("bare status "+string(state), &canonical.Event{Status: &canonical.Status{State: state}})
	}
	add("question", &canonical.Event{
		Status: &canonical.Status{State: canonical.StateInputRequired, Message: answer},
		Inputs: []canonical.Input{{Key: "colour-key", Mode: canonical.ModeForm, Schema: json.RawMessage(`{"type":"object"}`)}},
	})
	add("turn", &canonical.Event{Turn: answer})
	add("artifact", &canonical.Event{Artifact: &canonical.ArtifactUpdate{Last: true, Artifact: canonical.Artifact{
		ID: "a-1", Name: "first", Description: "d", Parts: parts, Extensions: canonical.Extensions{"a2a-v1": json.RawMessage(`{"metadata":{"a":1}}`)},
	}}})
	add("piece", &canonical.Event{Artifact: &canonical.ArtifactUpdate{Append: true, Artifact: canonical.Artifact{ID: "a-1", Parts: answer.Parts}}})
	add("progress", &canonical.Event{Progress: &canonical.Progress{Value: json.RawMessage("1"), Message: "half of it"}})
	return out
}
