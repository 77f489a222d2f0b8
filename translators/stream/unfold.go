package stream

import (
	"reflect"
	"slices"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// ResultArtifact is the id of the artifact that a call's output becomes.
const ResultArtifact = "result"

// Unfold takes a result apart into the changes that led to it, of a task that
// was at work before: its artifacts, then the status that settles it.
func Unfold(r *canonical.Result) []canonical.Event {
	switch {
	case r.Turn != nil:
		return []canonical.Event{{Turn: r.Turn}}
	case r.Task != nil:
		return Diff(&canonical.Task{ID: r.Task.ID, ContextID: r.Task.ContextID}, r.Task)
	case r.Pending != nil:
		status := canonical.Status{State: canonical.StateInputRequired}
		return []canonical.Event{{Status: &status, Inputs: r.Pending.Inputs}}
	case r.Output != nil:
		return ofOutput(r)
	default:
		return nil
	}
}

// ofOutput returns the events of an output: an artifact, or, if the call failed, the message
// of the failed status.
func ofOutput(r *canonical.Result) []canonical.Event {
	parts := outputParts(r.Output)
	if r.Output.Failed {
		status := canonical.Status{State: canonical.StateFailed, Message: &canonical.Content{Role: canonical.RoleAgent, Parts: parts}, At: r.Output.At}
		return []canonical.Event{{Status: &status, Extensions: r.Extensions}}
	}
	return []canonical.Event{
		{Artifact: &canonical.ArtifactUpdate{
			Artifact: canonical.Artifact{ID: ResultArtifact, Parts: parts, Extensions: r.Extensions}, Last: true,
		}},
		{Status: &canonical.Status{State: canonical.StateCompleted, At: r.Output.At}},
	}
}

// outputParts are the parts of an output with its structured content behind them.
func outputParts(o *canonical.Output) []canonical.Part {
	parts := append([]canonical.Part(nil), o.Parts...)
	if o.Structured != nil {
		parts = append(parts, canonical.Part{Kind: canonical.KindData, Data: o.Structured, Media: "application/json"})
	}
	return parts
}

// TaskOf returns the task that stands for an output, for a caller that works with tasks.
func TaskOf(id, contextID string, r *canonical.Result) *canonical.Task {
	f := Folder{task: begun(id, contextID)}
	for _, e := range Unfold(r) {
		if f.Add(&e, canonical.Conversation{TaskID: id, ContextID: contextID}) != nil {
			break
		}
	}
	return f.Task()
}

// Diff is what happened to a task between two looks: whole artifacts that are
// new or changed, pieces that came to one, and its status.
func Diff(before, after *canonical.Task) []canonical.Event {
	var events []canonical.Event
	known := make(map[string]canonical.Artifact, len(before.Artifacts))
	for _, a := range before.Artifacts {
		known[a.ID] = a
	}
	done := after.Status.State.Terminal()
	for _, a := range after.Artifacts {
		old, ok := known[a.ID]
		if ok && len(old.Parts) == len(a.Parts) && reflect.DeepEqual(old, a) {
			continue
		}
		update := canonical.ArtifactUpdate{Artifact: a, Last: done}
		if n := len(old.Parts); ok && n > 0 && n < len(a.Parts) && reflect.DeepEqual(old.Parts, a.Parts[:n]) {
			update.Append, update.Artifact.Parts = true, a.Parts[n:]
		}
		events = append(events, canonical.Event{Artifact: &update})
	}
	if !reflect.DeepEqual(before.Status, after.Status) || !reflect.DeepEqual(before.Inputs, after.Inputs) {
		status := after.Status
		events = append(events, canonical.Event{Status: &status, Inputs: after.Inputs})
	}
	return events
}

// Settle is a task whose output, or failure, stands where other protocols keep
// it: in artifacts and in the message of its status.
func Settle(t *canonical.Task) *canonical.Task {
	settled := *t
	settled.Output = nil
	for _, e := range ofOutput(&canonical.Result{Output: t.Output}) {
		switch {
		case e.Artifact != nil:
			settled.Artifacts = append(slices.Clip(settled.Artifacts), e.Artifact.Artifact)
		case e.Status.State == canonical.StateFailed:
			settled.Status.State, settled.Status.Message = e.Status.State, e.Status.Message
		}
	}
	return &settled
}

// Failed is the task of work that ended in an error.
func Failed(at canonical.Conversation, e *canonical.Error) *canonical.Task {
	text := "The task failed."
	if e != nil && e.Message != "" {
		text = e.Message
	}
	return &canonical.Task{
		ID: at.TaskID, ContextID: at.ContextID, Failure: e,
		Status: canonical.Status{State: canonical.StateFailed, Message: &canonical.Content{
			Role: canonical.RoleAgent, Parts: []canonical.Part{{Kind: canonical.KindText, Text: text}},
		}},
	}
}
