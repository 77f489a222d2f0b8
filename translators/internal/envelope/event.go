package envelope

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// EventMember says which kind of event the message is. A codec writes it itself
// where its native members would read as a reply.
const EventMember = "event"

// The kinds of event.
const (
	eventTask     = "task"
	eventTurn     = "turn"
	eventStatus   = "status"
	eventArtifact = "artifact"
	eventProgress = "progress"
	eventLog      = "log"
	eventAsk      = "ask"
	eventNative   = "native"
)

// KindOfEvent names the kind of an event, as the member "event" does.
func KindOfEvent(e *canonical.Event) string {
	switch {
	case e.Task != nil:
		return eventTask
	case e.Turn != nil:
		return eventTurn
	case e.Artifact != nil:
		return eventArtifact
	case e.Progress != nil:
		return eventProgress
	case e.Log != nil:
		return eventLog
	case e.Ask != nil:
		return eventAsk
	case e.Native != nil:
		return eventNative
	default:
		return eventStatus
	}
}

// HasEvent reports whether an object says which kind of event its message is.
func HasEvent(object json.RawMessage) bool {
	return len(object) > 0 && object[0] == '{' && rawjson.Parse(object, "").Has(EventMember)
}

// EventWords is what an event says, as one list of parts, and how the work
// stands after it.
func EventWords(e *canonical.Event) ([]canonical.Part, canonical.State) {
	working := canonical.StateWorking
	switch {
	case e.Task != nil:
		return Words(&canonical.Result{Task: e.Task})
	case e.Turn != nil:
		return e.Turn.Parts, working
	case e.Artifact != nil:
		return e.Artifact.Artifact.Parts, working
	case e.Progress != nil && e.Progress.Message != "":
		return []canonical.Part{{Kind: canonical.KindText, Text: e.Progress.Message}}, working
	case e.Log != nil && e.Log.Data != nil:
		return []canonical.Part{{Kind: canonical.KindData, Data: e.Log.Data}}, working
	case e.Ask != nil:
		return e.Ask.Input.Prompt, canonical.StateInputRequired
	case e.Status == nil:
		return nil, working
	}
	var parts []canonical.Part
	if e.Status.Message != nil {
		parts = e.Status.Message.Parts
	}
	return append(slices.Clip(parts), prompts(e.Inputs)...), e.Status.State
}

// recastEvent says an event as another kind: the same words, and how the work
// stands. False: there is no such kind.
func recastEvent(e *canonical.Event, kind string) (*canonical.Event, bool) {
	if KindOfEvent(e) == kind {
		return e, true
	}
	parts, state := EventWords(e)
	out := &canonical.Event{Extensions: e.Extensions}
	switch kind {
	case eventTask:
		out.Task = recast(&canonical.Result{Turn: &canonical.Content{Parts: parts}}, kindTask).Task
		out.Task.Status.State = state
	case eventTurn:
		out.Turn = &canonical.Content{Role: canonical.RoleAgent, Parts: parts}
	case eventStatus:
		out.Status = &canonical.Status{State: state}
		if len(parts) > 0 {
			out.Status.Message = &canonical.Content{Role: canonical.RoleAgent, Parts: parts}
		}
	case eventArtifact:
		out.Artifact = &canonical.ArtifactUpdate{Artifact: canonical.Artifact{Parts: parts}}
	case eventProgress:
		text, _ := canonical.TextOf(parts, "\n\n")
		out.Progress = &canonical.Progress{Message: text}
	case eventLog:
		out.Log = &canonical.Log{}
		if len(parts) == 1 && parts[0].Kind == canonical.KindData {
			out.Log.Data = parts[0].Data
		} else if text, _ := canonical.TextOf(parts, "\n\n"); text != "" {
			out.Log.Data = rawjson.Quote(text)
		}
	case eventAsk:
		out.Ask = &canonical.Ask{Input: canonical.Input{Prompt: parts}}
	case eventNative:
		out.Native = &canonical.Native{}
	default:
		return nil, false
	}
	return out, true
}

