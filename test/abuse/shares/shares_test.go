package shares

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ask has the agent answer a body until ctx ends.
func ask(ctx context.Context, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	Agent(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body)))
	return w
}

// TestAgent_LargeAnswers: all begin at the next beat, and half of them say how long they are.
func TestAgent_LargeAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for word, announced := range map[string]bool{doAnnounced: true, doChunked: false} {
			w := ask(t.Context(), `{"id":7,"method":"`+word+`"}`)
			if late := time.Since(time.Now().Truncate(beat)); late != 0 {
				t.Errorf("%s: it came %s after the beat", word, late)
			}
			if got := w.Header().Get("Content-Length") != ""; got != announced {
				t.Errorf("%s: length announced: %t", word, got)
			}
			var reply struct {
				ID     int
				Result struct{ Content []struct{ Text string } }
			}
			if err := json.Unmarshal(w.Body.Bytes(), &reply); err != nil || reply.ID != 7 || len(reply.Result.Content[0].Text) != answerBytes {
				t.Errorf("%s: %v, id %d", word, err, reply.ID)
			}
			time.Sleep(time.Second)
		}
	})
}

// TestAgent_Streams: a task, then all artifacts at their pace, then nothing.
func TestAgent_Streams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*artifacts*artifactEvery)
		defer cancel()
		text := ask(ctx, `{"id":"x","method":"`+doStream+`"}`).Body.String()
		if got := strings.Count(text, `"artifactUpdate"`); got != artifacts || !strings.HasPrefix(text, `data: {"jsonrpc":"2.0","id":"x","result":{"task":`) {
			t.Errorf("%d artifacts after %.60s", got, text)
		}
		if ctx.Err() == nil {
			t.Error("it ended by itself")
		}
	})
}

// TestAgent_OthersAreNotConcerned: it fails for who asks for that alone.
func TestAgent_OthersAreNotConcerned(t *testing.T) {
	t.Parallel()
	if got := ask(t.Context(), doFail).Code; got != http.StatusInternalServerError {
		t.Errorf("it answers %d", got)
	}
	for _, body := range []string{"quick", strings.Repeat("x", mostAsked) + doFail} {
		if w := ask(t.Context(), body); w.Code != http.StatusOK || w.Body.String() != body {
			t.Errorf("it answers %d %.20s", w.Code, w.Body.String())
		}
	}
}

// TestPace_TogetherAndPaced: what is done together begins one after the other and has a pause between two times, and what is paced
// is made so often.
func TestPace_TogetherAndPaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		times := make(chan int, 100)
		together(ctx, 3, time.Second, func(_ context.Context, n int) { times <- n })
		if len(times) != 6 {
			t.Errorf("three did it %d times in 1.5 s, want twice each", len(times))
		}
		ctx, cancel = context.WithTimeout(t.Context(), 990*time.Millisecond)
		defer cancel()
		times = make(chan int, 100)
		paced(ctx, 45, func(_ context.Context, n int) { times <- n })
		if len(times) != 45 {
			t.Errorf("%d times in a second, want 45", len(times))
		}
	})
}

// TestDripping_EndsWithItsRequest: a body comes piece by piece until its request ends.
func TestDripping_EndsWithItsRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		text, err := io.ReadAll(&dripping{ctx})
		if len(text) < 3 || len(text) > 3*slowPiece || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d bytes, %v", len(text), err)
		}
	})
}

func TestReason_OfErrors(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"connection ended": io.EOF, "connection refused": syscall.ECONNREFUSED, "stream reset": errors.New("stream error: 1"), "no answer": errors.New("late"),
	} {
		if got := why(err); got != want {
			t.Errorf("%v is %q, want %q", err, got, want)
		}
	}
}

// TestNames_AreUnique: each identity has a name and an address of its own.
func TestNames_AreUnique(t *testing.T) {
	t.Parallel()
	seen := []string{"127.0.0.1"}
	for i, name := range Names() {
		if slices.Contains(seen, name) || slices.Contains(seen, Address(i).String()) {
			t.Errorf("%s at %s", name, Address(i))
		}
		seen = append(seen, name, Address(i).String())
	}
}
