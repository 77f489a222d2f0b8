package envelope

import (
	"encoding/json"

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

// WriteAnswer is one answer as a JSON object.
func WriteAnswer(a *canonical.Answer) json.RawMessage {
	return rawjson.NewBuilder().String("key", a.Key).String("action", string(a.Action)).Raw("value", a.Value).
		Raw("parts", writeParts(a.Parts)).Raw("ext", profile.WriteExt(a.Extensions, "")).Bytes()
}

// reply is what answers a question within a stream; nil: the message is none.
func reply(m *canonical.Message) *canonical.Reply {
	r, _ := m.Body.(*canonical.Reply)
	return r
}

// workFields are about work that an earlier message began.
func workFields() []field {
	return []field{
		{"query_answers", getQueryAnswers, setQueryAnswers, one(canonical.LossElicitation, "/body/answers")},
		{"answer", getReplyAnswer, setReplyAnswer, one(canonical.LossElicitation, "/body/answer")},
		{"answer_failure", getReplyFailure, setReplyFailure, one(canonical.LossErrorDetail, "/body/failure")},
		text("reason", canonical.LossProgress, "/body/reason", func(m *canonical.Message) *string {
			if a, ok := m.Body.(*canonical.Abort); ok {
				return &a.Reason
			}
			return nil
		}),
	}
}

func getQueryAnswers(m *canonical.Message) json.RawMessage {
	if q, ok := m.Body.(*canonical.TaskQuery); ok {
		return writeAnswers(q.Answers)
	}
	return nil
}

func setQueryAnswers(m *canonical.Message, raw json.RawMessage) (fits bool) {
	q, ok := m.Body.(*canonical.TaskQuery)
	if ok {
		q.Answers, fits = readAnswers(raw)
	}
	return fits
}

func getReplyAnswer(m *canonical.Message) json.RawMessage {
	if r := reply(m); r != nil && r.Failure == nil {
		return WriteAnswer(&r.Answer)
	}
	return nil
}

func setReplyAnswer(m *canonical.Message, raw json.RawMessage) (ok bool) {
	r := reply(m)
	if r == nil {
		return false
	}
	r.Answer = canonical.Answer{}
	if raw == nil {
		return true
	}
	r.Answer, ok = readAnswer(raw)
	return ok
}

func getReplyFailure(m *canonical.Message) json.RawMessage {
	if r := reply(m); r != nil && r.Failure != nil {
		return writeError(r.Failure)
	}
	return nil
}

func setReplyFailure(m *canonical.Message, raw json.RawMessage) (ok bool) {
	r := reply(m)
	if r == nil {
		return false
	}
	r.Failure, ok = readError(raw)
	return ok
}
