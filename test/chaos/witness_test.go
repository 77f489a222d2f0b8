package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
)

func TestWitness_StreamEnds(t *testing.T) {
	t.Parallel()
	const (
		working = `{"jsonrpc":"2.0","id":1,"result":{"statusUpdate":{"status":{"state":"TASK_STATE_WORKING"}}}}`
		done    = `{"jsonrpc":"2.0","id":1,"result":{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}}`
	)
	for name, tc := range map[string]struct {
		stream string
		silent bool
	}{
		"its end":              {"data: " + working + "\n\ndata: " + done + "\n\n", false},
		"its end, CRLF":        {"event: x\r\ndata:" + done + "\r\n\r\n", false},
		"a question":           {`data: {"result":{"task":{"status":{"state":"TASK_STATE_INPUT_REQUIRED"}}}}` + "\n\n", false},
		"a message":            {`data: {"result":{"message":{}}}` + "\n\n", false},
		"an error":             {`data: {"id":1,"error":{"code":-32603}}` + "\n\n", false},
		"a result of MCP":      {`data: {"method":"notifications/progress"}` + "\n\n" + `data: {"id":1,"result":{"content":[]}}` + "\n\n", false},
		"work":                 {"data: " + working + "\n\n", true},
		"work after its end":   {"data: " + done + "\n\ndata: " + working + "\n\n", true},
		"an artifact":          {`data: {"result":{"artifactUpdate":{}}}` + "\n\n", true},
		"progress":             {`data: {"method":"notifications/progress"}` + "\n\n", true},
		"half an end":          {"data: " + working + "\n\ndata: " + done + "\n", true},
		"nothing":              {"", true},
		"something else again": {"data: swordfish\n\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := read(t, http.MethodPost, iotest.OneByteReader(strings.NewReader(tc.stream)))
			if len(got) > 0 != tc.silent {
				t.Errorf("got %v, want %v", got, tc.silent)
			}
		})
	}
	if got := read(t, http.MethodPost, iotest.ErrReader(io.ErrUnexpectedEOF)); len(got) > 0 {
		t.Errorf("a broken stream: %v", got)
	}
	if got := read(t, http.MethodGet, strings.NewReader("")); len(got) > 0 {
		t.Errorf("a listener: %v", got)
	}
}

// TestWitness_AnswersLostWithTheConnection: those alone whose connection broke under them.
func TestWitness_AnswersLostWithTheConnection(t *testing.T) {
	t.Parallel()
	const answer = `{"jsonrpc":"2.0","id":"q","result":{"action":"accept","content":{"answer":"answer k-1"}}}`
	reset := errors.New("reset")
	for name, tc := range map[string]struct {
		sent, key string
		status    int
		err       error
		gaveUp    bool
		want      bool
	}{
		"its connection broke":         {sent: answer, key: "k-1", err: reset, want: true},
		"that of another call":         {sent: answer, key: "k-2", err: reset},
		"it was taken":                 {sent: answer, key: "k-1", status: http.StatusAccepted},
		"it was refused":               {sent: answer, key: "k-1", status: http.StatusServiceUnavailable},
		"its caller gave up":           {sent: answer, key: "k-1", err: context.Canceled, gaveUp: true},
		"a call":                       {sent: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"key":"k-1"}}`, key: "k-1", err: reset},
		"an error instead of a result": {sent: `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"k-1"}}`, key: "k-1", err: reset},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w := &witness{}
			v := &via{witness: w, next: roundTripper(func(*http.Request) (*http.Response, error) {
				if tc.err != nil {
					return nil, tc.err
				}
				return &http.Response{StatusCode: tc.status, Body: http.NoBody, Header: http.Header{}}, nil
			})}
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://x/mcp", strings.NewReader(tc.sent))
			if err != nil {
				t.Fatal(err)
			}
			if tc.gaveUp {
				cancel()
			}
			if resp, err := v.RoundTrip(r); err == nil {
				_ = resp.Body.Close()
			}
			if got := w.wentDown(tc.key); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// read is what a witness says of a stream.
func read(t *testing.T, method string, stream io.Reader) []string {
	t.Helper()
	w := &witness{}
	v := &via{witness: w, next: roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{Body: io.NopCloser(stream), Header: http.Header{"Content-Type": {"text/event-stream"}}}, nil
	})}
	resp, err := v.RoundTrip(httptest.NewRequestWithContext(t.Context(), method, "https://x/a2a", http.NoBody))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	return w.streams()
}
