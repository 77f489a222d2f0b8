package a2a

import (
	"bytes"
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// The members of an event beyond A2A's own. keyAround is the leftover that
// keeps what stood around an update; keyProgress the member of canon that makes
// a change of status a progress again.
const (
	keyAround   = profile.ExtensionURI + "#around"
	keyProgress = "progress"
)

// event reads one item of a stream.
func (d *decoder) event(m *canonical.Message, raw json.RawMessage) {
	r := d.open(raw, "/result", eventMembers)
	event := &canonical.Event{}
	var found []string
	values := map[string]json.RawMessage{}
	for _, name := range eventMembers {
		if value := r.value(name); value != nil {
			found, values[name] = append(found, name), value
		}
	}
	m.Body = event
	if d.err != nil || len(found) != 1 {
		r.fail("", "an event is exactly one of task, message, statusUpdate and artifactUpdate")
		return
	}
	name, value := found[0], values[found[0]]
	switch name {
	case "task":
		body := &canonical.Result{}
		d.task(m, body, value, r.Path(name))
		event.Task, event.Extensions = body.Task, result(body.Extensions, r.leftover())
	case "message":
		body := &canonical.Result{}
		d.reply(m, body, value, r.Path(name))
		event.Turn, event.Extensions = body.Turn, result(body.Extensions, r.leftover())
	case "statusUpdate":
		d.statusUpdate(m, event, value, r.Path(name), r.leftover())
	default:
		d.artifactUpdate(m, event, value, r.Path(name), r.leftover())
	}
}

func (d *decoder) statusUpdate(m *canonical.Message, event *canonical.Event, raw json.RawMessage, path string, around json.RawMessage) {
	r := d.open(raw, path, statusEvent)
	d.placed(m, r)
	status := d.status(r)
	event.Status = &status
	event.Inputs = inputsIn(&status)
	c, _ := r.carried()
	profile.RestoreMessage(c.Canon, m, carriedTask...)
	around = aroundOf(r.leftover(), around)
	if p := progressOf(&status, c.Canon); p != nil {
		event.Status, event.Inputs, event.Progress = nil, nil, p
	}
	event.Extensions = c.Extensions(Binding, around)
}

func (d *decoder) artifactUpdate(m *canonical.Message, event *canonical.Event, raw json.RawMessage, path string, around json.RawMessage) {
	r := d.open(raw, path, artifactEvent)
	d.placed(m, r)
	artifact := r.value("artifact")
	if artifact == nil {
		r.fail("artifact", "required")
		return
	}
	event.Artifact = &canonical.ArtifactUpdate{
		Artifact: d.artifact(artifact, r.Path("artifact")), Append: r.flag("append"), Last: r.flag("lastChunk"),
	}
	c, _ := r.carried()
	profile.RestoreMessage(c.Canon, m, carriedTask...)
	event.Extensions = c.Extensions(Binding, aroundOf(r.leftover(), around))
}

// placed reads which task an update is of.
func (d *decoder) placed(m *canonical.Message, r *reader) {
	m.Conversation.TaskID, m.Conversation.ContextID = r.text("taskId"), r.text("contextId")
	if m.Conversation.TaskID == "" {
		r.fail("taskId", "required")
	}
}

// aroundOf adds what stood around an update to what was left of it.
func aroundOf(left, around json.RawMessage) json.RawMessage {
	if around == nil {
		return left
	}
	return rawjson.NewBuilder().Merge(left).Raw(keyAround, around).Bytes()
}

// progressOf is the progress that a change of status was made from: its mark in
// canon, and its words as the status's message. nil: it was not made so.
func progressOf(s *canonical.Status, canon *rawjson.Object) *canonical.Progress {
	raw := canon.Peek(keyProgress)
	if !rawjson.IsObject(raw) || s.State != canonical.StateWorking || !s.At.IsZero() {
		return nil
	}
	o := rawjson.Parse(raw, "")
	p := &canonical.Progress{Token: o.Take("token"), Value: o.Take("value"), Total: o.Take("total")}
	switch {
	case s.Message == nil:
	case len(s.Message.Parts) == 1 && s.Message.Parts[0].Kind == canonical.KindText:
		p.Message = s.Message.Parts[0].Text
	default:
		return nil
	}
	if o.Rest() != nil || !rawjson.IsNumber(p.Value) || p.Total != nil && !rawjson.IsNumber(p.Total) {
		return nil
	}
	canon.Take(keyProgress)
	return p
}

// event writes one item of a stream.
func (e *encoder) event(event *canonical.Event) (json.RawMessage, error) {
	left := event.Extensions[Binding]
	around := left
	if event.Task == nil && event.Turn == nil {
		around = rawjson.Parse(rawjson.OrEmpty(left), "").Take(keyAround)
		left = without(rawjson.Parse(rawjson.OrEmpty(left), ""), keyAround)
	}
	w := newWriter(objectOrNil(around), eventMembers)
	conv := e.m.Conversation
	switch {
	case event.Task != nil, event.Turn != nil:
		encoded, err := e.response(&canonical.Result{Task: event.Task, Turn: event.Turn, Extensions: event.Extensions})
		if err != nil {
			return nil, err
		}
		for _, m := range rawjson.Parse(encoded, "").Members() {
			w.form(m.Name)
			w.b.Raw(m.Name, m.Value)
		}
	case event.Status != nil:
		w.form("statusUpdate")
		w.b.Raw("statusUpdate", e.statusUpdate(event, event.Status, left, &conv, rawjson.NewBuilder()))
	case event.Progress != nil:
		w.form("statusUpdate")
		w.b.Raw("statusUpdate", e.progress(event, left, &conv))
	case event.Artifact != nil:
		w.form("artifactUpdate")
		w.b.Raw("artifactUpdate", e.artifactUpdate(event, left, &conv))
	default:
		return nil, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "A2A has no such event"}
	}
	for _, name := range eventMembers {
		w.nulls(name)
	}
	return w.bytes(), nil
}

