package rawjson_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

func TestCheck_ValidAndInvalid(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in string
		ok bool
	}{
		"object":             {`{"a":1}`, true},
		"big number":         {`{"a":123456789012345678901234567890.123456789e5}`, true},
		"every plane":        {`"` + "a\u00e9\u4e2d\U0001F600\U000E0041\U0010FFFD" + `"`, true},
		"surrogate pair":     {`"\ud83d\ude00"`, true},
		"depth at bound":     {strings.Repeat("[", 8) + strings.Repeat("]", 8), true},
		"brackets in string": {`"[[[[[[[[[[[[\"[["`, true},
		"escaped escape":     {`["\\",[[[[[[["\\\""]]]]]]]]`, true},
		"too deep behind it": {`["\\",[[[[[[[["\\\""]]]]]]]]]`, false},
		"duplicate":          {`{"a":1,"a":2}`, false},
		"escaped duplicate":  {`{"a":1,"\u0061":2}`, false},
		"nested duplicate":   {`[{"b":{"a":1,"a":2}}]`, false},
		"case is exact":      {`{"a":1,"A":2}`, true},
		"lone surrogate":     {`"\ud83d"`, false},
		"bad utf-8":          {"\"\xff\"", false},
		"truncated":          {`{"a":`, false},
		"trailing":           {`{} {}`, false},
		"too deep":           {strings.Repeat("[", 9) + strings.Repeat("]", 9), false},
		"empty":              {``, false},
		"nan":                {`NaN`, false},
		"leading zero":       {`01`, false},
		"blank":              {" \r\n\t", false},
		"mark before it":     {"\xef\xbb\xbf{}", false},
		"utf-16":             {"{\x00}\x00", false},
		"overlong utf-8":     {"\"\xc0\xaf\"", false},
		"cut utf-8":          {"\"a\xc3(\"", false},
		"surrogates swapped": {`"\udc00\ud800"`, false},
		"control character":  {"\"a\x00b\"", false},
		"unknown escape":     {`"\x41"`, false},
		"single quotes":      {`{'a':1}`, false},
		"trailing comma":     {`{"a":[1],}`, false},
		"comment":            {`/* a */{}`, false},
	} {
		err := rawjson.Check([]byte(tc.in), 1<<10, 8)
		if (err == nil) != tc.ok {
			t.Errorf("%s: got %v, want ok=%v", name, err, tc.ok)
		}
		if err != nil && !errors.Is(err, translators.ErrMalformed) {
			t.Errorf("%s: %v does not match ErrMalformed", name, err)
		}
	}
	if err := rawjson.Check([]byte(`"`+strings.Repeat("x", 2000)+`"`), 1<<10, 8); !errors.Is(err, translators.ErrTooLarge) {
		t.Errorf("too large: got %v", err)
	}
}

func TestRest_KeepsUnreadMembers(t *testing.T) {
	t.Parallel()
	o := rawjson.Parse([]byte(`{"a":"x","n":12345678901234567890123,"z":null,"e":""}`), "")
	if v, ok := o.String("a"); v != "x" || !ok {
		t.Errorf("a: got %q %v", v, ok)
	}
	if got, want := string(o.Rest()), `{"n":12345678901234567890123,"z":null,"e":""}`; got != want {
		t.Errorf("rest: got %s, want %s", got, want)
	}
	o.Bool("e")
	if o.Err() == nil {
		t.Error("a string taken as a boolean is no error")
	}
}

// TestInsert_KeepsOrder: members in order stay in order.
func TestInsert_KeepsOrder(t *testing.T) {
	t.Parallel()
	o := rawjson.Parse([]byte(`{"b":1,"d":2}`), "")
	for _, name := range []string{"c", "a", "e"} {
		o.Insert(name, []byte("0"))
	}
	if got, want := string(o.Rest()), `{"a":0,"b":1,"c":0,"d":2,"e":0}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestBuilder_AgreesWithParse(t *testing.T) {
	t.Parallel()
	b := rawjson.NewBuilder().String("s", "quote \" and \u2028").Base64("b", []byte{0, 255}).
		Bool("t", true).Strings("l", nil, true).Optional("none", "").Raw("r", []byte(`[1]`))
	raw := b.Bytes()
	if err := rawjson.Check(raw, 1<<10, 8); err != nil {
		t.Fatal(err)
	}
	o := rawjson.Parse(raw, "")
	if s, _ := o.String("s"); s != "quote \" and \u2028" {
		t.Errorf("got %q", s)
	}
	if data, ok := o.Base64("b"); !ok || len(data) != 2 || data[1] != 255 {
		t.Errorf("got %v", data)
	}
	if o.Has("none") {
		t.Error("an empty optional was written")
	}
}

// Whatever byte stands wherever, a quoted text reads as it was, and is what a
// whole JSON encoder writes.
func TestQuote_EveryByteAtEveryPosition(t *testing.T) {
	t.Parallel()
	for c := range 256 {
		for at := range 19 {
			text := []byte("abcdefghijklmnopqrs")
			text[at] = byte(c)
			want, err := jsontext.AppendQuote(nil, string(text))
			if got := rawjson.Quote(string(text)); string(got) != string(want) || (err != nil) != (c > 0x7f) {
				t.Errorf("%q: %s, want %s (%v)", text, got, want, err)
			}
		}
	}
}

func BenchmarkQuote_Token(b *testing.B) {
	token := strings.Repeat("eyJhbGciOiJFUzI1NiIs", 100)
	for b.Loop() {
		rawjson.Quote(token)
	}
}
