package mcp

import (
	"encoding/json"
	"slices"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// reader takes one JSON object with a _meta apart: members, _meta members, and
// what a gateway carried in it. A decoder takes the members that it knows; extensions
// keeps the rest.
type reader struct {
	*rawjson.Object
	meta    *rawjson.Object // nil: no _meta
	empty   bool            // _meta stood there and was empty
	carried profile.Carried
	none    rawjson.Object // its canon, where nothing is carried

	version string // see at, in revision.go; empty: the level is the same in all
	level   level
	placed  []string
}

// read opens an object. A nil raw is an absent object.
func read(raw json.RawMessage, path string) (*reader, error) {
	return open(rawjson.Parse(rawjson.OrEmpty(raw), path), path)
}

// readIn opens an object of a revision; meta is the _meta that was carried for
// it elsewhere, nil if none was.
func readIn(raw json.RawMessage, path, version string, at level, meta json.RawMessage) (*reader, error) {
	o := rawjson.Parse(raw, path)
	placed := o.Has("_meta") && lacks(version, at, "_meta")
	if meta != nil {
		o.Put("_meta", meta)
	}
	r, err := open(o, path)
	if err != nil {
		return nil, err
	}
	if placed {
		r.place("_meta")
	}
	r.at(version, at)
	return r, nil
}

func open(o *rawjson.Object, path string) (*reader, error) {
	r := &reader{Object: o}
	if r.Has(placedKey) {
		r.Fail(placedKey, "a reserved member")
	}
	r.meta = r.Object.Object("_meta")
	var carried json.RawMessage
	if r.meta != nil {
		r.empty = len(r.meta.Members()) == 0
		carried = r.meta.RawObject(profile.ExtKey)
		if err := r.meta.Err(); err != nil {
			return nil, err
		}
	}
	if carried == nil {
		r.carried.Canon = &r.none
		return r, r.Err()
	}
	var err error
	r.carried, err = profile.Unwrap(carried, path+"/_meta/"+profile.ExtKey, Binding)
	if err == nil {
		err = r.Err()
	}
	return r, err
}

// takeMeta takes a non-empty string out of _meta. An empty one stays: it says
// something that the canonical field cannot.
func (r *reader) takeMeta(name string, to *string) {
	if r.meta != nil {
		takeText(r.meta, name, to)
	}
}

// takeText takes a non-empty string and leaves an empty one where it is.
func takeText(o *rawjson.Object, name string, to *string) {
	if raw := o.Peek(name); raw != nil && string(raw) != `""` {
		*to, _ = o.String(name)
	}
}

// err is the first failure of the object or its _meta.
func (r *reader) err() error {
	if r.meta != nil && r.meta.Err() != nil {
		return r.meta.Err()
	}
	if err := r.carried.Canon.Err(); err != nil {
		return err
	}
	return r.Err()
}

// leftovers returns the members that were not taken; nil: none.
func (r *reader) leftovers() json.RawMessage {
	b := rawjson.NewBuilder().Rest(r.Object)
	if r.meta != nil {
		rest := r.meta.Rest()
		if r.empty {
			rest = json.RawMessage("{}")
		}
		b.Raw("_meta", rest)
	}
	b.Strings(placedKey, r.placed, false)
	return b.Object()
}

func (r *reader) extensions() canonical.Extensions {
	return r.carried.Extensions(Binding, r.leftovers())
}

// writer puts one JSON object together again. Members that it was given win
// over leftovers of the same name, so that nothing smuggled into extensions
// says a thing twice.
type writer struct {
	own     *rawjson.Object // none where there are no leftovers
	none    rawjson.Object
	left    *rawjson.Object // _meta leftovers; nil: no _meta there
	members rawjson.Builder
	meta    rawjson.Builder
	written []string
	canon   rawjson.Builder
	ext     canonical.Extensions

	version   string // see lacks, in revision.go; empty: the level is the same in all
	level     level
	marks     []string // the leftovers' word about placed members
	placed    []string // those of marks that hold here
	inner     bool     // an object inside a level
	elsewhere rawjson.Builder
	moved     []moved
	hoisted   json.RawMessage // the _meta, where there is no place for it
}

// write opens a level with what its extensions hold.
func write(ext canonical.Extensions) *writer {
	w := &writer{ext: ext, written: make([]string, 0, 4)}
	w.own = &w.none
	if raw := ext[Binding]; raw != nil {
		w.own = rawjson.Parse(raw, "")
	}
	w.marks = takeMarks(w.own)
	if raw := w.own.Take("_meta"); len(raw) > 0 && raw[0] == '{' {
		w.left = rawjson.Parse(raw, "")
		w.left.Take(profile.ExtKey)
	}
	return w
}

// forget drops leftovers that only their own kind of message may say.
func (w *writer) forget(names ...string) {
	for _, name := range names {
		w.own.Take(name)
	}
}

func (w *writer) raw(name string, value json.RawMessage) {
	if value == nil {
		return
	}
	w.written = append(w.written, name)
	if w.lacks(name) {
		w.move(name, value, false)
		return
	}
	w.members.Raw(name, value)
}

func (w *writer) text(name, value string) {
	if value != "" {
		w.raw(name, rawjson.Quote(value))
	}
}

// need writes a text, the empty one too.
func (w *writer) need(name, value string) { w.raw(name, rawjson.Quote(value)) }

// metaRaw writes a _meta member in place of a leftover of the same name.
func (w *writer) metaRaw(name string, value json.RawMessage) {
	if value == nil {
		return
	}
	w.meta.Raw(name, value)
	if w.left != nil {
		w.left.Take(name)
	}
}

func (w *writer) metaLeft(name string) json.RawMessage {
	if w.left == nil {
		return nil
	}
	return w.left.Peek(name)
}

// bytes closes the object; object is nil for an empty one.
func (w *writer) bytes() json.RawMessage {
	w.finish()
	return w.members.Bytes()
}

func (w *writer) object() json.RawMessage {
	w.finish()
	return w.members.Object()
}

func (w *writer) finish() {
	for _, m := range w.own.Members() {
		switch {
		case slices.Contains(w.written, m.Name):
		case w.lacks(m.Name):
			w.move(m.Name, m.Value, true)
		default:
			w.members.Raw(m.Name, m.Value)
		}
	}
	if w.inner {
		return
	}
	w.canon.Raw(canonMembers, w.elsewhere.Object())
	w.metaRaw(profile.ExtKey, profile.Wrap(w.canon.Object(), w.ext, Binding))
	var meta json.RawMessage
	if w.left != nil {
		meta = w.meta.Rest(w.left).Bytes()
	} else {
		meta = w.meta.Object()
	}
	if w.lacks("_meta") {
		w.hoisted = meta
		return
	}
	w.members.Raw("_meta", meta)
}