// changeFields are about a task's changes.
func changeFields() []field {
	status := of(body[canonical.Event], func(e *canonical.Event) *canonical.Status { return e.Status })
	artifact := of(body[canonical.Event], func(e *canonical.Event) *canonical.ArtifactUpdate { return e.Artifact })
	asksOf := of(body[canonical.Event], func(e *canonical.Event) *[]canonical.Input {
		if e.Status == nil {
			return nil
		}
		return &e.Inputs
	})
	return []field{
		among(text("event_state", canonical.LossState, "/body/status/state", of(status, func(s *canonical.Status) *string { return (*string)(&s.State) })),
			states()...),
		moment("event_at", canonical.LossHistory, "/body/status/at", of(status, func(s *canonical.Status) *time.Time { return &s.At })),
		content("event_message", canonical.LossPartBoundaries, "/body/status/message", of(status, func(s *canonical.Status) **canonical.Content { return &s.Message })),
		inputs("event_asks", "/body/inputs", asksOf),
		{
			name: "event_artifact", get: getArtifactUpdate, set: setArtifactUpdate, losses: one(canonical.LossArtifacts, "/body/artifact/artifact"),
			beyond: updateBeyond,
		},
		flag("append", canonical.LossChunks, "/body/artifact/append", of(artifact, func(a *canonical.ArtifactUpdate) *bool { return &a.Append })),
		flag("last", canonical.LossChunks, "/body/artifact/last", of(artifact, func(a *canonical.ArtifactUpdate) *bool { return &a.Last })),
	}
}

// noticeFields are about what is no change of a task.
func noticeFields() []field {
	progress := of(body[canonical.Event], func(e *canonical.Event) *canonical.Progress { return e.Progress })
	log := of(body[canonical.Event], func(e *canonical.Event) *canonical.Log { return e.Log })
	ask := of(body[canonical.Event], func(e *canonical.Event) *canonical.Ask { return e.Ask })
	const code = canonical.LossProgress
	return []field{
		raws("progress_token", code, "/body/progress/token", of(progress, func(p *canonical.Progress) *json.RawMessage { return &p.Token })),
		raws("progress_value", code, "/body/progress/value", of(progress, func(p *canonical.Progress) *json.RawMessage { return &p.Value })),
		raws("progress_total", code, "/body/progress/total", of(progress, func(p *canonical.Progress) *json.RawMessage { return &p.Total })),
		text("progress_message", code, "/body/progress/message", of(progress, func(p *canonical.Progress) *string { return &p.Message })),
		text("log_at", code, "/body/log/level", of(log, func(l *canonical.Log) *string { return &l.Level })),
		text("logger", code, "/body/log/logger", of(log, func(l *canonical.Log) *string { return &l.Logger })),
		raws("log_data", code, "/body/log/data", of(log, func(l *canonical.Log) *json.RawMessage { return &l.Data })),
		raws("ask_id", canonical.LossIDs, "/body/ask/id", of(ask, func(a *canonical.Ask) *json.RawMessage { return &a.ID })),
		whole("ask", canonical.LossElicitation, "/body/ask/input", of(ask, func(a *canonical.Ask) *canonical.Input { return &a.Input }), writeInput, readInput),
		whole("event_native", canonical.LossPrompts, "/body/native",
			of(body[canonical.Event], func(e *canonical.Event) *canonical.Native { return e.Native }), writeNotice, readNotice),
	}
}

// content is a turn that may be absent.
func content(name string, code canonical.LossCode, path string, at func(*canonical.Message) **canonical.Content) field {
	return optional(name, code, path, at, profile.WriteContent, profile.ReadContent)
}

func getArtifactUpdate(m *canonical.Message) json.RawMessage {
	if e := body[canonical.Event](m); e != nil && e.Artifact != nil {
		return writeArtifact(&e.Artifact.Artifact, writeParts(e.Artifact.Artifact.Parts))
	}
	return nil
}

// updateBeyond is artifactsBeyond of one artifact.
func updateBeyond(m, view *canonical.Message) (raw json.RawMessage, ok bool) {
	e, seen := body[canonical.Event](m), body[canonical.Event](view)
	if e == nil || e.Artifact == nil || seen == nil || seen.Artifact == nil {
		return nil, false
	}
	return counted([]canonical.Artifact{e.Artifact.Artifact}, []canonical.Artifact{seen.Artifact.Artifact}, func(list []json.RawMessage) json.RawMessage { return list[0] })
}

func setArtifactUpdate(m *canonical.Message, raw json.RawMessage) (ok bool) {
	e := body[canonical.Event](m)
	if e == nil || e.Artifact == nil {
		return false
	}
	seen := e.Artifact.Artifact.Parts
	e.Artifact.Artifact, ok = readArtifact(raw, &seen)
	return ok
}

func writeNotice(n *canonical.Native) json.RawMessage {
	return rawjson.NewBuilder().String("method", n.Method).Raw("params", n.Params).Bytes()
}

func readNotice(raw json.RawMessage) (canonical.Native, bool) {
	o := rawjson.Parse(raw, "")
	n := canonical.Native{Method: o.Required("method"), Params: o.Take("params")}
	return n, o.Err() == nil && len(o.Members()) == 0
}
