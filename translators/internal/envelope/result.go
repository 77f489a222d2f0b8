package envelope

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// The kinds of result.
const (
	kindTurn    = "turn"
	kindTask    = "task"
	kindOutput  = "output"
	kindPending = "pending"
)

func known(kind string) bool {
	return kind == kindTurn || kind == kindTask || kind == kindOutput || kind == kindPending
}

// KindOf names the kind of a result, as the member "kind" does.
func KindOf(r *canonical.Result) string {
	switch {
	case r.Task != nil:
		return kindTask
	case r.Turn != nil:
		return kindTurn
	case r.Pending != nil:
		return kindPending
	default:
		return kindOutput
	}
}

// recast says a result as another kind: the same words, and whether it failed.
func recast(r *canonical.Result, kind string) *canonical.Result {
	if KindOf(r) == kind {
		return r
	}
	parts, state := words(r)
	out := &canonical.Result{Extensions: r.Extensions}
	switch kind {
	case kindTurn:
		out.Turn = &canonical.Content{Role: canonical.RoleAgent, Parts: parts}
	case kindTask:
		out.Task = TaskOf(parts, state)
	case kindPending:
		out.Pending = &canonical.Pending{}
	default:
		out.Output = &canonical.Output{Parts: parts, Failed: state == canonical.StateFailed}
	}
	return out
}

// TaskOf is work that stands so, with what has come of it as one artifact.
func TaskOf(parts []canonical.Part, state canonical.State) *canonical.Task {
	t := &canonical.Task{Status: canonical.Status{State: state}}
	if len(parts) > 0 {
		t.Artifacts = []canonical.Artifact{{Parts: parts}}
	}
	return t
}

// Words is what a result says, as one list of parts, in the order in which a
// reader wants them, and how its work stands.
func Words(r *canonical.Result) ([]canonical.Part, canonical.State) {
	switch {
	case r.Pending != nil:
		return prompts(r.Pending.Inputs), canonical.StateInputRequired
	case r.Task == nil:
		return words(r)
	}
	var parts []canonical.Part
	if m := r.Task.Status.Message; m != nil {
		parts = append(parts, m.Parts...)
	}
	parts = append(parts, partsOf(r.Task.Artifacts)...)
	if out := r.Task.Output; out != nil {
		copied, _ := words(&canonical.Result{Output: out})
		parts = append(parts, copied...)
	}
	return append(parts, prompts(r.Task.Inputs)...), r.Task.Status.State
}

// prompts is what is asked.
func prompts(inputs []canonical.Input) []canonical.Part {
	var parts []canonical.Part
	for i := range inputs {
		parts = append(parts, inputs[i].Prompt...)
	}
	return parts
}

func words(r *canonical.Result) ([]canonical.Part, canonical.State) {
	switch {
	case r.Task != nil:
		return slices.Clip(partsOf(r.Task.Artifacts)), r.Task.Status.State
	case r.Turn != nil:
		return r.Turn.Parts, canonical.StateCompleted
	case r.Output == nil:
		return nil, canonical.StateCompleted
	}
	state, parts := canonical.StateCompleted, slices.Clip(r.Output.Parts)
	if r.Output.Failed {
		state = canonical.StateFailed
	}
	if r.Output.Structured != nil {
		parts = append(parts, canonical.Part{Kind: canonical.KindData, Data: r.Output.Structured})
	}
	return parts, state
}

func task(m *canonical.Message) *canonical.Task {
	switch body := m.Body.(type) {
	case *canonical.Result:
		return body.Task
	case *canonical.Event:
		return body.Task
	default:
		return nil
	}
}

func states() []canonical.State {
	return []canonical.State{
		canonical.StateUnknown, canonical.StateSubmitted, canonical.StateWorking, canonical.StateInputRequired, canonical.StateAuthRequired,
		canonical.StateCompleted, canonical.StateFailed, canonical.StateRejected, canonical.StateCanceled,
	}
}

