package slim

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/aepb/aepb-gateway/gateway/transport/a2a/transcode"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/a2aproto"
	"github.com/aepb/aepb-gateway/translators"
)

// TestAgainstTheLibrary: whatever the codec of A2A is tried on is the same message
// here as protobuf's own reader and writer make of it, in either direction.
func TestAgainstTheLibrary(t *testing.T) {
	t.Parallel()
	values, direct := bodies(t), 0
	messages := a2aproto.File_a2aproto_proto.Messages()
	for i := range messages.Len() {
		kind := messages.Get(i)
		for _, value := range values {
			m, err := instance(kind)
			if err != nil {
				t.Fatal(err)
			}
			unread := protojson.Unmarshal(value, m)
			want, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if got, ok := transcode.Octets(kind, value); ok {
				direct++
				if unread != nil || !bytes.Equal(got, want) {
					t.Errorf("%s of %s: %q, want %q, %v", kind.Name(), value, got, want, unread)
				}
			}
			if unread != nil {
				continue
			}
			loose, err := protojson.Marshal(m)
			var text bytes.Buffer
			if err != nil || json.Compact(&text, loose) != nil {
				t.Fatalf("%v: %s", err, loose)
			}
			if got, strange, ok := transcode.Text(kind, want, translators.DefaultDepth); !ok || strange || !bytes.Equal(got, text.Bytes()) {
				t.Errorf("%s of %q: %s (%t, %t), want %s", kind.Name(), want, got, strange, ok, text.Bytes())
			}
		}
	}
	if direct < 100 {
		t.Errorf("%d messages of %d values", direct, len(values))
	}
}

// bodies are what the codec of A2A is tried on: messages, and what they carry.
func bodies(t *testing.T) []json.RawMessage {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "translators", "a2a", "testdata", "*", "*.txtar"))
	if err != nil || len(files) < 50 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	var all []json.RawMessage
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range archive.Files {
			var said map[string]json.RawMessage
			if json.Unmarshal(part.Data, &said) == nil {
				all = append(all, part.Data, said["params"], said["result"], said["message"], said["task"])
			}
		}
	}
	return all
}
