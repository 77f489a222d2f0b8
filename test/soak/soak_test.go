package main

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestLong_TwoMinutes is the soak in its short form.
func TestLong_TwoMinutes(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s, err := run(t.Context(), []string{"--time", "2m", "--part", "mixed"}, &out, io.Discard)
	t.Logf("\n%s", out.String())
	if err != nil || !s.Flat {
		t.Error(err)
	}
}

// TestSend_UnexpectedAnswerIsAnError: what is not expected to the letter is an error.
func TestSend_UnexpectedAnswerIsAnError(t *testing.T) {
	t.Parallel()
	r, err := assemble(t.Context(), t.TempDir(), shortest)
	t.Cleanup(func() {
		if err := r.stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]letter{
		"another status": {method: "GET", path: "/nonesuch"},
		"another body":   {method: "GET", path: "/.well-known/aepb", says: []string{"nonesuch"}},
		"no refusal":     {method: "GET", path: "/.well-known/aepb", status: 403},
	} {
		var wrong *wrongError
		if _, err := r.send(t.Context(), l); !errors.As(err, &wrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s, err := r.sample(t.Context()); err != nil || s.RSS < 1000 || s.Goroutines < 2 || s.Files < 5 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestUsage_Errors(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--time", "1s"}, {"--pace", "0"}, {"--streams", "0"}, {"--rate", "0"}, {"--part", "nonesuch"}, {"x"}, {"--nonesuch"}} {
		if _, err := run(t.Context(), args, io.Discard, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%v: %v", args, err)
		}
	}
}
