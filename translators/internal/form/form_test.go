package form

import (
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
)

func properties(p string) json.RawMessage {
	return json.RawMessage(`{"type":"object","properties":{"v":` + p + `},"required":["v"]}`)
}

func TestFit_Forms(t *testing.T) {
	for _, c := range []struct {
		property, value string
		fits            bool
	}{
		{`{"type":"string"}`, `"x"`, true},
		{`{"type":"string"}`, `1`, false},
		{`{"type":"string","enum":["a","b"]}`, `"a"`, true},
		{`{"type":"string","enum":["a","b"]}`, `"c"`, false},
		{`{"type":"string","oneOf":[{"const":"a","title":"Apple"}]}`, `"a"`, true},
		{`{"type":"string","oneOf":[{"const":"a","title":"Apple"}]}`, `"Apple"`, false},
		{`{"type":"string","minLength":2}`, `"x"`, false},
		{`{"type":"string","maxLength":2}`, `"xyz"`, false},
		{`{"type":"string","format":"email"}`, `"ada@example.com"`, true},
		{`{"type":"string","format":"email"}`, `"nope"`, false},
		{`{"type":"string","format":"uri"}`, `"https://example.com/"`, true},
		{`{"type":"string","format":"uri"}`, `"nope"`, false},
		{`{"type":"string","format":"date"}`, `"2026-11-23"`, true},
		{`{"type":"string","format":"date"}`, `"nope"`, false},
		{`{"type":"string","format":"date-time"}`, `"2026-11-23T10:00:00Z"`, true},
		{`{"type":"string","format":"date-time"}`, `"nope"`, false},
		{`{"type":"string","pattern":"^a+$"}`, `"b"`, false},
		{`{"type":"string","pattern":"(?=a)a"}`, `"a"`, true}, // only ECMAScript knows it
		{`{"type":"integer","minimum":1,"maximum":9}`, `9`, true},
		{`{"type":"integer","minimum":1,"maximum":9}`, `50`, false},
		{`{"type":"integer"}`, `1.5`, false},
		{`{"type":"number"}`, `1.5`, true},
		{`{"type":"number","maximum":9007199254740993}`, `9007199254740994`, false}, // a float64 cannot tell them apart
		{`{"type":"boolean"}`, `"yes"`, false},
		{`{"type":"boolean"}`, `true`, true},
		{`{"type":"array","items":{"type":"string","enum":["a","b"]},"minItems":1}`, `["a"]`, true},
		{`{"type":"array","items":{"type":"string","enum":["a","b"]},"minItems":1}`, `["c"]`, false},
		{`{"type":"array","items":{"type":"string","enum":["a","b"]},"minItems":1}`, `[]`, false},
	} {
		misfits, err := Fit(properties(c.property), json.RawMessage(`{"v":`+c.value+`}`))
		if err != nil || (misfits == nil) != c.fits {
			t.Errorf("%s in %s: %q, %v", c.value, c.property, misfits, err)
		}
	}
	if misfits, _ := Fit(properties(`{"type":"string"}`), json.RawMessage(`{}`)); len(misfits) != 1 || !strings.Contains(misfits[0], "'v'") {
		t.Errorf("a required member is missing, and the reason does not name it: %q", misfits)
	}
}

func TestFit_HostileSchemas(t *testing.T) {
	for _, schema := range []string{
		`{"$ref":"file:///etc/passwd"}`,
		`{"$ref":"https://example.com/schema.json"}`,
		`{"$schema":"https://example.com/meta.json"}`,
		`{"$ref":"#"}`,
		`{"properties":{"v":{"$dynamicRef":"#"}}}`,
		`{"minimum":1e999999999}`,
		`{"type":7}`,
		`[]`,
		`{"description":"` + strings.Repeat("x", MaxSchema) + `"}`,
	} {
		if _, err := Fit(json.RawMessage(schema), json.RawMessage(`{"v":1}`)); !errors.Is(err, ErrUnchecked) {
			t.Errorf("%.60s: %v, expected ErrUnchecked", schema, err)
		}
	}
	for _, value := range []string{`{"v":1e999999999}`, `{"v":-1E-999999999}`, `{"v":` + strings.Repeat("9", 100) + `}`} {
		if misfits, _ := Fit(properties(`{"type":"number","multipleOf":3}`), json.RawMessage(value)); misfits == nil {
			t.Errorf("%.40s fits", value)
		}
	}
}

