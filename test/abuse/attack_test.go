package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestPaced_LateRunsKeepTheSchedule: the n-th time is n paces after the first, also when one of them was late.
func TestPaced_LateRunsKeepTheSchedule(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 95*time.Millisecond)
		defer cancel()
		times := 0
		paced(ctx, 10*time.Millisecond, func(n int) {
			if times++; n == 2 {
				time.Sleep(35 * time.Millisecond)
			}
		})
		if times != 10 {
			t.Errorf("%d times, want 10", times)
		}
	})
}

func TestClass_OfStatusAnswerAndError(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{200: "2xx", 202: "2xx", 400: "4xx", 413: "413", 429: "429", 500: "5xx", 503: "5xx"} {
		if got := classOf(status); got != want {
			t.Errorf("%d is %s, want %s", status, got, want)
		}
	}
	for text, want := range map[string]string{
		`{"jsonrpc":"2.0","id":"1","error":{"code":-32602}}`: classError, `{"jsonrpc":"2.0","id":"1","result":{}}`: classTaken, "": classTaken,
	} {
		if got := classOfAnswer(&http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(text))}); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	if got := classOfError(context.DeadlineExceeded); got != classSlow {
		t.Errorf("a deadline is %s", got)
	}
	if got := classOfError(errors.New("reset")); got != classBroken {
		t.Errorf("a broken connection is %s", got)
	}
}

// TestStrangers_HaveTheirOwnAddresses: each has an address of its own, and none is that of the good caller.
func TestStrangers_HaveTheirOwnAddresses(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{"127.0.0.1": true}
	for n := range strangers {
		address := stranger(n).IP
		if seen[address.String()] || !address.IsLoopback() {
			t.Errorf("stranger %d is %s", n, address)
		}
		seen[address.String()] = true
	}
}

// TestHolder_KeepsTheNewest: the newest stay, and in the end none.
func TestHolder_KeepsTheNewest(t *testing.T) {
	t.Parallel()
	h := &holder{most: 2}
	var ended []string
	for _, name := range []string{"a", "b", "c"} {
		h.hold(func() { ended = append(ended, name) })
	}
	if strings.Join(ended, "") != "a" {
		t.Errorf("ended early: %q", ended)
	}
	h.release()
	h.release()
	if strings.Join(ended, "") != "abc" {
		t.Errorf("ended: %q", ended)
	}
}

// TestStays_OpenAndEndedConnections tells a connection that the other side ended from one that it keeps.
func TestStays_OpenAndEndedConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		if !stays(here) {
			t.Error("an open connection is taken for one that ended")
		}
		_ = there.Close()
		if stays(here) {
			t.Error("a connection that ended is taken for an open one")
		}
		_ = here.Close()
	})
}

// TestUnfinished_BodyBlocksUntilClosed: a body gives what it has and then nothing, until it is closed.
func TestUnfinished_BodyBlocksUntilClosed(t *testing.T) {
	t.Parallel()
	body := &unfinished{Reader: strings.NewReader("half"), sent: make(chan struct{}), closed: make(chan struct{})}
	read := make(chan string, 1)
	go func() {
		text, err := io.ReadAll(body)
		read <- string(text) + " " + err.Error()
	}()
	<-body.sent
	select {
	case got := <-read:
		t.Fatalf("it ended with %q", got)
	default:
	}
	for range 2 {
		if err := body.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := <-read; got != "half unexpected EOF" {
		t.Errorf("got %q", got)
	}
}

// TestAnswer_HeldUnread: an answer that was taken is held without being read, and
// one that was refused is not.
func TestAnswer_HeldUnread(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{200: classHeld, 403: classRefused} {
		h := &holder{most: 1}
		body := &unfinished{Reader: strings.NewReader(""), sent: make(chan struct{}), closed: make(chan struct{})}
		via := &http.Client{Transport: answering{&http.Response{StatusCode: status, Body: body}}}
		ctx, stop := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://gateway.invalid/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if got := keep(h, via, req, stop); got != want {
			t.Errorf("%d is %s, want %s", status, got, want)
		}
		if waits := ctx.Err() == nil; waits != (want == classHeld) {
			t.Errorf("%d: held %t", status, waits)
		}
		h.release()
		<-body.closed
	}
}

// answering answers every request in one way.
type answering struct{ with *http.Response }

func (a answering) RoundTrip(*http.Request) (*http.Response, error) { return a.with, nil }
