package slim_test

import (
	"testing"

	a2apb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// TestProto_MatchesTheOfficialLibrary: our messages have the fields, numbers and types of
// those that the official library was generated from.
func TestProto_MatchesTheOfficialLibrary(t *testing.T) {
	t.Parallel()
	theirs := (&a2apb.Task{}).ProtoReflect().Descriptor().ParentFile()
	ours, err := protoregistry.GlobalFiles.FindFileByPath("a2aproto.proto") // of package slim, within
	if err != nil {
		t.Fatal(err)
	}
	if theirs.Messages().Len() != ours.Messages().Len() {
		t.Errorf("%d messages, theirs are %d", ours.Messages().Len(), theirs.Messages().Len())
	}
	for i := range theirs.Messages().Len() {
		want := theirs.Messages().Get(i)
		got := ours.Messages().ByName(want.Name())
		if got == nil || got.Fields().Len() != want.Fields().Len() {
			t.Errorf("%s has other fields", want.Name())
			continue
		}
		for j := range want.Fields().Len() {
			w := want.Fields().Get(j)
			g := got.Fields().ByNumber(w.Number())
			if g == nil || g.Name() != w.Name() || g.Kind() != w.Kind() || g.Cardinality() != w.Cardinality() || g.JSONName() != w.JSONName() || inner(g) != inner(w) {
				t.Errorf("%s differs", w.FullName())
			}
		}
	}
	want := theirs.Services().Get(0).Methods()
	for i := range want.Len() {
		got := ours.Services().Get(0).Methods().ByName(want.Get(i).Name())
		if got == nil || got.Input().Name() != want.Get(i).Input().Name() || got.Output().Name() != want.Get(i).Output().Name() || got.IsStreamingServer() != want.Get(i).IsStreamingServer() {
			t.Errorf("%s differs", want.Get(i).FullName())
		}
	}
}

// inner is the type within a field, by its own name.
func inner(f protoreflect.FieldDescriptor) protoreflect.Name {
	switch {
	case f.Message() != nil:
		return f.Message().Name()
	case f.Enum() != nil:
		return f.Enum().Name()
	default:
		return ""
	}
}
