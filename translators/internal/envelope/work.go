package envelope

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// WriteTask is a whole task as one JSON object, in the names that an aepb object
// has for what its message says.
func WriteTask(t *canonical.Task) json.RawMessage {
	m := &canonical.Message{Body: &canonical.Result{Task: t}}
	b := rawjson.NewBuilder()
	for _, f := range taskFields() {
		b.Raw(f.name, f.get(m))
	}
	return b.Bytes()
}

// ReadTask reads what WriteTask writes; false: it is no such task.
func ReadTask(raw json.RawMessage) (canonical.Task, bool) {
	if len(raw) == 0 || raw[0] != '{' {
		return canonical.Task{}, false
	}
	t := &canonical.Task{}
	m := &canonical.Message{Body: &canonical.Result{Task: t}}
	o, ok := rawjson.Parse(raw, ""), true
	for _, f := range taskFields() {
		if value := o.Take(f.name); value != nil {
			ok = ok && f.set(m, value)
		}
	}
	return *t, ok && o.Err() == nil && len(o.Members()) == 0
}

// taskFields are the fields that a message with nothing but a task can have.
func taskFields() []field {
	probe := &canonical.Message{Body: &canonical.Result{Task: &canonical.Task{}}}
	var list []field
	for _, f := range append(questionFields(), resultFields("")...) {
		if f.set(probe, nil) {
			list = append(list, f)
		}
	}
	return list
}

// maxCount bounds what can be said of the size of a list.
const maxCount = 1 << 20

// WriteFilter adds what a question for tasks says. dialogue is the name of the
// member that holds a conversation.
func WriteFilter(b *rawjson.Builder, f *canonical.TaskFilter, dialogue string) {
	b.Optional(dialogue, f.ContextID).Optional("state", string(f.State)).Optional("cursor", f.Cursor)
	writeCount(b, "page_size", f.Size)
	if !f.After.IsZero() {
		b.String("after", f.After.UTC().Format(time.RFC3339Nano))
	}
	if f.IncludeArtifacts != nil {
		b.Bool("include_artifacts", *f.IncludeArtifacts)
	}
}

// ReadFilter takes what WriteFilter adds; false: a member says no such thing.
func ReadFilter(o *rawjson.Object, dialogue string) (*canonical.TaskFilter, bool) {
	f := &canonical.TaskFilter{ContextID: o.TakeText(dialogue), Cursor: o.TakeText("cursor"), State: canonical.State(o.TakeText("state"))}
	ok := f.State == "" || slices.Contains(states(), f.State)
	if o.Has("page_size") {
		f.Size = takeCount(o, "page_size")
		ok = ok && f.Size > 0
	}
	if after := o.TakeText("after"); after != "" {
		at, err := time.Parse(time.RFC3339Nano, after)
		f.After = at.UTC()
		ok = ok && err == nil && !at.IsZero()
	}
	if include, present := o.Bool("include_artifacts"); present {
		f.IncludeArtifacts = &include
	}
	return f, ok && o.Err() == nil
}

// WriteList adds a page of tasks.
func WriteList(b *rawjson.Builder, l *canonical.TaskList) {
	b.Array("tasks", rawjson.List(l.Tasks, WriteTask)).Optional("next", l.Next)
	writeCount(b, "page_size", l.Size)
	writeCount(b, "total", l.Total)
}

// ReadList takes what WriteList adds. What is no list of tasks is the object's
// failure.
func ReadList(o *rawjson.Object) *canonical.TaskList {
	l := &canonical.TaskList{}
	elements, present := o.Array("tasks")
	if !present {
		o.Fail("tasks", "required")
	}
	for _, element := range elements {
		task, ok := ReadTask(element)
		if !ok {
			o.Fail("tasks", "no list of tasks")
			break
		}
		l.Tasks = append(l.Tasks, task)
	}
	l.Next = o.TakeText("next")
	l.Size, l.Total = takeCount(o, "page_size"), takeCount(o, "total")
	return l
}

func writeCount(b *rawjson.Builder, name string, n int) {
	if n > 0 {
		b.Raw(name, json.RawMessage(strconv.Itoa(n)))
	}
}

// takeCount takes a number that counts something; zero: there is none.
func takeCount(o *rawjson.Object, name string) int {
	text := string(o.Peek(name))
	n, err := strconv.Atoi(text)
	if err != nil || n <= 0 || n > maxCount || strings.Trim(text, "0123456789") != "" {
		return 0
	}
	o.Take(name)
	return n
}

// WriteAnswer is one answer as a JSON object.
func WriteAnswer(a *canonical.Answer) json.RawMessage {
	return rawjson.NewBuilder().String("key", a.Key).String("action", string(a.Action)).Raw("value", a.Value).
		Raw("parts", writeParts(a.Parts)).Raw("ext", profile.WriteExt(a.Extensions, "")).Bytes()
}

// workFields are about work that an earlier message began.
func workFields() []field {
	return []field{
		answers("query_answers", of(body[canonical.TaskQuery], func(q *canonical.TaskQuery) *[]canonical.Answer { return &q.Answers })),
		{name: "answer", get: getReplyAnswer, set: setReplyAnswer, losses: one(canonical.LossElicitation, "/body/answer")},
		optional("answer_failure", canonical.LossErrorDetail, "/body/failure",
			of(body[canonical.Reply], func(r *canonical.Reply) **canonical.Error { return &r.Failure }), writeError, readError),
		text("reason", canonical.LossProgress, "/body/reason", of(body[canonical.Abort], func(a *canonical.Abort) *string { return &a.Reason })),
	}
}

func getReplyAnswer(m *canonical.Message) json.RawMessage {
	if r := body[canonical.Reply](m); r != nil && r.Failure == nil {
		return WriteAnswer(&r.Answer)
	}
	return nil
}

func setReplyAnswer(m *canonical.Message, raw json.RawMessage) (ok bool) {
	r := body[canonical.Reply](m)
	if r == nil {
		return false
	}
	if r.Answer, ok = (canonical.Answer{}), true; raw != nil {
		r.Answer, ok = readAnswer(raw)
	}
	return ok
}
