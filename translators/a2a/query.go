package a2a

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// carriedQuery are the canonical members of a question about a task that A2A
// has no place for. Only CancelTask has metadata to carry them in.
var carriedQuery = append([]profile.Field{profile.FieldMessageID, profile.FieldContextID}, carriedReply...)

func readQuery(_ *decoder, m *canonical.Message, r *reader) {
	query := &canonical.TaskQuery{}
	m.Body = query
	m.Conversation.Tenant = r.text("tenant")
	if query.ID = r.text("id"); query.ID == "" {
		r.fail("id", "required")
	}
	m.Preferences.HistoryLength = r.integer("historyLength")
	c, _ := r.carried()
	profile.RestoreMessage(c.Canon, m, carriedQuery...)
	query.Extensions = c.Extensions(Binding, r.leftover())
}

// query writes a question about a task.
func (e *encoder) query(q *canonical.TaskQuery) (json.RawMessage, error) {
	if q.ID == "" {
		return nil, unstamped("task id")
	}
	w := newWriter(q.Extensions[Binding], queryMembers)
	w.text("tenant", e.m.Conversation.Tenant)
	w.text("id", q.ID)
	if e.m.Op == canonical.OpTaskGet {
		w.integer("historyLength", e.m.Preferences.HistoryLength)
	} else {
		w.integer("historyLength", nil)
	}
	e.unsaidQuery(q)
	if e.m.Op != canonical.OpTaskCancel {
		w.b.Raw("metadata", w.form("metadata"))
		e.dropQuery(q.Extensions)
		return w.bytes(), nil
	}
	canon := rawjson.NewBuilder()
	e.carry(canon, carriedQuery)
	w.metadata(e.wrap(canon, q.Extensions, "/body"))
	return w.bytes(), nil
}

// unsaidQuery declares what no question about a task can say.
func (e *encoder) unsaidQuery(q *canonical.TaskQuery) {
	p := e.m.Preferences
	e.dropIf(p.HistoryLength != nil && e.m.Op != canonical.OpTaskGet, canonical.LossHistory, "/preferences/historyLength")
	e.preferences()
	e.dropIf(len(q.Answers) > 0, canonical.LossElicitation, "/body/answers")
	e.dropIf(e.m.Conversation.TaskID != "" && e.m.Conversation.TaskID != q.ID, canonical.LossIDs, "/conversation/taskId")
	e.dropIf(len(e.m.Conversation.ReferenceTasks) > 0, canonical.LossIDs, "/conversation/referenceTasks")
	e.dropIf(e.m.To.Skill != "", canonical.LossIDs, "/to/skill")
}

// preferences declares the preferences that only a message to an agent can say.
func (e *encoder) preferences() {
	p := e.m.Preferences
	e.dropIf(len(p.AcceptMedia) > 0, canonical.LossModes, "/preferences/acceptMedia")
	e.dropIf(p.NoWait, canonical.LossWait, "/preferences/noWait")
}

// dropQuery declares what is lost where a request has no metadata.
func (e *encoder) dropQuery(ext canonical.Extensions) {
	e.dropFields(carriedQuery)
	for binding := range ext {
		if binding != Binding {
			e.drop(canonical.LossExtension, "/body/extensions/"+string(binding))
		}
	}
}

// dropFields declares the canonical members that are set, as lost.
func (e *encoder) dropFields(fields []profile.Field) {
	m := *e.m
	m.Extensions = foreignOnly(m.Extensions)
	for _, loss := range profile.CarryMessage(rawjson.NewBuilder(), &m, fields...) {
		e.drop(loss.Code, loss.Path)
	}
}

func foreignOnly(ext canonical.Extensions) canonical.Extensions {
	if ext[Binding] == nil {
		return ext
	}
	return replaced(ext, nil)
}

func readFilter(_ *decoder, m *canonical.Message, r *reader) {
	f := &canonical.TaskFilter{}
	m.Body = f
	m.Conversation.Tenant = r.text("tenant")
	f.ContextID, f.Cursor = r.text("contextId"), r.text("pageToken")
	f.State = canonical.State(r.filterState(m.Origin.Version))
	if f.State == canonical.StateUnknown { // which asks for nothing in particular
		r.keep("status", rawjson.Quote("TASK_STATE_UNSPECIFIED"))
		f.State = ""
	}
	f.Size = r.pageSize()
	if m.Preferences.HistoryLength = r.integer("historyLength"); m.Preferences.HistoryLength != nil && *m.Preferences.HistoryLength < 0 {
		r.fail("historyLength", "negative, expected 0 or more messages")
	}
	f.After = r.filterTime("statusTimestampAfter")
	f.IncludeArtifacts = r.choice("includeArtifacts")
	f.Extensions = result(nil, r.leftover())
}

// statesHTTP03 also has the name that the proto of 0.3 gives to a canceled task.
var statesHTTP03 = append(slices.Clip(states), enum{string(canonical.StateCanceled), "TASK_STATE_CANCELLED", "5"})

