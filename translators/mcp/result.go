package mcp

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// canonStructured says which block is the copy of structured content that the
// revision cannot hold: its index, or that it was appended for that purpose.
// Only the newest revision holds any value, and the oldest none.
const (
	canonStructured = "structured"
	appended        = "appended"
)

// decodeResult reads a CallToolResult.
func decodeResult(m *canonical.Message, r *reader) error {
	if !r.Has("content") { // servers of structured content, or of nothing, leave it out
		m.Losses = append(m.Losses, canonical.Loss{Code: canonical.LossEmpty, Path: "/result/content", Fate: canonical.Dropped})
	}
	blocks, _ := r.Array("content")
	out := &canonical.Output{Parts: make([]canonical.Part, 0, len(blocks))}
	r.at(m.Origin.Version, levelResult)
	metas := r.hoisted(canonBlocks, m.Origin.Version, levelBlock, blocks)
	for i, raw := range blocks {
		out.Parts = lenientBlock(out.Parts, m, raw, "/result/content/"+strconv.Itoa(i), metas[i])
	}
	if out.Structured = r.Take("structuredContent"); out.Structured == nil {
		followCopy(r, out)
	} else if !holds(m.Origin.Version, out.Structured) {
		r.place("structuredContent")
	}
	// An explicit false stays among the leftovers: absence means the same.
	if raw := r.Peek("isError"); raw != nil && string(raw) != "false" {
		out.Failed, _ = r.Bool("isError")
	}
	result := &canonical.Result{Output: out, Extensions: r.extensions()}
	m.Body = result
	m.Conversation = profile.ReplyConversation(result.Extensions)
	return r.err()
}

// holds reports whether a revision has a place for this structured content.
func holds(version string, value json.RawMessage) bool {
	return version == Modern || !lacks(version, levelResult, "structuredContent") && value[0] == '{'
}

// followCopy finds structured content by its copy, if we would have copied it so.
func followCopy(r *reader, out *canonical.Output) {
	at, added, ok := markedPart(r.carried.Canon.Peek(canonStructured), len(out.Parts))
	if !ok || !isCopy(r.version, out.Parts, at, added) {
		return
	}
	r.carried.Canon.Take(canonStructured)
	if out.Structured = json.RawMessage(textOf(&out.Parts[at])); added {
		out.Parts = out.Parts[:at]
	}
}

// markedPart reads a mark: the index of a part, or that the last part was appended as a copy.
func markedPart(mark json.RawMessage, parts int) (at int, added, ok bool) {
	if string(mark) == `"`+appended+`"` {
		return parts - 1, true, parts > 0
	}
	at, err := strconv.Atoi(string(mark))
	return at, false, err == nil && at >= 0 && at < parts && strconv.Itoa(at) == string(mark)
}

// isCopy reports whether a part is what we write for structured content that the revision cannot hold.
func isCopy(version string, parts []canonical.Part, at int, added bool) bool {
	text := textOf(&parts[at])
	plain := canonical.Part{Kind: canonical.KindText, Text: text}
	return isJSON(text) && !holds(version, json.RawMessage(text)) && copyOf(parts, json.RawMessage(text)) == at &&
		(!added || profile.SamePart(&parts[at], &plain))
}

// textOf is the text of the block that a part becomes, if it becomes a text.
func textOf(p *canonical.Part) string {
	switch {
	case p.Kind == canonical.KindData:
		return string(p.Data)
	case p.Kind == canonical.KindText && p.Form != canonical.FormEmbedded:
		return p.Text
	default:
		return ""
	}
}

// copyOf finds the first part that says a value as text; -1: none.
func copyOf(parts []canonical.Part, value json.RawMessage) int {
	return slices.IndexFunc(parts, func(p canonical.Part) bool {
		text := textOf(&p)
		return isJSON(text) && rawjson.Equal(json.RawMessage(text), value)
	})
}

