package name

import (
	"errors"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
)

// TestHash_KnownValues: org, ns, alice and rpcsrv are as real peers sent them.
func TestHash_KnownValues(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]uint64{
		"org": 0x873e580376ea963b, "ns": 0xeef9769a4c6990d1, "alice": 0x7b90bc8fa5b6b182, "rpcsrv": 0xf6c9a206646c1e72,
		"gogate": 0x9222726c14fa9595, "agntcy": 0x169ca82eb17d6bc2, "demo": 0x4948e8d027952bde,
		"echo_agent": 0x04c5fea324f66384, "ünï": 0x46408596ac4d06c7, "": 0x95634172a60b7544,
	} {
		if got := Hash(word); got != want {
			t.Errorf("%q: %x", word, got)
		}
	}
}

func TestParse_Names(t *testing.T) {
	t.Parallel()
	const id = "00000000-0000-0001-0000-000000000002"
	for text, want := range map[string]Name{
		"org/ns/alice":       {"org", "ns", "alice", AnyID()},
		"org/ns/alice/" + id: {"org", "ns", "alice", ID{1, 2}},
		"org/ns/alice/ffffffff-ffff-ffff-ffff-ffffffffffff": {"org", "ns", "alice", AnyID()},
		"agntcy/demo/ünï":                     {"agntcy", "demo", "ünï", AnyID()},
		strings.Repeat("a", MaxWord) + "/b/c": {strings.Repeat("a", MaxWord), "b", "c", AnyID()},
		"":                                    {}, "org": {}, "org/ns": {}, "org/ns/": {}, "/ns/a": {}, "org/ns/a/b/c": {}, "org//a": {},
		"org/ns/a b": {}, "org/ns/a\n": {}, "org/ns/\x00": {}, "org/ns/\xff": {},
		strings.Repeat("a", MaxWord+1) + "/b/c": {},
		"org/ns/a/1":                            {}, "org/ns/a/{" + id + "}": {}, "org/ns/a/" + strings.ReplaceAll(id, "-", ""): {},
		"org/ns/a/ffffffff-ffff-ffff-ffff-fffffffffffe": {},
	} {
		got, err := Parse(text)
		var refused *Error
		if got != want || (want == Name{}) != errors.As(err, &refused) {
			t.Errorf("%q: %+v %v", text, got, err)
		}
		if err == nil {
			if again, err := Parse(got.String()); again != got || err != nil {
				t.Errorf("%q: written as %q, which is %v", text, got, err)
			}
		}
	}
}

func TestNewID_UniqueAndUnreserved(t *testing.T) {
	t.Parallel()
	one, err := NewID()
	if err != nil {
		t.Fatal(err)
	}
	two, err := NewID()
	if err != nil || one == two || one.Reserved() {
		t.Errorf("%v %v %v", one, two, err)
	}
	for id, reserved := range map[ID]bool{
		AnyID(): true, {math.MaxUint64, math.MaxUint64 - 49}: true, {math.MaxUint64, math.MaxUint64 - 50}: false, {0, math.MaxUint64}: false,
	} {
		if id.Reserved() != reserved {
			t.Errorf("%v reserved: %v", id, !reserved)
		}
	}
}

// TestDecode_RefusesNameRoutedAsAnother refuses a name that reads as one and is routed as another.
func TestDecode_RefusesNameRoutedAsAnother(t *testing.T) {
	t.Parallel()
	n := Name{"org", "ns", "alice", ID{1, 2}}
	if got, err := Decode(n.Encode()); got != n || err != nil {
		t.Errorf("%v %v", got, err)
	}
	for what, spoil := range map[string]func(*dataplane.Name){
		"no words":      func(w *dataplane.Name) { w.StrName = nil },
		"no hashes":     func(w *dataplane.Name) { w.Name = nil },
		"no id":         func(w *dataplane.Name) { w.Name.NameId = nil },
		"another org":   func(w *dataplane.Name) { w.StrName.StrComponent_0 = "gro" },
		"another space": func(w *dataplane.Name) { w.Name.Component_1++ },
		"another agent": func(w *dataplane.Name) { w.StrName.StrComponent_2 = "bob" },
		"a slash":       func(w *dataplane.Name) { w.StrName.StrComponent_2, w.Name.Component_2 = "a/b", Hash("a/b") },
	} {
		w := n.Encode()
		spoil(w)
		var refused *Error
		if got, err := Decode(w); !errors.As(err, &refused) {
			t.Errorf("%s: %v %v", what, got, err)
		}
	}
}

func FuzzParse_Roundtrip(f *testing.F) {
	for _, seed := range []string{"org/ns/alice", "org/ns/a/00000000-0000-0001-0000-000000000002", "//", "a/b/c/d/e", "ü/ü/ü"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := Parse(text)
		if err != nil {
			return
		}
		if again, err := Parse(n.String()); again != n || err != nil {
			t.Errorf("%q becomes %q", text, n)
		}
		if back, err := Decode(n.Encode()); back != n || err != nil {
			t.Errorf("%q comes back as %v %v", text, back, err)
		}
	})
}

func FuzzDecode_KeyMatchesName(f *testing.F) {
	bytes, err := proto.Marshal(Name{"org", "ns", "alice", ID{1, 2}}.Encode())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(bytes)
	f.Fuzz(func(t *testing.T, bytes []byte) {
		w := new(dataplane.Name)
		if proto.Unmarshal(bytes, w) != nil {
			return
		}
		n, err := Decode(w)
		if err != nil {
			return
		}
		if key, err := DecodeKey(w); err != nil || key != n.Key() {
			t.Errorf("%v is routed as %v, %v", n, key, err)
		}
	})
}
