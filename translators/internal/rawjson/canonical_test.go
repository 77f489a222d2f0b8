package rawjson

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// FuzzCanonical_AgreesWithTokenizer holds Canonical to the tokenizer's form.
func FuzzCanonical_AgreesWithTokenizer(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, ` [ ] `, `""`, `0`, ` { } `, `{"b":1,"a":[{"d":{},"c":[ ]}]}`, `{"a":1,"b":2,"c":{"z":1,"y":{"x":2,"w":3}}}`, `1.50`, `-0`, `1e3`,
		`"\u00e9\u0001\/\n\ud83d\ude00"`, "{\"\u20ac\":1,\"\r\":2,\"1\":3,\"\U0001F600\":4,\"\ufb33\":5,\"\u00f6\":6}", `{"\u0062":1,"a":2}`,
		`{"a":1,"a":2}`, `{"b":1,"a":2,"a":3}`, `[9007199254740993,0.000001,1E400]`, "[\"\x7f\u2028\"]", `{"a":tru}`, `[1,]`, `{"a":1,}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		got, err := Canonical(data)
		if Check(data, 1<<16, 128) != nil {
			return
		}
		want := jsontext.Value(bytes.Clone(data))
		if wrong := want.Canonicalize(); (err == nil) != (wrong == nil) || err == nil && string(got) != string(want) {
			t.Errorf("%q: %q (%v), want %q (%v)", data, got, err, want, wrong)
		}
		if !bytes.Equal(before, data) {
			t.Errorf("%q was changed", before)
		}
	})
}

// TestCanonical_TypicalMessagesWithoutTokenizer: what messages have in them is not left to the tokenizer.
func TestCanonical_TypicalMessagesWithoutTokenizer(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		` { "b" : [ 1 , -2.5 , true , null ] , "a" : { } , "" : "x" } `: `{"":"x","a":{},"b":[1,-2.5,true,null]}`,
		`{"c":{"z":1,"y":{"x":2,"w":"\u00e9\/"}},"\u00e9":1,"b":[]}`:    "",
		"{\"\u00e9\":1,\"z\":\"\\u00e9\\/\\n\"}":                        "{\"z\":\"\u00e9/\\n\",\"\u00e9\":1}",
		`{"a":{"b":1}`:                                                  "", `[1.0]`: "", "{\"\ufb33\":1}": "", `{"b":1,"a":2,"b":3}`: "", strings.Repeat("[", 300) + strings.Repeat("]", 300): "",
	} {
		c := canon{scanner: scanner{[]byte(data)}}
		end := c.value(space(c.data, 0), deepest)
		if quick := end > 0 && space(c.data, end) == len(data); quick != (want != "") || quick && string(c.dst) != want {
			t.Errorf("%.60q: %v, %q", data, quick, c.dst)
		}
	}
}

func BenchmarkCanonical_QuickAndTokens(b *testing.B) {
	text := `"The quick brown fox jumps over the lazy dog, and so on it goes."`
	message := []byte(`{"body":{"jsonrpc":"2.0","id":"7f","method":"tools/call","params":{"name":"echo","arguments":{"message":` + text +
		`},"_meta":{"progressToken":7}}},"aepb":{"sender":"spiffe://aepb.dev/client","message_id":"0b8ab2c6","parts":[{"text":` + text + `}]}}`)
	b.Run("quick", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Canonical(message); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("tokens", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			value := jsontext.Value(bytes.Clone(message))
			if err := value.Canonicalize(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
