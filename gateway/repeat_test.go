package gateway

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/translators"
)

// What is kept of an answer is read as it was written, and nothing that is cut
// off or made up is taken for one.
func TestAnswersArePacked(t *testing.T) {
	t.Parallel()
	header := http.Header{"A2a-Version": {"1.0"}}
	for name, want := range map[string]stored{
		"nothing": {},
		"usual": {
			wire:     translators.Wire{Binding: "a2a-v1", Version: "1.0", Form: "http", Media: "application/json", Body: []byte("{\"a\":\n1}")},
			evidence: []ect.ID{"one", "two"},
		},
		"rare": {
			wire: translators.Wire{Binding: "a2a-v1", Header: header, Status: 418, Body: []byte{0, 255}},
			rare: rare{Status: 418, Problem: &problem.Problem{Code: "broken", Status: 500}},
		},
	} {
		blob, err := want.pack()
		if err != nil {
			t.Fatal(err)
		}
		got, err := unpack(blob)
		if len(got.wire.Body) == 0 {
			got.wire.Body = nil
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(stored{})); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
		for cut := range len(blob) - len(want.wire.Body) {
			if _, err := unpack(blob[:cut]); err == nil {
				t.Errorf("%s: the first %d octets pass for the whole", name, cut)
			}
		}
	}
	for _, blob := range [][]byte{
		nil, []byte(`{"Media":"application/json"}`),
		{0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1},
		{0, 0, 0, 0, 1, '{', 0},
		{255, 255, 255, 255, 255, 255, 255, 255, 255, 1},
	} {
		if s, err := unpack(blob); err == nil {
			t.Errorf("%q is read as %+v", blob, s)
		}
	}
}
