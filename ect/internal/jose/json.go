package jose

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth bounds the nesting of any object, members we ignore included.
const maxDepth = 128

// Kind says in which way a text is none of what was expected.
type Kind int

// The kinds.
const (
	Encoding Kind = iota // base64url or JSON that is none
	Shape                // not the parts that a token has
	Size                 // beyond its bound
)

// unreadable says why something cannot be read. It is for the packages above to
// put into words of their own.
type unreadable struct {
	kind   Kind
	reason string
}

func (e *unreadable) Error() string { return "jose: " + e.reason }

// Unreadable takes an error of this package apart; false for any other, and for
// those that match ErrKey. The reason never quotes the input.
func Unreadable(err error) (kind Kind, reason string, ok bool) {
	if e, ok := errors.AsType[*unreadable](err); ok && !errors.Is(err, ErrKey) {
		return e.kind, e.reason, true
	}
	return 0, "", false
}

// Scanner is a decoder that goes from one value to the next: to start anew with
// each would cost more than the reading. Its zero value is ready.
type Scanner struct {
	dec jsontext.Decoder
	buf bytes.Buffer
}

func (s *Scanner) open(data []byte) *jsontext.Decoder {
	s.buf = *bytes.NewBuffer(data)
	s.dec.Reset(&s.buf)
	return &s.dec
}

// Object walks the members of an object. where says in which variable the value
// of a name goes, nil for one that is ignored; names are exact. A name that
// stands twice anywhere, broken UTF-8 and data after the object are refused
// in an error that calls the object by what. Values are slices of data.
func (s *Scanner) Object(data []byte, what string, where func(name []byte) *json.RawMessage) error {
	if Deeper(data, maxDepth) {
		return &unreadable{reason: what + " is nested too deep"}
	}
	dec := s.open(data)
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return &unreadable{reason: what + " is not a JSON object"}
	}
	for dec.PeekKind() == '"' {
		quoted, err := dec.ReadValue()
		if err != nil {
			return syntax(err, what)
		}
		name, err := plain(quoted)
		if err != nil {
			return syntax(err, what)
		}
		target := where(name)
		value, err := dec.ReadValue()
		if err != nil {
			return syntax(err, what)
		}
		if target != nil {
			end := int(dec.InputOffset())
			*target = data[end-len(value) : end : end] // the decoder's own slice would not last
		}
	}
	if _, err := dec.ReadToken(); err != nil { // the closing brace, or what stands in its place
		return syntax(err, what)
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return &unreadable{reason: what + " has data after its object"}
	}
	return nil
}

// Members reads a whole object by name.
func (s *Scanner) Members(data []byte, what string) (map[string]json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	var name string
	var value json.RawMessage
	keep := func() {
		if value != nil {
			members[name] = value
		}
	}
	err := s.Object(data, what, func(next []byte) *json.RawMessage {
		keep()
		name = string(next)
		return &value
	})
	keep()
	return members, err
}

func syntax(err error, what string) error {
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return &unreadable{reason: what + " has a member twice"}
	}
	return &unreadable{reason: what + " is not valid JSON"}
}

// plain takes the quotes off; almost no name has an escape in it.
func plain(quoted []byte) ([]byte, error) {
	if inner := quoted[1 : len(quoted)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return inner, nil
	}
	return jsontext.AppendUnquote(nil, quoted)
}

// Deeper counts brackets outside strings, before a decoder recurses into them.
func Deeper(data []byte, limit int) bool {
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > limit {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// Quote appends a JSON string. Broken UTF-8 becomes U+FFFD. Most texts have
// nothing in them that needs an escape: they are copied as a whole.
func Quote[T ~string](dst []byte, text T) []byte {
	if unescaped(string(text)) {
		dst = append(append(slices.Grow(dst, len(text)+2), '"'), text...)
		return append(dst, '"')
	}
	dst, _ = jsontext.AppendQuote(dst, text)
	return dst
}

func unescaped(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// QuoteAll appends an array of JSON strings.
func QuoteAll[T ~string](dst []byte, list []T) []byte {
	dst = append(dst, '[')
	for i, text := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = Quote(dst, text)
	}
	return append(dst, ']')
}

// Unquote reads a JSON string. Whatever else is no string: absent values too.
func Unquote(raw json.RawMessage) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	text, err := plain(raw)
	return string(text), err == nil
}

// UnquoteAll reads an array of strings and nothing else; null is no array.
func UnquoteAll[T ~string](s *Scanner, raw json.RawMessage) ([]T, bool) {
	list := []T{}
	if len(raw) == 0 || raw[0] != '[' {
		return nil, false
	}
	if string(raw) == "[]" {
		return list, true
	}
	dec := s.open(raw)
	if _, err := dec.ReadToken(); err != nil {
		return nil, false
	}
	for dec.PeekKind() == '"' {
		quoted, err := dec.ReadValue()
		if err != nil {
			return nil, false
		}
		text, err := plain(quoted)
		if err != nil {
			return nil, false
		}
		list = append(list, T(text))
	}
	tok, err := dec.ReadToken()
	return list, err == nil && tok.Kind() == ']'
}

// Same compares two values that passed a scan, without regard to white space,
// string escapes and the order of members; numbers must be spelled alike, so
// that none is rounded.
func Same(a, b json.RawMessage) bool {
	return bytes.Equal(a, b) || bytes.Equal(ordered(a), ordered(b))
}

func ordered(raw json.RawMessage) []byte {
	value := jsontext.Value(bytes.Clone(raw))
	_ = value.Compact(jsontext.ReorderRawObjects(true), jsontext.PreserveRawStrings(false)) // passed the scan
	return value
}
