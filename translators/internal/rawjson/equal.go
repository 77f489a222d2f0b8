package rawjson

import (
	"bytes"
	"encoding/json"
)

// Equal reports whether two checked values are the same JSON value: members in
// any order, strings after unescaping, numbers by their literal (1.0 is not
// 1: a reader that keeps digits can tell them apart).
func Equal(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	a, b = bytes.TrimSpace(a), bytes.TrimSpace(b)
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	if a[0] != b[0] {
		return false
	}
	switch a[0] {
	case '{':
		return equalObjects(Parse(a, ""), Parse(b, ""))
	case '[':
		return equalArrays(a, b)
	case '"':
		x, okX := Unquote(a)
		y, okY := Unquote(b)
		return okX && okY && x == y
	default:
		return bytes.Equal(a, b)
	}
}

func equalObjects(a, b *Object) bool {
	if a.err != nil || b.err != nil || len(a.members) != len(b.members) {
		return false
	}
	other := make(map[string]json.RawMessage, len(b.members))
	for _, m := range b.members {
		other[m.Name] = m.Value
	}
	for _, m := range a.members {
		value, ok := other[m.Name]
		if !ok || !Equal(m.Value, value) {
			return false
		}
	}
	return true
}

func equalArrays(a, b json.RawMessage) bool {
	xs, okX := Elements(a)
	ys, okY := Elements(b)
	if !okX || !okY || len(xs) != len(ys) {
		return false
	}
	for i := range xs {
		if !Equal(xs[i], ys[i]) {
			return false
		}
	}
	return true
}
