package profile

import (
	"encoding/json"
	"strconv"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// SoleData is the value of the only data part of a result, the structured
// content of a typed tool; nil when there is none or more than one.
func SoleData(parts []canonical.Part) json.RawMessage {
	var found json.RawMessage
	for i := range parts {
		if parts[i].Kind != canonical.KindData {
			continue
		}
		if found != nil {
			return nil
		}
		found = parts[i].Data
	}
	return found
}

// ResultOf gives a result in the words of a protocol of messages, if it can: a
// tool's output that carries an outline becomes the turn or task that it was,
// together with the dialogue of a turn. ok is false when there is no outline
// or it does not fit; the output is then what it is.
func ResultOf(r *canonical.Result) (out *canonical.Result, conv canonical.Conversation, ok bool) {
	if r.Output == nil {
		return r, conv, false
	}
	for _, name := range []string{OutlineTask, OutlineTurn} {
		outline := takeOutline(r.Extensions, name)
		if outline == nil {
			continue
		}
		if name == OutlineTask {
			out, ok = followTask(outline, r.Output)
		} else {
			out, conv, ok = followReply(outline, r.Output)
		}
		if ok && fits(out, conv, r.Output, outline) {
			out.Extensions = withoutOutline(r.Extensions, name)
			return out, conv, true
		}
	}
	return r, canonical.Conversation{}, false
}

// ReplyConversation gives the dialogue that a carried outline names.
func ReplyConversation(ext canonical.Extensions) (conv canonical.Conversation) {
	for _, name := range [...][2]string{{OutlineTask, "id"}, {OutlineTurn, "taskId"}} {
		if outline := takeOutline(ext, name[0]); outline != nil {
			o := rawjson.Parse(outline, "")
			conv.ContextID, _ = o.String("contextId")
			conv.TaskID, _ = o.String(name[1])
			return conv
		}
	}
	return conv
}

// fits reports whether flattening what was built gives exactly this output again, for one
// of the two kinds of tool.
func fits(built *canonical.Result, conv canonical.Conversation, o *canonical.Output, outline json.RawMessage) bool {
	for _, message := range []bool{true, false} {
		f := Flatten(built, conv, message)
		want := f.Structure
		if !message && !f.Failed {
			want = SoleData(f.Parts)
		}
		structured := rawjson.Equal(o.Structured, want) || (!message && o.Structured == nil)
		if structured && f.Failed == o.Failed && SameParts(f.Parts, o.Parts) && rawjson.Equal(f.Outline, outline) {
			return true
		}
	}
	return false
}

func followReply(outline json.RawMessage, o *canonical.Output) (*canonical.Result, canonical.Conversation, bool) {
	in := rawjson.Parse(outline, "")
	var turn canonical.Content
	var conv canonical.Conversation
	turn.ID, _ = in.String("id")
	conv.ContextID, _ = in.String("contextId")
	conv.TaskID, _ = in.String("taskId")
	ok := readHead(in, &turn, canonical.RoleAgent)
	turn.Parts = o.Parts
	return &canonical.Result{Turn: &turn}, conv, ok && !o.Failed
}

func followTask(outline json.RawMessage, o *canonical.Output) (*canonical.Result, bool) {
	in := rawjson.Parse(outline, "")
	t := &canonical.Task{}
	t.ID, _ = in.String("id")
	t.ContextID, _ = in.String("contextId")
	state, _ := in.String("state")
	t.Status.State = canonical.State(state)
	if at := in.Take("at"); at != nil && !unquoteTime(at, &t.Status.At) {
		return nil, false
	}
	parts := &deck{parts: o.Parts}
	if notice, _ := in.Bool("notice"); notice {
		parts.take(1)
	}
	status, artifacts, history := in.Take("message"), in.Take("artifacts"), in.Take("history")
	ok := true
	if ext := in.Take("ext"); ext != nil {
		t.Extensions, ok = readExt(ext)
	}
	ok = ok && followHistory(t, history)
	if t.Status.State != canonical.StateCompleted {
		ok = ok && followStatus(t, status, parts)
	}
	ok = ok && followArtifacts(t, artifacts, parts)
	if t.Status.State == canonical.StateCompleted {
		ok = ok && followStatus(t, status, parts)
	}
	return &canonical.Result{Task: t}, ok && in.Err() == nil && len(parts.parts) == 0 && !parts.short
}

// deck deals parts in order.
type deck struct {
	parts []canonical.Part
	short bool
}

func (d *deck) take(n int) []canonical.Part {
	if n < 0 || n > len(d.parts) {
		d.short = true
		return nil
	}
	taken := d.parts[:n:n]
	d.parts = d.parts[n:]
	return taken
}

func (d *deck) deal(in *rawjson.Object) []canonical.Part {
	n, err := strconv.Atoi(string(in.Take("parts")))
	if err != nil {
		n = -1
	}
	return d.take(n)
}

func followStatus(t *canonical.Task, raw json.RawMessage, parts *deck) bool {
	if raw == nil {
		return true
	}
	in := rawjson.Parse(raw, "")
	m := &canonical.Content{}
	m.ID, _ = in.String("id")
	ok := readHead(in, m, canonical.RoleAgent)
	m.Parts = parts.deal(in)
	t.Status.Message = m
	return ok && in.Err() == nil
}

func followArtifacts(t *canonical.Task, raw json.RawMessage, parts *deck) bool {
	if raw == nil {
		return true
	}
	list, ok := rawjson.Elements(raw)
	for _, element := range list {
		in := rawjson.Parse(element, "")
		var a canonical.Artifact
		a.ID, _ = in.String("id")
		a.Name, _ = in.String("name")
		a.Description, _ = in.String("description")
		var head canonical.Content
		ok = ok && readHead(in, &head, "")
		a.ExtensionURIs, a.Extensions = head.ExtensionURIs, head.Extensions
		a.Parts = parts.deal(in)
		ok = ok && in.Err() == nil
		t.Artifacts = append(t.Artifacts, a)
	}
	return ok
}

func followHistory(t *canonical.Task, raw json.RawMessage) bool {
	if raw == nil {
		return true
	}
	list, ok := rawjson.Elements(raw)
	for _, element := range list {
		turn, fits := ReadContent(element)
		ok = ok && fits
		t.History = append(t.History, turn)
	}
	return ok
}
