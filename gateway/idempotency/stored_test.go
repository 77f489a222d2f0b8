package idempotency

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestStored_ReplyIsReadAndWrittenAlike: what an earlier version wrote is read, and is
// written with the same bytes: replicas of both versions share the replies.
func TestStored_ReplyIsReadAndWrittenAlike(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/stored.json")
	if err != nil {
		t.Fatal(err)
	}
	var samples map[string][]byte
	if err := json.Unmarshal(raw, &samples); err != nil {
		t.Fatal(err)
	}
	for name, stored := range samples {
		reply, err := Decode(stored)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(reply.Evidence) != 2 || len(reply.Wire.Header["A"]) != 2 || string(reply.Wire.Body) != `{"r":1}` {
			t.Errorf("%s is read as %+v", name, reply)
		}
		written, err := reply.Encode()
		if diff := cmp.Diff(stored, written); diff != "" || err != nil {
			t.Errorf("%s: %v: -stored +written\n%s", name, err, diff)
		}
	}
}