func TestFit_CostIsBounded(t *testing.T) {
	const most = 64 << 20 // bytes that one check allocates; those of hostile ones took seconds and gigabytes
	messages := func(n int) string { return `"` + strings.Repeat("a", n) + `"` }
	numbers := func(n int) string { return `[` + strings.Repeat("3,", n) + `3]` }
	choices := func(n int) string {
		return `{"items":{"anyOf":[` + strings.Repeat(`{"const":1},`, n) + `{"const":2}]}}`
	}
	for _, c := range []struct {
		name, schema, value string
		unchecked           bool
	}{
		{"many choices for many items", choices(1000), numbers(5000), true},
		{"as many as are checked", choices(250), numbers(120), false},
		{"deep schema", strings.Repeat(`{"not":`, 5000) + `{"const":1}` + strings.Repeat(`}`, 5000), "3", true},
		{"deep value", `{}`, strings.Repeat("[", 5000) + strings.Repeat("]", 5000), true},
		{"as deep as is checked", strings.Repeat(`{"items":`, maxDepth-1) + `{}` + strings.Repeat(`}`, maxDepth-1), strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), false},
		{"long value", `{"type":"string"}`, messages(2 << 20), true},
		{"repetitions in a pattern", `{"pattern":"` + strings.Repeat("(a?){1000}", 100) + `"}`, messages(100), true},
		{"pattern for a long value", `{"pattern":"(` + strings.Repeat("a?", 60) + `)*b"}`, messages(300_000), true},
		{"long pattern", `{"pattern":"` + strings.Repeat("[a]", 2000) + `"}`, messages(1), true},
		{"many patterns", `{"allOf":[` + strings.Repeat(`{"pattern":"a{1000}"},`, 20) + `true]}`, messages(1), true},
		{"value that is a pattern", `{"allOf":[` + strings.Repeat(`{"format":"regex"},`, 80) + `true]}`, `"` + strings.Repeat("(a?){1000}", 20) + `"`, true},
		{"pattern of names", `{"type":"string","pattern":"^\\p{L}{1,200}$"}`, messages(10_000), false},
		{"unique items", `{"uniqueItems":true}`, numbers(50_000), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Fit(json.RawMessage(c.schema), json.RawMessage(c.value))
			runtime.ReadMemStats(&after)
			if errors.Is(err, ErrUnchecked) != c.unchecked {
				t.Errorf("%v; expected ErrUnchecked: %v", err, c.unchecked)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > most {
				t.Errorf("%d bytes allocated, expected at most %d", used, most)
			}
		})
	}
}

func TestFit_ReasonsQuoteNoValue(t *testing.T) {
	for _, property := range []string{`{"format":"email"}`, `{"pattern":"^a$"}`, `{"enum":["a"]}`, `{"const":"a"}`, `{"type":"number"}`, `{"maxLength":1}`, `{"not":{}}`} {
		misfits, _ := Fit(properties(property), json.RawMessage(`{"v":"secret"}`))
		if len(misfits) != 1 || strings.Contains(misfits[0], "secret") {
			t.Errorf("%s: %q", property, misfits)
		}
	}
}

func TestFit_ReasonsAreBounded(t *testing.T) {
	var members []string
	for range 100 {
		members = append(members, `{"type":"string"}`)
	}
	schema := `{"prefixItems":[` + strings.Join(members, ",") + `]}`
	misfits, _ := Fit(json.RawMessage(schema), json.RawMessage(`[`+strings.TrimSuffix(strings.Repeat("1,", 100), ",")+`]`))
	if len(misfits) != maxReasons {
		t.Errorf("reasons: %q", misfits)
	}
	long := `"` + strings.Repeat("é", 500) + `"`
	misfits, _ = Fit(json.RawMessage(`{"enum":["`+strings.Repeat("x", 1000)+`"]}`), json.RawMessage(long))
	if len(misfits) != 1 || len(misfits[0]) > maxReason {
		t.Errorf("a reason is too long: %q", misfits)
	}
}

func TestChoice_Titles(t *testing.T) {
	for _, c := range [][3]string{
		{`{"oneOf":[{"const":"#f00","title":"Red"},{"const":"Red","title":"Other"}]}`, "Red", "Red"}, // a value counts before a title
		{`{"oneOf":[{"const":"#f00","title":"Red"}]}`, "Red", "#f00"},
		{`{"anyOf":[{"const":"#f00","title":"Red"}]}`, "Red", "#f00"},
		{`{"enum":["r","g"],"enumNames":["Red","Green"]}`, "Green", "g"},
		{`{"enum":["r"],"enumNames":["Red","Green"]}`, "Green", "Green"},
		{`{"type":"string"}`, "Red", "Red"},
		{`null`, "Red", "Red"},
	} {
		if got := Choice(json.RawMessage(c[0]), c[1]); got != c[2] {
			t.Errorf("%q in %s is %q, expected %q", c[1], c[0], got, c[2])
		}
	}
}

func FuzzFit_AnySchemaAndValue(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"v":{"type":"string","format":"email"}}}`), []byte(`{"v":"x"}`))
	f.Add([]byte(`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#"}}}`), []byte(`1e5`))
	f.Fuzz(func(_ *testing.T, schema, value []byte) {
		_, _ = Fit(schema, value)
		Choice(schema, string(value))
	})
}
