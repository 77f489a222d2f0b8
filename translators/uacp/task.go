package uacp

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

const (
	memberTask     = "id"         // names a task, where its topic does not
	memberDialogue = "context_id" // of a question for tasks: those of one conversation
)

// taskOp is the operation that a topic of tasks asks for; false: it is no such topic.
func taskOp(topic string) (canonical.Op, bool) {
	switch topic {
	case TopicTaskGet:
		return canonical.OpTaskGet, true
	case TopicTaskCancel:
		return canonical.OpTaskCancel, true
	default:
		return "", false
	}
}

// aboutTask reports whether the operation is answered with the state of a task.
func aboutTask(op canonical.Op) bool {
	return op == canonical.OpTaskGet || op == canonical.OpTaskCancel || op == canonical.OpTaskSubscribe
}

// filter reads a question for tasks. Nothing at all asks for all of them.
func filter(c content, m *canonical.Message) error {
	m.Op = canonical.OpTaskList
	if c.empty {
		m.Body = &canonical.TaskFilter{}
		return nil
	}
	if c.kind != contentJSON || c.json[0] != '{' {
		return refuse(canonical.CodeBadParams, "the payload is no task filter: expected a JSON object")
	}
	o := rawjson.Parse(c.json, "")
	body, ok := envelope.ReadFilter(o, memberDialogue)
	if m.Body = body; !ok {
		return refuse(canonical.CodeBadParams, "the payload is no task filter: expected a JSON object")
	}
	left := o.Rest()
	if string(c.json) == "{}" {
		left = c.json // as opposed to nothing
	}
	body.Extensions = own(left)
	return nil
}

// sayFilter writes a question for tasks.
func (e *encoder) sayFilter(b *built, body *canonical.TaskFilter) {
	members := rawjson.NewBuilder()
	envelope.WriteFilter(members, body, memberDialogue)
	object := envelope.Join(members.Object(), body.Extensions[Binding])
	if object == nil && e.home() && body.Extensions[Binding] == nil {
		b.c = content{kind: contentNone, empty: true}
		return
	}
	b.c = content{kind: contentJSON, json: rawjson.OrEmpty(object)}
}

// tasks reads a list of them.
func tasks(f Frame, c content, m *canonical.Message) error {
	if f.Code >= codeErrors || c.empty || c.kind != contentJSON || c.json[0] != '{' {
		return malformed("not a list of tasks")
	}
	o := rawjson.Parse(c.json, "")
	body := envelope.ReadList(o)
	body.Extensions = own(o.Rest())
	m.Body = body
	return o.Err()
}

// sayTasks writes a list of tasks.
func (e *encoder) sayTasks(b *built, body *canonical.TaskList) {
	members := rawjson.NewBuilder()
	envelope.WriteList(members, body)
	b.c = content{kind: contentJSON, json: envelope.Join(members.Bytes(), body.Extensions[Binding])}
}

// observed is the task that a topic is about; false: it names none, or several.
func observed(topic string) (string, bool) {
	id, ok := strings.CutPrefix(topic, TopicTask)
	wildcard := slices.ContainsFunc(strings.Split(id, "/"), func(level string) bool {
		return level == "#" || level == "+" || level == "*"
	})
	return id, ok && id != "" && !wildcard && utf8.ValidString(id)
}

// query reads a question about one task.
func query(c content, m *canonical.Message, op canonical.Op) error {
	m.Op = op
	if c.empty || c.kind != contentJSON || c.json[0] != '{' {
		return refuse(canonical.CodeBadParams, "the payload does not name a task")
	}
	o := rawjson.Parse(c.json, "")
	body := &canonical.TaskQuery{ID: o.TakeText(memberTask)}
	m.Body = body
	if body.ID == "" || o.Err() != nil {
		return refuse(canonical.CodeBadParams, "the payload does not name a task")
	}
	body.Extensions = own(o.Rest())
	return nil
}

// subscription reads the wish to be told of one task.
func subscription(c content, m *canonical.Message, topic string) error {
	m.Op = canonical.OpTaskSubscribe
	id, ok := observed(topic)
	m.Body = &canonical.TaskQuery{ID: id, Extensions: extensionsOf(c)}
	if !ok {
		return refuse(canonical.CodeBadParams, "the topic does not name one task")
	}
	return nil
}

// sayQuery writes a question about a task, and names its topic.
func (e *encoder) sayQuery(b *built, body *canonical.TaskQuery) (string, error) {
	if body.ID == "" {
		return "", refuse(canonical.CodeBadParams, "no task id: name a task")
	}
	topic := TopicTaskGet
	switch e.m.Op {
	case canonical.OpTaskGet:
	case canonical.OpTaskCancel:
		topic = TopicTaskCancel
	case canonical.OpTaskSubscribe:
		if _, ok := observed(TopicTask + body.ID); !ok {
			return "", refuse(canonical.CodeBadParams, "a µACP topic cannot name this task")
		}
		b.c = contentOf(body.Extensions)
		return TopicTask + body.ID, nil
	default:
		return "", refuse(canonical.CodeUnsupportedOp, "µACP has no counterpart of "+string(e.m.Op))
	}
	b.c = content{kind: contentJSON, json: rawjson.NewBuilder().String(memberTask, body.ID).
		Merge(rawjson.Without(body.Extensions[Binding], memberTask)).Bytes()}
	return topic, nil
}

// stands reads the state of a task: the status says whether the agent works on it,
// and the payload is what has come of it.
func stands(f Frame, c content, m *canonical.Message, re canonical.Op) {
	if re == canonical.OpTaskCancel && f.Code == codeNoContent && c.empty {
		m.Body = &canonical.Done{}
		return
	}
	task := envelope.TaskOf(c.parts(), canonical.StateWorking)
	switch {
	case f.Code >= codeErrors:
		task.Status.State = canonical.StateFailed
	case f.Code == codeAccepted:
	case re == canonical.OpTaskCancel:
		task.Status.State = canonical.StateCanceled
	default:
		task.Status.State = canonical.StateCompleted
	}
	m.Body = &canonical.Result{Task: task}
}
