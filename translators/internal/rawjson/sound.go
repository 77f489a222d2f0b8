package rawjson

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// crowd bounds the members of all objects that enclose one value: each name is compared
// with all others, and they are kept in an array of this size, without an allocation.
const crowd = 64

// validate reports that data is one valid JSON value of at most so many levels, as
// Check demands. It says no as soon as it is not sure, as with escapes in names and
// large objects: the tokenizer judges those, and finds out what is wrong with
// others. Nearly all messages are sound, and this reads them in a third of the time
// (BenchmarkCheck_QuickAndTokens).
func validate(data []byte, depth int) bool {
	s := sounder{scanner: scanner{data}}
	end := s.value(space(data, 0), depth)
	return end > 0 && space(data, end) == len(data)
}

// scanner reads what has nothing in it. Its methods, and those of all that stand on it,
// begin at i and return where what is there ends; -1: it is not sure.
type scanner struct{ data []byte }

// sounder walks through a value once.
type sounder struct {
	scanner

	names [crowd]span // of the objects that it is in
	known int         // of them
}

// span is a part of the data.
type span struct{ from, to int }

func (s scanner) at(i int) byte {
	if i < len(s.data) {
		return s.data[i]
	}
	return 0
}

func (s *sounder) value(i, depth int) int {
	switch c := s.at(i); {
	case c == '"':
		end, _ := s.text(i)
		return end
	case c == '{' && depth > 0:
		return s.object(i, depth-1)
	case c == '[' && depth > 0:
		return s.array(i, depth-1)
	case c == '-' || digit(c):
		return s.number(i)
	default:
		return s.word(i)
	}
}

func (s *sounder) object(i, depth int) int {
	first := s.known
	if i = space(s.data, i+1); s.at(i) == '}' {
		return i + 1
	}
	for s.at(i) == '"' {
		end, escaped := s.text(i)
		if end < 0 || escaped || !s.name(span{i + 1, end - 1}, first) {
			return -1
		}
		if i = space(s.data, end); s.at(i) != ':' {
			return -1
		}
		if i = s.value(space(s.data, i+1), depth); i < 0 {
			return -1
		}
		switch i = space(s.data, i); s.at(i) {
		case ',':
			i = space(s.data, i+1)
		case '}':
			s.known = first
			return i + 1
		default:
			return -1
		}
	}
	return -1
}

// name notes a name of an object whose first is number first; false: it is there, or
// there are too many.
func (s *sounder) name(at span, first int) bool {
	if s.known == crowd {
		return false
	}
	for _, other := range s.names[first:s.known] {
		if bytes.Equal(s.data[at.from:at.to], s.data[other.from:other.to]) {
			return false
		}
	}
	s.names[s.known] = at
	s.known++
	return true
}

func (s *sounder) array(i, depth int) int {
	if i = space(s.data, i+1); s.at(i) == ']' {
		return i + 1
	}
	for {
		if i = s.value(i, depth); i < 0 {
			return -1
		}
		switch i = space(s.data, i); s.at(i) {
		case ',':
			i = space(s.data, i+1)
		case ']':
			return i + 1
		default:
			return -1
		}
	}
}

func (s scanner) word(i int) int {
	for _, word := range [...]string{"true", "false", "null"} {
		if end := i + len(word); end <= len(s.data) && string(s.data[i:end]) == word {
			return end
		}
	}
	return -1
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

func (s scanner) digits(i int) int {
	for digit(s.at(i)) {
		i++
	}
	return i
}

func (s scanner) number(i int) int {
	if s.at(i) == '-' {
		i++
	}
	whole := s.digits(i)
	if whole == i || whole > i+1 && s.at(i) == '0' {
		return -1
	}
	i = whole
	if s.at(i) == '.' {
		end := s.digits(i + 1)
		if end == i+1 {
			return -1
		}
		i = end
	}
	if c := s.at(i); c == 'e' || c == 'E' {
		if i++; s.at(i) == '+' || s.at(i) == '-' {
			i++
		}
		end := s.digits(i)
		if end == i {
			return -1
		}
		i = end
	}
	return i
}

func (s scanner) text(i int) (end int, escaped bool) {
	for i++; ; {
		i = ordinary(s.data, i)
		switch c := s.at(i); {
		case c == '"':
			return i + 1, escaped
		case c == '\\':
			escaped = true
			if i = s.escape(i + 1); i < 0 {
				return -1, true
			}
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRune(s.data[i:])
			if r == utf8.RuneError && size == 1 {
				return -1, false
			}
			i += size
		default: // a control character, or the end
			return -1, false
		}
	}
}

// escape reads what stands behind a backslash. Halves of surrogate pairs are left
// to the tokenizer.
func (s scanner) escape(i int) int {
	switch s.at(i) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		unit := 0
		for n := range 4 {
			digit := hex(s.at(i + 1 + n))
			if digit < 0 {
				return -1
			}
			unit = unit<<4 | digit
		}
		if unit < 0xd800 || unit > 0xdfff {
			return i + 5
		}
	}
	return -1
}

func hex(c byte) int {
	switch {
	case digit(c):
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	default:
		return -1
	}
}

// ordinary skips what stands in a string as it is: ASCII but for quotes, backslashes
// and control characters. Eight bytes are looked at together, and of tokens, which
// are long, four times eight.
func ordinary(data []byte, i int) int {
	for ; i+32 <= len(data); i += 32 {
		four := data[i : i+32]
		if special(binary.LittleEndian.Uint64(four))|special(binary.LittleEndian.Uint64(four[8:]))|
			special(binary.LittleEndian.Uint64(four[16:]))|special(binary.LittleEndian.Uint64(four[24:])) != 0 {
			break
		}
	}
	for ; i+8 <= len(data); i += 8 {
		if found := special(binary.LittleEndian.Uint64(data[i:])); found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for i < len(data) && !marked(data[i]) {
		i++
	}
	return i
}

// special marks those of eight bytes that are not ordinary: with none above 0x7f, an
// byte takes the highest bit when what is subtracted from it is greater, and no byte
// below it is touched, so that the lowest mark is right.
func special(x uint64) uint64 {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	quote, slash := x^ones*'"', x^ones*'\\' // zero where it is one
	return (x | (x - ones*' ') | (quote - ones) | (slash - ones)) & high
}

// marked is special of one byte.
func marked(c byte) bool { return c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' }
