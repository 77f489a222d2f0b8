package rawjson_test

import (
	"testing"

	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

func TestEqual_Values(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{`{"a":1,"b":[true,null]}`, ` {"b": [true, null], "a": 1} `, true},
		{`"\u0061/"`, `"a\/"`, true},
		{`{"\u0061":1}`, `{"a":1}`, true},
		{`9007199254740993`, `9007199254740992`, false},
		{`1`, `1.0`, false},
		{`[1,2]`, `[2,1]`, false},
		{`[1]`, `[1,1]`, false},
		{`{"a":1}`, `{"a":1,"b":2}`, false},
		{`{"a":1}`, `{"A":1}`, false},
		{`null`, `false`, false},
		{`""`, `null`, false},
		{``, ``, true},
		{``, `null`, false},
	} {
		if got := rawjson.Equal([]byte(tc.a), []byte(tc.b)); got != tc.want {
			t.Errorf("%s and %s: got %v", tc.a, tc.b, got)
		}
	}
}
