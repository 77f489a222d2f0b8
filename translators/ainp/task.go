package ainp

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// The custom intents about work that an earlier one began. AINP has none of its
// own: they are answered with a RESULT like any other.
const (
	intentQuery  = "TaskQuery"  // one task, or without a task_id a list
	intentCancel = "TaskCancel" // a task, or by its intent_id a request
	intentAnswer = "TaskAnswer" // what a task asks
)

// works are those intents.
func works() []string { return []string{intentQuery, intentCancel, intentAnswer} }

const taskMember = "task_id"

// work reads an intent about work.
func (l letter) work(m *canonical.Message, kind string, p *rawjson.Object) error {
	o := p.Object("semantics")
	if o == nil {
		return badParams()
	}
	var err error
	switch {
	case o.Has(taskMember):
		query := &canonical.TaskQuery{ID: o.Required(taskMember)}
		m.Op, m.Body = opOf(kind), query
		if query.ID == "" {
			return badParams()
		}
	case kind == intentQuery:
		m.Op = canonical.OpTaskList
		m.Body, err = readFilter(o)
	case kind == intentCancel && o.Has("intent_id"):
		m.Op, m.Body = canonical.OpAbort, &canonical.Abort{Request: rawjson.Quote(o.Required("intent_id")), Reason: takeText(o, "reason")}
	default:
		return badParams()
	}
	if err != nil || o.Err() != nil {
		return badParams()
	}
	if left := o.Rest(); left != nil {
		p.Put("semantics", left)
	}
	if p.Err() != nil {
		return badParams()
	}
	set(m.Body, extended(nil, p.Rest()))
	return nil
}

func opOf(kind string) canonical.Op {
	switch kind {
	case intentQuery:
		return canonical.OpTaskGet
	case intentCancel:
		return canonical.OpTaskCancel
	default:
		return canonical.OpTaskAnswer
	}
}

func set(body canonical.Body, ext canonical.Extensions) {
	switch b := body.(type) {
	case *canonical.TaskQuery:
		b.Extensions = ext
	case *canonical.TaskFilter:
		b.Extensions = ext
	case *canonical.Abort:
		b.Extensions = ext
	}
}

func readFilter(o *rawjson.Object) (*canonical.TaskFilter, error) {
	f := &canonical.TaskFilter{ContextID: takeText(o, "thread_id"), Cursor: takeText(o, "cursor")}
	f.State = canonical.State(takeText(o, "state"))
	if raw := o.Take("page_size"); raw != nil {
		n, ok := milliseconds(raw)
		if !ok || n == 0 || n > maxPage {
			return f, badParams()
		}
		f.Size = int(n)
	}
	if after := takeText(o, "after"); after != "" {
		at, err := time.Parse(time.RFC3339Nano, after)
		if err != nil || at.IsZero() {
			return f, badParams()
		}
		f.After = at.UTC()
	}
	if include, ok := o.Bool("include_artifacts"); ok {
		f.IncludeArtifacts = &include
	}
	return f, nil
}

// maxPage bounds the tasks of one page that may be asked for.
const maxPage = 1 << 20

// about writes an intent about work.
func (e *encoder) about(kind string, own json.RawMessage, members *rawjson.Builder) json.RawMessage {
	left := rawjson.Parse(objectOr(own), "")
	left.Take(envelope.Key)
	said := rest(left.Peek("semantics"))
	return e.payload(left, kind, contextWork, members.Merge(said).Bytes())
}

func (e *encoder) query(body *canonical.TaskQuery) (json.RawMessage, error) {
	kind := intentQuery
	switch e.m.Op {
	case canonical.OpTaskGet:
	case canonical.OpTaskCancel:
		kind = intentCancel
	case canonical.OpTaskAnswer:
		kind = intentAnswer
	default:
		return nil, refuse(canonical.CodeUnsupportedOp, "AINP has no counterpart of "+string(e.m.Op))
	}
	if body.ID == "" {
		return nil, refuse(canonical.CodeBadParams, "which task?")
	}
	return e.about(kind, body.Extensions[Binding], rawjson.NewBuilder().String(taskMember, body.ID)), nil
}

