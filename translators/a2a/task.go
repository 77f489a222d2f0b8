package a2a

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// carriedReply are the canonical members of a reply that A2A has no place for.
var carriedReply = []profile.Field{
	profile.FieldDeadline, profile.FieldProgress, profile.FieldLogLevel,
	profile.FieldFromName, profile.FieldFromVersion, profile.FieldMessageExt,
}

// carriedTask also has what a message says natively and a task does not.
var carriedTask = append([]profile.Field{profile.FieldMessageID, profile.FieldReferences, profile.FieldTenant}, carriedReply...)

// carriedMessage is the same for a reply that is a message.
var carriedMessage = append([]profile.Field{profile.FieldTenant}, carriedReply...)

// keyResult is the member of canon with the extensions of the result around a
// task or message: A2A gives metadata to those, and none to the result.
const keyResult = "result"

// decodeAnswer reads the reply to an operation, or one event of it.
func decodeAnswer(m *canonical.Message, w translators.Wire, result json.RawMessage) error {
	if m.Op == canonical.OpNative {
		m.Body = &canonical.Native{Result: result}
		extensionsHeader(m, w)
		return nil
	}
	result, raised, err := raise(m, result, "/result", answers(w.Re, w.Event), w.Form)
	if err != nil {
		return err
	}
	d := &decoder{losses: raised}
	d.answer(m, w.Event, result)
	m.Losses = append(d.losses, m.Losses...)
	extensionsHeader(m, w)
	return d.err
}

func (d *decoder) answer(m *canonical.Message, event bool, raw json.RawMessage) {
	switch {
	case event:
		m.Phase = canonical.PhaseEvent
		d.event(m, raw)
	case m.Op == canonical.OpInvoke, m.Op == canonical.OpTaskSubscribe:
		d.response(m, raw)
	case m.Op == canonical.OpTaskGet, m.Op == canonical.OpTaskCancel, m.Op == canonical.OpTaskResult:
		body := &canonical.Result{}
		m.Body = body
		d.task(m, body, raw, "/result")
	case m.Op == canonical.OpTaskList:
		d.tasks(m, raw)
	case m.Op == canonical.OpPush:
		d.pushResult(m, raw)
	default:
		d.check(&translators.MalformedError{Path: "/result", Reason: "A2A has no such operation"})
	}
}

func (d *decoder) response(m *canonical.Message, raw json.RawMessage) {
	r := d.open(raw, "/result", responseMembers)
	body := &canonical.Result{}
	m.Body = body
	task, message := r.value("task"), r.value("message")
	switch {
	case d.err != nil:
	case (task == nil) == (message == nil):
		r.fail("", "neither a task nor a message")
	case task != nil:
		output := d.task(m, body, task, r.Path("task"))
		body.Extensions = result(body.Extensions, r.leftover())
		if output && d.err == nil {
			restore(m, raw)
		}
	default:
		d.reply(m, body, message, r.Path("message"))
		body.Extensions = result(body.Extensions, r.leftover())
	}
}

// result adds the result's own leftovers to what was carried for it.
func result(ext canonical.Extensions, leftover json.RawMessage) canonical.Extensions {
	return ext.With(Binding, leftover)
}

func (d *decoder) reply(m *canonical.Message, body *canonical.Result, raw json.RawMessage, path string) {
	content, r, c, skill := d.content(raw, path, &m.Conversation)
	if skill != "" {
		r.fail("metadata", "a skill is chosen by a request")
	}
	m.Correlation.MessageID = content.ID
	body.Turn = &content
	profile.RestoreMessage(c.Canon, m, carriedMessage...)
	body.Extensions = takeResult(c.Canon)
	content.Extensions = c.Extensions(Binding, r.leftover())
}

// takeResult takes the extensions of the result out of canon.
func takeResult(canon *rawjson.Object) canonical.Extensions {
	raw := canon.Peek(keyResult)
	if raw == nil || raw[0] != '{' {
		return nil
	}
	ext := canonical.Extensions{}
	for _, m := range rawjson.Parse(raw, "").Members() {
		if m.Value[0] != '{' || m.Name == string(Binding) {
			return nil
		}
		ext[canonical.Binding(m.Name)] = m.Value
	}
	if len(ext) == 0 {
		return nil
	}
	canon.Take(keyResult)
	return ext
}

// task reads a task; output: it says that it was made from a call's direct output.
func (d *decoder) task(m *canonical.Message, body *canonical.Result, raw json.RawMessage, path string) (output bool) {
	r := d.open(raw, path, taskMembers)
	task := &canonical.Task{ID: r.text("id"), ContextID: r.text("contextId")}
	body.Task = task
	task.Status = d.status(r)
	for i, element := range r.list("artifacts") {
		task.Artifacts = append(task.Artifacts, d.artifact(element, at(r.Path("artifacts"), i)))
	}
	for i, element := range r.list("history") {
		task.History = append(task.History, d.decodeContent(element, at(r.Path("history"), i)))
	}
	m.Conversation.TaskID, m.Conversation.ContextID = task.ID, task.ContextID
	task.Inputs = inputsIn(&task.Status)
	c, _ := r.carried()
	profile.RestoreMessage(c.Canon, m, carriedTask...)
	body.Extensions = takeResult(c.Canon)
	moreOf(task, c.Canon)
	task.Extensions = c.Extensions(Binding, r.leftover())
	if d.err == nil {
		yielded(m, task, c.Canon, raw)
	}
	return string(c.Canon.Peek(keyOutput)) == "true"
}

