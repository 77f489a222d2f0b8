package idempotency

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/translators"
)

// TestReply_ReadsAsWritten: a reply is decoded as it was encoded, and bytes that are cut
// off or made up are no reply.
func TestReply_ReadsAsWritten(t *testing.T) {
	t.Parallel()
	header := http.Header{"A2a-Version": {"1.0"}}
	for name, want := range map[string]Reply{
		"empty": {},
		"usual": {
			Wire:     translators.Wire{Binding: "a2a-v1", Version: "1.0", Form: "http", Media: "application/json", Body: []byte("{\"a\":\n1}")},
			Evidence: []ect.ID{"one", "two"},
		},
		"refusal": {
			Wire:    translators.Wire{Binding: "a2a-v1", Header: header, Status: 418, Body: []byte{0, 255}},
			Problem: &problem.Problem{Code: "broken", Status: 500},
		},
	} {
		blob, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(blob)
		if len(got.Wire.Body) == 0 {
			got.Wire.Body = nil
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
		for cut := range len(blob) - len(want.Wire.Body) {
			if _, err := Decode(blob[:cut]); err == nil {
				t.Errorf("%s: the first %d bytes are read as a whole reply", name, cut)
			}
		}
	}
	for _, blob := range [][]byte{
		nil, []byte(`{"Media":"application/json"}`),
		{0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1},
		{0, 0, 0, 0, 1, '{', 0},
		{255, 255, 255, 255, 255, 255, 255, 255, 255, 1},
	} {
		if r, err := Decode(blob); err == nil {
			t.Errorf("%q is read as %+v", blob, r)
		}
	}
}
