package profile

import (
	"encoding/json"
	"strconv"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// historyLimit bounds, in bytes, the history that an outline carries; a
// longer one is dropped, which is a declared loss.
const historyLimit = 1 << 20

// Flat is a turn or a task as one list of parts, the way a tool answers.
type Flat struct {
	Parts     []canonical.Part
	Paths     []string        // where each part stands in the canonical message; "" for Notice
	Notice    bool            // the first part is a sentence of ours that says what the state means
	Failed    bool            // the caller must not take this for an answer
	Outline   json.RawMessage // to be carried under Name
	Name      string          // OutlineTurn or OutlineTask
	Losses    []canonical.Loss
	Structure json.RawMessage // P1: what MessageOutputSchema describes; nil in other profiles
}

// Flatten lays out a result that has a turn or a task. message says that the
// tool has profile P1: its structure then says state, ids and artifacts, which
// are no losses there, and a question of the agent is an answer.
func Flatten(r *canonical.Result, conv canonical.Conversation, message bool) Flat {
	f := layout(r, message)
	if r.Task != nil {
		f.outlineTask(r.Task, message)
	} else {
		f.outlineTurn(r.Turn, conv, message)
	}
	if message {
		f.Structure = structure(r, conv, f.Notice)
	}
	return f
}

func layout(r *canonical.Result, message bool) Flat {
	var f Flat
	if r.Task == nil {
		f.add(r.Turn.Parts, "/body/turn/parts/")
		return f
	}
	t := r.Task
	f.Failed = failed(t.Status.State, message)
	if t.Status.State != canonical.StateCompleted {
		f.addMessage(t)
	}
	for i := range t.Artifacts {
		f.add(t.Artifacts[i].Parts, "/body/task/artifacts/"+strconv.Itoa(i)+"/parts/")
	}
	if t.Status.State == canonical.StateCompleted {
		f.addMessage(t)
	}
	if needsNotice(t) {
		f.Notice = true
		f.Parts = append([]canonical.Part{{Kind: canonical.KindText, Text: notice(t.Status.State)}}, f.Parts...)
		f.Paths = append([]string{""}, f.Paths...)
	}
	return f
}

func (f *Flat) add(parts []canonical.Part, path string) {
	for i := range parts {
		f.Parts = append(f.Parts, parts[i])
		f.Paths = append(f.Paths, path+strconv.Itoa(i))
	}
}

func (f *Flat) addMessage(t *canonical.Task) {
	if t.Status.Message != nil {
		f.add(t.Status.Message.Parts, "/body/task/status/message/parts/")
	}
}

// failed reports whether a state is no answer. With P1 a question is an answer.
func failed(state canonical.State, message bool) bool {
	switch state {
	case canonical.StateCompleted:
		return false
	case canonical.StateInputRequired, canonical.StateAuthRequired:
		return !message
	default:
		return true
	}
}

// needsNotice reports whether a text must name the state: always for an unfinished task, for
// another state than completed only if its status has no text.
func needsNotice(t *canonical.Task) bool {
	switch t.Status.State {
	case canonical.StateCompleted:
		return false
	case canonical.StateFailed, canonical.StateRejected, canonical.StateCanceled,
		canonical.StateInputRequired, canonical.StateAuthRequired:
		return t.Status.Message == nil || joined(t.Status.Message.Parts) == ""
	default:
		return true
	}
}

func notice(state canonical.State) string {
	switch state {
	case canonical.StateFailed:
		return "The task failed. The agent gave no reason."
	case canonical.StateRejected:
		return "The agent rejected the task. It gave no reason."
	case canonical.StateCanceled:
		return "The task was canceled."
	case canonical.StateInputRequired:
		return "The agent needs more input to go on."
	case canonical.StateAuthRequired:
		return "The agent needs an authorization to go on."
	default:
		return "The task is not finished; there is no answer yet."
	}
}

func joined(parts []canonical.Part) string {
	var text string
	for i := range parts {
		if parts[i].Kind == canonical.KindText && parts[i].Text != "" {
			if text != "" {
				text += separator
			}
			text += parts[i].Text
		}
	}
	return text
}

func (f *Flat) lose(code canonical.LossCode, path string) {
	f.Losses = append(f.Losses, canonical.Loss{Code: code, Path: path, Fate: canonical.Carried})
}

func (f *Flat) loseIf(there bool, code canonical.LossCode, path string) {
	if there {
		f.lose(code, path)
	}
}

func (f *Flat) outlineTurn(turn *canonical.Content, conv canonical.Conversation, message bool) {
	b := rawjson.NewBuilder().Optional("id", turn.ID).Optional("contextId", conv.ContextID).Optional("taskId", conv.TaskID)
	writeHead(b, turn, canonical.RoleAgent)
	f.Outline, f.Name = b.Bytes(), OutlineTurn
	f.loseIf(turn.ID != "", canonical.LossIDs, "/body/turn/id")
	f.loseIf(!message && conv.ContextID != "", canonical.LossIDs, "/conversation/contextId")
	f.loseIf(!message && conv.TaskID != "", canonical.LossIDs, "/conversation/taskId")
	f.Losses = append(f.Losses, headLosses(turn, "/body/turn")...)
}

func (f *Flat) outlineTask(t *canonical.Task, message bool) {
	b := rawjson.NewBuilder().Optional("id", t.ID).Optional("contextId", t.ContextID).String("state", string(t.Status.State))
	if !t.Status.At.IsZero() {
		b.Raw("at", quoteTime(t.Status.At))
		f.lose(canonical.LossHistory, "/body/task/status/at")
	}
	if f.Notice {
		b.Bool("notice", true)
	}
	if m := t.Status.Message; m != nil {
		b.Raw("message", outlineStatus(m))
		f.messageLosses(m)
	}
	if len(t.Artifacts) > 0 {
		list := make([]json.RawMessage, len(t.Artifacts))
		for i := range t.Artifacts {
			list[i] = outlineArtifact(&t.Artifacts[i])
			f.artifactLosses(&t.Artifacts[i], "/body/task/artifacts/"+strconv.Itoa(i), message)
		}
		b.Array("artifacts", list)
	}
	b.Raw("history", f.history(t))
	f.Outline, f.Name = b.Raw("ext", writeExt(t.Extensions)).Bytes(), OutlineTask
	f.taskLosses(t, message)
}

func outlineStatus(m *canonical.Content) json.RawMessage {
	b := rawjson.NewBuilder().Optional("id", m.ID)
	writeHead(b, m, canonical.RoleAgent)
	return b.Raw("parts", json.RawMessage(strconv.Itoa(len(m.Parts)))).Bytes()
}

func outlineArtifact(a *canonical.Artifact) json.RawMessage {
	return rawjson.NewBuilder().Optional("id", a.ID).Optional("name", a.Name).Optional("description", a.Description).
		Raw("extensions", rawjson.ArrayOfStrings(a.ExtensionURIs)).Raw("ext", writeExt(a.Extensions)).
		Raw("parts", json.RawMessage(strconv.Itoa(len(a.Parts)))).Bytes()
}

func (f *Flat) history(t *canonical.Task) json.RawMessage {
	if len(t.History) == 0 {
		return nil
	}
	turns := make([]json.RawMessage, len(t.History))
	size := 0
	for i := range t.History {
		turns[i] = WriteContent(&t.History[i])
		size += len(turns[i])
	}
	if size > historyLimit {
		f.Losses = append(f.Losses, canonical.Loss{Code: canonical.LossHistory, Path: "/body/task/history", Fate: canonical.Dropped})
		return nil
	}
	f.lose(canonical.LossHistory, "/body/task/history")
	return rawjson.ArrayOf(turns)
}

func (f *Flat) messageLosses(m *canonical.Content) {
	f.loseIf(m.ID != "", canonical.LossIDs, "/body/task/status/message/id")
	f.Losses = append(f.Losses, headLosses(m, "/body/task/status/message")...)
}

// artifactLosses declares the losses of an artifact. P1's structure has its id and name.
func (f *Flat) artifactLosses(a *canonical.Artifact, path string, message bool) {
	f.loseIf(a.Description != "" || (!message && (a.ID != "" || a.Name != "")), canonical.LossArtifacts, path)
	if len(a.ExtensionURIs) > 0 {
		f.lose(canonical.LossMetadata, path+"/extensionURIs")
	}
	f.Losses = append(f.Losses, ForeignLosses(a.Extensions, "", path)...)
}

func (f *Flat) taskLosses(t *canonical.Task, message bool) {
	state := t.Status.State
	f.loseIf(!message && t.ID != "", canonical.LossIDs, "/body/task/id")
	f.loseIf(!message && t.ContextID != "", canonical.LossIDs, "/body/task/contextID")
	f.loseIf(!message && state != canonical.StateCompleted && state != canonical.StateFailed, canonical.LossState, "/body/task/status/state")
	f.Losses = append(f.Losses, ForeignLosses(t.Extensions, "", "/body/task")...)
}

// structure is the structured result of a P1 tool.
func structure(r *canonical.Result, conv canonical.Conversation, withNotice bool) json.RawMessage {
	if r.Task == nil {
		return rawjson.NewBuilder().String("state", string(canonical.StateCompleted)).String("text", joined(r.Turn.Parts)).
			Optional("context_id", conv.ContextID).Optional("task_id", conv.TaskID).Bytes()
	}
	t := r.Task
	b := rawjson.NewBuilder().String("state", string(t.Status.State)).String("text", taskText(t)).
		Optional("context_id", t.ContextID).Optional("task_id", t.ID)
	if len(t.Artifacts) == 0 {
		return b.Bytes()
	}
	at := 0
	if withNotice {
		at = 1
	}
	if m := t.Status.Message; m != nil && t.Status.State != canonical.StateCompleted {
		at += len(m.Parts)
	}
	artifacts := make([]json.RawMessage, len(t.Artifacts))
	for i := range t.Artifacts {
		artifacts[i] = structureArtifact(&t.Artifacts[i], at)
		at += len(t.Artifacts[i].Parts)
	}
	return b.Array("artifacts", artifacts).Bytes()
}

func taskText(t *canonical.Task) string {
	if t.Status.Message != nil {
		if text := joined(t.Status.Message.Parts); text != "" {
			return text
		}
	}
	if t.Status.State != canonical.StateCompleted {
		return notice(t.Status.State)
	}
	var all []canonical.Part
	for i := range t.Artifacts {
		all = append(all, t.Artifacts[i].Parts...)
	}
	return joined(all)
}

func structureArtifact(a *canonical.Artifact, at int) json.RawMessage {
	parts := make([]json.RawMessage, len(a.Parts))
	for i := range a.Parts {
		p := &a.Parts[i]
		b := rawjson.NewBuilder()
		switch p.Kind {
		case canonical.KindText:
			b.String("text", p.Text)
		case canonical.KindData:
			b.Raw("data", p.Data)
		case canonical.KindRef:
			b.String("uri", p.URI)
		default:
			b.Raw("content", json.RawMessage(strconv.Itoa(at+i)))
		}
		parts[i] = b.Optional("name", p.Name).Optional("mediaType", p.Media).Bytes()
	}
	return rawjson.NewBuilder().Optional("id", a.ID).Optional("name", a.Name).Array("parts", parts).Bytes()
}
