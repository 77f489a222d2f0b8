package mcp

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

var callFields = [...]profile.Field{
	profile.FieldMessageID, profile.FieldReferences, profile.FieldTenant, profile.FieldAccept,
	profile.FieldHistory, profile.FieldNoWait, profile.FieldDeadline, profile.FieldMessageExt, profile.FieldStream,
}

// carriedFields are the fields of an invocation that MCP has no place for. A caller
// that sends a progress token wants a stream; MCP has no other sign of that.
func carriedFields(m *canonical.Message) []profile.Field {
	if m.Correlation.Progress != nil {
		return slices.Clip(callFields[:len(callFields)-1])
	}
	return callFields[:]
}

func decodeCall(m *canonical.Message, r *reader) error {
	m.Op = canonical.OpInvoke
	call := &canonical.Call{Name: r.Required("name"), Args: r.RawObject("arguments")}
	if r.Err() == nil && call.Name == "" {
		return refuse(canonical.CodeBadParams, "the tool's name is empty: name a tool")
	}
	m.Body = &canonical.Invoke{Call: call}
	m.Conversation = profile.ConversationOf(call)
	fields := append(carriedFields(m), profile.FieldContextID, profile.FieldTaskID, profile.FieldSkill)
	if m.Origin.Version != Modern {
		fields = append(fields, legacyFields(m.Op)...)
	}
	profile.RestoreMessage(r.carried.Canon, m, fields...)
	body := &canonical.Invoke{Call: call}
	if err := decodeRetry(m, r, body); err != nil {
		return err
	}
	wantTask(m, r, body)
	body.Extensions = r.extensions()
	m.Body = body
	return r.err()
}

// decodeRetry reads what makes a call the answer to a question (2026-07-28).
func decodeRetry(m *canonical.Message, r *reader, body *canonical.Invoke) error {
	if m.Origin.Version != Modern {
		return nil
	}
	raw := r.RawObject("inputResponses")
	var err error
	if body.Answers, err = decodeAnswers(rawjson.OrEmpty(raw), "/params/inputResponses"); err != nil {
		return err
	}
	if raw != nil && body.Answers == nil {
		r.Put("inputResponses", raw)
	}
	takeText(r.Object, "requestState", &body.State)
	return nil
}

// wantTask reads the wish that a task may answer (2025-11-25, experimental).
func wantTask(m *canonical.Message, r *reader, body *canonical.Invoke) {
	raw := r.Peek("task")
	if m.Origin.Version != Legacy || !rawjson.IsObject(raw) {
		return
	}
	m.Preferences.TaskOK = true
	task := rawjson.Parse(raw, "")
	takeMillis(task, "ttl", &body.TTL)
	if len(task.Members()) == 0 {
		r.Take("task")
	}
}

// retry writes what makes a call the answer to a question, and the wish for a task.
func (e *encoder) retry(w *writer, body *canonical.Invoke) error {
	switch {
	case e.modern && len(body.Answers) > 0:
		answers, err := e.answers(body.Answers, "/body/answers")
		if err != nil {
			return err
		}
		w.raw("inputResponses", answers)
	case len(body.Answers) > 0:
		e.lose(canonical.LossRequestState, canonical.Dropped, "/body/answers")
	}
	switch {
	case e.modern:
		w.text("requestState", body.State)
	case body.State != "":
		e.lose(canonical.LossRequestState, canonical.Dropped, "/body/state")
	}
	switch {
	case e.version == Legacy && e.m.Preferences.TaskOK && !w.own.Has("task") && e.mayTask():
		w.raw("task", rawjson.NewBuilder().Raw("ttl", millis(body.TTL)).Bytes())
	case e.version != Legacy && body.TTL != nil:
		e.lose(canonical.LossCaching, canonical.Dropped, "/body/ttl")
	}
	e.dropIf(e.version < Legacy && e.m.Preferences.TaskOK, canonical.LossCaching, "/preferences/taskOK")
	return nil
}

// mayTask reports whether a call may become a task. A server refuses that for a tool that does
// not allow it (2025-11-25, tool-level negotiation), and content is returned at once.
func (e *encoder) mayTask() bool {
	if e.capability == nil || e.native {
		return true
	}
	text := taskSupport(e.capability)
	return !e.profile().Content() && (text == taskOptional || text == taskRequired)
}

