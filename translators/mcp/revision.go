package mcp

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// The revisions. Modern is stateless and describes itself in _meta on every
// request; the others, the legacy ones, begin with initialize. Legacy is the
// newest of those.
const (
	Modern      = "2026-07-28"
	Legacy      = "2025-11-25"
	LegacyJune  = "2025-06-18"
	LegacyMarch = "2025-03-26"
	LegacyFirst = "2024-11-05"
)

// Revisions are the supported ones, the newest first.
func Revisions() []string { return []string{Modern, Legacy, LegacyJune, LegacyMarch, LegacyFirst} }

// IsLegacy reports whether a revision is a supported one that begins with
// initialize.
func IsLegacy(version string) bool { return version != Modern && slices.Contains(Revisions(), version) }

// level is a kind of object in which the revisions differ.
type level string

const (
	levelResult      level = "result" // of a call
	levelTool        level = "tool"
	levelBlock       level = "block"       // of content
	levelAnnotations level = "annotations" // of a block
	levelContents    level = "contents"    // of an embedded resource
	levelParty       level = "party"       // a client or a server
	levelProgress    level = "progress"    // a notification of it
)

// The types of block that came later.
const (
	typeLink  = "resource_link"
	typeAudio = "audio"
)

// newer lists what a revision added, from the official schemas. Members of
// every revision and those of envelopes are not in it.
var newer = [...]struct {
	at     level
	member string
	since  string
}{
	{levelResult, "structuredContent", LegacyJune},
	{levelTool, "annotations", LegacyMarch},
	{levelTool, "title", LegacyJune},
	{levelTool, "outputSchema", LegacyJune},
	{levelTool, "_meta", LegacyJune},
	{levelTool, "icons", Legacy},
	{levelTool, "execution", Legacy},
	{levelBlock, typeAudio, LegacyMarch}, // a type, and no member of any block
	{levelBlock, typeLink, LegacyJune},   // the same
	{levelBlock, "_meta", LegacyJune},
	{levelBlock, "icons", Legacy},
	{levelAnnotations, "lastModified", LegacyJune},
	{levelContents, "_meta", LegacyJune},
	{levelParty, "title", LegacyJune},
	{levelParty, "description", Legacy},
	{levelParty, "websiteUrl", Legacy},
	{levelParty, "icons", Legacy},
	{levelProgress, "message", LegacyMarch},
}

// lacks reports whether a revision is older than a member.
func lacks(version string, at level, member string) bool {
	for _, n := range newer {
		if n.at == at && n.member == member {
			return version < n.since // dates in this form sort by time
		}
	}
	return false
}

// The names under which a newer member travels in an older revision.
const (
	// canonMembers holds the members of this very object, by name.
	canonMembers = "members"
	// canonContents holds those of an embedded resource, in the canon of its block.
	canonContents = "contents"
	// canonAnnotations holds a block's annotations when not all could be written.
	canonAnnotations = "annotations"
	// canonBlocks and canonTools hold, by index, the _meta of those that have
	// no place for one, in the canon of the result.
	canonBlocks = "blocks"
	canonTools  = "tools"
)

// placedKey is a member among leftovers that no peer may send. It names what
// an older revision does not know and what stood in its own place all the
// same: many servers send structured content whatever was negotiated. It is
// read like that of any revision, and goes home to the place that it came from.
const placedKey = profile.MetaPrefix + "placed"

// at tells a reader the revision and the kind of its object. Newer members that
// were carried are given back; those that stand in their own place are noted.
func (r *reader) at(version string, at level) {
	r.version, r.level = version, at
	for _, n := range newer {
		if n.at == at && version < n.since && r.Has(n.member) {
			r.place(n.member)
		}
	}
	restore(r.Object, r.carried.Canon, canonMembers, version, at)
}

func (r *reader) place(member string) {
	if !slices.Contains(r.placed, member) {
		r.placed = append(r.placed, member)
	}
}

// nested prepares an object inside a level: its carried members are in the
// canon of that level, under name.
func (r *reader) nested(o *rawjson.Object, at level, name string) {
	var placed []string
	for _, n := range newer {
		if n.at == at && r.version < n.since && o.Has(n.member) {
			placed = append(placed, n.member)
		}
	}
	restore(o, r.carried.Canon, name, r.version, at)
	if o.Has(placedKey) {
		r.Fail(name, "a reserved member")
	}
	if len(placed) > 0 {
		o.Put(placedKey, rawjson.ArrayOfStrings(placed))
	}
}

// restore puts carried members into their object, all or none: only what we
// would have had to carry is believed.
func restore(o, canon *rawjson.Object, name, version string, at level) {
	raw := canon.Peek(name)
	if len(raw) == 0 || raw[0] != '{' {
		return
	}
	members := rawjson.Parse(raw, "").Members()
	for _, m := range members {
		if at == levelParty && m.Name != "icons" && m.Value[0] != '"' { // an Implementation has texts besides
			return
		}
		if !lacks(version, at, m.Name) || m.Name == typeLink || m.Name == typeAudio || o.Has(m.Name) || (m.Name == "_meta" && at != levelContents) {
			return
		}
	}
	if len(members) == 0 {
		return
	}
	canon.Take(name)
	for _, m := range members {
		o.Put(m.Name, m.Value)
	}
}

