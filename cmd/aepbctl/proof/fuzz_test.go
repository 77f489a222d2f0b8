package proof_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/proof"
	"github.com/aepb/aepb-gateway/ect/audit"
)

// archive is an archive of evidence that is not signed well.
func archive(tb testing.TB) []byte {
	tb.Helper()
	var out bytes.Buffer
	contents := proof.Contents{
		Tokens: []string{"a.b.c", "d.e.f"}, Messages: []proof.Message{{Name: "reply", Role: audit.ReplyRole, Body: []byte("{}")}}, Made: time.Unix(1e9, 0),
		Sign: func([]byte) (string, error) { return "g.h.i", nil },
	}
	if err := contents.WriteArchive(&out); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

// FuzzReader_Read: whatever is given is read or refused, and read the same each time.
func FuzzReader_Read(f *testing.F) {
	f.Add(archive(f))
	for _, text := range []string{
		"a.b.c\n d.e.f", `["a.b.c"]`, `[{"compact":"a.b.c","iss":"x","ext":{"a":1}}]`, `{"wid":"1","ects":["a.b.c"],"next":"x"}`,
		`{"workflow":"w","from":"a2a-v1","state":"completed","answer":[],"request":{},"reply":{"a":1e400},"exact":{"request":"{}","reply":{"base64":"AA=="}},"losses":["L01"],"ects":["a.b.c","a.b.c"]}`,
		`{"ok":true,"exchanges":[{"ects":["a.b.c"]}]}`, `[[[[[["a.b.c"]]]]]]`, "{}", "[", "\x1f\x8b", "",
	} {
		f.Add([]byte(text))
	}
	summary := func(_ string, reply []byte) ([]byte, error) { return []byte(`{"state":"completed","answer":[]}`), nil }
	f.Fuzz(func(t *testing.T, data []byte) {
		read := func() (proof.Input, string) {
			in, err := proof.Reader{Stdin: bytes.NewReader(data), Summary: summary}.Read(nil)
			if err != nil {
				return in, err.Error()
			}
			return in, ""
		}
		one, err := read()
		other, again := read()
		if err != again || len(one.Tokens) != len(other.Tokens) || len(one.Findings) != len(other.Findings) {
			t.Errorf("read twice: %d tokens, %v; %d tokens, %v", len(one.Tokens), err, len(other.Tokens), again)
		}
		if err == "" && len(one.Tokens) == 0 && !strings.HasPrefix(string(data), "\x1f\x8b") {
			t.Error("it was read, and holds no token")
		}
	})
}

// TestReader_Tokens: tokens are read from all that this program and the gateway print, and from nothing that an agent wrote.
func TestReader_Tokens(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a.b.c\n d.e.f": "a.b.c d.e.f",
		`[{"compact":"a.b.c"},{"compact":"d.e.f"}]`: "a.b.c d.e.f",
		`["a.b.c"]`:           "a.b.c",
		`{"compact":"a.b.c"}`: "a.b.c",
		"{\"compact\":\"a.b.c\"}\n{\"compact\":\"d.e.f\"}":                                        "a.b.c d.e.f",
		`{"reply":{"compact":"x.y.z","ects":["x.y.z"]},"losses":[],"ects":[{"compact":"a.b.c"}]}`: "a.b.c",
		`{"wid":"1","ects":["a.b.c"]}`:                                                            "a.b.c",
		`{"ok":true,"exchanges":[{"ects":["a.b.c"]}]}`:                                            "a.b.c",
		`{"hello":1}`: "no token",
		`[{]`:         "cannot be read",
		"":            "no token",
	} {
		in, err := proof.Reader{Stdin: strings.NewReader(text)}.Read(nil)
		got := strings.Join(in.Tokens, " ")
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || err == nil && got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestReader_Bounds: what is too much costs little, and is refused.
func TestReader_Bounds(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("ey.b.c ", 20_001)
	if _, err := (proof.Reader{Stdin: strings.NewReader(many)}).Read(nil); err == nil || !strings.Contains(err.Error(), "at most 20000 are judged at once") {
		t.Errorf("too many tokens: %v", err)
	}
}

// TestReader_ArchiveIsReadToItsEnd: what stands behind the last file of an archive is not passed over.
func TestReader_ArchiveIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	whole := archive(t)
	read := func(data []byte) error {
		_, err := proof.Reader{Stdin: bytes.NewReader(data)}.Read(nil)
		return err
	}
	if err := read(whole); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"a second archive": append(bytes.Clone(whole), whole...),
		"text":             append(bytes.Clone(whole), "paid"...),
		"cut":              whole[:len(whole)-9],
	} {
		if err := read(data); err == nil {
			t.Errorf("%s: it was read", name)
		}
	}
}
