package translators_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// named is a translator that has a name and refuses everything.
type named canonical.Binding

func (n named) Info() translators.Info { return translators.Info{Binding: canonical.Binding(n)} }

func (n named) Decode(translators.Wire) (*canonical.Message, error) {
	return nil, &translators.MalformedError{Reason: "everything is"}
}

func (n named) Encode(*canonical.Message, translators.Target) (translators.Wire, []canonical.Loss, error) {
	return translators.Wire{}, nil, &canonical.Error{Code: canonical.CodeUnsupportedOp}
}

func TestRegistry_BindingsAndPairs(t *testing.T) {
	t.Parallel()
	r, err := translators.NewRegistry(named("c"), named("a"), named("b"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]canonical.Binding{"c", "a", "b"}, r.Bindings()); diff != "" {
		t.Errorf("bindings (-want +got):\n%s", diff)
	}
	r.Bindings()[0] = "spoiled"
	if r.Bindings()[0] != "c" {
		t.Error("a caller can change the registry")
	}
	if tr, ok := r.Translator("a"); !ok || tr.Info().Binding != "a" {
		t.Errorf("a: got %v %v", tr, ok)
	}
	if _, ok := r.Translator("d"); ok {
		t.Error("d was found")
	}
	want := []translators.Pair{{From: "c", To: "a"}, {From: "c", To: "b"}, {From: "a", To: "c"}, {From: "a", To: "b"}, {From: "b", To: "c"}, {From: "b", To: "a"}}
	if diff := cmp.Diff(want, r.Pairs()); diff != "" {
		t.Errorf("pairs (-want +got):\n%s", diff)
	}
}

func TestRegistry_Refuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		list []translators.Translator
		says string
	}{
		"two of one binding": {[]translators.Translator{named("a"), named("b"), named("a")}, "two translators for a"},
		"a nameless one":     {[]translators.Translator{named("a"), named("")}, "without a binding"},
	} {
		if _, err := translators.NewRegistry(tc.list...); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tc.says)
		}
	}
	empty, err := translators.NewRegistry()
	if err != nil || len(empty.Bindings()) != 0 || len(empty.Pairs()) != 0 {
		t.Errorf("an empty registry: got %v %v", empty, err)
	}
}

func TestMalformedError_TextAndMatching(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err   *translators.MalformedError
		text  string
		large bool
	}{
		"whole":  {&translators.MalformedError{Reason: "truncated JSON", Syntax: true}, "malformed message: truncated JSON", false},
		"placed": {&translators.MalformedError{Path: "/id", Reason: "required"}, "malformed message at /id: required", false},
		"large":  {&translators.MalformedError{Reason: "too long", Large: true}, "malformed message: too long", true},
	} {
		wrapped := fmt.Errorf("door: %w", tc.err)
		if !errors.Is(wrapped, translators.ErrMalformed) {
			t.Errorf("%s: does not match ErrMalformed", name)
		}
		if errors.Is(wrapped, translators.ErrTooLarge) != tc.large {
			t.Errorf("%s: ErrTooLarge: want %v", name, tc.large)
		}
		if tc.err.Error() != tc.text {
			t.Errorf("%s: got %q, want %q", name, tc.err, tc.text)
		}
	}
}

func TestConfig_WithDefaults(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ in, want translators.Config }{
		"zero":      {translators.Config{}, translators.Config{BodyLimit: translators.DefaultBodyLimit, Depth: translators.DefaultDepth}},
		"negative":  {translators.Config{BodyLimit: -1, Depth: -1}, translators.Config{BodyLimit: translators.DefaultBodyLimit, Depth: translators.DefaultDepth}},
		"one given": {translators.Config{Depth: 4}, translators.Config{BodyLimit: translators.DefaultBodyLimit, Depth: 4}},
		"all given": {translators.Config{BodyLimit: 10, Depth: 4}, translators.Config{BodyLimit: 10, Depth: 4}},
	} {
		if got := tc.in.WithDefaults(); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
	}
}

// What is served from where to where, by name and version (R8). named has one
// version, so that nothing is translated between its own.
func TestServes_ByNameAndVersion(t *testing.T) {
	t.Parallel()
	r, err := translators.NewRegistry(named("a"), versions{named("b"), []string{"2", "1"}})
	if err != nil {
		t.Fatal(err)
	}
	for pair, want := range map[string]bool{
		"a b": true, "b a": true, "a b@1": true, "b@2 a": true, "b b": true, "b b@1": true, "b@1 b@2": true,
		"a a": false, "b@1 b@1": false, "b@3 a": false, "a b@3": false, "a c": false, "c c": false, " ": false, "a ": false,
	} {
		from, to, _ := strings.Cut(pair, " ")
		if got := r.Serves(translators.ParseSide(from), translators.ParseSide(to)); got != want {
			t.Errorf("%s: got %v", pair, got)
		}
	}
	want := [][2]translators.Side{{{"b", "2"}, {"b", "1"}}, {{"b", "1"}, {"b", "2"}}}
	if diff := cmp.Diff(want, r.VersionPairs()); diff != "" {
		t.Error(diff)
	}
}

// versions is a translator of several versions.
type versions struct {
	translators.Translator
	list []string
}

func (v versions) Info() translators.Info {
	info := v.Translator.Info()
	info.Versions = v.list
	return info
}

// counted hashes a body as itself without blanks, and counts how often.
type counted struct{ times *int }

func (counted) HashForm() string { return "without-blanks" }

func (c counted) HashInput(body []byte) ([]byte, error) {
	if *c.times++; len(body) == 0 {
		return nil, &translators.MalformedError{Reason: "empty"}
	}
	return bytes.ReplaceAll(body, []byte(" "), nil), nil
}

// TestHashed_OncePerBody: the bytes of a message are found out once, and those of another
// body anew.
func TestHashed_OncePerBody(t *testing.T) {
	t.Parallel()
	times := 0
	w := translators.Wire{Body: []byte("a b"), Hasher: counted{&times}}.Hashed().Hashed()
	if got := string(w.HashInput()) + string(w.HashInput()); got != "abab" || times != 1 || w.Hasher.HashForm() != "without-blanks" {
		t.Errorf("got %s after %d times", got, times)
	}
	for _, body := range []string{"a b", "c d", "e"} {
		if w.Body = []byte(body); string(w.HashInput()) != strings.ReplaceAll(body, " ", "") {
			t.Errorf("%s: got %s", body, w.HashInput())
		}
	}
	if times != 4 {
		t.Errorf("hashed %d times", times)
	}
	if plain := (translators.Wire{Body: []byte("a b")}).Hashed(); plain.Hasher != nil || string(plain.HashInput()) != "a b" {
		t.Errorf("got %+v", plain)
	}
	if none := (translators.Wire{Hasher: counted{&times}}).Hashed(); len(none.HashInput()) != 0 {
		t.Errorf("got %q of nothing", none.HashInput())
	}
}
