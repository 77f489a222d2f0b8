package compensation_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/lifecycle/compensation"
)

func template(t testing.TB, text string) compensation.Template {
	t.Helper()
	var tmpl compensation.Template
	if err := json.Unmarshal([]byte(text), &tmpl); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return tmpl
}

func values(call, result, before string) (v compensation.Values) {
	for text, at := range map[string]*json.RawMessage{call: &v.Call, result: &v.Result, before: &v.Before} {
		if text != "" {
			*at = json.RawMessage(text)
		}
	}
	return v
}

const (
	call   = `{"guest": "ann", "n": 12345678901234567890.10, "a/b": {"c~d": [10, 20]}, "nothing": null, "": 1}`
	result = `{"id": 7, "items": [{"id": "x", "tags": []}, {"id": "y", "tags": [1]}], "none": []}`
	before = `{"content": "old\u0041 \ud83d\ude00", "rights": {"z": 1, "a": [true, false]}}`
)

// TestFill_Cases: what each form stands for.
func TestFill_Cases(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{}`: `{}`,
		`{"b":[1.0,-0,1E400,"é",null,true],"a":{"x":{}}}`:                 `{"a":{"x":{}},"b":[1.0,-0,1E400,"é",null,true]}`,
		`{"id":{"result":"/id"},"guest":{"call":"/guest"}}`:               `{"guest":"ann","id":7}`,
		`{"n":{"call":"/n"}}`:                                             `{"n":12345678901234567890.10}`,
		`{"n":{"call":"/nothing"}}`:                                       `{"n":null}`,
		`{"n":{"call":"/"}}`:                                              `{"n":1}`,
		`{"n":{"call":"/a~1b/c~0d/1"}}`:                                   `{"n":20}`,
		`{"n":[{"call":"/a~1b"},{"call":"/a~1b/c~0d"},{"call":"/a~1b"}]}`: `{"n":[{"c~d":[10,20]},[10,20],{"c~d":[10,20]}]}`,
		`{"before":"/rights"}`:                                            `{"a":[true,false],"z":1}`,
		`{"call":""}`:                                                     `{"":1,"a/b":{"c~d":[10,20]},"guest":"ann","n":12345678901234567890.10,"nothing":null}`,
		`{"c":{"before":"/content"}}`:                                     `{"c":"old\u0041 \ud83d\ude00"}`,
		`{"ids":{"result":"/items","each":"/id"}}`:                        `{"ids":["x","y"]}`,
		`{"ids":{"result":"/items","each":""}}`:                           `{"ids":[{"id":"x","tags":[]},{"id":"y","tags":[1]}]}`,
		`{"ids":{"result":"/none","each":"/id"}}`:                         `{"ids":[]}`,
		`{"result":"/items","each":"/tags"}`:                              `[[],[1]]`,
		`{"a":{"call":"/deep/0"},"b":{"call":"/deep/1"}}`:                 `{"a":"[{[\"","b":` + nested(126) + `}`,
		`{"a":{"value":{"call":"/guest"}}}`:                               `{"a":{"call":"/guest"}}`,
		`{"a":{"value":[{"b":{"value":1}}]}}`:                             `{"a":[{"b":{"value":1}}]}`,
		`{"a":{"value":7}}`:                                               `{"a":7}`,
		`{"value":{"call":"/guest"}}`:                                     `{"value":"ann"}`,
		`{"value":{"call":"/guest"},"key":"k"}`:                           `{"key":"k","value":"ann"}`,
		`{"value":1,"each":2}`:                                            `{"each":2,"value":1}`,
		`{"a":{"call":"/guest","key":{"result":"/id"}}}`:                  `{"a":{"call":"/guest","key":7}}`,
		`{"a":{"call":"/guest","result":"/id"}}`:                          `{"a":{"call":"/guest","result":"/id"}}`,
		`{"a":{"each":"/guest"}}`:                                         `{"a":{"each":"/guest"}}`,
		`{"a":{"call":"/guest","result":"/id","each":""}}`:                `{"a":{"call":"/guest","each":"","result":"/id"}}`,
	} {
		given := values(call, result, before)
		if strings.Contains(text, "deep") {
			given.Call = json.RawMessage(`{"deep":["[{[\"",` + nested(126) + `]}`)
		}
		got, err := template(t, text).Fill(given)
		if err != nil || string(got) != want {
			t.Errorf("%s\ngot  %s, %v\nwant %s", text, got, err, want)
		}
	}
}

// TestFill_ZeroTemplate: a rule without arguments calls its tool with an empty object.
func TestFill_ZeroTemplate(t *testing.T) {
	t.Parallel()
	if got, err := (compensation.Template{}).Fill(compensation.Values{}); err != nil || string(got) != "{}" {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestFill_Mistakes: a value that is not there, or cannot be read, is told.
func TestFill_Mistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		template string
		values   compensation.Values
		want     string
	}{
		{`{"a":{"call":"/x"}}`, values(call, "", ""), `the call has no value at "/x": correct the rule, or undo the call by hand`},
		{`{"a":{"result":"/id"}}`, values(call, "", before), `the result of the call has no value at "/id": correct the rule, or undo the call by hand`},
		{`{"a":{"before":""}}`, values(call, result, ""), `the reading before the call has no value at "": correct the rule, or undo the call by hand`},
		{`{"a":{"call":"/a~1b/c~0d/2"}}`, values(call, "", ""), `the call has no value at "/a~1b/c~0d/2": correct the rule, or undo the call by hand`},
		{`{"a":{"call":"/a~1b/c~0d/01"}}`, values(call, "", ""), `the call has no value at "/a~1b/c~0d/01": correct the rule, or undo the call by hand`},
		{`{"a":{"call":"/a~1b/c~0d/-"}}`, values(call, "", ""), `the call has no value at "/a~1b/c~0d/-": correct the rule, or undo the call by hand`},
		{`{"a":{"call":"/guest/0"}}`, values(call, "", ""), `the call has no value at "/guest/0": correct the rule, or undo the call by hand`},
		{`{"a":{"result":"/id","each":"/x"}}`, values("", result, ""), `the result of the call has no list at "/id": correct the rule, or undo the call by hand`},
		{`{"a":{"result":"/items","each":"/tags/0"}}`, values("", result, ""), `the result of the call has no value at "/items/0/tags/0": correct the rule, or undo the call by hand`},
		{`{"a":{"call":"/x"}}`, values(`{"x":1`, "", ""), `the call has no value that can be read: it is no JSON, or a member stands twice in it`},
		{`{"a":{"call":"/x"}}`, values(`{"x":1,"y":{"z":1,"\u007a":2}}`, "", ""), `the call has no value that can be read: it is no JSON, or a member stands twice in it`},
		{`{"a":{"call":"/x"}}`, values(`{"x":1} 2`, "", ""), `the call has no value that can be read: it is no JSON, or a member stands twice in it`},
		{`{"a":{"call":"/x"}}`, values("{\"x\":\"\xff\"}", "", ""), `the call has no value that can be read: it is no JSON, or a member stands twice in it`},
		{`{"a":{"call":""}}`, values(`"`+strings.Repeat("x", compensation.MaxValue)+`"`, "", ""), `the call has no value that can be read: it is too long, expected at most 16777216 bytes`},
		{`{"a":{"call":"/b"}}`, values(`{"b":"[[\"[","a":`+nested(128)+`}`, "", ""), `the call has no value that can be read: it is nested too deeply, expected at most 128 objects and lists within each other`},
		{`{"a":{"call":"","each":"/n"}}`, values(`[`+strings.Repeat(`{"n":"xxxxxxxx"},`, compensation.MaxFilled/10)+`{}]`, "", ""), `the filled arguments are too long: expected at most 1048576 bytes; undo the call by hand`},
		{`{"a":{"call":""}}`, values(`"`+strings.Repeat("x", compensation.MaxFilled)+`"`, "", ""), `the filled arguments are too long: expected at most 1048576 bytes; undo the call by hand`},
		{`{"a":{"call":"","each":""}}`, values(`[`+strings.Repeat("1,", compensation.MaxFilled/2)+`1]`, "", ""), `the filled arguments are too long: expected at most 1048576 bytes; undo the call by hand`},
	} {
		got, err := template(t, c.template).Fill(c.values)
		if err == nil || err.Error() != c.want || got != nil {
			t.Errorf("%s\ngot  %.100s, %v\nwant %s", c.template, got, err, c.want)
		}
	}
}

// TestFill_TypesOfErrors: a caller tells by the type what is missing.
func TestFill_TypesOfErrors(t *testing.T) {
	t.Parallel()
	_, err := template(t, `{"a":{"before":"/x/y"}}`).Fill(values(call, result, before))
	if e, ok := errors.AsType[*compensation.MissingError](err); !ok || *e != (compensation.MissingError{From: compensation.FromBefore, Pointer: "/x/y"}) {
		t.Errorf("got %#v", err)
	}
	_, err = template(t, `{"a":{"before":"/x/y"}}`).Fill(values("", "", "no JSON"))
	if e, ok := errors.AsType[*compensation.ValueError](err); !ok || e.From != compensation.FromBefore {
		t.Errorf("got %#v", err)
	}
}

// TestFill_AtItsBound: arguments of exactly as many bytes as may be are filled, and one byte more is refused.
func TestFill_AtItsBound(t *testing.T) {
	t.Parallel()
	for text, overhead := range map[string]int{`{"a":{"call":""}}`: len(`{"a":""}`), `{"a":{"call":"/0","each":""}}`: len(`{"a":[""]}`)} {
		for more, want := range []bool{true, false} {
			value := `"` + strings.Repeat("x", compensation.MaxFilled-overhead+more) + `"`
			if strings.Contains(text, "each") {
				value = `[[` + value + `]]`
			}
			got, err := template(t, text).Fill(values(value, "", ""))
			if (err == nil) != want || want && len(got) != compensation.MaxFilled {
				t.Errorf("%s, %d more: %d bytes, %v", text, more, len(got), err)
			}
		}
	}
}

// TestFill_ReadsOnlyWhatItUses: a result that cannot be read does not matter to a template that does not use it.
func TestFill_ReadsOnlyWhatItUses(t *testing.T) {
	t.Parallel()
	given := values(call, "no JSON", "")
	if got, err := template(t, `{"a":{"call":"/guest"}}`).Fill(given); err != nil || string(got) != `{"a":"ann"}` {
		t.Errorf("got %s, %v", got, err)
	}
	if string(given.Call) != call {
		t.Errorf("the call was changed: %s", given.Call)
	}
}
