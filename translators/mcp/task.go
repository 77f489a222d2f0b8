package mcp

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// metaRelated names, in 2025-11-25, the task that a message belongs to.
const metaRelated = "io.modelcontextprotocol/related-task"

// The states of a task in MCP's words.
const (
	taskWorking   = "working"
	taskAsks      = "input_required"
	taskCompleted = "completed"
	taskFailed    = "failed"
	taskCancelled = "cancelled"
)

// canonState holds the state that one of them stands for, where it is another
// than the one that it would be read as.
const canonState = "state"

// states are what they stand for.
var states = map[string]canonical.State{
	taskWorking: canonical.StateWorking, taskAsks: canonical.StateInputRequired, taskCompleted: canonical.StateCompleted,
	taskFailed: canonical.StateFailed, taskCancelled: canonical.StateCanceled,
}

// statusOf says a task's state. Since 2026-07-28 a tool that failed has
// completed, and only a call that broke off has failed (ext-tasks).
func (e *encoder) statusOf(t *canonical.Task) string {
	switch t.Status.State {
	case canonical.StateCompleted:
		if !e.modern && t.Output != nil && t.Output.Failed {
			return taskFailed
		}
		return taskCompleted
	case canonical.StateCanceled:
		return taskCancelled
	case canonical.StateFailed, canonical.StateRejected:
		if e.modern && (t.Output != nil || t.Failure == nil && !e.native && e.m.Origin.Binding != Binding) {
			return taskCompleted
		}
		return taskFailed
	case canonical.StateInputRequired, canonical.StateAuthRequired:
		if e.modern && len(t.Inputs) == 0 && !e.native {
			return taskWorking
		}
		return taskAsks
	default:
		return taskWorking
	}
}

// names of the members that the revisions spell differently.
func spans(version string) (ttl, poll string) {
	if version == Modern {
		return "ttlMs", "pollIntervalMs"
	}
	return "ttl", "pollInterval"
}

// takeTask takes the fields of a task out of an object.
func takeTask(o, canon *rawjson.Object, version string) *canonical.Task {
	t := &canonical.Task{ID: o.Required("taskId")}
	status := o.Required("status")
	state, ok := states[status]
	if !ok {
		o.Fail("status", "not a state of a task")
	}
	t.Status.State = state
	if carried := canon.PeekText(canonState); carried != "" && finer(canonical.State(carried), status) {
		canon.Take(canonState)
		t.Status.State = canonical.State(carried)
	}
	var text string
	if takeText(o, "statusMessage", &text); text != "" {
		t.Status.Message = &canonical.Content{Role: canonical.RoleAgent, Parts: []canonical.Part{{Kind: canonical.KindText, Text: text}}}
	}
	takeTime(o, "createdAt", &t.Created)
	takeTime(o, "lastUpdatedAt", &t.Status.At)
	ttl, poll := spans(version)
	if raw := o.Peek(ttl); raw == nil {
		o.Fail(ttl, "required")
	} else if string(raw) == "null" {
		o.Take(ttl)
	}
	takeMillis(o, ttl, &t.TTL)
	var every *time.Duration
	if takeMillis(o, poll, &every); every != nil {
		if t.Poll = *every; *every == 0 {
			o.Put(poll, json.RawMessage("0"))
		}
	}
	return t
}

// finer reports whether status is the one that MCP has for a carried, more precise state.
func finer(state canonical.State, status string) bool {
	switch state {
	case canonical.StateSubmitted, canonical.StateUnknown:
		return status == taskWorking
	case canonical.StateInputRequired:
		return status == taskWorking
	case canonical.StateAuthRequired:
		return status == taskWorking || status == taskAsks
	case canonical.StateFailed:
		return status == taskCompleted
	case canonical.StateRejected:
		return status == taskCompleted || status == taskFailed
	default:
		return false
	}
}

// takeTime takes a time that would be written so again.
func takeTime(o *rawjson.Object, name string, to *time.Time) {
	text, ok := rawjson.Unquote(o.Peek(name))
	at, err := time.Parse(time.RFC3339Nano, text)
	if !ok || err != nil || at.IsZero() || stamp(at) != text {
		if !ok {
			o.Fail(name, "not a text")
		}
		return
	}
	o.Take(name)
	*to = at
}

func stamp(at time.Time) string { return at.Format(time.RFC3339Nano) }

// takeMillis takes a span of whole milliseconds; one that is written in another
// way, or longer than can be counted, stays where it is.
func takeMillis(o *rawjson.Object, name string, to **time.Duration) {
	raw := o.Peek(name)
	n, err := strconv.ParseInt(string(raw), 10, 64)
	const most = int64(1<<63-1) / int64(time.Millisecond)
	if err != nil || n < 0 || n > most || strconv.FormatInt(n, 10) != string(raw) {
		return
	}
	o.Take(name)
	span := time.Duration(n) * time.Millisecond
	*to = &span
}

