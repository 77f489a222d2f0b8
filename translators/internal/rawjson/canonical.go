package rawjson

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Canonical is a checked value as RFC 8785 (JCS) writes it. It fails for what is no
// JSON. Numbers are doubles there: digits that a double cannot hold are lost.
//
// Nearly all messages have numbers that stay as they are written (see Exact) and
// names without escapes, and are read once and written once. The tokenizer does
// the others.
func Canonical(data []byte) ([]byte, error) {
	c := canon{scanner: scanner{data}, dst: make([]byte, 0, len(data))}
	if end := c.value(space(data, 0), deepest); end > 0 && space(data, end) == len(data) {
		return c.dst, nil
	}
	value := jsontext.Value(bytes.Clone(data))
	if err := value.Canonicalize(); err != nil {
		return nil, err
	}
	return value, nil
}

// deepest is how many levels are written at once.
const deepest = 256

// canon writes what its methods read.
type canon struct {
	scanner

	dst     []byte
	members [crowd]written // of the objects that it is in
	known   int            // of them
}

// written is a member of an object: its name in the data, and where in what was
// written it stands.
type written struct{ name, at span }

func (c *canon) value(i, depth int) int {
	begin := i
	switch b := c.at(i); {
	case b == '"':
		return c.string(i)
	case b == '{' && depth > 0:
		return c.object(i, depth-1)
	case b == '[' && depth > 0:
		return c.array(i, depth-1)
	case b == '-' || digit(b):
		if i = c.number(i); i > 0 && !exact(c.data[begin:i]) {
			return -1
		}
	case b == '{', b == '[':
		return -1
	default:
		i = c.word(i)
	}
	if i > 0 {
		c.dst = append(c.dst, c.data[begin:i]...)
	}
	return i
}

// string writes a string; escapes only where they must be.
func (c *canon) string(i int) int {
	end, escaped := c.text(i)
	switch {
	case end < 0:
		return -1
	case !escaped:
		c.dst = append(c.dst, c.data[i:end]...)
	default:
		text, err := jsontext.AppendUnquote(nil, c.data[i:end])
		if err != nil {
			return -1
		}
		c.dst, _ = jsontext.AppendQuote(c.dst, text)
	}
	return end
}

func (c *canon) array(i, depth int) int {
	c.dst = append(c.dst, '[')
	if i = space(c.data, i+1); c.at(i) == ']' {
		c.dst = append(c.dst, ']')
		return i + 1
	}
	for {
		if i = c.value(i, depth); i < 0 {
			return -1
		}
		i = space(c.data, i)
		b := c.at(i)
		if b != ',' && b != ']' {
			return -1
		}
		c.dst = append(c.dst, b)
		if b == ']' {
			return i + 1
		}
		i = space(c.data, i+1)
	}
}

// object writes members as they come, each with a comma behind it, and puts them in
// order after that, if they are not.
func (c *canon) object(i, depth int) int {
	c.dst = append(c.dst, '{')
	if i = space(c.data, i+1); c.at(i) == '}' {
		c.dst = append(c.dst, '}')
		return i + 1
	}
	first, ordered := c.known, true
	for more := true; more; {
		begin := len(c.dst)
		end, name := c.member(i, depth)
		if i = end; i < 0 || c.known == crowd {
			return -1
		}
		b := c.at(i)
		if b != ',' && b != '}' {
			return -1
		}
		c.dst = append(c.dst, ',')
		ordered = ordered && (c.known == first || c.compare(c.members[c.known-1].name, name) < 0)
		c.members[c.known] = written{name, span{begin, len(c.dst)}}
		c.known++
		if more = b == ','; more {
			i = space(c.data, i+1)
		}
	}
	if !ordered && !c.order(c.members[first:c.known]) {
		return -1
	}
	c.known = first
	c.dst[len(c.dst)-1] = '}'
	return i + 1
}

// member writes a name and its value. Names with escapes, and those beyond U+DFFF,
// whose order in UTF-16 is not that of their bytes, are left to the tokenizer.
func (c *canon) member(i, depth int) (end int, name span) {
	if c.at(i) != '"' {
		return -1, name
	}
	end, escaped := c.text(i)
	if end < 0 || escaped || slices.Max(c.data[i:end]) >= 0xee {
		return -1, name
	}
	c.dst = append(append(c.dst, c.data[i:end]...), ':')
	name = span{i + 1, end - 1}
	if i = space(c.data, end); c.at(i) != ':' {
		return -1, name
	}
	if i = c.value(space(c.data, i+1), depth); i < 0 {
		return -1, name
	}
	return space(c.data, i), name
}

func (c *canon) compare(a, b span) int {
	return bytes.Compare(c.data[a.from:a.to], c.data[b.from:b.to])
}

// order puts the members of the object that was just written in order; false: a name
// stands twice.
func (c *canon) order(members []written) bool {
	var buffer [2 << 10]byte
	begin := members[0].at.from
	moved := append(buffer[:0], c.dst[begin:]...)
	slices.SortFunc(members, func(a, b written) int { return c.compare(a.name, b.name) })
	c.dst = c.dst[:begin]
	for n, m := range members {
		if n > 0 && c.compare(members[n-1].name, m.name) == 0 {
			return false
		}
		c.dst = append(c.dst, moved[m.at.from-begin:m.at.to-begin]...)
	}
	return true
}
