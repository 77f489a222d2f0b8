package compensation

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of what is filled.
const (
	MaxFilled = 1 << 20  // bytes of filled arguments
	MaxValue  = 16 << 20 // bytes of each of Values that is used
	MaxNested = 128      // objects and lists within each other in each of Values that is used
)

// Values are what references point into. Each is one JSON text; nil: it is not known.
type Values struct{ Call, Result, Before json.RawMessage }

// Fill makes the arguments: JSON without white space, members sorted, numbers and strings as they are written. They are
// an object unless the whole template is one reference. Values that the template does not use are not read. It reads
// the others twice, and the list of each reference with each once more. Its error is a *[MissingError], a
// *[ValueError] or a *[SizeError].
func (t Template) Fill(v Values) (json.RawMessage, error) {
	if t.text == "" {
		return json.RawMessage("{}"), nil
	}
	found, err := t.find(v)
	if err != nil {
		return nil, err
	}
	var out []byte
	for i, p := range t.parts {
		out = append(out, p.literal...)
		if p.ref != nil {
			if out, err = p.ref.fill(out, found[i]); err != nil {
				return nil, err
			}
		}
		if len(out) > MaxFilled {
			return nil, &SizeError{}
		}
	}
	sorted := jsontext.Value(out)
	_ = sorted.Compact(jsontext.ReorderRawObjects(true)) // it is made of JSON that was read
	return json.RawMessage(sorted), nil
}

// find finds the value at the pointer of each part; nil: there is no value.
func (t Template) find(v Values) ([][]byte, error) {
	found := make([][]byte, len(t.parts))
	for _, from := range t.sources() {
		raw := map[Source]json.RawMessage{FromCall: v.Call, FromResult: v.Result, FromBefore: v.Before}[from]
		if raw == nil {
			continue
		}
		value, reason := read(raw)
		if reason != "" {
			return nil, &ValueError{from, reason}
		}
		root := &place{}
		for i, p := range t.parts {
			if p.ref != nil && p.ref.from == from {
				root.add(p.ref.at, i)
			}
		}
		root.find(value, found)
	}
	return found, nil
}

// read checks a value and removes white space; reason: why it cannot. It sorts nothing: in a large value of many levels
// that takes long.
func read(raw json.RawMessage) (value []byte, reason string) {
	if len(raw) > MaxValue {
		return nil, "it is too long, expected at most " + strconv.Itoa(MaxValue) + " bytes"
	}
	text := jsontext.Value(slices.Clone(raw))
	if err := text.Compact(strict()...); err != nil {
		return nil, "it is no JSON, or a member stands twice in it"
	}
	if nesting(text) > MaxNested {
		return nil, "it is nested too deeply, expected at most " + strconv.Itoa(MaxNested) + " objects and lists within each other"
	}
	return text, ""
}

// nesting counts the objects and lists of valid JSON that lie within each other.
func nesting(raw []byte) (most int) {
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			most = max(most, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return most
}

// fill appends what a reference stands for; value is at its pointer, nil: there is no value.
func (r *reference) fill(out, value []byte) ([]byte, error) {
	if value == nil {
		return nil, &MissingError{From: r.from, Pointer: r.at.text}
	}
	if r.each == nil {
		return append(out, value...), nil
	}
	if value[0] != '[' {
		return nil, &MissingError{From: r.from, Pointer: r.at.text, List: true}
	}
	return r.fillEach(out, value)
}

// fillEach appends the list of the values at the pointer each in the elements of a list.
func (r *reference) fillEach(out, list []byte) ([]byte, error) {
	var err error
	in := &place{}
	in.add(*r.each, 0)
	separator := byte('[')
	children(list, func(index string, element []byte) bool {
		found := make([][]byte, 1)
		in.find(element, found)
		switch {
		case found[0] == nil:
			err = &MissingError{From: r.from, Pointer: r.at.text + "/" + index + r.each.text}
		case len(out)+len(found[0])+len(",]") > MaxFilled:
			err = &SizeError{}
		default:
			out = append(append(out, separator), found[0]...)
			separator = ','
		}
		return err == nil
	})
	if separator == '[' {
		out = append(out, separator)
	}
	return append(out, ']'), err
}

// place is a place in a value, to which pointers lead.
type place struct {
	targets []int // numbers of the pointers that end here
	below   map[string]*place
}

// add makes the place of a pointer.
func (p *place) add(to pointer, target int) {
	for _, name := range to.names {
		if p.below == nil {
			p.below = map[string]*place{}
		}
		if p.below[name] == nil {
			p.below[name] = &place{}
		}
		p = p.below[name]
	}
	p.targets = append(p.targets, target)
}

// find notes for each pointer the value where it ends.
func (p *place) find(value []byte, found [][]byte) {
	for _, target := range p.targets {
		found[target] = value
	}
	left := len(p.below)
	if left == 0 {
		return
	}
	children(value, func(name string, child []byte) bool {
		if next := p.below[name]; next != nil {
			next.find(child, found)
			left--
		}
		return left > 0
	})
}

// children calls f for each member of an object by its name, and for each element of an array by its index, until f
// reports false. The JSON text is valid; other values have no children.
func children(raw []byte, f func(name string, value []byte) bool) {
	if raw[0] != '{' && raw[0] != '[' {
		return
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw))
	if _, err := dec.ReadToken(); err != nil {
		return
	}
	for i := 0; dec.PeekKind() != '}' && dec.PeekKind() != ']'; i++ {
		name := strconv.Itoa(i)
		if raw[0] == '{' {
			token, err := dec.ReadToken()
			if err != nil {
				return
			}
			name = token.String()
		}
		value, err := dec.ReadValue()
		if err != nil {
			return
		}
		end := int(dec.InputOffset())
		if !f(name, raw[end-len(value):end]) {
			return
		}
	}
}
