package profile

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// PartField is a canonical member of a part that some protocol has no place
// for; its value is its name inside "canon".
type PartField string

// The fields of a part that can be carried.
const (
	PartMedia       PartField = "media"
	PartName        PartField = "name"
	PartTitle       PartField = "title"
	PartDescription PartField = "description"
	PartSize        PartField = "size"
	PartURI         PartField = "uri"
	PartForm        PartField = "form"
	PartAnnotations PartField = "annotations"
)

type partField = field[PartField, canonical.Part]

// CarryPart writes those of the listed fields that are set into canon; path
// is the part's place in the canonical message.
func CarryPart(canon *rawjson.Builder, p *canonical.Part, path string, fields ...PartField) []canonical.Loss {
	return carry(partFields[:], canon, p, path, fields)
}

// RestorePart takes the listed fields out of canon into p. A value that
// CarryPart would not have written stays where it is: kept, not believed.
func RestorePart(canon *rawjson.Object, p *canonical.Part, fields ...PartField) {
	restore(partFields[:], canon, p, fields)
}

var partFields = [...]partField{
	textField(PartMedia, canonical.LossMediaType, "/media", func(p *canonical.Part) *string { return &p.Media }),
	textField(PartName, canonical.LossMediaType, "/name", func(p *canonical.Part) *string { return &p.Name }),
	textField(PartTitle, canonical.LossAnnotations, "/title", func(p *canonical.Part) *string { return &p.Title }),
	textField(PartDescription, canonical.LossAnnotations, "/description", func(p *canonical.Part) *string { return &p.Description }),
	rawField(PartSize, canonical.LossAnnotations, "/size", func(p *canonical.Part) *json.RawMessage { return &p.Size }),
	textField(PartURI, canonical.LossAnnotations, "/uri", func(p *canonical.Part) *string { return &p.URI }),
	{PartForm, canonical.LossAnnotations, "/form", getForm, setForm},
	rawField(PartAnnotations, canonical.LossAnnotations, "/annotations", func(p *canonical.Part) *json.RawMessage { return &p.Annotations }),
}

func getForm(p *canonical.Part) json.RawMessage { return rawjson.QuoteSet(string(p.Form)) }

func setForm(p *canonical.Part, raw json.RawMessage) bool {
	text, ok := rawjson.Unquote(raw)
	if form := canonical.Form(text); ok && (form == canonical.FormImage || form == canonical.FormAudio || form == canonical.FormEmbedded) {
		p.Form = form
		return true
	}
	return false
}

// NaturalForm is the MCP form that a file of this media type takes when
// nothing says otherwise. A decoder leaves Form empty where it is this one.
func NaturalForm(media string) canonical.Form {
	switch {
	case strings.HasPrefix(media, "image/"):
		return canonical.FormImage
	case strings.HasPrefix(media, "audio/"):
		return canonical.FormAudio
	default:
		return canonical.FormEmbedded
	}
}

// writePart writes a part in full, but for the members whose names stand in
// without.
func writePart(b *rawjson.Builder, p *canonical.Part, without ...string) {
	keep := func(name string) bool { return !slices.Contains(without, name) }
	b.String("kind", string(p.Kind))
	switch {
	case p.Kind == canonical.KindText && keep("text"):
		b.String("text", p.Text)
	case p.Kind == canonical.KindData && keep("data"):
		b.Raw("data", p.Data)
	case p.Kind == canonical.KindFile && keep("bytes"):
		b.Base64("bytes", p.Bytes)
	}
	for _, f := range partFields {
		if keep(string(f.name)) {
			b.Raw(string(f.name), f.get(p))
		}
	}
	if keep("ext") {
		b.Raw("ext", writeExt(p.Extensions))
	}
}