// millis is a span in milliseconds; nil: there is none.
func millis(span *time.Duration) json.RawMessage {
	if span == nil {
		return nil
	}
	return json.RawMessage(strconv.FormatInt(span.Milliseconds(), 10))
}

// taskFields writes the fields of a task.
func (e *encoder) taskFields(w *writer, t *canonical.Task, at string) {
	status := e.statusOf(t)
	w.need("taskId", t.ID)
	w.need("status", status)
	if states[status] != t.Status.State && t.Status.State != "" {
		if finer(t.Status.State, status) {
			w.canon.String(canonState, string(t.Status.State))
			e.lose(canonical.LossState, canonical.Carried, at+"/status/state")
		} else if status != taskFailed {
			e.lose(canonical.LossState, canonical.Dropped, at+"/status/state")
		}
	}
	w.text("statusMessage", e.statusText(t, at))
	e.time(w, "createdAt", t.Created, t.Status.At)
	e.time(w, "lastUpdatedAt", t.Status.At, t.Created)
	ttl, poll := spans(e.version)
	if t.TTL != nil {
		w.raw(ttl, millis(t.TTL))
	} else if !w.own.Has(ttl) {
		w.raw(ttl, json.RawMessage("null"))
	}
	if t.Poll > 0 {
		w.raw(poll, millis(&t.Poll))
	}
	if e.m.Origin.Binding != Binding {
		e.taskLosses(t, at)
	}
}

// time writes a time that every task has, if need be another one.
func (e *encoder) time(w *writer, name string, at, other time.Time) {
	switch {
	case !at.IsZero():
		w.need(name, stamp(at))
	case w.own.Has(name):
	case !other.IsZero():
		w.need(name, stamp(other))
	default:
		w.need(name, "1970-01-01T00:00:00Z") // no party has sent a time
	}
}