// hoisted gives each object of a list its _meta, carried in the canon of the
// level above under name; nil where there is none. All are believed or none.
func (r *reader) hoisted(name, version string, at level, objects []json.RawMessage) []json.RawMessage {
	out := make([]json.RawMessage, len(objects))
	raw := r.carried.Canon.Peek(name)
	if len(raw) == 0 || raw[0] != '{' || !lacks(version, at, "_meta") {
		return out
	}
	members := rawjson.Parse(raw, "").Members()
	for _, m := range members {
		i, err := strconv.Atoi(m.Name)
		if err != nil || strconv.Itoa(i) != m.Name || i < 0 || i >= len(objects) || m.Value[0] != '{' ||
			objects[i][0] != '{' || rawjson.Parse(objects[i], "").Has("_meta") || !readable(m.Value) {
			return make([]json.RawMessage, len(objects))
		}
		out[i] = m.Value
	}
	if len(members) > 0 {
		r.carried.Canon.Take(name)
	}
	return out
}

// readable reports whether a _meta holds only what a gateway writes there, or nothing.
func readable(meta json.RawMessage) bool {
	o := rawjson.Parse(meta, "")
	carried := o.RawObject(profile.ExtKey)
	if o.Err() != nil {
		return false
	}
	_, err := profile.Unwrap(carried, "", Binding)
	return err == nil
}

// moved is a member that a writer could not leave in its place.
type moved struct {
	name string
	left bool // from the leftovers
}

// write opens a level of the revision that is written.
func (e *encoder) write(ext canonical.Extensions, at level) *writer {
	w := write(ext)
	w.version, w.level = e.version, at
	if e.native {
		w.placed = w.marks
	}
	return w
}

// nested opens an object inside a level over what was left of one. It has no
// _meta of our own.
func (e *encoder) nested(left json.RawMessage, at level) *writer {
	w := write(nil)
	if len(left) > 0 && left[0] == '{' {
		w.own = rawjson.Parse(left, "")
	}
	w.version, w.level, w.inner = e.version, at, true
	marks := takeMarks(w.own)
	if e.native {
		w.placed = marks
	}
	return w
}

// takeMarks reads and removes the placed members' names.
func takeMarks(o *rawjson.Object) []string {
	marks, _ := stringList(o.Take(placedKey))
	return marks
}

// lacks reports whether a member must not stand in this object.
func (w *writer) lacks(member string) bool {
	return w.level != "" && lacks(w.version, w.level, member) && !w.isPlaced(member)
}

// isPlaced reports whether a member goes home to where it stood against the rules.
func (w *writer) isPlaced(member string) bool { return slices.Contains(w.placed, member) }

// move takes a member that must not stand here to what is carried.
func (w *writer) move(name string, value json.RawMessage, left bool) {
	w.elsewhere.Raw(name, value)
	w.moved = append(w.moved, moved{name, left})
}

// fit closes an object inside the level w; what did not fit into it travels in
// the level's canon under name.
func (w *writer) fit(inner *writer, name string) json.RawMessage {
	out := inner.bytes()
	w.canon.Raw(name, inner.elsewhere.Object())
	return out
}

// declare says what of a closed level is carried because the revision is too
// old for it; path is the level's place, rename gives canonical names.
func (e *encoder) declare(w *writer, code canonical.LossCode, path, within string, rename map[string]string) {
	for _, m := range w.moved {
		at := path + "/" + m.name
		if name := rename[m.name]; name != "" {
			at = path + "/" + name
		}
		if m.left {
			at = path + "/extensions/" + string(Binding) + within + "/" + m.name
		}
		e.lose(code, canonical.Carried, at)
	}
	if w.lacks("_meta") && w.left != nil && w.level != levelContents {
		e.lose(canonical.LossAnnotations, canonical.Carried, path+"/extensions/"+string(Binding)+"/_meta")
	}
}

// hoist writes, into the canon of a result, the _meta of those objects of a
// list that have no place for one.
func (w *writer) hoist(name string, metas []json.RawMessage) {
	b := rawjson.NewBuilder()
	for i, meta := range metas {
		b.Raw(strconv.Itoa(i), meta)
	}
	w.canon.Raw(name, b.Object())
}

// trim leaves out the annotations of a block that the revision does not have;
// trimmed reports that there were any.
func trim(version string, annotations json.RawMessage) (rest json.RawMessage, trimmed bool) {
	if annotations == nil {
		return nil, false
	}
	b := rawjson.NewBuilder()
	for _, m := range rawjson.Parse(annotations, "").Members() {
		if lacks(version, levelAnnotations, m.Name) {
			trimmed = true
			continue
		}
		b.Raw(m.Name, m.Value)
	}
	if !trimmed {
		return annotations, false
	}
	return b.Object(), true
}

// annotations reads a block's annotations, the carried ones if those that
// stand there are what we would have left of them.
func (r *reader) annotations() json.RawMessage {
	raw := r.RawObject("annotations")
	if _, trimmed := trim(r.version, raw); trimmed {
		r.place("annotations")
	}
	carried := r.carried.Canon.Peek(canonAnnotations)
	if len(carried) == 0 || carried[0] != '{' {
		return raw
	}
	if rest, trimmed := trim(r.version, carried); trimmed && (raw == nil) == (rest == nil) && (raw == nil || rawjson.Equal(raw, rest)) {
		return r.carried.Canon.Take(canonAnnotations)
	}
	return raw
}

// annotations writes a block's annotations.
func (w *writer) annotations(value json.RawMessage, p *canonical.Part, at string) []canonical.Loss {
	rest, trimmed := trim(w.version, value)
	if !trimmed || w.isPlaced("annotations") {
		w.raw("annotations", value)
		return nil
	}
	w.raw("annotations", rest)
	return profile.CarryPart(&w.canon, p, at, profile.PartAnnotations)
}