// readPart reads what writePart wrote; ok is false for anything else. Content
// that was left out is left empty.
func readPart(o *rawjson.Object) (p canonical.Part, ok bool) {
	kind, _ := o.String("kind")
	p.Kind = canonical.Kind(kind)
	switch p.Kind {
	case canonical.KindText:
		p.Text, _ = o.String("text")
	case canonical.KindData:
		p.Data = o.Take("data")
	case canonical.KindFile:
		p.Bytes, _ = o.Base64("bytes")
	case canonical.KindRef:
	default:
		return p, false
	}
	for _, f := range partFields {
		if raw := o.Take(string(f.name)); raw != nil && !f.set(&p, raw) {
			return p, false
		}
	}
	if raw := o.Take("ext"); raw != nil {
		if p.Extensions, ok = readExt(raw); !ok {
			return p, false
		}
	}
	return p, o.Err() == nil
}

// WriteContent writes a whole turn.
func WriteContent(c *canonical.Content) json.RawMessage {
	b := rawjson.NewBuilder().Optional("id", c.ID)
	writeHead(b, c, "")
	return b.Array("parts", rawjson.List(c.Parts, WritePart)).Bytes()
}

// writeHead writes what a turn has besides its parts and its id; a role that
// goes without saying is left out.
func writeHead(b *rawjson.Builder, c *canonical.Content, implied canonical.Role) {
	if c.Role != implied {
		b.Optional("role", string(c.Role))
	}
	b.Raw("extensions", rawjson.ArrayOfStrings(c.ExtensionURIs)).Raw("ext", writeExt(c.Extensions))
}

func readHead(o *rawjson.Object, c *canonical.Content, implied canonical.Role) bool {
	c.Role = implied
	if role, ok := o.String("role"); ok {
		c.Role = canonical.Role(role)
	}
	if raw := o.Take("extensions"); raw != nil && !unquoteList(raw, &c.ExtensionURIs) {
		return false
	}
	ok := true
	if raw := o.Take("ext"); raw != nil {
		c.Extensions, ok = readExt(raw)
	}
	return ok && o.Err() == nil && (c.Role == canonical.RoleCaller || c.Role == canonical.RoleAgent || c.Role == "")
}

// ReadContent reads what WriteContent wrote; ok is false for anything else.
func ReadContent(raw json.RawMessage) (c canonical.Content, ok bool) {
	o := rawjson.Parse(raw, "")
	c.ID, _ = o.String("id")
	if !readHead(o, &c, "") {
		return c, false
	}
	elements, _ := o.Array("parts")
	for _, element := range elements {
		p, ok := readPart(rawjson.Parse(element, ""))
		if !ok {
			return c, false
		}
		c.Parts = append(c.Parts, p)
	}
	return c, o.Err() == nil
}

// writeExt writes the extensions of every binding; nil: none.
func writeExt(ext canonical.Extensions) json.RawMessage {
	b := rawjson.NewBuilder()
	for _, binding := range bindings(ext) {
		b.Raw(string(binding), ext[binding])
	}
	return b.Object()
}

func readExt(raw json.RawMessage) (canonical.Extensions, bool) {
	o := rawjson.Parse(raw, "")
	if o.Err() != nil || len(o.Members()) == 0 {
		return nil, false
	}
	ext := canonical.Extensions{}
	for _, m := range o.Members() {
		if m.Value[0] != '{' {
			return nil, false
		}
		ext[canonical.Binding(m.Name)] = m.Value
	}
	return ext, true
}

// SamePart reports whether two parts say the same, JSON compared by value.
func SamePart(a, b *canonical.Part) bool {
	if a.Kind != b.Kind || a.Text != b.Text || !bytes.Equal(a.Bytes, b.Bytes) || !rawjson.Equal(a.Data, b.Data) {
		return false
	}
	x, y := rawjson.NewBuilder(), rawjson.NewBuilder()
	writePart(x, a, "text", "data", "bytes")
	writePart(y, b, "text", "data", "bytes")
	return rawjson.Equal(x.Bytes(), y.Bytes())
}