func resultFields(own canonical.Binding) []field {
	output := of(body[canonical.Result], func(r *canonical.Result) *canonical.Output { return r.Output })
	return []field{
		raws("structured", canonical.LossStructured, "/body/output/structured", of(output, func(o *canonical.Output) *json.RawMessage { return &o.Structured })),
		flag("failed", canonical.LossState, "/body/output/failed", of(output, func(o *canonical.Output) *bool { return &o.Failed })),
		list("outputs", canonical.LossContent, "/body/output/parts",
			of(output, func(o *canonical.Output) *[]canonical.Part { return &o.Parts }), profile.WritePart, profile.ReadPart),
		taskText("result_task_id", canonical.LossIDs, "/body/task/id", func(t *canonical.Task) *string { return &t.ID }),
		taskText("result_context_id", canonical.LossIDs, "/body/task/contextId", func(t *canonical.Task) *string { return &t.ContextID }),
		among(taskText("state", canonical.LossState, "/body/task/status/state", func(t *canonical.Task) *string { return (*string)(&t.Status.State) }),
			states()...),
		moment("state_at", canonical.LossHistory, "/body/task/status/at", of(task, func(t *canonical.Task) *time.Time { return &t.Status.At })),
		content("state_message", canonical.LossPartBoundaries, "/body/task/status/message", of(task, func(t *canonical.Task) **canonical.Content { return &t.Status.Message })),
		{
			name: "artifacts", get: getArtifacts, set: setArtifacts, losses: one(canonical.LossArtifacts, "/body/task/artifacts"),
			beyond: artifactsBeyond,
		},
		list("history", canonical.LossHistory, "/body/task/history",
			of(task, func(t *canonical.Task) *[]canonical.Content { return &t.History }), profile.WriteContent, profile.ReadContent),
		exts("task_ext", "/body/task", own, of(task, func(t *canonical.Task) *canonical.Extensions { return &t.Extensions })),
	}
}

func taskText(name string, code canonical.LossCode, path string, at func(*canonical.Task) *string) field {
	return text(name, code, path, of(task, at))
}

func elementsOf(raw json.RawMessage) ([]json.RawMessage, bool) {
	if raw == nil {
		return nil, true
	}
	return rawjson.Elements(raw)
}

func getArtifacts(m *canonical.Message) json.RawMessage {
	t := task(m)
	if t == nil {
		return nil
	}
	return writeList(&t.Artifacts, func(a *canonical.Artifact) json.RawMessage { return writeArtifact(a, writeParts(a.Parts)) })
}

// artifactsBeyond says which artifacts a view's parts are of where the parts are
// the same: they are counted, not said twice.
func artifactsBeyond(m, view *canonical.Message) (raw json.RawMessage, ok bool) {
	t, seen := task(m), task(view)
	if t == nil || seen == nil || len(t.Artifacts) == 0 {
		return nil, false
	}
	return counted(t.Artifacts, seen.Artifacts, rawjson.ArrayOf)
}

// counted says artifacts with the number of their parts in place of them, if they
// are those of what was seen; nil: all is the same.
func counted(artifacts, seen []canonical.Artifact, join func([]json.RawMessage) json.RawMessage) (raw json.RawMessage, ok bool) {
	if !profile.SameParts(partsOf(artifacts), partsOf(seen)) {
		return nil, false
	}
	write := func(artifacts []canonical.Artifact) json.RawMessage {
		list := make([]json.RawMessage, len(artifacts))
		for i := range artifacts {
			var parts json.RawMessage
			if n := len(artifacts[i].Parts); n > 0 {
				parts = json.RawMessage(strconv.Itoa(n))
			}
			list[i] = writeArtifact(&artifacts[i], parts)
		}
		return join(list)
	}
	if raw = write(artifacts); len(artifacts) == len(seen) && rawjson.Equal(raw, write(seen)) {
		raw = nil
	}
	return raw, true
}

// partsOf are those of artifacts, in order.
func partsOf(artifacts []canonical.Artifact) []canonical.Part {
	if len(artifacts) == 1 {
		return artifacts[0].Parts
	}
	var parts []canonical.Part
	for i := range artifacts {
		parts = append(parts, artifacts[i].Parts...)
	}
	return parts
}

func writeArtifact(a *canonical.Artifact, parts json.RawMessage) json.RawMessage {
	b := rawjson.NewBuilder().Optional("id", a.ID).Optional("name", a.Name).Optional("description", a.Description).
		Strings("extensions", a.ExtensionURIs, false).Raw("ext", profile.WriteExt(a.Extensions, ""))
	return b.Raw("parts", parts).Bytes()
}

func setArtifacts(m *canonical.Message, raw json.RawMessage) bool {
	t := task(m)
	if t == nil {
		return false
	}
	seen := partsOf(t.Artifacts)
	return readList(&t.Artifacts, raw, func(raw json.RawMessage) (canonical.Artifact, bool) { return readArtifact(raw, &seen) })
}

// readArtifact takes the parts that are counted off those that were seen.
func readArtifact(raw json.RawMessage, seen *[]canonical.Part) (a canonical.Artifact, ok bool) {
	o := rawjson.Parse(raw, "")
	a.ID, _ = o.String("id")
	a.Name, _ = o.String("name")
	a.Description, _ = o.String("description")
	a.ExtensionURIs, _ = o.Strings("extensions")
	if n, err := strconv.Atoi(string(o.Peek("parts"))); err == nil {
		o.Take("parts")
		if ok = 0 < n && n <= len(*seen); ok {
			a.Parts, *seen = (*seen)[:n:n], (*seen)[n:]
		}
	} else {
		ok = readParts(o.Take("parts"), &a.Parts)
	}
	a.Extensions, ok = takeExt(o, ok)
	return a, ok && o.Err() == nil && len(o.Members()) == 0
}
