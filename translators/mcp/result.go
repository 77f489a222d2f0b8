package mcp

import (
	"encoding/json"
	"strconv"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// canonStructured carries structured content that a legacy result, which wants
// an object, cannot hold.
const canonStructured = "structured"

// decodeResult reads a CallToolResult.
func decodeResult(m *canonical.Message, r *reader) error {
	out := &canonical.Output{Parts: []canonical.Part{}}
	blocks, ok := r.Array("content")
	if !ok {
		r.Fail("content", "required")
	}
	for i, raw := range blocks {
		part, err := decodeBlock(raw, "/result/content/"+strconv.Itoa(i))
		if err != nil {
			return err
		}
		out.Parts = append(out.Parts, part)
	}
	out.Structured = r.Take("structuredContent")
	// An explicit false stays among the leftovers: absence means the same.
	if raw := r.Peek("isError"); raw != nil && string(raw) != "false" {
		out.Failed, _ = r.Bool("isError")
	}
	if m.Origin.Version == Legacy && out.Structured == nil {
		if raw := r.carried.Canon.Peek(canonStructured); raw != nil && raw[0] != '{' {
			out.Structured = r.carried.Canon.Take(canonStructured)
		}
	}
	result := &canonical.Result{Output: out, Extensions: r.extensions()}
	m.Body = result
	m.Conversation = profile.ReplyConversation(result.Extensions)
	return r.err()
}

// result writes a CallToolResult.
func (e *encoder) result(body *canonical.Result) (json.RawMessage, error) {
	w := write(body.Extensions)
	if left := w.own.Peek("isError"); left != nil && string(left) != "false" {
		w.forget("isError")
	}
	w.forget("structuredContent", "inputRequests", "requestState", "task")
	e.resultHead(w)
	var err error
	switch {
	case body.Output != nil:
		err = e.output(w, body.Output)
	case body.Turn != nil || body.Task != nil:
		err = e.flat(w, body)
	default:
		err = refuse(canonical.CodeInternal, "the result is empty")
	}
	if err != nil {
		return nil, err
	}
	e.losses = append(e.losses, foreign(body.Extensions, "/body")...)
	return w.bytes(), nil
}

func (e *encoder) output(w *writer, o *canonical.Output) error {
	paths := make([]string, len(o.Parts))
	for i := range paths {
		paths[i] = "/body/output/parts/" + strconv.Itoa(i)
	}
	if err := e.content(w, o.Parts, paths); err != nil {
		return err
	}
	e.structured(w, o.Structured)
	if o.Failed {
		w.raw("isError", json.RawMessage("true"))
	}
	if e.m.Origin.Binding != Binding {
		e.forgetConversation(canonical.Conversation{})
	}
	return nil
}

// structured writes structured content where the revision can hold it.
func (e *encoder) structured(w *writer, value json.RawMessage) {
	if value == nil {
		return
	}
	if e.modern || value[0] == '{' {
		w.raw("structuredContent", value)
		return
	}
	w.canon.Raw(canonStructured, value)
	e.lose(canonical.LossStructured, canonical.Carried, "/body/output/structured")
}

func (e *encoder) content(w *writer, parts []canonical.Part, paths []string) error {
	blocks := make([]json.RawMessage, len(parts))
	for i := range parts {
		block, err := e.encodeBlock(&parts[i], paths[i])
		if err != nil {
			return err
		}
		blocks[i] = block
	}
	w.raw("content", rawArray(blocks))
	return nil
}

func rawArray(values []json.RawMessage) json.RawMessage {
	b := rawjson.NewBuilder().Array("a", values).Bytes()
	return b[len(`{"a":`) : len(b)-1]
}

// flat writes a turn or a task as a tool's result.
func (e *encoder) flat(w *writer, body *canonical.Result) error {
	message := e.capability == nil || e.capability.Profile != canonical.ProfileTyped
	f := profile.Flatten(body, e.m.Conversation, message)
	if err := e.content(w, f.Parts, f.Paths); err != nil {
		return err
	}
	structure := f.Structure
	if !message && !f.Failed {
		structure = profile.SoleData(f.Parts)
	}
	if structure != nil && (e.modern || structure[0] == '{') {
		w.raw("structuredContent", structure)
	}
	if f.Failed {
		w.raw("isError", json.RawMessage("true"))
	}
	w.canon.Raw(f.Name, f.Outline)
	e.losses = append(e.losses, f.Losses...)
	if t := body.Task; t != nil {
		e.forgetConversation(canonical.Conversation{ContextID: t.ContextID, TaskID: t.ID})
	}
	return nil
}

// forgetConversation declares ids beside a result that the result itself does
// not name.
func (e *encoder) forgetConversation(said canonical.Conversation) {
	if c := e.m.Conversation.ContextID; c != "" && c != said.ContextID {
		e.lose(canonical.LossIDs, canonical.Dropped, "/conversation/contextId")
	}
	if c := e.m.Conversation.TaskID; c != "" && c != said.TaskID {
		e.lose(canonical.LossIDs, canonical.Dropped, "/conversation/taskId")
	}
}