func (d *decoder) status(task *reader) canonical.Status {
	raw := task.value("status")
	if raw == nil {
		task.fail("status", "required")
		return canonical.Status{}
	}
	r := d.open(raw, task.Path("status"), statusMembers)
	if !r.Has("state") || string(r.Peek("state")) == "null" {
		r.fail("state", "required")
	}
	status := canonical.Status{State: canonical.State(r.enum("state", states))}
	status.State = cmp.Or(status.State, canonical.StateUnknown)
	if message := r.value("message"); message != nil {
		content := d.decodeContent(message, r.Path("message"))
		status.Message = &content
	}
	status.At = r.time("timestamp")
	if rest := r.leftover(); rest != nil {
		task.keep("status", rest)
	}
	return status
}

// time takes a timestamp; a form that we would not write, or cannot read, is kept.
func (r *reader) time(name string) time.Time {
	text := r.text(name)
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.IsZero() {
		r.keep(name, rawjson.Quote(text))
		return time.Time{}
	}
	if stamp(t) != text {
		r.keep(name, rawjson.Quote(text))
	}
	return t.UTC()
}

// stamp writes a time in UTC with milliseconds (A2A 5.6.1), or finer if it is.
func stamp(t time.Time) string {
	t = t.UTC()
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		return t.Format(time.RFC3339Nano)
	}
	return t.Format("2006-01-02T15:04:05.000Z")
}

func (w *writer) time(name string, t time.Time) {
	form := w.form(name)
	text, isText := rawjson.Unquote(form)
	parsed, err := time.Parse(time.RFC3339Nano, text)
	says := isText && err == nil && !parsed.IsZero()
	switch {
	case form != nil && (says && parsed.Equal(t) || !says && t.IsZero()):
		w.b.Raw(name, form)
	case !t.IsZero():
		w.b.String(name, stamp(t))
	}
}

func (d *decoder) artifact(raw json.RawMessage, path string) canonical.Artifact {
	r := d.open(raw, path, artifactMembers)
	a := canonical.Artifact{
		ID: r.text("artifactId"), Name: r.text("name"), Description: r.text("description"),
		Parts: d.parts(r.list("parts"), r.Path("parts")), ExtensionURIs: r.texts("extensions"),
	}
	c, _ := r.carried()
	a.Extensions = c.Extensions(Binding, r.leftover())
	return a
}

// task writes a task. canon is what the gateway adds to its metadata.
func (e *encoder) task(task *canonical.Task, canon *rawjson.Builder, path string) json.RawMessage {
	w := newWriter(task.Extensions[Binding], taskMembers)
	w.text("id", task.ID)
	w.text("contextId", task.ContextID)
	e.more(task, canon, path)
	reported := e.sayableTask(task, canon, path)
	yields := reported.Output != nil && len(reported.Artifacts) == 0 && (!reported.Output.Failed || reported.Status.Message == nil)
	var artifacts []json.RawMessage
	var words json.RawMessage
	if yields {
		artifacts, words = e.yield(reported, path)
	}
	if words != nil {
		reported.Status.State = canonical.StateFailed
		w.b.Raw("status", e.failedStatus(&reported.Status, w.form("status"), words, path+"/status"))
	} else {
		w.b.Raw("status", e.status(&reported.Status, w.form("status"), path+"/status", task.ID))
	}
	for i := range reported.Artifacts {
		artifacts = append(artifacts, e.artifact(&reported.Artifacts[i], at(path+"/artifacts", i)))
	}
	w.list("artifacts", artifacts)
	history := make([]json.RawMessage, len(task.History))
	for i := range task.History {
		history[i] = e.say(&task.History[i], at(path+"/history", i), e.mint(at(task.ID+"/history", i)))
	}
	w.list("history", history)
	w.metadata(e.wrap(canon, task.Extensions, path))
	return w.bytes()
}

// failedStatus is a status whose message is written already.
func (e *encoder) failedStatus(s *canonical.Status, leftover, words json.RawMessage, path string) json.RawMessage {
	bare := *s
	bare.Message = nil
	raw := e.status(&bare, leftover, path, "")
	return rawjson.NewBuilder().Merge(without(rawjson.Parse(raw, ""), "message")).Raw("message", words).Bytes()
}

func (e *encoder) status(s *canonical.Status, leftover json.RawMessage, path, id string) json.RawMessage {
	w := newWriter(objectOrNil(leftover), statusMembers)
	state := cmp.Or(s.State, canonical.StateUnknown)
	w.enum("state", string(state), string(canonical.StateUnknown), states)
	var message json.RawMessage
	if s.Message != nil {
		message = e.say(s.Message, path+"/message", e.mint(id+"/status"))
	}
	w.raw("message", message)
	w.time("timestamp", s.At)
	return w.bytes()
}

func (e *encoder) artifact(a *canonical.Artifact, path string) json.RawMessage {
	w := newWriter(a.Extensions[Binding], artifactMembers)
	w.text("artifactId", a.ID)
	w.text("name", a.Name)
	w.text("description", a.Description)
	w.list("parts", e.parts(a.Parts, path+"/parts"))
	w.texts("extensions", a.ExtensionURIs)
	w.metadata(e.wrap(rawjson.NewBuilder(), a.Extensions, path))
	return w.bytes()
}
