package slim

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/a2aproto"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestPack_AgreesWithProtobufLibrary: whatever the codec of A2A is tried on is the same message
// here as protobuf's own reader and writer make of it, in either direction.
func TestPack_AgreesWithProtobufLibrary(t *testing.T) {
	t.Parallel()
	values, reported := bodies(t), 0
	messages := a2aproto.File_a2aproto_proto.Messages()
	for i := range messages.Len() {
		kind := messages.Get(i)
		for _, value := range values {
			m := instance(t, kind)
			if protojson.Unmarshal(value, m) != nil {
				continue
			}
			reported++
			want, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if got, losses, err := pack(kind, value); err != nil || len(value) > 0 && slices.ContainsFunc(losses, beyond) || !bytes.Equal(got, want) {
				t.Errorf("%s of %s: %q, want %q, %v, %v", kind.Name(), value, got, want, losses, err)
			}
			loose, err := protojson.Marshal(m)
			var text bytes.Buffer
			if err != nil || json.Compact(&text, loose) != nil {
				t.Fatalf("%v: %s", err, loose)
			}
			if got, losses, err := unpack(kind, want); err != nil || len(losses) > 0 || !bytes.Equal(got, text.Bytes()) {
				t.Errorf("%s of %q: %s (%v, %v), want %s", kind.Name(), want, got, losses, err, text.Bytes())
			}
		}
	}
	if reported < 100 {
		t.Errorf("%d messages of %d values", reported, len(values))
	}
}

func beyond(loss canonical.Loss) bool { return loss.Code == canonical.LossExtension }

func instance(t *testing.T, kind protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	found, err := protoregistry.GlobalTypes.FindMessageByName(kind.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return found.New().Interface()
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
			var answer map[string]json.RawMessage
			if json.Unmarshal(part.Data, &answer) == nil {
				all = append(all, part.Data, answer["params"], answer["result"], answer["message"], answer["task"])
			}
		}
	}
	return all
}