func objectOrNil(raw json.RawMessage) json.RawMessage {
	if rawjson.IsObject(raw) {
		return raw
	}
	return nil
}

func (e *encoder) statusUpdate(event *canonical.Event, s *canonical.Status, left json.RawMessage, conv *canonical.Conversation, canon *rawjson.Builder) json.RawMessage {
	w := newWriter(left, statusEvent)
	w.place(conv)
	status := e.asking(s, event.Inputs, "/body", conv.TaskID)
	w.b.Raw("status", e.status(status, w.form("status"), "/body/status", conv.TaskID))
	e.carry(canon, carriedTask)
	w.metadata(e.wrap(canon, event.Extensions, "/body"))
	return w.bytes()
}

// progress writes a progress as a working status: its text as the message, its numbers as
// metadata for clients that know them (reference, streaming events).
func (e *encoder) progress(event *canonical.Event, left json.RawMessage, conv *canonical.Conversation) json.RawMessage {
	p := event.Progress
	status := canonical.Status{State: canonical.StateWorking, At: e.target.Stamp.At}
	if p.Message != "" {
		status.Message = &canonical.Content{
			ID: conv.TaskID + "/progress", Role: canonical.RoleAgent,
			Parts: []canonical.Part{{Kind: canonical.KindText, Text: p.Message}},
		}
	}
	mark := rawjson.NewBuilder().Raw("token", p.Token).Raw("value", rawjson.Or(p.Value, "0")).Raw("total", p.Total).Bytes()
	e.lose(canonical.LossProgress, "/body/progress")
	return e.statusUpdate(event, &status, left, conv, rawjson.NewBuilder().Raw(keyProgress, mark))
}

func (e *encoder) artifactUpdate(event *canonical.Event, left json.RawMessage, conv *canonical.Conversation) json.RawMessage {
	u := event.Artifact
	w := newWriter(left, artifactEvent)
	w.place(conv)
	w.b.Raw("artifact", e.artifact(&u.Artifact, "/body/artifact/artifact"))
	w.flag("append", u.Append)
	w.flag("lastChunk", u.Last)
	canon := rawjson.NewBuilder()
	e.carry(canon, carriedTask)
	w.metadata(e.wrap(canon, event.Extensions, "/body"))
	return w.bytes()
}

// place writes which task an update is of.
func (w *writer) place(conv *canonical.Conversation) {
	w.text("taskId", conv.TaskID)
	w.text("contextId", conv.ContextID)
}

// IsFinal reports whether an event of 0.3, over JSON-RPC or HTTP alone, is the status update
// after which its stream ends (A2A 0.3, 7.2.2).
func IsFinal(event []byte) bool {
	if !bytes.Contains(event, []byte(`"final"`)) {
		return false
	}
	type update struct {
		Kind  string
		Final bool
	}
	var e struct {
		Result       update
		StatusUpdate update
	}
	err := json.Unmarshal(event, &e)
	return err == nil && (e.Result.Kind == "status-update" && e.Result.Final || e.StatusUpdate.Final)
}
