package plain

import (
	"encoding/json"
	"testing"
)

func TestPeek_KindsOfMessages(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"x"}`: "n1 request", `{"method":"x"}`: "n notification", `{"id":"\u0061","result":{}}`: "sa response",
		`{"id":"1","error":{}}`: "s1 response", `{"id":null,"method":"x"}`: "n notification", ` {"id": 1 , "result":1} `: "n1 response",
		`{"id":null}`: "", `{}`: "", `[]`: "", `1`: "", ``: "", `{"id":1,"method":2}`: "", `{"id":1}x`: "", `{"ID":1}`: "", `{"Method":"x"}`: "", `{"id":1,"method":null}`: "n1 response",
	} {
		e, ok := peek([]byte(body))
		got := ""
		if ok {
			got = e.key() + map[bool]string{true: " notification"}[e.notification()] + map[bool]string{true: " response"}[e.response()]
			if e.Method != nil && e.ID != nil {
				got += " request"
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}

func FuzzPeek_OnlyValidJSON(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"x"}`))
	f.Add([]byte(`{"id":"\u0061","result":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		e, ok := peek(body)
		if ok && !json.Valid(body) {
			t.Error("accepted, and no JSON")
		}
		if ok && e.response() && e.key() == "n" {
			t.Errorf("a response to nothing: %q", body)
		}
	})
}
