package mcp

import (
	"cmp"
	"encoding/json"
	"path"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// Marks inside a block's "canon".
const (
	markKind    = "kind"    // "data": the text is the JSON of a data part; "link": it names a link
	markDerived = "derived" // members that the block must have and the part had not
)

// decodeBlock reads one content block (2026-07-28, ContentBlock); meta is its
// _meta where the revision has no place for one. losses are what no part says.
func decodeBlock(p *canonical.Part, raw json.RawMessage, at, version string, meta json.RawMessage) (losses []canonical.Loss, err error) {
	r, err := readIn(raw, at, version, levelBlock, meta)
	if err != nil {
		return nil, err
	}
	kind := r.Required("type")
	p.Annotations = r.annotations()
	switch kind {
	case "text":
		decodeText(r, p)
	case "image", typeAudio:
		if kind == typeAudio && lacks(version, levelBlock, typeAudio) {
			r.place(typeAudio)
		}
		losses = decodeMedia(r, p, canonical.Form(kind))
	case typeLink:
		if lacks(version, levelBlock, typeLink) {
			r.place(typeLink)
		}
		decodeLink(r, p)
	case "resource":
		losses = decodeResource(r, p)
	default:
		r.Fail("type", "not a type of content that is known here")
	}
	p.Extensions = r.extensions()
	return losses, r.err()
}

func decodeText(r *reader, p *canonical.Part) {
	p.Kind = canonical.KindText
	p.Text = r.Required("text")
	canon := r.carried.Canon
	profile.RestorePart(canon, p, textFields[:]...)
	switch mark := canon.PeekText(markKind); {
	case mark == "data" && isJSON(p.Text):
		canon.Take(markKind)
		p.Kind, p.Data, p.Text = canonical.KindData, json.RawMessage(p.Text), ""
	case mark == "link" && lacks(r.version, levelBlock, typeLink) && p.Text == linkText(p):
		canon.Take(markKind)
		p.Kind, p.Text = canonical.KindRef, ""
		profile.RestorePart(canon, p, profile.PartForm)
	}
}

// linkText is what a reader of a revision without links sees of one.
func linkText(p *canonical.Part) string {
	label := cmp.Or(p.Title, p.Name)
	if label == "" {
		return p.URI
	}
	return label + ": " + p.URI
}

var textFields = [...]profile.PartField{
	profile.PartMedia, profile.PartName, profile.PartTitle, profile.PartDescription, profile.PartSize, profile.PartURI,
}

// isJSON reports whether a text is exactly one JSON value without blanks around it, so that
// it can be written back unchanged.
func isJSON(text string) bool {
	return strings.TrimSpace(text) == text && rawjson.Check([]byte(text), len(text), maxDepth) == nil
}

// maxDepth bounds JSON inside a text, the deepest that a message may nest.
const maxDepth = 128

func decodeMedia(r *reader, p *canonical.Part, form canonical.Form) (losses []canonical.Loss) {
	p.Kind = canonical.KindFile
	p.Bytes, losses = blob(r.Object, "data")
	var typed bool
	if p.Media, typed = r.String("mimeType"); !typed {
		losses = append(losses, canonical.Loss{Code: canonical.LossMediaType, Path: r.Path("mimeType"), Fate: canonical.Dropped})
	}
	if profile.NaturalForm(p.Media) != form {
		p.Form = form
	}
	profile.RestorePart(r.carried.Canon, p, profile.PartName, profile.PartTitle, profile.PartDescription, profile.PartSize, profile.PartURI)
	return losses
}

func decodeLink(r *reader, p *canonical.Part) {
	p.Kind = canonical.KindRef
	p.URI = r.Required("uri")
	named := r.Has("name")
	takeText(r.Object, "name", &p.Name)
	if !named {
		r.Put("name", absent())
	}
	if r.derived("name", p.Name != "" && p.Name == baseName(p.URI)) {
		p.Name = ""
	}
	takeText(r.Object, "title", &p.Title)
	takeText(r.Object, "description", &p.Description)
	takeText(r.Object, "mimeType", &p.Media)
	p.Size = number(r.Object, "size")
	profile.RestorePart(r.carried.Canon, p, profile.PartForm)
}

// derived reports and takes the mark that a member was made up for the block;
// as made-up as it is, we must be able to make it up again.
func (r *reader) derived(member string, again bool) bool {
	if r.carried.Canon.PeekText(markDerived) != member || !again {
		return false
	}
	r.carried.Canon.Take(markDerived)
	return true
}

func decodeResource(r *reader, p *canonical.Part) (losses []canonical.Loss) {
	in := r.Object.Object("resource")
	if in == nil {
		r.Fail("resource", "required")
		return nil
	}
	r.nested(in, levelContents, canonContents)
	p.URI, p.Form = in.Required("uri"), canonical.FormEmbedded
	takeText(in, "mimeType", &p.Media)
	if in.Has("text") {
		p.Kind = canonical.KindText
		p.Text, _ = in.String("text")
	} else {
		p.Kind = canonical.KindFile
		p.Bytes, losses = blob(in, "blob")
	}
	if in.Err() != nil {
		r.Fail("resource", "malformed")
		return nil
	}
	r.PutSet("resource", in.Rest())
	profile.RestorePart(r.carried.Canon, p, profile.PartName, profile.PartTitle, profile.PartDescription, profile.PartSize)
	audio := p.Kind == canonical.KindFile && r.carried.Canon.PeekText(markKind) == typeAudio && lacks(r.version, levelBlock, typeAudio)
	if audio {
		r.carried.Canon.Take(markKind)
		if p.Form = canonical.FormAudio; profile.NaturalForm(p.Media) == canonical.FormAudio {
			p.Form = canonical.FormNone
		}
	}
	ours := p.Kind == canonical.KindFile && (audio || profile.NaturalForm(p.Media) == canonical.FormEmbedded) && p.URI == embeddedURI(p.Name)
	if r.derived("uri", ours) {
		if p.URI = ""; !audio {
			p.Form = canonical.FormNone
		}
	}
	return losses
}

// blob reads base64. Standard padded base64 is written again as it came; of another spelling (the
// alphabet for URLs, no padding, line breaks) the loss is declared.
func blob(o *rawjson.Object, name string) (data []byte, losses []canonical.Loss) {
	text := o.Required(name)
	if o.Err() != nil {
		return nil, nil
	}
	data, ok := rawjson.Unbase64(withoutSpace(text))
	if !ok {
		o.Fail(name, "not base64")
		return nil, nil
	}
	if again := rawjson.NewBuilder().Base64("b", data).Bytes(); string(again) != `{"b":"`+text+`"}` {
		losses = []canonical.Loss{{Code: canonical.LossBytes, Path: o.Path(name), Fate: canonical.Dropped}}
	}
	return data, losses
}

// withoutSpace is a text without the white space that some encoders of base64 break their lines with.
func withoutSpace(text string) string {
	if !strings.ContainsAny(text, " \t\r\n") {
		return text
	}
	return strings.NewReplacer(" ", "", "\t", "", "\r", "", "\n", "").Replace(text)
}

func number(o *rawjson.Object, name string) json.RawMessage {
	raw := o.Take(name)
	if raw != nil && raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		o.Fail(name, "not a number")
		return nil
	}
	return raw
}

