package a2a

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// decoder reads one message. The first failure stays.
type decoder struct {
	err    error
	losses []canonical.Loss
	// selects: the message may choose a skill. In a reply such a choice is an
	// echo of the request's, and stays metadata.
	selects bool
}

func (d *decoder) check(err error) {
	d.err = cmp.Or(d.err, err)
}

// reader reads one object of the protocol. Known members are taken; the rest,
// and known ones whose very form the canonical value cannot keep, are leftovers.
type reader struct {
	*rawjson.Object
	d     *decoder
	forms []rawjson.Member
	none  rawjson.Object // the canon, where nothing is carried
}

// open starts to read an object whose known members are listed.
func (d *decoder) open(raw json.RawMessage, path string, known []string) *reader {
	r := &reader{Object: rawjson.Parse(raw, path), d: d}
	if r.Err() != nil {
		d.check(r.Err())
		return r
	}
	members := r.Members()
	for i := range members {
		name, ok := lookalike(members[i].Name, known)
		switch {
		case !ok:
		case snake(name) == members[i].Name && !r.Has(name):
			members[i].Name = name
			d.losses = append(d.losses, canonical.Loss{Code: canonical.LossBytes, Path: "/body", Fate: canonical.Dropped})
		default:
			r.Fail(name, "given twice or misspelt")
		}
	}
	d.check(r.Err())
	return r
}

// lookalike finds the known member that a careless reader takes name for.
func lookalike(name string, known []string) (string, bool) {
	if slices.Contains(known, name) {
		return "", false
	}
	plain := strings.ReplaceAll(name, "_", "")
	for _, k := range known {
		if strings.EqualFold(plain, k) {
			return k, true
		}
	}
	return "", false
}

// snake is the name of a field in the proto, which ProtoJSON readers take too.
func snake(camel string) string {
	var b strings.Builder
	for _, c := range camel {
		if c >= 'A' && c <= 'Z' {
			b.WriteByte('_')
			c += 'a' - 'A'
		}
		b.WriteRune(c)
	}
	return b.String()
}

func (r *reader) fail(name, reason string) {
	r.Fail(name, reason)
	r.d.check(r.Err())
}

// keep makes the exact form of a member a leftover.
func (r *reader) keep(name string, raw json.RawMessage) {
	r.forms = append(r.forms, rawjson.Member{Name: name, Value: raw})
}

// value takes a member; null is kept as a form and counts as absent, as
// ProtoJSON has it for every member but data.
func (r *reader) value(name string) json.RawMessage {
	raw := r.Take(name)
	if string(raw) == "null" {
		r.keep(name, raw)
		return nil
	}
	return raw
}

// text takes a string; the empty one is kept as a form.
func (r *reader) text(name string) string {
	raw := r.value(name)
	if raw == nil {
		return ""
	}
	value, ok := rawjson.Unquote(raw)
	if !ok {
		r.fail(name, "not a string")
	}
	if value == "" {
		r.keep(name, raw)
	}
	return value
}

func (r *reader) flag(name string) bool {
	switch raw := r.value(name); string(raw) {
	case "", "true":
		return raw != nil
	case "false":
		r.keep(name, raw)
	default:
		r.fail(name, "not a boolean")
	}
	return false
}

// list takes the elements of an array; the empty one is kept as a form.
func (r *reader) list(name string) []json.RawMessage {
	raw := r.value(name)
	if raw == nil {
		return nil
	}
	elements, ok := rawjson.Elements(raw)
	if !ok {
		r.fail(name, "not an array")
	}
	if len(elements) == 0 {
		r.keep(name, raw)
	}
	return elements
}

func (r *reader) texts(name string) []string {
	var values []string
	for _, element := range r.list(name) {
		value, ok := rawjson.Unquote(element)
		if !ok {
			r.fail(name, "not an array of strings")
			return nil
		}
		values = append(values, value)
	}
	return values
}

// enum takes an enumeration value by name or number; one that is not in the
// table is empty, and kept.
func (r *reader) enum(name string, table []enum) string {
	raw := r.value(name)
	if raw == nil {
		return ""
	}
	value := lookup(raw, table)
	if raw[0] != '"' || value == "" {
		r.keep(name, raw)
	}
	if raw[0] != '"' && raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		r.fail(name, "neither a name nor a number")
	}
	return value
}

// leftover returns the members that were not taken, and those kept; nil: none.
func (r *reader) leftover() json.RawMessage {
	b := rawjson.NewBuilder().Rest(r.Object)
	for _, m := range r.forms {
		b.Raw(m.Name, m.Value)
	}
	return b.Object()
}

