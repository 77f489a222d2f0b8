package a2a

import (
	"encoding/base64"
	"encoding/json"
	"strconv"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// carriedPart are the members of a part that A2A has no place for. The URI of
// a reference is its content; that of an embedded resource is carried.
var (
	carriedPart = []profile.PartField{profile.PartTitle, profile.PartDescription, profile.PartSize, profile.PartForm, profile.PartAnnotations}
	carriedFile = append([]profile.PartField{profile.PartURI}, carriedPart...)
)

func carriedFields(kind canonical.Kind) []profile.PartField {
	if kind == canonical.KindRef {
		return carriedPart
	}
	return carriedFile
}

func (d *decoder) parts(elements []json.RawMessage, path string) []canonical.Part {
	if len(elements) == 0 {
		return nil
	}
	parts := make([]canonical.Part, len(elements))
	for i, element := range elements {
		d.part(&parts[i], element, at(path, i))
	}
	return parts
}

// part reads a part. One in a reply that cannot be read is data, as it came, and the loss is told: what
// an agent has done is not told as failed.
func (d *decoder) part(p *canonical.Part, raw json.RawMessage, path string) {
	before, losses := d.err, len(d.losses)
	d.strictPart(p, raw, path)
	if d.err == nil || before != nil || d.selects {
		return
	}
	d.err = nil
	d.losses = append(d.losses[:losses], canonical.Loss{Code: canonical.LossExtension, Path: path, Fate: canonical.Carried})
	*p = canonical.Part{Kind: canonical.KindData, Data: raw}
}

func (d *decoder) strictPart(p *canonical.Part, raw json.RawMessage, path string) {
	r := d.open(raw, path, partMembers)
	p.Media, p.Name = r.text("mediaType"), r.text("filename")
	r.content(p)
	c, skill := r.carried()
	if skill != "" {
		r.fail("metadata", "a skill is chosen by a message, not by a part")
	}
	profile.RestorePart(c.Canon, p, carriedFields(p.Kind)...)
	p.Extensions = c.Extensions(Binding, r.leftover())
}

// content takes the one content member. Data may be null, the others not.
func (r *reader) content(p *canonical.Part) {
	found := 0
	if raw := r.value("text"); raw != nil {
		found++
		p.Kind = canonical.KindText
		p.Text = r.unquote("text", raw)
	}
	if raw := r.value("url"); raw != nil {
		found++
		p.Kind = canonical.KindRef
		p.URI = r.unquote("url", raw)
	}
	if raw := r.value("raw"); raw != nil {
		found++
		p.Kind = canonical.KindFile
		text := r.unquote("raw", raw)
		var ok bool
		if p.Bytes, ok = rawjson.Unbase64(text); !ok {
			r.fail("raw", "not base64")
		}
		if base64.StdEncoding.EncodeToString(p.Bytes) != text {
			r.keep("raw", raw)
		}
	}
	if raw := r.Take("data"); raw != nil {
		found++
		p.Kind, p.Data = canonical.KindData, raw
	}
	if found != 1 {
		r.fail("", "a part needs exactly one of text, data, raw and url")
	}
}

func (r *reader) unquote(name string, raw json.RawMessage) string {
	text, ok := rawjson.Unquote(raw)
	if !ok {
		r.fail(name, "not a string")
	}
	return text
}

func (e *encoder) parts(parts []canonical.Part, path string) []json.RawMessage {
	out := make([]json.RawMessage, 0, len(parts))
	for i := range parts {
		place := at(path, i)
		if raw := e.part(&parts[i], place, nil); raw != nil {
			out = append(out, raw)
		} else {
			e.drop(canonical.LossContent, place)
		}
	}
	return out
}

// part writes one part; nil: of no kind that A2A knows. canon may hold marks
// that go along.
func (e *encoder) part(p *canonical.Part, path string, canon *rawjson.Builder) json.RawMessage {
	w := newWriter(p.Extensions[Binding], partMembers)
	w.selects = e.m.Phase == canonical.PhaseRequest
	switch p.Kind {
	case canonical.KindText:
		w.form("text")
		w.b.String("text", p.Text)
	case canonical.KindRef:
		w.form("url")
		w.b.String("url", p.URI)
	case canonical.KindFile:
		w.b.Raw("raw", w.fileBytes(p.Bytes))
	case canonical.KindData:
		w.b.Raw("data", p.Data)
		e.numbers(p.Data, path+"/data")
	default:
		return nil
	}
	w.nulls("text", "url", "raw")
	w.text("filename", p.Name)
	w.text("mediaType", p.Media)
	if canon == nil {
		canon = rawjson.NewBuilder()
	}
	e.add(profile.CarryPart(canon, p, path, carriedFields(p.Kind)...))
	w.metadata(e.wrap(canon, p.Extensions, path))
	return w.bytes()
}

// fileBytes gives the form that the bytes had, else standard base64.
func (w *writer) fileBytes(data []byte) json.RawMessage {
	if form := w.form("raw"); form != nil {
		text, _ := rawjson.Unquote(form)
		if same, ok := rawjson.Unbase64(text); ok && form[0] == '"' && string(same) == string(data) {
			return form
		}
	}
	return rawjson.Quote(base64.StdEncoding.EncodeToString(data))
}

// nulls writes the members that were there and said nothing.
func (w *writer) nulls(names ...string) {
	for _, name := range names {
		if form := w.form(name); string(form) == "null" {
			w.b.Raw(name, form)
		}
	}
}

// content reads a message. With conv, the ids that a message of its own has go
// there; without, it is part of a task, and they stay leftovers.
func (d *decoder) content(raw json.RawMessage, path string, conv *canonical.Conversation) (canonical.Content, *reader, profile.Carried, string) {
	r := d.open(raw, path, messageMembers)
	content := canonical.Content{
		ID:            r.text("messageId"),
		Role:          canonical.Role(r.enum("role", roles)),
		Parts:         d.parts(r.list("parts"), r.Path("parts")),
		ExtensionURIs: r.texts("extensions"),
	}
	if conv != nil {
		conv.ContextID, conv.TaskID = r.text("contextId"), r.text("taskId")
		conv.ReferenceTasks = r.texts("referenceTaskIds")
	}
	c, skill := r.carried()
	return content, r, c, skill
}

// decodeContent reads a message inside a task.
func (d *decoder) decodeContent(raw json.RawMessage, path string) canonical.Content {
	content, r, c, _ := d.content(raw, path, nil)
	for _, name := range idMembers {
		raw := r.Take(name)
		if raw != nil && raw[0] != '"' && raw[0] != '[' && raw[0] != 'n' {
			r.fail(name, "not an id")
		}
		if raw != nil {
			r.keep(name, raw)
		}
	}
	content.Extensions = c.Extensions(Binding, r.leftover())
	return content
}

// idMembers are the ids of a message inside a task. They are its own business.
var idMembers = []string{"contextId", "taskId", "referenceTaskIds"}

// say writes a message inside a task; without an id of its own it gets id,
// unless it came from A2A that way.
func (e *encoder) say(c *canonical.Content, path, id string) json.RawMessage {
	w := newWriter(c.Extensions[Binding], messageMembers)
	for _, name := range idMembers {
		w.b.Raw(name, w.form(name))
	}
	if c.ID != "" || c.Extensions[Binding] != nil {
		id = c.ID
	}
	e.message(w, c, path, id)
	w.metadata(e.wrap(rawjson.NewBuilder(), c.Extensions, path))
	return w.bytes()
}

func (e *encoder) message(w *writer, c *canonical.Content, path, id string) {
	w.text("messageId", id)
	w.enum("role", string(c.Role), "", roles)
	w.list("parts", e.parts(c.Parts, path+"/parts"))
	w.texts("extensions", c.ExtensionURIs)
}

func at(path string, i int) string { return path + "/" + strconv.Itoa(i) }