// encodeBlock writes a part as a content block, and its _meta apart where a
// block has no place for one; at is the part's place in the canonical message,
// empty for a sentence of our own.
func (e *encoder) encodeBlock(p *canonical.Part, at string) (block, meta json.RawMessage, err error) {
	w := e.write(p.Extensions, levelBlock)
	var losses []canonical.Loss
	switch {
	case p.Kind == canonical.KindText && p.Form == canonical.FormEmbedded:
		losses = e.encodeResource(w, p, at)
	case p.Kind == canonical.KindText:
		w.need("type", "text")
		w.need("text", p.Text)
		losses = profile.CarryPart(&w.canon, p, at, textFields[:]...)
	case p.Kind == canonical.KindData:
		if p.Data == nil {
			return nil, nil, refuse(canonical.CodeInvalidRequest, "a data part without data")
		}
		w.need("type", "text")
		w.need("text", string(p.Data))
		w.canon.String(markKind, "data")
		losses = profile.CarryPart(&w.canon, p, at, textFields[:]...)
	case p.Kind == canonical.KindRef:
		losses = e.encodeRef(w, p, at)
	case p.Kind == canonical.KindFile:
		losses = e.encodeFile(w, p, at)
	default:
		return nil, nil, refuse(canonical.CodeInvalidRequest, "a part of an unknown kind")
	}
	losses = append(losses, w.annotations(p.Annotations, p, at)...)
	if (p.Kind == canonical.KindText && p.Form != canonical.FormEmbedded || p.Kind == canonical.KindData) && p.Form != canonical.FormNone {
		e.lose(canonical.LossAnnotations, canonical.Dropped, at+"/form")
	}
	e.losses = append(e.losses, losses...)
	e.losses = append(e.losses, foreign(p.Extensions, at)...)
	block = w.bytes()
	e.declare(w, canonical.LossAnnotations, at, "", nil)
	return block, w.hoisted, nil
}

