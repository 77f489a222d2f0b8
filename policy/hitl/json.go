package hitl

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds the nesting of JSON that is read.
const maxDepth = 128

// jsonReader goes once through one JSON text (RFC 8259) without building a tree. It is stricter than
// encoding/json: broken UTF-8 and lone surrogates are refused. Each of its methods reports
// whether the text is well formed up to where it stopped.
type jsonReader struct {
	data []byte
	at   int
}

// peek is the next byte that is no white space; 0: there is none.
func (r *jsonReader) peek() byte {
	for r.at < len(r.data) {
		switch c := r.data[r.at]; c {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return c
		}
	}
	return 0
}

// take consumes the next byte that is no white space, if it is c.
func (r *jsonReader) take(c byte) bool {
	if r.peek() != c {
		return false
	}
	r.at++
	return true
}

// ended reports whether nothing but white space is left.
func (r *jsonReader) ended() bool { r.peek(); return r.at == len(r.data) }

// raw reads one value, and returns its bytes.
func (r *jsonReader) raw(depth int) ([]byte, bool) {
	r.peek()
	start := r.at
	ok := r.skip(depth)
	return r.data[start:r.at], ok
}

// skip reads one value that lies in depth objects and arrays.
func (r *jsonReader) skip(depth int) bool {
	switch r.peek() {
	case '{':
		return r.object(depth, func([]byte) bool { return r.skip(depth + 1) })
	case '[':
		return r.array(depth, func(int) bool { return r.skip(depth + 1) })
	case '"':
		_, ok := r.text()
		return ok
	case 't':
		return r.word("true")
	case 'f':
		return r.word("false")
	case 'n':
		return r.word("null")
	default:
		return r.number()
	}
}

// object reads an object; member gets each name with its quotes, and reads the value.
func (r *jsonReader) object(depth int, member func(name []byte) bool) bool {
	if depth >= maxDepth || !r.take('{') {
		return false
	}
	if r.take('}') {
		return true
	}
	for {
		r.peek()
		name, ok := r.text()
		if !ok || !r.take(':') || !member(name) {
			return false
		}
		if !r.take(',') {
			return r.take('}')
		}
	}
}

// array reads an array; element reads each value.
func (r *jsonReader) array(depth int, element func(i int) bool) bool {
	if depth >= maxDepth || !r.take('[') {
		return false
	}
	if r.take(']') {
		return true
	}
	for i := 0; element(i); i++ {
		if !r.take(',') {
			return r.take(']')
		}
	}
	return false
}

func (r *jsonReader) word(text string) bool {
	if !bytes.HasPrefix(r.data[r.at:], []byte(text)) {
		return false
	}
	r.at += len(text)
	return true
}

func (r *jsonReader) number() bool {
	if r.at < len(r.data) && r.data[r.at] == '-' {
		r.at++
	}
	start := r.at
	if n := r.digits(); n == 0 || n > 1 && r.data[start] == '0' {
		return false
	}
	if r.at < len(r.data) && r.data[r.at] == '.' {
		r.at++
		if r.digits() == 0 {
			return false
		}
	}
	if r.at < len(r.data) && r.data[r.at]|0x20 == 'e' {
		r.at++
		if r.at < len(r.data) && (r.data[r.at] == '+' || r.data[r.at] == '-') {
			r.at++
		}
		return r.digits() > 0
	}
	return true
}

func (r *jsonReader) digits() int {
	start := r.at
	for r.at < len(r.data) && r.data[r.at]-'0' <= 9 {
		r.at++
	}
	return r.at - start
}

// text reads a string, and returns it with its quotes.
func (r *jsonReader) text() ([]byte, bool) {
	start := r.at
	if r.at >= len(r.data) || r.data[r.at] != '"' {
		return nil, false
	}
	r.at++
	for r.at < len(r.data) {
		switch c := r.data[r.at]; {
		case c == '"':
			r.at++
			return r.data[start:r.at], true
		case c == '\\':
			if !r.escape() {
				return nil, false
			}
		case c < ' ':
			return nil, false
		case c < utf8.RuneSelf:
			r.at++
		default:
			char, size := utf8.DecodeRune(r.data[r.at:])
			if char == utf8.RuneError && size == 1 {
				return nil, false
			}
			r.at += size
		}
	}
	return nil, false
}

// escape reads an escape; two halves of a surrogate pair are one.
func (r *jsonReader) escape() bool {
	if r.at+1 >= len(r.data) {
		return false
	}
	if r.data[r.at+1] != 'u' {
		ok := strings.IndexByte(`"\/bfnrt`, r.data[r.at+1]) >= 0
		r.at += 2
		return ok
	}
	char, ok := r.unit()
	if !ok || !utf16.IsSurrogate(char) {
		return ok
	}
	low, ok := r.unit()
	return ok && utf16.DecodeRune(char, low) != utf8.RuneError
}

// unit reads \uXXXX.
func (r *jsonReader) unit() (char rune, ok bool) {
	const size = len(`\uXXXX`)
	if len(r.data)-r.at < size || r.data[r.at] != '\\' || r.data[r.at+1] != 'u' {
		return 0, false
	}
	for _, c := range r.data[r.at+2 : r.at+size] {
		switch lower := c | 0x20; {
		case c-'0' <= 9:
			char = char<<4 | rune(c-'0')
		case lower >= 'a' && lower <= 'f':
			char = char<<4 | rune(lower-'a'+10)
		default:
			return 0, false
		}
	}
	r.at += size
	return char, true
}

// unquote is what a string says that text has read.
func unquote(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var out string
	if json.Unmarshal(raw, &out) != nil {
		return ""
	}
	return out
}
