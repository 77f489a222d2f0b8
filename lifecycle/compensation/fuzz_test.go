package compensation_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/lifecycle/compensation"
)

// FuzzRule_Parse: a rule that is read back unchanged, or a mistake that can be shown.
func FuzzRule_Parse(f *testing.F) {
	f.Add([]byte(`{"tool":"write","before":{"tool":"read","arguments":{"path":{"call":"/path"}}},"arguments":{"content":{"before":"/content"}}}`))
	f.Add([]byte(`{"tool":"t","arguments":{"a":[{"result":"/a~1b/0","each":"/~0"},{"value":{"call":""}},1e5,"\u00e9"]}}`))
	f.Add([]byte(`{"tool":"t","arguments":{"result":"","each":""}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := compensation.ParseRule(data)
		if err != nil {
			if _, ok := errors.AsType[*compensation.RuleError](err); !ok || encoded(t, r) != encoded(t, compensation.Rule{}) {
				t.Fatalf("%T: %v beside %s", err, err, encoded(t, r))
			}
			if shown := err.Error(); !utf8.ValidString(shown) || strings.ContainsFunc(shown, func(c rune) bool { return !unicode.IsGraphic(c) }) || len(shown) > 2048 {
				t.Fatalf("an error that cannot be shown: %q", shown)
			}
			return
		}
		if !json.Valid(data) || len(data) > compensation.MaxRule || !compensation.ValidTool(r.Tool) {
			t.Fatalf("a rule of %q", data)
		}
		written, err := r.Arguments.MarshalJSON()
		if err != nil || len(written) > compensation.MaxRule {
			t.Fatalf("%d bytes of arguments, %v", len(written), err)
		}
		var again compensation.Template
		if err := again.UnmarshalJSON(written); err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		if rewritten, _ := again.MarshalJSON(); string(rewritten) != string(written) {
			t.Fatalf("%s is read back as %s", written, rewritten)
		}
	})
}

// FuzzFill_ValidJSONOrError: arguments that are valid JSON and bounded, or a mistake of a type that callers know; the same each time.
func FuzzFill_ValidJSONOrError(f *testing.F) {
	f.Add([]byte(`{"a":{"result":"/items","each":"/id"},"b":{"call":"/n"},"c":{"before":""}}`), []byte(call), []byte(result), []byte(before))
	f.Add([]byte(`{"call":""}`), []byte(`[[[[1]]]]`), []byte(nil), []byte(`"\ud800"`))
	f.Add([]byte(`{"a":{"call":"/0","each":"/1"}}`), []byte(`[[[0,1],{"1":2}]]`), []byte(`{"a":1,"a":2}`), []byte{})
	f.Fuzz(func(t *testing.T, data, call, result, before []byte) {
		var tmpl compensation.Template
		if tmpl.UnmarshalJSON(data) != nil {
			return
		}
		v := compensation.Values{Call: call, Result: result, Before: before}
		got, err := tmpl.Fill(v)
		if err != nil {
			_, missing := errors.AsType[*compensation.MissingError](err)
			_, unreadable := errors.AsType[*compensation.ValueError](err)
			_, long := errors.AsType[*compensation.SizeError](err)
			if !missing && !unreadable && !long || got != nil {
				t.Fatalf("%T: %v beside %s", err, err, got)
			}
			return
		}
		if !json.Valid(got) || !utf8.Valid(got) || len(got) > compensation.MaxFilled {
			t.Fatalf("%s filled as %q", data, got)
		}
		if again, err := tmpl.Fill(v); err != nil || string(again) != string(got) {
			t.Fatalf("%s, then %s (%v)", got, again, err)
		}
	})
}