func (e *encoder) filter(body *canonical.TaskFilter) json.RawMessage {
	b := rawjson.NewBuilder().Optional("thread_id", body.ContextID).Optional("state", string(body.State)).Optional("cursor", body.Cursor)
	if body.Size > 0 {
		b.Raw("page_size", json.RawMessage(strconv.Itoa(body.Size)))
	}
	if !body.After.IsZero() {
		b.String("after", body.After.UTC().Format(time.RFC3339Nano))
	}
	if body.IncludeArtifacts != nil {
		b.Bool("include_artifacts", *body.IncludeArtifacts)
	}
	return e.about(intentQuery, body.Extensions[Binding], b)
}

func (e *encoder) abort(body *canonical.Abort) json.RawMessage {
	b := rawjson.NewBuilder().String("intent_id", e.known(body.Request)).Optional("reason", body.Reason)
	return e.about(intentCancel, body.Extensions[Binding], b)
}

// listed reads a RESULT that lists tasks.
func (l letter) listed(m *canonical.Message, p *rawjson.Object) error {
	l.answers(m, p)
	if status := p.Required("status"); status != statusSuccess && p.Err() == nil {
		p.Fail("status", "not a list")
	}
	body := &canonical.TaskList{}
	m.Body = body
	o := p.Object("result")
	if o == nil {
		p.Fail("result", "not a list of tasks")
		return p.Err()
	}
	elements, _ := o.Array("tasks")
	for _, element := range elements {
		task, ok := envelope.ReadTask(element)
		if !ok {
			o.Fail("tasks", "no list of tasks")
			break
		}
		body.Tasks = append(body.Tasks, task)
	}
	body.Next = takeText(o, "next")
	body.Size, body.Total = count(o, "page_size"), count(o, "total")
	if o.Err() != nil {
		return o.Err()
	}
	if left := o.Rest(); left != nil {
		p.Put("result", left)
	}
	body.Extensions = extended(nil, p.Rest())
	return p.Err()
}

func count(o *rawjson.Object, name string) int {
	n, ok := milliseconds(o.Peek(name))
	if !ok || n == 0 || n > maxPage {
		return 0
	}
	o.Take(name)
	return int(n)
}

func (e *encoder) list(body *canonical.TaskList) json.RawMessage {
	tasks := make([]json.RawMessage, len(body.Tasks))
	for i := range body.Tasks {
		tasks[i] = envelope.WriteTask(&body.Tasks[i])
	}
	inner := rawjson.NewBuilder().Array("tasks", tasks).Optional("next", body.Next)
	for _, n := range []struct {
		name  string
		value int
	}{{"page_size", body.Size}, {"total", body.Total}} {
		if n.value > 0 {
			inner.Raw(n.name, json.RawMessage(strconv.Itoa(n.value)))
		}
	}
	own := rawjson.Parse(objectOr(body.Extensions[Binding]), "")
	inner.Merge(rest(own.Take("result"), "tasks", "next"))
	b := rawjson.NewBuilder()
	e.answers(b)
	return b.String("status", statusSuccess).Raw("result", inner.Bytes()).Merge(rest(own.Rest(), "intent_id", "status", envelope.Key)).Bytes()
}

// done reads a RESULT that only acknowledges.
func (l letter) done(m *canonical.Message, p *rawjson.Object) error {
	l.answers(m, p)
	if status := p.Required("status"); status != statusSuccess && p.Err() == nil {
		p.Fail("status", "not an acknowledgement")
	}
	m.Body = &canonical.Done{Extensions: extended(nil, p.Rest())}
	return p.Err()
}

func (e *encoder) done(body *canonical.Done) json.RawMessage {
	b := rawjson.NewBuilder()
	e.answers(b)
	return b.String("status", statusSuccess).Merge(rest(body.Extensions[Binding], "intent_id", "status", envelope.Key)).Bytes()
}