// encodeRef writes a link in the way that its revision has. One that came
// without a name goes home without.
func (e *encoder) encodeRef(w *writer, p *canonical.Part, at string) []canonical.Loss {
	nameless := string(w.own.Peek("name")) == "null"
	if nameless {
		w.forget("name")
	}
	if w.lacks(typeLink) {
		return encodeLinkText(w, p, at)
	}
	return encodeLink(w, p, at, !nameless || !e.native)
}

// encodeLinkText writes a link as a text that names it.
func encodeLinkText(w *writer, p *canonical.Part, at string) []canonical.Loss {
	w.need("type", "text")
	w.need("text", linkText(p))
	w.canon.String(markKind, "link")
	losses := []canonical.Loss{{Code: canonical.LossAnnotations, Path: at + "/kind", Fate: canonical.Carried}}
	return append(losses, profile.CarryPart(&w.canon, p, at, append(textFields[:], profile.PartForm)...)...)
}

// encodeLink writes a link; named says that it must have a name.
func encodeLink(w *writer, p *canonical.Part, at string, named bool) []canonical.Loss {
	w.need("type", typeLink)
	w.need("uri", p.URI)
	switch {
	case p.Name != "":
		w.need("name", p.Name)
	case named && !w.own.Has("name"):
		w.need("name", baseName(p.URI))
		w.canon.String(markDerived, "name")
	}
	w.text("title", p.Title)
	w.text("description", p.Description)
	w.text("mimeType", p.Media)
	w.raw("size", p.Size)
	return profile.CarryPart(&w.canon, p, at, profile.PartForm)
}

// baseName is the last segment of a reference, for a member that must be there.
func baseName(uri string) string {
	uri, _, _ = strings.Cut(uri, "?")
	uri, _, _ = strings.Cut(uri, "#")
	name := path.Base(uri)
	if name == "." || name == "/" || strings.HasSuffix(uri, ":"+name) {
		return "resource"
	}
	return name
}

func (e *encoder) encodeFile(w *writer, p *canonical.Part, at string) []canonical.Loss {
	form := p.Form
	if form == canonical.FormNone {
		form = profile.NaturalForm(p.Media)
	}
	switch {
	case form == canonical.FormAudio && w.lacks(typeAudio):
		w.canon.String(markKind, typeAudio)
		e.lose(canonical.LossAnnotations, canonical.Carried, at+"/form")
		return e.encodeResource(w, p, at)
	case form != canonical.FormImage && form != canonical.FormAudio:
		return e.encodeResource(w, p, at)
	}
	w.need("type", string(form))
	w.raw("data", quoteBase64(p.Bytes))
	if p.Media == "" && !e.native {
		w.need("mimeType", mediaUnknown)
	} else {
		w.need("mimeType", p.Media)
	}
	return profile.CarryPart(&w.canon, p, at, profile.PartName, profile.PartTitle, profile.PartDescription, profile.PartSize, profile.PartURI)
}

func quoteBase64(data []byte) json.RawMessage {
	b := rawjson.NewBuilder().Base64("b", data).Bytes()
	return b[len(`{"b":`) : len(b)-1]
}

func (e *encoder) encodeResource(w *writer, p *canonical.Part, at string) []canonical.Loss {
	w.need("type", "resource")
	in := e.nested(w.own.Peek("resource"), levelContents)
	uri := p.URI
	if p.URI == "" && p.Form != canonical.FormEmbedded {
		uri = embeddedURI(p.Name)
		w.canon.String(markDerived, "uri")
	}
	in.need("uri", uri)
	in.text("mimeType", p.Media)
	if p.Kind == canonical.KindText {
		in.need("text", p.Text)
	} else {
		in.raw("blob", quoteBase64(p.Bytes))
	}
	w.raw("resource", w.fit(in, canonContents))
	e.declare(in, canonical.LossAnnotations, at, "/resource", nil)
	return profile.CarryPart(&w.canon, p, at, profile.PartName, profile.PartTitle, profile.PartDescription, profile.PartSize)
}

// mediaUnknown is the media type of an image or a sound whose server did not say it.
const mediaUnknown = "application/octet-stream"

// embeddedURI names a resource that had no URI of its own.
func embeddedURI(name string) string {
	var out strings.Builder
	out.WriteString("a2a:///")
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			out.WriteByte(c)
		} else {
			out.WriteString("%" + strings.ToUpper(strconv.FormatInt(int64(c)+0x100, 16)[1:]))
		}
	}
	return out.String()
}
