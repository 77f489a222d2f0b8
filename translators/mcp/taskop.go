package mcp

import (
	"encoding/json"
	"strconv"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// taskOps gives the operations on tasks their methods.
var taskOps = [...]struct {
	op     canonical.Op
	method string
}{
	{canonical.OpTaskGet, methodTaskGet},
	{canonical.OpTaskCancel, methodTaskCancel},
	{canonical.OpTaskResult, methodTaskResult},
	{canonical.OpTaskAnswer, methodTaskUpdate},
	{canonical.OpTaskList, methodTaskList},
}

func taskOp(method string) canonical.Op {
	for _, t := range taskOps {
		if t.method == method {
			return t.op
		}
	}
	return ""
}

func taskMethod(op canonical.Op) string {
	for _, t := range taskOps {
		if t.op == op {
			return t.method
		}
	}
	return ""
}

// taskFieldsOf are the fields of a question about a task that MCP has no place for.
func taskFieldsOf() []profile.Field {
	return []profile.Field{profile.FieldHistory, profile.FieldTenant}
}

// decodeTaskOp reads what is asked about tasks.
func decodeTaskOp(env jsonrpc.Message, m *canonical.Message, r *reader) error {
	m.Op = taskOp(env.Method)
	if m.Origin.Version == Modern && !m.Preferences.TaskOK {
		return undeclared("a request about tasks", declaring(nil, true, Modern))
	}
	restoreAsker(m, r)
	profile.RestoreMessage(r.carried.Canon, m, taskFieldsOf()...)
	if m.Op == canonical.OpTaskList {
		filter := &canonical.TaskFilter{}
		takeText(r.Object, "cursor", &filter.Cursor)
		filter.Extensions = requestExtensions(env, r)
		m.Body = filter
		return r.err()
	}
	query := &canonical.TaskQuery{ID: r.Required("taskId")}
	if m.Op == canonical.OpTaskAnswer {
		raw := r.RawObject("inputResponses")
		if raw == nil {
			r.Fail("inputResponses", "required")
		}
		var err error
		if query.Answers, err = decodeAnswers(rawjson.OrEmpty(raw), "/params/inputResponses"); err != nil {
			return err
		}
	}
	m.Conversation.TaskID = query.ID
	query.Extensions = r.extensions()
	m.Body = query
	return r.err()
}

// undeclared refuses what needs capabilities that the client has not declared
// (2026-07-28, MissingRequiredClientCapabilityError).
func undeclared(what string, needs json.RawMessage) error {
	return &canonical.Error{
		Code: canonical.CodeCapabilityRequired, Message: what + " needs a capability that the client has not declared: " + string(needs),
		Native: &canonical.NativeError{
			Binding: Binding, Code: codeCapabilityRequired, Data: rawjson.NewBuilder().Raw("requiredCapabilities", needs).Bytes(),
		},
	}
}

// taskQuery writes what is asked about a task.
func (e *encoder) taskQuery(body *canonical.TaskQuery) (method string, params json.RawMessage, err error) {
	if method = taskMethod(e.m.Op); method == "" || !serves(e.version, method) {
		return "", nil, refuse(canonical.CodeUnsupportedOp, "MCP "+e.version+" has no such request")
	}
	w := write(body.Extensions)
	w.need("taskId", body.ID)
	if e.m.Op == canonical.OpTaskAnswer {
		answers, err := e.answers(body.Answers, "/body/answers")
		if err != nil {
			return "", nil, err
		}
		w.raw("inputResponses", answers)
	}
	e.requestMeta(w)
	e.losses = append(e.losses, profile.CarryMessage(&w.canon, e.m, taskFieldsOf()...)...)
	e.losses = append(e.losses, foreign(body.Extensions, "/body")...)
	return method, w.bytes(), nil
}

// taskFilter writes the wish for a list of tasks, which MCP does not filter.
func (e *encoder) taskFilter(body *canonical.TaskFilter) (method string, params json.RawMessage, err error) {
	if !serves(e.version, methodTaskList) {
		return "", nil, refuse(canonical.CodeUnsupportedOp, "MCP "+e.version+" has no such request")
	}
	if body.ContextID != "" || body.State != "" || !body.After.IsZero() {
		return "", nil, refuse(canonical.CodeUnsupportedOp, "MCP does not filter tasks")
	}
	e.dropIf(body.Size != 0, canonical.LossHistory, "/body/size")
	e.dropIf(body.IncludeArtifacts != nil, canonical.LossArtifacts, "/body/includeArtifacts")
	w := write(body.Extensions)
	w.text("cursor", body.Cursor)
	e.requestMeta(w)
	e.losses = append(e.losses, profile.CarryMessage(&w.canon, e.m, taskFieldsOf()...)...)
	e.losses = append(e.losses, foreign(body.Extensions, "/body")...)
	return methodTaskList, e.params(w, body.Extensions), nil
}

// decodeTaskReply reads the answer to a question about tasks.
func decodeTaskReply(m *canonical.Message, r *reader) error {
	switch {
	case m.Op == canonical.OpTaskResult:
		return decodeResult(m, r)
	case m.Op == canonical.OpTaskList:
		return decodeTaskList(m, r)
	case m.Op == canonical.OpTaskAnswer, m.Op == canonical.OpTaskCancel && m.Origin.Version == Modern:
		m.Body = &canonical.Done{Extensions: r.extensions()}
		return r.err()
	default:
		return decodeTask(m, r)
	}
}

func decodeTaskList(m *canonical.Message, r *reader) error {
	list := &canonical.TaskList{Tasks: []canonical.Task{}}
	tasks, ok := r.Array("tasks")
	if !ok {
		r.Fail("tasks", "required")
	}
	for i, raw := range tasks {
		o := rawjson.Parse(raw, "/result/tasks/"+strconv.Itoa(i))
		t := takeTask(o, rawjson.Empty(), m.Origin.Version)
		if o.Err() != nil {
			return o.Err()
		}
		if rest := o.Rest(); rest != nil {
			t.Extensions = canonical.Extensions{Binding: rest}
		}
		list.Tasks = append(list.Tasks, *t)
	}
	takeText(r.Object, "nextCursor", &list.Next)
	list.Extensions = r.extensions()
	m.Body = list
	return r.err()
}

func (e *encoder) taskList(body *canonical.TaskList) (json.RawMessage, error) {
	if !serves(e.version, methodTaskList) {
		return nil, refuse(canonical.CodeUnsupportedOp, "MCP "+e.version+" has no such reply")
	}
	w := write(body.Extensions)
	tasks := make([]json.RawMessage, len(body.Tasks))
	for i := range body.Tasks {
		inner := e.nested(body.Tasks[i].Extensions[Binding], "")
		e.taskFields(inner, &body.Tasks[i], indexed("/body/tasks", i))
		tasks[i] = inner.bytes()
	}
	w.raw("tasks", rawjson.ArrayOf(tasks))
	w.text("nextCursor", body.Next)
	e.head(w, resultDone)
	e.dropIf(body.Size != 0 && e.m.Origin.Binding != Binding, canonical.LossHistory, "/body/size")
	e.dropIf(body.Total != 0, canonical.LossHistory, "/body/total")
	return w.bytes(), nil
}

// done writes an acknowledgement. A legacy cancellation is answered with the
// task, of which nothing more is known than that it may still be at work.
func (e *encoder) done(body *canonical.Done) (json.RawMessage, error) {
	w := write(body.Extensions)
	if !e.modern {
		if e.m.Op != canonical.OpTaskCancel {
			return nil, refuse(canonical.CodeUnsupportedOp, "MCP "+e.version+" has no such reply")
		}
		e.taskFields(w, &canonical.Task{ID: e.m.Conversation.TaskID, Status: canonical.Status{State: canonical.StateWorking}}, "/body")
	}
	e.head(w, resultDone)
	return w.bytes(), nil
}

// taskReply writes the state of a task, for the caller that asked for it.
func (e *encoder) taskReply(body *canonical.Result) (json.RawMessage, error) {
	if e.version < Legacy {
		return nil, refuse(canonical.CodeUnsupportedOp, "MCP "+e.version+" has no tasks")
	}
	w := e.write(body.Extensions, "")
	e.head(w, resultDone)
	if e.m.Op == canonical.OpTaskCancel && e.modern {
		e.lose(canonical.LossStatusUpdates, canonical.Dropped, "/body/task")
		return w.bytes(), nil
	}
	err := e.task(w, body)
	e.losses = append(e.losses, foreign(body.Extensions, "/body")...)
	return w.bytes(), err
}