// call writes an invocation. The call that it answers with is what was
// written, for the headers that repeat it.
func (e *encoder) call(body *canonical.Invoke) (*canonical.Call, json.RawMessage, error) {
	w := write(body.Extensions)
	call, err := e.bind(w, body)
	if err != nil {
		return nil, nil, err
	}
	if !e.native {
		w.forget("arguments")
	}
	w.members = *rawjson.NewBuilderOf(len(call.Args) + 512)
	if err := e.retry(w, body); err != nil {
		return nil, nil, err
	}
	// What another revision left of them is a word without a meaning here.
	e.forget(w, canonical.LossRequestState, "inputResponses", "requestState")
	e.forget(w, canonical.LossCaching, "task")
	if err := e.arguments(w, call); err != nil {
		return nil, nil, err
	}
	e.requestMeta(w)
	e.conversation(w, call)
	if body.Turn.ID != "" && e.m.Correlation.MessageID == "" {
		stamped := *e.m
		stamped.Correlation.MessageID = body.Turn.ID
		e.losses = append(e.losses, profile.CarryMessage(&w.canon, &stamped, profile.FieldMessageID)...)
	} else if body.Turn.ID != "" && body.Turn.ID != e.m.Correlation.MessageID {
		e.lose(canonical.LossIDs, canonical.Dropped, "/body/turn/id")
	}
	e.losses = append(e.losses, profile.CarryMessage(&w.canon, e.m, carriedFields(e.m)...)...)
	e.losses = append(e.losses, foreign(body.Extensions, "/body")...)
	return call, w.bytes(), nil
}

// foreign declares what a level carries for other protocols; what a gateway
// had carried there before is not lost again.
func foreign(ext canonical.Extensions, path string) []canonical.Loss {
	var losses []canonical.Loss
	for _, loss := range profile.ForeignLosses(ext, Binding, path) {
		if loss.Path != path+"/extensions/"+profile.CanonKey {
			losses = append(losses, loss)
		}
	}
	return losses
}

// conversation carries the ids that the arguments do not say, and the skill if
// it is not the tool.
func (e *encoder) conversation(w *writer, call *canonical.Call) {
	conversation := profile.ConversationOf(call)
	var fields []profile.Field
	if e.m.To.Skill != call.Name {
		fields = append(fields, profile.FieldSkill)
	}
	if e.m.Conversation.ContextID != conversation.ContextID {
		fields = append(fields, profile.FieldContextID)
	}
	if e.m.Conversation.TaskID != conversation.TaskID {
		fields = append(fields, profile.FieldTaskID)
	}
	e.losses = append(e.losses, profile.CarryMessage(&w.canon, e.m, fields...)...)
}

// bind finds name and arguments: the message's own call, else its turn in the
// words of the tool's profile.
func (e *encoder) bind(w *writer, body *canonical.Invoke) (*canonical.Call, error) {
	call := &canonical.Call{Name: e.toolName(body.Call)}
	var (
		outline json.RawMessage
		losses  []canonical.Loss
	)
	switch {
	case body.Call != nil && len(body.Turn.Parts) == 0:
		call.Args = body.Call.Args
	case body.Call != nil:
		call.Args = body.Call.Args
		outline, losses = profile.OutlineTyped(&body.Turn, body.Call)
	case len(body.Turn.Parts) == 0:
		return nil, refuse(canonical.CodeBadParams, "the message is empty")
	case e.capability == nil || e.capability.Profile == canonical.ProfileMessage:
		call.Args, outline, losses = profile.ArgsFromTurn(body.Turn, e.m.Conversation, call.Name != profile.MessageTool)
	default:
		var ok bool
		if call.Args, outline, losses, ok = profile.BindTurn(&body.Turn, e.capability.InputSchema); !ok {
			return nil, &canonical.Error{
				Code:    canonical.CodeBadParams,
				Message: "this tool takes arguments: send one data part {\"skill\": …, \"input\": …} that matches its schema",
				Schema:  e.capability.InputSchema,
			}
		}
	}
	w.canon.Raw(profile.OutlineTurn, outline)
	e.losses = append(e.losses, losses...)
	if call.Args != nil && !bytes.HasPrefix(call.Args, []byte("{")) {
		return nil, &canonical.Error{Code: canonical.CodeBadParams, Message: "the arguments must be an object"}
	}
	return call, nil
}

// toolName returns the name of the chosen capability, else of the call, else of the requested
// skill, else of the tool that stands for the agent as a whole (R8).
func (e *encoder) toolName(call *canonical.Call) string {
	switch {
	case e.capability != nil && e.capability.ID != "":
		return e.capability.ID
	case call != nil && call.Name != "":
		return call.Name
	case e.m.To.Skill != "":
		return e.m.To.Skill
	default:
		return profile.MessageTool
	}
}
