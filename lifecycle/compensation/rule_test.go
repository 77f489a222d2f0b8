package compensation_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/lifecycle/compensation"
)

func parsed(t testing.TB, text string) compensation.Rule {
	t.Helper()
	r, err := compensation.ParseRule(json.RawMessage(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

func encoded(t testing.TB, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestParseRule_Reads: all members, in any order and spelling; what is stored is read back unchanged.
func TestParseRule_Reads(t *testing.T) {
	t.Parallel()
	for text, c := range map[string]struct {
		want string
		uses compensation.Uses
	}{
		`{"tool":"delete_all"}`: {`{"tool":"delete_all","arguments":{}}`, compensation.Uses{}},
		` { "arguments" : { "guest": {"call":"/guest"}, "id" : { "result" : "/id" } }, "tool" : "cancel" } `: {
			`{"tool":"cancel","arguments":{"guest":{"call":"/guest"},"id":{"result":"/id"}}}`, compensation.Uses{Call: true, Result: true},
		},
		`{"tool":"write","before":{"tool":"read","arguments":{"path":{"call":"/path"}}},"arguments":{"content":{"before":"/content"},"path":{"c\u0061ll":"/path"}}}`: {
			`{"tool":"write","arguments":{"content":{"before":"/content"},"path":{"call":"/path"}},"before":{"tool":"read","arguments":{"path":{"call":"/path"}}}}`,
			compensation.Uses{Call: true, Before: true},
		},
		`{"tool":"put","before":{"tool":"get"},"arguments":{"before":""}}`:       {`{"tool":"put","arguments":{"before":""},"before":{"tool":"get","arguments":{}}}`, compensation.Uses{Before: true}},
		`{"tool":"t","arguments":{"s":"\u003c\u00e9","n":[{"b":1.50e1,"a":0}]}}`: {`{"tool":"t","arguments":{"n":[{"a":0,"b":1.50e1}],"s":"\u003cé"}}`, compensation.Uses{}},
		`{"tool":"t","arguments":{"a":{"value":{"result":"/id"}}}}`:              {`{"tool":"t","arguments":{"a":{"value":{"result":"/id"}}}}`, compensation.Uses{}},
	} {
		r := parsed(t, text)
		got := encoded(t, r)
		if got != c.want || r.Uses() != c.uses {
			t.Errorf("%s\ngot  %s, %+v\nwant %s, %+v", text, got, r.Uses(), c.want, c.uses)
		}
		if again := encoded(t, parsed(t, got)); again != got {
			t.Errorf("%s is read back as %s", got, again)
		}
		var stored compensation.Template
		if err := json.Unmarshal([]byte(encoded(t, r.Arguments)), &stored); err != nil || encoded(t, stored) != encoded(t, r.Arguments) {
			t.Errorf("the arguments %s are read back as %s (%v)", encoded(t, r.Arguments), encoded(t, stored), err)
		}
	}
}

// nested is an object that is n objects deep.
func nested(n int) string { return strings.Repeat(`{"a":`, n-1) + "{}" + strings.Repeat("}", n-1) }

// references are n members that are references each.
func references(n int) string {
	return "{" + strings.TrimSuffix(strings.Repeat(`"KEY":{"call":"/a"},`, n), ",") + "}"
}

// keyed gives the members of an object names of their own.
func keyed(text string) string {
	for i := 0; strings.Contains(text, "KEY"); i++ {
		text = strings.Replace(text, "KEY", "k"+string(rune('a'+i/26))+string(rune('a'+i%26)), 1)
	}
	return text
}

const (
	pointerReason = "expected a JSON pointer such as /id, or an empty text for the whole value, of at most 512 bytes and 32 levels"
	toolReason    = "expected the name of a tool: text of 1 to 128 bytes without control characters"
)

// TestParseRule_Mistakes: each is told with its place, and what is expected.
func TestParseRule_Mistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                              `rule: it is no JSON: expected one JSON object`,
		`{"tool":"t"`:                   `rule: it is no JSON: expected one JSON object`,
		`{"tool":"t"} {}`:               `rule: it is no JSON: expected one JSON object`,
		`[]`:                            `rule: expected an object of tool, arguments, before`,
		`"t"`:                           `rule: expected an object of tool, arguments, before`,
		`{}`:                            `rule, at "/tool": ` + toolReason,
		`{"tool":7}`:                    `rule, at "/tool": ` + toolReason,
		`{"tool":""}`:                   `rule, at "/tool": ` + toolReason,
		`{"tool":"a\nb"}`:               `rule, at "/tool": ` + toolReason,
		`{"tool":"t","Tool":"t"}`:       `rule, at "/Tool": an unknown member: expected tool, arguments, before`,
		`{"tool":"t","tool":"u"}`:       `rule, at "/tool": the member stands twice: expected it once`,
		`{"tool":"t","arguments":null}`: `rule, at "/arguments": expected an object: arguments by their names`,
		`{"tool":"t","arguments":[1]}`:  `rule, at "/arguments": expected an object: arguments by their names`,
		`{"tool":"t","before":"r"}`:     `rule, at "/before": expected an object of tool, arguments`,
		`{"tool":"t","before":{}}`:      `rule, at "/before/tool": ` + toolReason,
		`{"tool":"t","before":{"tool":"r","before":{"tool":"r"}}}`:                           `rule, at "/before/before": an unknown member: expected tool, arguments`,
		`{"tool":"t","before":{"tool":"r","arguments":{"a":{"result":"/id"}}}}`:              `rule, at "/before/arguments/a/result": it is not known before the call: expected a pointer into the call`,
		`{"tool":"t","before":{"tool":"r","arguments":{"before":"/id"}}}`:                    `rule, at "/before/arguments/before": it is not known before the call: expected a pointer into the call`,
		`{"tool":"t","arguments":{"a":{"before":"/id"}}}`:                                    `rule, at "/arguments/a/before": the rule reads nothing before the call: expected a member before of the rule`,
		`{"tool":"t","arguments":{"a/b":[0,{"call":"id"}]}}`:                                 `rule, at "/arguments/a~1b/1/call": ` + pointerReason,
		`{"tool":"t","arguments":{"a":{"call":7}}}`:                                          `rule, at "/arguments/a/call": ` + pointerReason,
		`{"tool":"t","arguments":{"a":{"call":"/a~2"}}}`:                                     `rule, at "/arguments/a/call": expected 0 or 1 after each ~ of a JSON pointer`,
		`{"tool":"t","arguments":{"a":{"call":"/a","each":"b"}}}`:                            `rule, at "/arguments/a/each": ` + pointerReason,
		`{"tool":"t","arguments":{"a":{"value":"/a","each":"/b"}}}`:                          `rule, at "/arguments/a/each": each goes with call, result or before: expected value alone`,
		`{"tool":"t","arguments":{"a":{"call":"/` + strings.Repeat("x", 512) + `"}}}`:        `rule, at "/arguments/a/call": ` + pointerReason,
		`{"tool":"t","arguments":{"a":{"call":"` + strings.Repeat("/x", 33) + `"}}}`:         `rule, at "/arguments/a/call": ` + pointerReason,
		`{"tool":"` + strings.Repeat("t", 129) + `"}`:                                        `rule, at "/tool": ` + toolReason,
		`{"tool":"t","arguments":` + nested(33) + `}`:                                        `rule, at "/arguments` + strings.Repeat("/a", 32) + `": nested too deeply: expected at most 32 objects and lists within each other`,
		`{"tool":"t","arguments":{"a":{"value":` + nested(32) + `}}}`:                        `rule, at "/arguments/a/value` + strings.Repeat("/a", 31) + `": nested too deeply: expected at most 32 objects and lists within each other`,
		`{"tool":"t","arguments":` + keyed(references(101)) + `}`:                            `rule, at "/arguments/kdw/call": too many pointers: expected at most 100 in a rule`,
		`{"tool":"t","arguments":{"a":"` + strings.Repeat("x", compensation.MaxRule) + `"}}`: `rule: it is too long: expected at most 16384 bytes`,
		"{\"tool\":\"t\",\"arguments\":{\"a\":\"\xff\"}}":                                    `rule, at "/arguments/a": it is no JSON: expected one JSON object`,
	} {
		r, err := compensation.ParseRule(json.RawMessage(text))
		if wrong, ok := errors.AsType[*compensation.RuleError](err); !ok || err.Error() != want {
			t.Errorf("%.120s\ngot  %v (%+v)\nwant %s", text, err, wrong, want)
		}
		if encoded(t, r) != encoded(t, compensation.Rule{}) {
			t.Errorf("%.120s: a rule beside a mistake: %s", text, encoded(t, r))
		}
	}
}

// TestParseRule_AtItsBounds: what is as long, deep and many as it may be is a rule.
func TestParseRule_AtItsBounds(t *testing.T) {
	t.Parallel()
	const frame = `{"tool":"t","arguments":{"a":""}}`
	for _, text := range []string{
		`{"tool":"` + strings.Repeat("t", 128) + `"}`,
		`{"tool":"t","arguments":` + nested(32) + `}`,
		`{"tool":"t","arguments":{"a":{"value":` + nested(31) + `}}}`,
		`{"tool":"t","arguments":` + keyed(references(100)) + `}`,
		`{"tool":"t","arguments":{"a":"` + strings.Repeat("x", compensation.MaxRule-len(frame)) + `"}}`,
		`{"tool":"t","arguments":{"a":{"call":"/` + strings.Repeat("x", 511) + `","each":"` + strings.Repeat("/x", 32) + `"}}}`,
	} {
		parsed(t, text)
	}
	var count compensation.Template
	err := json.Unmarshal([]byte(keyed(references(101))), &count)
	if _, ok := errors.AsType[*compensation.RuleError](err); !ok {
		t.Errorf("a template of 101 pointers: %v", err)
	}
}

// TestTemplate_IsUnchangedByAMistake: text that is no template leaves the template that was there.
func TestTemplate_IsUnchangedByAMistake(t *testing.T) {
	t.Parallel()
	tmpl := parsed(t, `{"tool":"t","arguments":{"a":{"call":"/a"}}}`).Arguments
	if err := tmpl.UnmarshalJSON([]byte(`{"a":{"call":"a"}}`)); err == nil {
		t.Fatal("no mistake")
	}
	if diff := cmp.Diff(`{"a":{"call":"/a"}}`, encoded(t, tmpl)); diff != "" {
		t.Error(diff)
	}
}
