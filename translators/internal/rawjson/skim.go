package rawjson

import (
	"bytes"
	"encoding/json"
	"strings"
)

// The skimmers below find where a value ends. They rely on Check for what is
// inside it and validate only the brackets they walk through: a message is
// checked once and skimmed at every level, and to tokenize each level again
// costs more than all the rest of decoding (benchmark in this package). Input
// that never passed Check makes them fail or end early, never panic.

// space skips white space.
func space(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\t' || data[i] == '\r') {
		i++
	}
	return i
}

// text skips a string that begins at i; -1: it does not end.
func text(data []byte, i int) int {
	quote := 0 // the next one, escaped or not
	for i++; i < len(data); {
		if quote < i {
			next := bytes.IndexByte(data[i:], '"')
			if next < 0 {
				return -1
			}
			quote = i + next
		}
		escape := bytes.IndexByte(data[i:quote], '\\')
		if escape < 0 {
			return quote + 1
		}
		i += escape + 2
	}
	return -1
}

// value skips a value that begins at i; -1: there is none, or it does not end.
func value(data []byte, i int) int {
	if i >= len(data) {
		return -1
	}
	switch data[i] {
	case '"':
		return text(data, i)
	case '{', '[':
		return nested(data, i)
	default:
		start := i
		for i < len(data) && data[i] != ',' && data[i] != '}' && data[i] != ']' && space(data, i) == i {
			i++
		}
		if i == start {
			return -1
		}
		return i
	}
}

func nested(data []byte, i int) int {
	depth := 0
	for i < len(data) {
		switch data[i] {
		case '"':
			if i = text(data, i); i < 0 {
				return -1
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return -1
}

// items walks what stands between two brackets, with the separators between
// the items. each reads one item at i and returns where it ends, or -1.
func items(data []byte, open, shut byte, each func(i int) int) bool {
	i := space(data, 0)
	if i >= len(data) || data[i] != open {
		return false
	}
	i = space(data, i+1)
	for first := true; i < len(data) && data[i] != shut; first = false {
		if !first {
			if data[i] != ',' {
				return false
			}
			if i = space(data, i+1); i == len(data) {
				return false
			}
		}
		if i = each(i); i < 0 {
			return false
		}
		i = space(data, i)
	}
	return i < len(data) && space(data, i+1) == len(data)
}

// slice returns data[i:j] with that capacity, so that append does not overwrite what follows.
func slice(data []byte, i, j int) json.RawMessage { return data[i:j:j] }

// Exact reports whether RFC 8785 leaves every number of a checked value as it is
// written: integers, and fractions of few digits. It says no to some others that
// it leaves as well.
func Exact(data []byte) bool {
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			end := text(data, i)
			if end < 0 {
				return false
			}
			i = end - 1
		case c == '-' || '0' <= c && c <= '9':
			end := i + 1
			for end < len(data) && strings.IndexByte("0123456789.eE+-", data[end]) >= 0 {
				end++
			}
			if !exact(data[i:end]) {
				return false
			}
			i = end - 1
		}
	}
	return true
}

// exact reports whether a double holds every digit of a number (15 of them at least), and
// whether it is written without an exponent.
func exact(number []byte) bool {
	const digits, fraction = 15, 6
	whole, part, split := bytes.Cut(bytes.TrimPrefix(number, []byte("-")), []byte("."))
	switch {
	case len(whole)+len(part) > digits || len(part) > fraction:
		return false
	case split && (len(part) == 0 || part[len(part)-1] == '0'):
		return false
	case !split && string(number) == "-0":
		return false
	}
	return !bytes.ContainsAny(number, "eE+") && bytes.LastIndexByte(number, '-') <= 0
}
