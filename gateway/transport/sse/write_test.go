package sse_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/sse"
)

// A stream on which nothing is said stays alive, and says nothing once it is over.
func TestASilentStreamIsAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		s := sse.NewWriter(w, "Execution-Context")
		said := func() string {
			synctest.Wait()
			out := w.Body.String()
			w.Body.Reset()
			return out
		}
		time.Sleep(61 * time.Second)
		if got := said(); got != strings.Repeat(":\n\n", 4) {
			t.Errorf("after a minute: %q", got)
		}
		for range 5 { // who speaks need not say that he lives
			time.Sleep(12 * time.Second)
			if err := s.Send([]byte("{\r\n1\r}")); err != nil {
				t.Fatal(err)
			}
		}
		if got := said(); got != strings.Repeat("data: {\ndata: 1}\n\n", 5) {
			t.Errorf("while it speaks: %q", got)
		}
		s.Name("message")
		s.Close([]string{"a.b.c"})
		_ = s.Send([]byte("x"))
		s.Stop()
		time.Sleep(time.Hour)
		if got := said(); got != "event: message\ndata: x\n\n" {
			t.Errorf("after its end: %q", got)
		}
		if got := w.Header().Get("Execution-Context"); got != "a.b.c" {
			t.Errorf("closed with %q", got)
		}
	})
}
