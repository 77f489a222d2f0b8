package rawjson_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// FuzzParse_AgreesWithTokenizer holds the skimmer to the tokenizer: for checked input both see the
// same members, and unchecked input never panics.
func FuzzParse_AgreesWithTokenizer(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":1}`, ` { "a" : [ 1 , {"b":"]}"} ] , "\u0062":"x\"y" } `, `{"a":{"b":[[]]},"c":null}`,
		`{"a"`, `{"a":}`, `{"a":1,}`, `{,}`, `{"a":1}}`, `{"a":[1}`, `{"a":"\`, `[`, `[1,2,"3"]`, `[]`, ` [ ] `, `{"":""}`, `"x"`, `1`,
		`[0.5,-0.5,10,-1,0.000001]`, `[-0]`, `[1.0]`, `[9007199254740993]`, `[1e3]`, `[0.0000001]`, `"-0 1.0"`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o := rawjson.Parse(data, "")
		elements, isArray := rawjson.Elements(data)
		if rawjson.Check(data, 1<<16, 128) != nil {
			return
		}
		if text := jsontext.Value(bytes.Clone(data)); rawjson.Exact(data) && (text.Canonicalize() != nil || !rawjson.Equal(data, json.RawMessage(text))) {
			t.Errorf("the canonical form of %q is %q", data, text)
		}
		var members map[string]json.RawMessage
		if json.Unmarshal(data, &members) == nil && members != nil {
			if o.Err() != nil || len(o.Members()) != len(members) {
				t.Fatalf("%q: %d members, want %d (%v)", data, len(o.Members()), len(members), o.Err())
			}
			for _, m := range o.Members() {
				if !bytes.Equal(m.Value, bytes.TrimSpace(members[m.Name])) {
					t.Errorf("%q: member %q is %q, want %q", data, m.Name, m.Value, members[m.Name])
				}
			}
		} else if o.Err() == nil {
			t.Errorf("%q is taken for an object", data)
		}
		var list []json.RawMessage
		if json.Unmarshal(data, &list) == nil && list != nil {
			if !isArray || len(elements) != len(list) {
				t.Fatalf("%q: %d elements, want %d", data, len(elements), len(list))
			}
			for i := range list {
				if !bytes.Equal(elements[i], bytes.TrimSpace(list[i])) {
					t.Errorf("%q: element %d is %q, want %q", data, i, elements[i], list[i])
				}
			}
		} else if isArray {
			t.Errorf("%q is taken for an array", data)
		}
	})
}

// BenchmarkParse_OneLevelOf16KB is one level of a message of 16 KB.
func BenchmarkParse_OneLevelOf16KB(b *testing.B) {
	var body bytes.Buffer
	body.WriteString(`{"jsonrpc":"2.0","params":{"list":[`)
	for i := range 500 {
		if i > 0 {
			body.WriteByte(',')
		}
		body.WriteString(`{"text":"some \"text\" here"}`)
	}
	body.WriteString(`]}}`)
	b.SetBytes(int64(body.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if rawjson.Parse(body.Bytes(), "").Err() != nil {
			b.Fatal("not an object")
		}
	}
}

func TestExact_Numbers(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{
		`{"a":[0,-1,0.5,-0.25,123456789012345,0.000001],"b":"1.0 -0"}`: true, `"\"1.0"`: true,
		`-0`: false, `1.0`: false, `0.50`: false, `1e3`: false, `1E3`: false, `1234567890123456`: false, `0.0000001`: false, `[1,{"a":-0}]`: false,
	} {
		if got := rawjson.Exact([]byte(value)); got != want {
			t.Errorf("%s: %v", value, got)
		}
	}
}