// result writes a CallToolResult.
func (e *encoder) result(body *canonical.Result) (json.RawMessage, error) {
	w := e.write(body.Extensions, levelResult)
	if left := w.own.Peek("isError"); left != nil && string(left) != "false" {
		w.forget("isError")
	}
	w.forget("structuredContent")
	e.forget(w, canonical.LossRequestState, "inputRequests", "requestState", "task")
	switch {
	case body.Pending != nil:
		e.head(w, resultAsks)
	case e.asTask(body):
		e.head(w, resultTask)
	default:
		e.head(w, resultDone)
	}
	if id := e.m.Conversation.TaskID; e.m.Op == canonical.OpTaskResult && id != "" && w.metaLeft(metaRelated) == nil && !e.native {
		w.metaRaw(metaRelated, rawjson.NewBuilder().String("taskId", id).Bytes())
	}
	e.dropIf(body.Output != nil && !body.Output.At.IsZero(), canonical.LossHistory, "/body/output/at")
	var err error
	switch {
	case e.asTask(body):
		e.created(w, body.Task)
	case body.Pending != nil:
		err = e.pending(w, body.Pending)
	case body.Output != nil && e.tells(body.Output):
		in := canonical.Conversation{ContextID: e.m.Conversation.ContextID} // and no task: the caller could not continue it
		e.forgetConversation(in)
		err = e.writeConversation(w, body.Output, in, "/body/output")
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
	parts, paths := e.structured(w, o.Structured, o.Parts, paths, "/body/output/structured")
	if err := e.content(w, parts, paths); err != nil {
		return err
	}
	if o.Failed {
		w.raw("isError", json.RawMessage("true"))
	}
	if e.m.Origin.Binding != Binding {
		e.forgetConversation(canonical.Conversation{})
	}
	return nil
}

// tells reports whether a result must have the structure of profile P1. The gateway lists that
// schema for a tool that stands for an agent, and the agent of another protocol does
// not know it. A failed result needs no structure.
func (e *encoder) tells(o *canonical.Output) bool {
	c := e.capability
	return c != nil && c.Profile == canonical.ProfileMessage && c.InputSchema == nil && c.OutputSchema == nil &&
		e.m.Origin.Binding != Binding && !o.Failed && !lacks(e.version, levelResult, "structuredContent")
}

// writeConversation writes an output as what an agent says in a dialogue, its structured
// content as one more part. at is the place of the output.
func (e *encoder) writeConversation(w *writer, o *canonical.Output, in canonical.Conversation, at string) error {
	parts := o.Parts
	if o.Structured != nil {
		e.lose(canonical.LossStructured, canonical.Dropped, at+"/structured")
		parts = append(slices.Clip(parts), canonical.Part{Kind: canonical.KindData, Data: o.Structured})
	}
	f := profile.Flatten(&canonical.Result{Turn: &canonical.Content{Role: canonical.RoleAgent, Parts: parts}}, in, true)
	for i := range f.Paths {
		if f.Paths[i] = at + "/structured"; i < len(o.Parts) {
			f.Paths[i] = at + "/parts/" + strconv.Itoa(i)
		}
	}
	return e.lay(w, &f, f.Structure, at)
}

// structured writes structured content where the revision can hold it. Where
// not, a text says it, appended to the parts unless one of them does already.
func (e *encoder) structured(w *writer, value json.RawMessage, parts []canonical.Part, paths []string, at string) ([]canonical.Part, []string) {
	if value == nil {
		return parts, paths
	}
	if holds(e.version, value) || w.isPlaced("structuredContent") {
		w.raw("structuredContent", value)
		return parts, paths
	}
	e.lose(canonical.LossStructured, canonical.Carried, at)
	if i := copyOf(parts, value); i >= 0 {
		w.canon.Raw(canonStructured, json.RawMessage(strconv.Itoa(i)))
		return parts, paths
	}
	w.canon.String(canonStructured, appended)
	text := canonical.Part{Kind: canonical.KindText, Text: string(value)}
	return append(slices.Clip(parts), text), append(slices.Clip(paths), "")
}

func (e *encoder) content(w *writer, parts []canonical.Part, paths []string) error {
	blocks, metas := make([]json.RawMessage, len(parts)), make([]json.RawMessage, len(parts))
	for i := range parts {
		var err error
		if blocks[i], metas[i], err = e.encodeBlock(&parts[i], paths[i]); err != nil {
			return err
		}
	}
	w.raw("content", rawjson.ArrayOf(blocks))
	w.hoist(canonBlocks, metas)
	return nil
}

// flat writes a turn or a task as a tool's result.
func (e *encoder) flat(w *writer, body *canonical.Result) error {
	message := e.capability == nil || e.capability.Profile == "" || e.capability.Profile == canonical.ProfileMessage
	f := profile.Flatten(body, e.m.Conversation, message)
	structure := f.Structure
	if !message && !f.Failed {
		// The parts say it already; what does not fit is no loss.
		if structure = profile.SoleData(f.Parts); structure != nil && !holds(e.version, structure) {
			structure = nil
		}
	}
	if err := e.lay(w, &f, structure, place(body)); err != nil {
		return err
	}
	if t := body.Task; t != nil {
		e.loseTTL(t)
		e.forgetConversation(canonical.Conversation{ContextID: t.ContextID, TaskID: t.ID})
	}
	return nil
}

// lay writes what is laid out as a tool's result. at is the place of all of it.
func (e *encoder) lay(w *writer, f *profile.Flat, structure json.RawMessage, at string) error {
	parts, paths := e.structured(w, structure, f.Parts, f.Paths, at)
	if err := e.content(w, parts, paths); err != nil {
		return err
	}
	if f.Failed {
		w.raw("isError", json.RawMessage("true"))
	}
	w.canon.Raw(f.Name, f.Outline)
	e.losses = append(e.losses, f.Losses...)
	return nil
}

// place is where a flattened result stands in the canonical message.
func place(body *canonical.Result) string {
	if body.Task != nil {
		return "/body/task"
	}
	return "/body/turn"
}

// forgetConversation declares ids beside a result that the result itself does
// not name.
func (e *encoder) forgetConversation(conversation canonical.Conversation) {
	if c := e.m.Conversation.ContextID; c != "" && c != conversation.ContextID {
		e.lose(canonical.LossIDs, canonical.Dropped, "/conversation/contextId")
	}
	if c := e.m.Conversation.TaskID; c != "" && c != conversation.TaskID {
		e.lose(canonical.LossIDs, canonical.Dropped, "/conversation/taskId")
	}
}
