package ainp

import (
	"encoding/json"

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

const (
	taskMember   = "task_id"
	threadMember = "thread_id"
)

// work reads an intent about work.
func (l wireMessage) work(m *canonical.Message, kind string, p *rawjson.Object) error {
	o := p.Object("semantics")
	if o == nil {
		return badParams()
	}
	switch {
	case o.Has(taskMember):
		query := &canonical.TaskQuery{ID: o.Required(taskMember)}
		m.Op, m.Body = opOf(kind), query
		if query.ID == "" {
			return badParams()
		}
	case kind == intentQuery:
		filter, ok := envelope.ReadFilter(o, threadMember)
		if m.Op, m.Body = canonical.OpTaskList, filter; !ok {
			return badParams()
		}
	case kind == intentCancel && o.Has("intent_id"):
		m.Op, m.Body = canonical.OpAbort, &canonical.Abort{Request: rawjson.Quote(o.Required("intent_id")), Reason: o.TakeText("reason")}
	default:
		return badParams()
	}
	if o.Err() != nil {
		return badParams()
	}
	p.PutSet("semantics", o.Rest())
	if p.Err() != nil {
		return badParams()
	}
	*canonical.ExtensionsOf(m.Body) = extended(nil, p.Rest())
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

// about writes an intent about work.
func (e *encoder) about(kind string, own json.RawMessage, members *rawjson.Builder) json.RawMessage {
	left := rawjson.Open(own)
	left.Take(envelope.Key)
	raw := rawjson.Without(left.Peek("semantics"))
	return e.payload(left, kind, contextWork, members.Merge(raw).Bytes())
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
		return nil, refuse(canonical.CodeBadParams, "no task id: name a task")
	}
	return e.about(kind, body.Extensions[Binding], rawjson.NewBuilder().String(taskMember, body.ID)), nil
}

func (e *encoder) filter(body *canonical.TaskFilter) json.RawMessage {
	b := rawjson.NewBuilder()
	envelope.WriteFilter(b, body, threadMember)
	return e.about(intentQuery, body.Extensions[Binding], b)
}

func (e *encoder) abort(body *canonical.Abort) json.RawMessage {
	b := rawjson.NewBuilder().String("intent_id", e.known(body.Request)).Optional("reason", body.Reason)
	return e.about(intentCancel, body.Extensions[Binding], b)
}

// listed reads a RESULT that lists tasks.
func (l wireMessage) listed(m *canonical.Message, p *rawjson.Object) error {
	l.answers(m, p)
	if status := p.Required("status"); status != statusSuccess && p.Err() == nil {
		p.Fail("status", "not a list")
	}
	m.Body = &canonical.TaskList{}
	o := p.Object("result")
	if o == nil {
		p.Fail("result", "not a list of tasks")
		return p.Err()
	}
	body := envelope.ReadList(o)
	m.Body = body
	if o.Err() != nil {
		return o.Err()
	}
	p.PutSet("result", o.Rest())
	body.Extensions = extended(nil, p.Rest())
	return p.Err()
}

func (e *encoder) list(body *canonical.TaskList) json.RawMessage {
	inner := rawjson.NewBuilder()
	envelope.WriteList(inner, body)
	own := rawjson.Open(body.Extensions[Binding])
	inner.Merge(rawjson.Without(own.Take("result"), "tasks", "next"))
	return e.answers(rawjson.NewBuilder()).String("status", statusSuccess).Raw("result", inner.Bytes()).Merge(rawjson.Without(own.Rest(), "intent_id", "status", envelope.Key)).Bytes()
}

// done reads a RESULT that only acknowledges.
func (l wireMessage) done(m *canonical.Message, p *rawjson.Object) error {
	l.answers(m, p)
	if status := p.Required("status"); status != statusSuccess && p.Err() == nil {
		p.Fail("status", "not an acknowledgement")
	}
	m.Body = &canonical.Done{Extensions: extended(nil, p.Rest())}
	return p.Err()
}

func (e *encoder) done(body *canonical.Done) json.RawMessage {
	return e.answers(rawjson.NewBuilder()).String("status", statusSuccess).Merge(rawjson.Without(body.Extensions[Binding], "intent_id", "status", envelope.Key)).Bytes()
}