func (e *encoder) statusText(t *canonical.Task, at string) string {
	if t.Status.Message == nil {
		if t.Status.State == canonical.StateSubmitted {
			return string(canonical.StateSubmitted)
		}
		return ""
	}
	m := t.Status.Message
	if len(m.Parts) != 1 || m.Parts[0].Kind != canonical.KindText || m.ID != "" || m.Extensions != nil {
		e.lose(canonical.LossMetadata, canonical.Dropped, at+"/status/message")
	}
	var texts []string
	for i := range m.Parts {
		if p := &m.Parts[i]; p.Kind == canonical.KindText && p.Text != "" {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n\n")
}

// taskLosses declares what a task of another protocol loses: MCP shows its state, and its
// content comes with the result.
func (e *encoder) taskLosses(t *canonical.Task, at string) {
	if t.ContextID != "" {
		e.lose(canonical.LossIDs, canonical.Dropped, at+"/contextId")
		e.lose(canonical.LossIDs, canonical.Dropped, "/conversation/contextId")
	}
	if len(t.History) > 0 {
		e.lose(canonical.LossHistory, canonical.Dropped, at+"/history")
	}
	if t.Extensions != nil {
		e.lose(canonical.LossMetadata, canonical.Dropped, at+"/extensions")
	}
	if len(t.Artifacts) > 0 && (!t.Status.State.Terminal() || !e.modern) {
		e.lose(canonical.LossArtifacts, canonical.Dropped, at+"/artifacts")
	}
}

// loseTTL declares the times of a task as lost where only its result is sent.
func (e *encoder) loseTTL(t *canonical.Task) {
	e.dropIf(!t.Created.IsZero() && !t.Created.Equal(t.Status.At), canonical.LossCaching, "/body/task/created")
	e.dropIf(t.TTL != nil, canonical.LossCaching, "/body/task/ttl")
	e.dropIf(t.Poll != 0, canonical.LossCaching, "/body/task/poll")
}

// decodeCreated reads the task that answers a call in place of its result.
func decodeCreated(m *canonical.Message, r *reader) error {
	var t *canonical.Task
	if m.Origin.Version == Modern {
		t = takeTask(r.Object, r.carried.Canon, Modern)
	} else {
		inner := r.Object.Object("task")
		if inner == nil {
			return r.err()
		}
		t = takeTask(inner, r.carried.Canon, Legacy)
		if inner.Err() != nil {
			return inner.Err()
		}
		if rest := inner.Rest(); rest != nil {
			t.Extensions = canonical.Extensions{Binding: rest}
		}
	}
	m.Conversation.TaskID = t.ID
	m.Body = &canonical.Result{Task: t, Extensions: r.extensions()}
	return r.err()
}

// created writes the task that answers a call in place of its result.
func (e *encoder) created(w *writer, t *canonical.Task) {
	if e.modern {
		w.forget("task")
		e.dropIf(t.Extensions[Binding] != nil, canonical.LossExtension, "/body/task/extensions/mcp-v1")
		e.taskFields(w, t, "/body/task")
		return
	}
	inner := e.nested(t.Extensions[Binding], "")
	e.taskFields(inner, t, "/body/task")
	if state := inner.canon.Object(); state != nil {
		w.canon.Merge(state)
	}
	w.raw("task", inner.bytes())
}

// asTask reports whether a task takes the place of a result: for a caller that allowed it,
// while the task runs; in 2025-11-25 for a caller that asked for it, in any state. A task
// of MCP itself has no artifacts.
func (e *encoder) asTask(r *canonical.Result) bool {
	return r.Task != nil && e.version >= Legacy && e.m.Op == canonical.OpInvoke &&
		(e.m.Origin.Binding == Binding && len(r.Task.Artifacts) == 0 || e.m.Preferences.TaskOK && (!e.modern || !r.Task.Status.State.Terminal()))
}

// decodeTask reads the state of a task (tasks/get; tasks/cancel of 2025-11-25).
func decodeTask(m *canonical.Message, r *reader) error {
	t := takeTask(r.Object, r.carried.Canon, m.Origin.Version)
	if m.Origin.Version == Modern {
		if err := decodeDetail(m, r, t); err != nil {
			return err
		}
	}
	m.Conversation.TaskID = t.ID
	m.Body = &canonical.Result{Task: t, Extensions: r.extensions()}
	return r.err()
}

// decodeDetail reads what a task of 2026-07-28 has within it: its result, why
// it failed, or what it asks. The result stays among the leftovers as well:
// only so does it go home as it came.
func decodeDetail(m *canonical.Message, r *reader, t *canonical.Task) error {
	if raw := r.Peek("result"); t.Status.State != canonical.StateWorking && rawjson.IsObject(raw) {
		inner, err := read(raw, "/result/result")
		if err != nil {
			return err
		}
		if inner.Has("content") {
			of := &canonical.Message{Op: canonical.OpInvoke, Origin: canonical.Origin{Version: m.Origin.Version}}
			if err := decodeResult(of, inner); err != nil {
				return err
			}
			t.Output = of.Body.(*canonical.Result).Output
		}
	}
	if raw := r.Peek("error"); t.Status.State == canonical.StateFailed && rawjson.IsObject(raw) {
		env, err := jsonrpc.Parse(rawjson.NewBuilder().String("jsonrpc", "2.0").Raw("id", json.RawMessage("0")).Raw("error", raw).Bytes(), translators.Config{}.WithDefaults())
		if err != nil {
			return err
		}
		r.Take("error")
		t.Failure = errorBody(env.Error, m.Origin.Version)
	}
	if raw := r.Peek("inputRequests"); t.Status.State == canonical.StateInputRequired && rawjson.IsObject(raw) {
		inputs, err := decodeInputs(raw, "/result/inputRequests")
		if err != nil {
			return err
		}
		if t.Inputs = inputs; inputs != nil {
			r.Take("inputRequests")
		}
	}
	return nil
}

// task writes the state of a task.
func (e *encoder) task(w *writer, body *canonical.Result) error {
	t := body.Task
	e.taskFields(w, t, "/body/task")
	if !e.modern {
		if !e.native {
			w.forget("result", "error", "inputRequests")
		}
		return nil
	}
	if e.native {
		if t.Failure != nil {
			w.raw("error", e.errorOf(t.Failure).Object())
		}
		return e.taskInputs(w, t)
	}
	w.forget("result", "error", "inputRequests")
	switch e.statusOf(t) {
	case taskCompleted:
		return e.taskResult(w, body)
	case taskFailed:
		why := t.Failure
		if why == nil {
			why = &canonical.Error{Code: canonical.CodeInternal, Message: cmp.Or(e.statusText(t, "/body/task"), "The task failed.")}
		}
		w.raw("error", e.errorOf(why).Object())
	case taskAsks:
		return e.taskInputs(w, t)
	}
	return nil
}

func (e *encoder) taskInputs(w *writer, t *canonical.Task) error {
	if len(t.Inputs) == 0 {
		return nil
	}
	inputs, err := e.inputs(t.Inputs, "/body/task/inputs")
	w.raw("inputRequests", inputs)
	return err
}

// taskResult writes the result of a task that is done within it.
func (e *encoder) taskResult(w *writer, body *canonical.Result) error {
	inner := e.write(nil, levelResult)
	var err error
	switch out := body.Task.Output; {
	case out != nil && e.tells(out):
		err = e.writeConversation(inner, out, canonical.Conversation{ContextID: body.Task.ContextID}, "/body/task/output")
	case out != nil:
		err = e.output(inner, out)
	default:
		err = e.flat(inner, body)
	}
	if err != nil {
		return err
	}
	inner.need("resultType", resultDone)
	w.raw("result", inner.bytes())
	return nil
}
