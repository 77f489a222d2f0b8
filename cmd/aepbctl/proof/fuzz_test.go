package proof_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"path"
	"slices"
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

// packed is an archive with files in this order.
func packed(tb testing.TB, headers ...tar.Header) []byte {
	tb.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	in := tar.NewWriter(zip)
	for i := range headers {
		if err := in.WriteHeader(&headers[i]); err != nil {
			tb.Fatal(err)
		}
		if _, err := in.Write(make([]byte, headers[i].Size)); err != nil {
			tb.Fatal(err)
		}
	}
	if err := errors.Join(in.Close(), zip.Close()); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

// TestAttack_Reader_Archives: an archive cannot cost much, name one file twice, or hold something else than files.
func TestAttack_Reader_Archives(t *testing.T) {
	t.Parallel()
	const many = 10_001
	for name, c := range map[string]struct {
		headers []tar.Header
		want    string
	}{
		"two names of one file": {[]tar.Header{{Name: "manifest.json"}, {Name: "x/../manifest.json"}}, "manifest.json is twice in it"},
		"link":                  {[]tar.Header{{Name: "manifest.json", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}}, "is no regular file"},
		"device":                {[]tar.Header{{Name: "manifest.json", Typeflag: tar.TypeChar}}, "is no regular file"},
		"bomb":                  {[]tar.Header{{Name: "a", Size: 1}, {Name: "b", Size: 256 << 20}}, "more than 10000 files or 256 MiB"},
		"files":                 {slices.Repeat([]tar.Header{{Name: "a"}}, 2), "is twice in it"},
		"folders":               {slices.Repeat([]tar.Header{{Name: "d/", Typeflag: tar.TypeDir}}, 57*many), "more than 10000 files or 256 MiB"},
		"terminal":              {[]tar.Header{{Name: "\x1b[2Jx", Typeflag: tar.TypeFifo}}, `"\x1b[2Jx" in it is no regular file`},
	} {
		_, err := proof.Reader{Stdin: bytes.NewReader(packed(t, c.headers...))}.Read(nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestAttack_Reader_FindingsAreBounded: a file of members that nothing can compare does not fill the memory.
func TestAttack_Reader_FindingsAreBounded(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&text, `"x%d":1,`, i)
	}
	in, err := proof.Reader{Stdin: strings.NewReader("{" + text.String() + `"ects":["a.b.c"]}`)}.Read(nil)
	if err != nil || len(in.Findings) != 1001 || !strings.Contains(in.Findings[1000].Text, "more than 1000 findings") {
		t.Errorf("%d findings, %v", len(in.Findings), err)
	}
}

// FuzzReader_Unpack: whatever the files of a folder hold, and whatever they are called, they are read or refused.
func FuzzReader_Unpack(f *testing.F) {
	list := `{"format":"aepb-evidence/1","made":"2026-11-29T08:00:00Z","by":"x","workflows":[],"files":[{"name":"messages/a","bytes":1,"sha256":"00"},{"name":"messages/a","role":"reply","bytes":1,"sha256":""}]}`
	f.Add(list, "a.b.c", "messages/a", "reply")
	f.Add("{}", "", "../manifest.json", "{}")
	f.Add(list, "a.b.c a.b.c", "messages/\x1b[2J", "")
	f.Fuzz(func(t *testing.T, list, tokens, name, body string) {
		var out bytes.Buffer
		zip := gzip.NewWriter(&out)
		in := tar.NewWriter(zip)
		for _, file := range [][2]string{{"manifest.json", list}, {"tokens.jwt", tokens}, {name, body}} {
			if err := in.WriteHeader(&tar.Header{Name: file[0], Size: int64(len(file[1]))}); err != nil {
				return // tar cannot hold this name
			}
			if _, err := in.Write([]byte(file[1])); err != nil {
				return // tar cannot hold this file
			}
		}
		if err := errors.Join(in.Close(), zip.Close()); err != nil {
			return // tar cannot hold this file
		}
		read, err := proof.Reader{Stdin: &out}.Read(nil)
		if err == nil && len(read.Findings) == 0 && (len(read.Tokens) == 0 || len(read.Messages) == 0 && path.Clean(name) != "ca.pem") {
			t.Errorf("read %d tokens and %d messages, and found nothing", len(read.Tokens), len(read.Messages))
		}
	})
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
	summary := func(string, []byte) ([]byte, error) { return []byte(`{"state":"completed","answer":[]}`), nil }
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
