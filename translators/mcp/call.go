package mcp

import (
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
)

// carriedFields are the fields of an invocation that MCP has no place for.
// returned as a fresh slice: tables of package level are read-only.
func carriedFields() []profile.Field {
	return []profile.Field{
		profile.FieldMessageID, profile.FieldReferences, profile.FieldTenant, profile.FieldAccept,
		profile.FieldHistory, profile.FieldNoWait, profile.FieldStream, profile.FieldDeadline, profile.FieldMessageExt,
	}
}

func decodeCall(m *canonical.Message, r *reader) error {
	m.Op = canonical.OpInvoke
	call := &canonical.Call{Name: r.Required("name"), Args: r.RawObject("arguments")}
	if r.Err() == nil && call.Name == "" {
		return refuse(canonical.CodeBadParams, "the tool's name is empty")
	}
	m.Body = &canonical.Invoke{Call: call}
	m.Conversation = profile.ConversationOf(call)
	fields := append(carriedFields(), profile.FieldContextID, profile.FieldTaskID, profile.FieldSkill)
	if m.Origin.Version != Modern {
		fields = append(fields, legacyFields(m.Op)...)
	}
	profile.RestoreMessage(r.carried.Canon, m, fields...)
	m.Body = &canonical.Invoke{Call: call, Extensions: r.extensions()}
	return r.err()
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
	// Nobody was ever asked for input or offered a task here. A state that is
	// sent all the same was to change what is done; a wish for a task was not.
	e.forget(w, canonical.LossRequestState, "inputResponses", "requestState")
	e.forget(w, canonical.LossCaching, "task")
	w.need("name", call.Name)
	w.raw("arguments", call.Args)
	e.requestMeta(w)
	e.conversation(w, call)
	if body.Turn.ID != "" && e.m.Correlation.MessageID == "" {
		stamped := *e.m
		stamped.Correlation.MessageID = body.Turn.ID
		e.losses = append(e.losses, profile.CarryMessage(w.canon, &stamped, profile.FieldMessageID)...)
	} else if body.Turn.ID != "" && body.Turn.ID != e.m.Correlation.MessageID {
		e.lose(canonical.LossIDs, canonical.Dropped, "/body/turn/id")
	}
	e.losses = append(e.losses, profile.CarryMessage(w.canon, e.m, carriedFields()...)...)
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
	said := profile.ConversationOf(call)
	var fields []profile.Field
	if e.m.To.Skill != call.Name {
		fields = append(fields, profile.FieldSkill)
	}
	if e.m.Conversation.ContextID != said.ContextID {
		fields = append(fields, profile.FieldContextID)
	}
	if e.m.Conversation.TaskID != said.TaskID {
		fields = append(fields, profile.FieldTaskID)
	}
	e.losses = append(e.losses, profile.CarryMessage(w.canon, e.m, fields...)...)
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
	if !validArgs(call.Args) {
		return nil, &canonical.Error{Code: canonical.CodeBadParams, Message: "the arguments are no object"}
	}
	return call, nil
}

func validArgs(args json.RawMessage) bool { return args == nil || (len(args) > 0 && args[0] == '{') }

// toolName: the chosen capability's, else the call's, else the skill that was
// asked for, else the tool that stands for the agent as a whole (R8).
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