// carried takes our member out of metadata. What stands there and is not what
// a gateway writes stays metadata: kept, not believed.
func (r *reader) carried() (c profile.Carried, skill string) {
	c.Canon = &r.none
	raw := r.value("metadata")
	if raw == nil {
		return c, ""
	}
	if raw[0] != '{' {
		r.fail("metadata", "not an object")
		return c, ""
	}
	metadata := rawjson.Parse(raw, r.Path("metadata"))
	ours := metadata.Peek(profile.ExtensionURI)
	if ours == nil || ours[0] != '{' {
		r.keep("metadata", raw)
		return c, ""
	}
	o := rawjson.Parse(ours, "")
	if r.d.selects {
		skill = takeSkill(o)
	}
	rest := o.Rest()
	found, err := profile.Unwrap(rest, "", Binding)
	if err != nil || (rest == nil && skill == "") {
		r.keep("metadata", raw)
		return c, ""
	}
	metadata.Take(profile.ExtensionURI)
	if others := metadata.Rest(); others != nil {
		r.keep("metadata", others)
	}
	return found, skill
}

// takeSkill reads the hint which skill a message is for.
func takeSkill(o *rawjson.Object) string {
	skill, ok := rawjson.Unquote(o.Peek("skill"))
	if ok && skill != "" {
		o.Take("skill")
	}
	return skill
}

// writer writes one object of the protocol over its leftovers. A leftover
// under a known name is the form of a value and stands only while the value
// says the same; the canonical value always wins.
type writer struct {
	b       rawjson.Builder
	rest    []rawjson.Member
	known   []string
	selects bool // as the decoder's of what is written
}

func newWriter(leftover json.RawMessage, known []string) *writer {
	w := &writer{known: known}
	if leftover != nil {
		w.rest = rawjson.Parse(leftover, "").Members()
	}
	return w
}

// form takes the leftover of a known name; nil: none.
func (w *writer) form(name string) json.RawMessage {
	for i, m := range w.rest {
		if m.Name == name {
			w.rest = slices.Delete(slices.Clone(w.rest), i, i+1)
			return m.Value
		}
	}
	return nil
}

// raw writes a value; without one, a form that says nothing.
func (w *writer) raw(name string, value json.RawMessage) {
	form := w.form(name)
	if value == nil && string(form) == "null" {
		value = form
	}
	w.b.Raw(name, value)
}

func (w *writer) text(name, value string) {
	if form := w.form(name); value == "" && (string(form) == "null" || string(form) == `""`) {
		w.b.Raw(name, form)
		return
	}
	w.b.Optional(name, value)
}

func (w *writer) flag(name string, value bool) {
	form := w.form(name)
	if value {
		w.b.Bool(name, true)
	} else if string(form) == "null" || string(form) == "false" {
		w.b.Raw(name, form)
	}
}

func (w *writer) list(name string, values []json.RawMessage) {
	form := w.form(name)
	switch {
	case len(values) > 0:
		w.b.Array(name, values)
	case string(form) == "null":
		w.b.Raw(name, form)
	case form != nil && form[0] == '[':
		w.b.Array(name, nil)
	}
}

func (w *writer) texts(name string, values []string) {
	w.list(name, rawjson.List(values, func(text *string) json.RawMessage { return rawjson.Quote(*text) }))
}

// enum writes a value by its name, or in the form it had. otherwise is the
// value that stands for names outside the table.
func (w *writer) enum(name, value, otherwise string, table []enum) {
	if form := w.form(name); form != nil {
		if given := lookup(form, table); given == value || (given == "" && value == otherwise) {
			w.b.Raw(name, form)
			return
		}
	}
	for _, e := range table {
		if e.value == value {
			w.b.String(name, e.name)
			return
		}
	}
}

// lookup finds what a name or number stands for; "": nothing in the table.
func lookup(raw json.RawMessage, table []enum) string {
	text, _ := rawjson.Unquote(raw)
	for _, e := range table {
		if e.name == text || e.number == string(raw) {
			return e.value
		}
	}
	return ""
}

// metadata writes the level's own metadata with ours in it. A leftover that a
// reader would take for ours was not left over by a decoder here.
func (w *writer) metadata(ours json.RawMessage) {
	form := w.form("metadata")
	if !rawjson.IsObject(form) {
		if ours != nil {
			w.b.Begin("metadata").Raw(profile.ExtensionURI, ours).End()
			return
		}
		w.b.Raw("metadata", form)
		return
	}
	if ours == nil && !w.believed(form) {
		w.b.Raw("metadata", form)
		return
	}
	others := without(rawjson.Parse(form, ""), profile.ExtensionURI)
	w.b.Raw("metadata", rawjson.NewBuilder().Merge(others).Raw(profile.ExtensionURI, ours).Object())
}

// believed reports whether a reader would take something of ours out of metadata.
func (w *writer) believed(metadata json.RawMessage) bool {
	level := rawjson.NewBuilder().Raw("metadata", metadata).Bytes()
	c, skill := (&decoder{selects: w.selects}).open(level, "", partMembers).carried()
	return skill != "" || len(c.Ext) > 0 || len(c.Canon.Members()) > 0
}

// bytes closes the object with the leftovers of unknown names. One that a
// careless reader takes for a known member did not come from a decoder here.
func (w *writer) bytes() json.RawMessage {
	for _, m := range w.rest {
		if _, like := lookalike(m.Name, w.known); !like && !slices.Contains(w.known, m.Name) {
			w.b.Raw(m.Name, m.Value)
		}
	}
	return w.b.Bytes()
}
