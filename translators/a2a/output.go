package a2a

import (
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// The marks in canon by which a task that was made from a call's direct output
// becomes that output again.
const (
	keyOutput     = "output"     // on the task
	keyStructured = "structured" // on the data part that is the structured content
	keyCopy       = "copy"       // on the data part that stands for a text of the same value: true, or that text
	keyFiller     = "filler"     // on the text that stands where a failed call said nothing
	keyOwn        = "own"        // on the task: leftovers of an A2A result that came through another protocol
)

// resultArtifact is the id of the one artifact of such a task.
const resultArtifact = "result"

// filler is what a failed task says when the tool said nothing.
const filler = "The call failed without saying why."

// output writes a call's direct output as a reply with a task: results belong in
// artifacts and not in messages (A2A 3.7).
func (e *encoder) output(o *canonical.Output, ext canonical.Extensions) (json.RawMessage, error) {
	conv := e.m.Conversation
	if conv.TaskID == "" {
		return nil, unstamped("task id")
	}
	parts := e.outputParts(o, "/body/output")
	size := 512
	for _, part := range parts {
		size += len(part)
	}
	w := newWriter(nil, taskMembers)
	w.b = *rawjson.NewBuilderOf(size)
	w.b.Begin("task")
	w.text("id", conv.TaskID)
	w.text("contextId", conv.ContextID)
	status := w.b.Begin("status")
	if o.Failed {
		status.String("state", "TASK_STATE_FAILED").Raw("message", failed(conv, parts))
	} else {
		status.String("state", "TASK_STATE_COMPLETED")
	}
	if !o.At.IsZero() {
		status.String("timestamp", stamp(o.At))
	}
	status.End()
	if !o.Failed && len(parts) > 0 {
		artifact := rawjson.NewBuilder().String("artifactId", resultArtifact).Array("parts", parts).Bytes()
		w.list("artifacts", []json.RawMessage{artifact})
	}
	canon := rawjson.NewBuilder().Bool(keyOutput, true)
	e.carry(canon, carriedTask)
	e.ownResult(ext, canon)
	w.metadata(profile.Wrap(canon.Object(), ext, Binding))
	e.add(profile.ForeignLosses(ext, Binding, "/body"))
	w.b.End()
	return w.bytes(), nil
}

func failed(conv canonical.Conversation, parts []json.RawMessage) json.RawMessage {
	if len(parts) == 0 {
		mark := rawjson.NewBuilder().Raw(profile.CanonKey, rawjson.NewBuilder().Bool(keyFiller, true).Bytes()).Bytes()
		metadata := rawjson.NewBuilder().Raw(profile.ExtensionURI, mark).Bytes()
		parts = append(parts, rawjson.NewBuilder().String("text", filler).Raw("metadata", metadata).Bytes())
	}
	return rawjson.NewBuilder().String("messageId", conv.TaskID+"/status").
		Optional("contextId", conv.ContextID).String("taskId", conv.TaskID).
		String("role", "ROLE_AGENT").Array("parts", parts).Bytes()
}

// outputParts writes the blocks in order. A text of the same value as the
// structured content becomes the data part; otherwise the data part comes last.
func (e *encoder) outputParts(o *canonical.Output, place string) []json.RawMessage {
	path := place + "/parts"
	var out []json.RawMessage
	structured := o.Structured
	for i := range o.Parts {
		p, canon := &o.Parts[i], (*rawjson.Builder)(nil)
		if structured != nil && p.Kind == canonical.KindText && sameValue(p.Text, structured) {
			canon = markCopy(p.Text, structured)
			copied := *p
			copied.Kind, copied.Data = canonical.KindData, structured
			p = &copied
			e.lose(canonical.LossStructured, place+"/structured")
			structured = nil
		}
		if raw := e.part(p, at(path, i), canon); raw != nil {
			out = append(out, raw)
		} else {
			e.drop(canonical.LossContent, at(path, i))
		}
	}
	if structured != nil {
		p := canonical.Part{Kind: canonical.KindData, Data: structured, Media: profile.TypedMedia}
		out = append(out, e.part(&p, place+"/structured", rawjson.NewBuilder().Bool(keyStructured, true)))
		e.lose(canonical.LossStructured, place+"/structured")
	}
	return out
}

func markCopy(text string, structured json.RawMessage) *rawjson.Builder {
	if text == string(structured) {
		return rawjson.NewBuilder().Bool(keyCopy, true)
	}
	return rawjson.NewBuilder().String(keyCopy, text)
}

func sameValue(text string, structured json.RawMessage) bool {
	raw := json.RawMessage(text)
	return rawjson.Check(raw, translators.DefaultBodyLimit, translators.DefaultDepth) == nil && rawjson.Equal(raw, structured)
}

// ownResult carries what an A2A task left over when it went through another
// protocol as a direct output: foreign to the task that is made here.
func (e *encoder) ownResult(ext canonical.Extensions, canon *rawjson.Builder) {
	if own := ext[Binding]; own != nil {
		canon.Raw(keyOwn, own)
		e.lose(canonical.LossExtension, "/body/extensions/"+string(Binding))
	}
}

// restore makes the task of a reply the direct output it was made from, if
// saying that output again gives this very result: else the task has become
// more than that, and stays.
func restore(m *canonical.Message, raw json.RawMessage) {
	task := m.Body.(*canonical.Result).Task
	again := *m
	again.Conversation.TaskID, again.Conversation.ContextID = task.ID, task.ContextID
	output, ok := outputOf(task)
	if !ok {
		return
	}
	output.At = task.Status.At
	body := &canonical.Result{Output: output, Extensions: taskExtensions(task, m.Body.(*canonical.Result))}
	again.Body = body
	encoded, err := (&encoder{m: &again, home: true}).response(body)
	if err == nil && rawjson.Equal(encoded, raw) {
		*m = again
	}
}

// taskExtensions undoes what output did with the extensions of the result.
func taskExtensions(task *canonical.Task, body *canonical.Result) canonical.Extensions {
	canon := rawjson.Parse(task.Extensions[profile.CanonKey], "")
	canon.Take(keyOutput)
	own := canon.Take(keyOwn)
	ext := withCanon(task.Extensions, canon).With(Binding, own)
	if len(ext) == 0 || len(body.Extensions) > 0 {
		return body.Extensions
	}
	return ext
}

// withCanon is a copy of extensions with another canon.
func withCanon(ext canonical.Extensions, canon *rawjson.Object) canonical.Extensions {
	var out canonical.Extensions
	for binding, raw := range ext {
		if binding != profile.CanonKey {
			out = out.With(binding, raw)
		}
	}
	return out.With(profile.CanonKey, canon.Rest())
}

func outputOf(task *canonical.Task) (*canonical.Output, bool) {
	o := &canonical.Output{Failed: task.Status.State == canonical.StateFailed}
	var parts []canonical.Part
	switch {
	case o.Failed && task.Status.Message != nil:
		parts = task.Status.Message.Parts
	case len(task.Artifacts) == 1:
		parts = task.Artifacts[0].Parts
	}
	for _, p := range parts {
		mark := takeMarks(&p)
		switch {
		case mark == nil:
		case mark.filler:
			continue
		case p.Kind != canonical.KindData:
			return nil, false
		case mark.copied == nil:
			o.Structured = p.Data
			continue
		default:
			o.Structured = p.Data
			p.Kind, p.Data, p.Text = canonical.KindText, nil, mark.text(o.Structured)
		}
		o.Parts = append(o.Parts, p)
	}
	return o, true
}

// marks are what canon says about a part of an output.
type marks struct {
	filler bool
	copied json.RawMessage
}

func (m *marks) text(structured json.RawMessage) string {
	if text, ok := rawjson.Unquote(m.copied); ok {
		return text
	}
	return string(structured)
}

// takeMarks reads and removes the marks of a part; nil: it has none.
func takeMarks(p *canonical.Part) *marks {
	raw := p.Extensions[profile.CanonKey]
	if raw == nil {
		return nil
	}
	canon := rawjson.Parse(raw, "")
	m := &marks{copied: canon.Take(keyCopy)}
	m.filler = string(canon.Take(keyFiller)) == "true"
	structured := string(canon.Take(keyStructured)) == "true"
	if m.copied == nil && !m.filler && !structured {
		return nil
	}
	p.Extensions = withCanon(p.Extensions, canon)
	return m
}
