package sse_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/sse"
)

// A stream on which nothing is said stays alive, and says nothing once it is over.
func TestWriter_KeepsSilentStreamAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		s := sse.NewWriter(w, "Execution-Context")
		answer := func() string {
			synctest.Wait()
			out := w.Body.String()
			w.Body.Reset()
			return out
		}
		time.Sleep(61 * time.Second)
		if got := answer(); got != strings.Repeat(":\n\n", 4) {
			t.Errorf("after a minute: %q", got)
		}
		for range 5 { // who speaks need not say that he lives
			time.Sleep(12 * time.Second)
			if err := s.Send([]byte("{\r\n1\r}")); err != nil {
				t.Fatal(err)
			}
		}
		if got := answer(); got != strings.Repeat("data: {\ndata: 1}\n\n", 5) {
			t.Errorf("while it speaks: %q", got)
		}
		s.Name("message")
		s.Close([]string{"a.b.c"})
		_ = s.Send([]byte("x"))
		s.Stop()
		time.Sleep(time.Hour)
		if got := answer(); got != "event: message\ndata: x\n\n" {
			t.Errorf("after its end: %q", got)
		}
		if got := w.Header().Get("Execution-Context"); got != "a.b.c" {
			t.Errorf("closed with %q", got)
		}
	})
}

// TestWriter_TrailerSaysWhatTheHeaderDoesNot: the header's evidence is not said again where a stream
// ends without evidence of its own: Go's client refuses a trailer of more than 4 KiB, and with it what
// the stream said.
func TestWriter_TrailerSaysWhatTheHeaderDoesNot(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Execution-Context", strings.Repeat("x", 5000))
		s := sse.NewWriter(w, "Execution-Context")
		defer s.Stop()
		_ = s.Send([]byte("no"))
	}))
	t.Cleanup(server.Close)
	response, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || string(body) != "data: no\n\n" || len(response.Header.Get("Execution-Context")) != 5000 || response.Trailer.Get("Execution-Context") != "" {
		t.Errorf("read is %q, %v, in the trailer %v", body, err, response.Trailer)
	}
}
