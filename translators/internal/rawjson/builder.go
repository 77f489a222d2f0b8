package rawjson

import (
	"encoding/base64"
	"encoding/json"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Builder writes one JSON object, member by member, in the order of the calls.
type Builder struct {
	buf   []byte
	space int // bytes to allocate at once; 0: unknown
}

// NewBuilder starts an object. Most extensions stay empty, so it allocates nothing
// before there is a member.
func NewBuilder() *Builder { return &Builder{} }

// NewBuilderOf starts an object of about so many bytes, which it allocates at the
// first member.
func NewBuilderOf(size int) *Builder { return &Builder{space: size} }

// name begins a member of about so many bytes. It allocates a small object
// at once: growing from nothing costs more than the writing.
func (b *Builder) name(name string, size int) {
	if b.Empty() {
		capacity := b.space
		if capacity == 0 {
			capacity = max(128, size+64)
		}
		b.buf = append(make([]byte, 0, capacity), '{')
	} else {
		b.buf = slices.Grow(b.buf, len(name)+size+len(`,"":{}}`))
		if b.buf[len(b.buf)-1] != '{' { // no value ends so
			b.buf = append(b.buf, ',')
		}
	}
	b.buf = appendQuote(b.buf, name)
	b.buf = append(b.buf, ':')
}

// Raw adds a member whose value is JSON already; nil adds nothing.
func (b *Builder) Raw(name string, value json.RawMessage) *Builder {
	if value != nil {
		b.name(name, len(value))
		b.buf = append(b.buf, value...)
	}
	return b
}

// String adds a string, the empty one too.
func (b *Builder) String(name, value string) *Builder {
	b.name(name, len(value))
	b.buf = appendQuote(b.buf, value)
	return b
}

// Optional adds a string unless it is empty.
func (b *Builder) Optional(name, value string) *Builder {
	if value != "" {
		b.String(name, value)
	}
	return b
}

// Bool adds a boolean.
func (b *Builder) Bool(name string, value bool) *Builder {
	if value {
		return b.Raw(name, json.RawMessage("true"))
	}
	return b.Raw(name, json.RawMessage("false"))
}

// Base64 adds bytes as standard padded base64.
func (b *Builder) Base64(name string, value []byte) *Builder {
	b.name(name, base64.StdEncoding.EncodedLen(len(value)))
	b.buf = append(b.buf, '"')
	b.buf = base64.StdEncoding.AppendEncode(b.buf, value)
	b.buf = append(b.buf, '"')
	return b
}

// Strings adds an array of strings; an empty one only if always is set.
func (b *Builder) Strings(name string, values []string, always bool) *Builder {
	if len(values) == 0 && !always {
		return b
	}
	b.name(name, 0)
	b.buf = append(b.buf, '[')
	for i, value := range values {
		if i > 0 {
			b.buf = append(b.buf, ',')
		}
		b.buf = appendQuote(b.buf, value)
	}
	b.buf = append(b.buf, ']')
	return b
}

// Array adds an array of raw values, the empty one too.
func (b *Builder) Array(name string, values []json.RawMessage) *Builder {
	size := len(values)
	for _, value := range values {
		size += len(value)
	}
	b.name(name, size)
	b.buf = append(b.buf, '[')
	for i, value := range values {
		if i > 0 {
			b.buf = append(b.buf, ',')
		}
		b.buf = append(b.buf, value...)
	}
	b.buf = append(b.buf, ']')
	return b
}

// Begin opens an object in which what is added stands until End.
func (b *Builder) Begin(name string) *Builder {
	b.name(name, 0)
	b.buf = append(b.buf, '{')
	return b
}

// End closes what Begin opened.
func (b *Builder) End() *Builder {
	b.buf = append(b.buf, '}')
	return b
}

// Merge adds every member of a raw object; nil adds nothing. The caller knows
// that no name stands twice.
func (b *Builder) Merge(object json.RawMessage) *Builder {
	if object == nil {
		return b
	}
	return b.add(Parse(object, "").members)
}

// Rest adds what was not taken of an object; of one that failed, nothing.
func (b *Builder) Rest(o *Object) *Builder {
	if o.err != nil {
		return b
	}
	return b.add(o.members)
}

func (b *Builder) add(members []Member) *Builder {
	for _, m := range members {
		b.Raw(m.Name, m.Value)
	}
	return b
}

// Over adds the members of a raw object, those of these names only if they are not
// there yet; what is no object adds nothing.
func (b *Builder) Over(object json.RawMessage, names ...string) *Builder {
	if !IsObject(object) {
		return b
	}
	left, written := Parse(object, ""), Empty()
	if !b.Empty() {
		written = Parse(append(b.buf, '}'), "")
	}
	for _, name := range names {
		if written.Has(name) {
			left.Take(name)
		}
	}
	return b.Rest(left)
}

// Empty reports whether nothing was added.
func (b *Builder) Empty() bool { return len(b.buf) == 0 }

// Bytes closes the object. The builder is done after it.
func (b *Builder) Bytes() json.RawMessage {
	if b.Empty() {
		return json.RawMessage("{}")
	}
	b.buf = append(b.buf, '}')
	return b.buf
}

// Object closes the object, or answers nil if nothing was added.
func (b *Builder) Object() json.RawMessage {
	if b.Empty() {
		return nil
	}
	return b.Bytes()
}

// appendQuote writes a string. Most have nothing in them that needs an escape:
// they are copied as a whole.
func appendQuote(dst []byte, text string) []byte {
	if !plain(text) {
		dst, _ = jsontext.AppendQuote(dst, text)
		return dst
	}
	dst = append(slices.Grow(dst, len(text)+2), '"')
	dst = append(dst, text...)
	return append(dst, '"')
}

// plain reports whether a text needs no escapes between quotes.
func plain(text string) bool {
	for ; len(text) >= 8; text = text[8:] {
		x := uint64(text[0]) | uint64(text[1])<<8 | uint64(text[2])<<16 | uint64(text[3])<<24 |
			uint64(text[4])<<32 | uint64(text[5])<<40 | uint64(text[6])<<48 | uint64(text[7])<<56
		if special(x) != 0 {
			return false
		}
	}
	for i := range len(text) {
		if marked(text[i]) {
			return false
		}
	}
	return true
}