// filterState takes the status that a list is filtered by. A name that is not in the
// table is refused: without the filter the list would hold tasks of every status.
func (r *reader) filterState(version string) string {
	table := states
	if version == Version03 {
		table = statesHTTP03
	}
	given := r.Has("status") && string(r.Peek("status")) != "null"
	state := r.enum("status", table)
	if given && state == "" {
		r.fail("status", "no task state, expected a name such as TASK_STATE_WORKING")
	}
	return state
}

// filterTime takes the timestamp that a list is filtered by. One that cannot be read
// is refused, for the same reason.
func (r *reader) filterTime(name string) time.Time {
	if text, ok := rawjson.Unquote(r.Peek(name)); ok {
		if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
			r.fail(name, "no timestamp, expected one such as 2026-01-02T15:04:05Z (RFC 3339)")
		}
	}
	return r.time(name)
}

// pageSize takes how many tasks a page of a list has (A2A 1.0, ListTasksRequest: 1 to 100). Zero is none
// decodeContent: the SDK for Go writes it over gRPC where its user gives none.
func (r *reader) pageSize() int {
	n := r.count("pageSize")
	if n > 100 {
		r.fail("pageSize", "expected 1 to 100 tasks")
	}
	return n
}

// count takes a number that is not negative; zero is none said.
func (r *reader) count(name string) int {
	n := r.integer(name)
	if n == nil {
		return 0
	}
	if *n < 0 {
		r.fail(name, "negative")
	}
	if *n == 0 {
		r.keep(name, json.RawMessage("0"))
	}
	return *n
}

// choice takes a boolean for which absence means neither.
func (r *reader) choice(name string) *bool {
	raw := r.value(name)
	if raw == nil {
		return nil
	}
	present := string(raw) == "true"
	if !present && string(raw) != "false" {
		r.fail(name, "not a boolean")
	}
	return &present
}

// filter writes what tasks are asked for.
func (e *encoder) filter(f *canonical.TaskFilter) json.RawMessage {
	w := newWriter(f.Extensions[Binding], filterMembers)
	w.text("tenant", e.m.Conversation.Tenant)
	w.text("contextId", f.ContextID)
	w.enum("status", string(f.State), "", states)
	w.count("pageSize", f.Size)
	w.text("pageToken", f.Cursor)
	w.integer("historyLength", e.m.Preferences.HistoryLength)
	w.time("statusTimestampAfter", f.After)
	w.choice("includeArtifacts", f.IncludeArtifacts)
	e.preferences()
	e.dropQuery(f.Extensions)
	return w.bytes()
}

func (w *writer) count(name string, n int) {
	if n != 0 {
		w.integer(name, &n)
		return
	}
	if form := w.form(name); string(form) == "0" || string(form) == `"0"` || string(form) == "null" {
		w.b.Raw(name, form)
	}
}

func (w *writer) choice(name string, value *bool) {
	form := w.form(name)
	switch {
	case value != nil:
		w.b.Bool(name, *value)
	case string(form) == "null":
		w.b.Raw(name, form)
	}
}

// list reads one page of tasks.
func (d *decoder) tasks(m *canonical.Message, raw json.RawMessage) {
	r := d.open(raw, "/result", listMembers)
	page := &canonical.TaskList{Tasks: []canonical.Task{}}
	m.Body = page
	for i, element := range r.list("tasks") {
		copied := canonical.Message{}
		body := &canonical.Result{}
		d.task(&copied, body, element, at("/result/tasks", i))
		page.Tasks = append(page.Tasks, *body.Task)
	}
	page.Next, page.Size, page.Total = r.text("nextPageToken"), r.count("pageSize"), r.count("totalSize")
	page.Extensions = result(nil, r.leftover())
}

// taskList writes one page of tasks, with all the members that A2A demands.
func (e *encoder) taskList(page *canonical.TaskList) json.RawMessage {
	w := newWriter(page.Extensions[Binding], listMembers)
	tasks := make([]json.RawMessage, len(page.Tasks))
	for i := range page.Tasks {
		tasks[i] = e.task(&page.Tasks[i], rawjson.NewBuilder(), at("/body/tasks", i))
	}
	if form := w.form("tasks"); len(tasks) > 0 || !e.home || form != nil && form[0] == '[' {
		w.b.Array("tasks", tasks)
	}
	next := w.form("nextPageToken")
	if page.Next != "" || !e.home || string(next) == `""` {
		w.b.String("nextPageToken", page.Next)
	} else {
		w.b.Raw("nextPageToken", next)
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"pageSize", page.Size}, {"totalSize", page.Total}} {
		if e.home {
			w.count(n.name, n.value)
		} else {
			w.form(n.name)
			w.b.Raw(n.name, json.RawMessage(strconv.Itoa(n.value)))
		}
	}
	e.dropQuery(page.Extensions)
	return w.bytes()
}
