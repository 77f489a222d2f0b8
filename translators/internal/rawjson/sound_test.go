package rawjson

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// FuzzValidate_AgreesWithTokenizer: what is sound at once is what the tokenizer takes too.
func FuzzValidate_AgreesWithTokenizer(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, `""`, `0`, `-0`, `-`, `1.`, `.5`, `1e`, `1e+`, `1E-5`, `01`, `-01`, `0.5e3`, `true`, `tru`, `nullx`, ` [ 1 , 2 ] `, `[1,]`, `[,]`,
		`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"a":{"a":1},"b":{"a":1}}`, `{"a":1,}`, `{"a" 1}`, `{"a":1 "b":2}`, `{a:1}`, `{"a":1}x`,
		`"\u12aF"`, `"\u12a"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\x"`, `"\`, `"abcdefgh\"ijklmnop"`, "\"abcdefgh\x01\"", "\"\x7f\"", `"\u0000"`,
		"\"\u00e9\u4e2d\U0001F600\"", "\"\xff\"", "\"\xed\xa0\x80\"", `[[[[[]]]]]`, `{"a":{"b":[{"c":[]}]}}`, "\v1", "{\"\u00e9\":1,\"\u00e9\":2}",
	} {
		f.Add([]byte(seed), 4)
	}
	f.Fuzz(func(t *testing.T, data []byte, depth int) {
		depth = min(max(depth, 0), 200)
		if validate(data, depth) && (!jsontext.Value(data).IsValid() || tooDeep(data, depth)) {
			t.Errorf("%q is not sound within %d levels", data, depth)
		}
	})
}

// TestValidate_AcceptsAndLeavesToTokenizer: the quick look is enough for all but what it says it leaves.
func TestValidate_AcceptsAndLeavesToTokenizer(t *testing.T) {
	t.Parallel()
	many := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`"m%d":%d`, i, i))
		}
		return "{" + strings.Join(list, ",") + "}"
	}
	for data, want := range map[string]bool{
		` {"jsonrpc":"2.0","id":1,"params":{"a":[1.5e-3,-0,true,false,null,"x"],"b":{}},"c":[]} ` + "\n": true,
		`["\"\\\/\b\f\n\r\t\u00e9",""]`: true, "\"a\u00e9\u4e2d\U0001F600\U0010FFFD and more of it\"": true,
		`[{"a":1},{"a":1}]`: true, `{"a":{"a":1}}`: true, many(crowd): true, "[" + strings.Repeat(`{"a":1},`, 2*crowd) + "0]": true,
		strings.Repeat("[", 8) + strings.Repeat("]", 8): true, strings.Repeat("[", 9) + strings.Repeat("]", 9): false,
		many(crowd + 1): false, `{"\u0061":1}`: false, `"\ud83d\ude00"`: false, `{"a":1,"b":2,"a":3}`: false, "": false, "1 2": false,
	} {
		if validate([]byte(data), 8) != want {
			t.Errorf("%.80q: %v", data, !want)
		}
	}
}

// Whatever byte stands wherever in a string, the quick look is right about it.
func TestValidate_EveryByteAtEveryPosition(t *testing.T) {
	t.Parallel()
	for c := range 256 {
		for at := range 19 {
			text := []byte(`"abcdefghijklmnopqrs"`)
			text[at+1] = byte(c)
			valid := jsontext.Value(text).IsValid()
			if validate(text, 1) != valid {
				t.Errorf("%q: valid is %v", text, valid)
			}
		}
	}
}

func BenchmarkCheck_QuickAndTokens(b *testing.B) {
	text := `"The quick brown fox jumps over the lazy dog, and so on it goes."`
	message := []byte(`{"jsonrpc":"2.0","id":"7f","method":"tools/call","params":{"name":"echo","arguments":{"message":` + text +
		`},"_meta":{"progressToken":7}},"aepb":{"ect":["` + strings.Repeat("eyJhbGciOiJFUzI1NiIs", 100) + `"]},"parts":[{"text":` + text + `}]}`)
	b.Run("sound", func(b *testing.B) {
		b.SetBytes(int64(len(message)))
		for b.Loop() {
			if !validate(message, 128) {
				b.Fatal("not sound")
			}
		}
	})
	b.Run("tokens", func(b *testing.B) {
		b.SetBytes(int64(len(message)))
		for b.Loop() {
			if tooDeep(message, 128) || !jsontext.Value(message).IsValid() {
				b.Fatal("not valid")
			}
		}
	})
}
