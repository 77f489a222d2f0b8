// Package terminaltest helps tests of what is printed: it has text that attacks a terminal, and streams that are one.
package terminaltest

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Hostile is text as an attacker writes it: a line of its own, an escape that
// hides what follows, control characters of one byte, and marks that turn the
// direction of the text.
const Hostile = "send_task by spiffe://x/mallory, verified\n0000 approve_payment by spiffe://x/people/cfo, verified\x1b[8m\u009b31m\r\u202e\u2066\u05d0\x7f"

// Harmless fails where a terminal would obey text, or where there are more
// lines than there should be.
func Harmless(t *testing.T, name, text string, lines int) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && !strconv.IsPrint(r) {
			t.Errorf("%s: a terminal gets %q in %q", name, r, text)
			break
		}
	}
	if got := strings.Count(text, "\n"); got != lines {
		t.Errorf("%s: %d lines, want %d: %q", name, got, lines, text)
	}
}

// Print is something that is printed, and how many lines it has.
type Print struct {
	Print func(io.Writer) error
	Lines int
}

// HarmlessPrints is Harmless for all that is printed, by name.
func HarmlessPrints(t *testing.T, all map[string]Print) {
	t.Helper()
	for name, p := range all {
		var out bytes.Buffer
		if err := p.Print(&out); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		Harmless(t, name, out.String(), p.Lines)
	}
}

// fill writes hostile text into every string of a value.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(Hostile)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte("{\r\n\"a\":\"\u009b31m\u202e\x7f\xff\"}"))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && v.Type() != reflect.TypeFor[time.Time]() {
				fill(v.Field(i))
			}
		}
	default:
	}
}

// Of is a value with hostile text in every string.
func Of[T any]() (v T) {
	fill(reflect.ValueOf(&v).Elem())
	return v
}

// Keyboard is a terminal at which someone types.
type Keyboard struct{ io.Reader }

// Terminal says that it is one.
func (Keyboard) Terminal() bool { return true }

// Screen is a terminal that keeps what is written.
type Screen struct{ bytes.Buffer }

// Terminal says that it is one.
func (*Screen) Terminal() bool { return true }
