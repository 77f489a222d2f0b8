package inflight_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport/inflight"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// serving is a server whose callers are known by the field Caller, over HTTP/1.1
// and HTTP/2.
func serving(t *testing.T, l *inflight.Limits, answer http.HandlerFunc) map[string]*caller {
	t.Helper()
	out := map[string]*caller{}
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		s := httptest.NewUnstartedServer(l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := inflight.Admit(wrapped{w}, r, r.Header.Get("Caller"), true); err != nil {
				problem.Write(w, r, err)
				return
			}
			answer(w, r)
		})))
		s.EnableHTTP2 = version == "HTTP/2.0"
		s.StartTLS()
		t.Cleanup(s.Close)
		out[version] = &caller{t, s}
	}
	return out
}

// wrapped is a writer as a router wraps it.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

type caller struct {
	t *testing.T
	s *httptest.Server
}

func (c *caller) do(who string, body io.Reader, length int64) (*http.Response, error) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.s.URL, body)
	if err != nil {
		c.t.Fatal(err)
	}
	r.ContentLength = length
	r.Header.Set("Caller", who)
	return c.s.Client().Do(r)
}

// ask sends a body and reads the answer.
func (c *caller) ask(who string, body io.Reader, length int64) (int, []byte, error) {
	c.t.Helper()
	got, err := c.do(who, body, length)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = got.Body.Close() }()
	text, err := io.ReadAll(got.Body)
	return got.StatusCode, text, err
}

// reading answers with how much came, or with why it was refused.
func reading(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4<<20))
	if err != nil {
		problem.Write(w, r, problem.Reading(err))
		return
	}
	_, _ = io.WriteString(w, strconv.Itoa(len(body)))
}

func TestHandler_BodiesTakeTheirLength(t *testing.T) {
	t.Parallel()
	for version, c := range serving(t, newLimits(t, small()), reading) {
		for _, tc := range []struct {
			name   string
			size   int
			length bool
			status int
		}{
			{"none", 0, true, http.StatusOK},
			{"small", 10, true, http.StatusOK},
			{"the whole share", 1 << 20, true, http.StatusOK},
			{"more than the share", 1<<20 + 1, true, http.StatusTooManyRequests},
			{"small, of no known length", 10, false, http.StatusOK},
			{"grown, of no known length", 300 << 10, false, http.StatusOK},
			{"more than the share, of no known length", 2 << 20, false, http.StatusTooManyRequests},
		} {
			for range 3 { // what was taken is given back
				var body io.Reader = bytes.NewReader(make([]byte, tc.size))
				length := int64(tc.size)
				if !tc.length {
					body, length = io.MultiReader(body), -1
				}
				status, text, err := c.ask("a", body, length)
				if err != nil && tc.status == http.StatusOK || err == nil && status != tc.status {
					t.Errorf("%s, %s: %d %s %v, want %d", version, tc.name, status, text, err, tc.status)
				}
				if status == http.StatusOK && string(text) != strconv.Itoa(tc.size) {
					t.Errorf("%s, %s: %s bytes came", version, tc.name, text)
				}
			}
		}
	}
}

// A body that is over the share is refused before it is asked for.
func TestHandler_RefusesBeforeTheBodyIsSent(t *testing.T) {
	t.Parallel()
	for version, c := range serving(t, newLimits(t, small()), reading) {
		request := &atomic.Bool{}
		r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { request.Store(true) }}),
			http.MethodPost, c.s.URL, bytes.NewReader(make([]byte, 2<<20)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Expect", "100-continue")
		if transport, ok := c.s.Client().Transport.(*http.Transport); ok {
			transport.ExpectContinueTimeout = time.Minute
		}
		got, err := c.s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = got.Body.Close()
		if got.StatusCode != http.StatusTooManyRequests || got.Header.Get("Retry-After") == "" || request.Load() {
			t.Errorf("%s: %d, the body was asked for: %v", version, got.StatusCode, request.Load())
		}
	}
}

// A body that stops ends soon, one that is slow and moves does not.
func TestHandler_BodiesMustMove(t *testing.T) {
	t.Parallel()
	for version, c := range serving(t, newLimits(t, small()), reading) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			in, out := io.Pipe()
			begun := time.Now()
			go func() { _, _ = out.Write(make([]byte, 100<<10)) }()
			status, _, err := c.ask("a", in, 200<<10)
			_ = in.Close()
			if took := time.Since(begun); err == nil && status == http.StatusOK || took > 5*time.Second {
				t.Errorf("a body that stopped: %d, %v, after %v", status, err, took)
			}
			in, out = io.Pipe()
			go func() {
				tick := time.NewTicker(100 * time.Millisecond)
				defer tick.Stop()
				for range 10 {
					<-tick.C
					_, _ = out.Write(make([]byte, 4<<10))
				}
				_ = out.Close()
			}()
			if status, text, err := c.ask("b", in, 40<<10); err != nil || status != http.StatusOK {
				t.Errorf("a body that moves: %d %s %v", status, text, err)
			}
		})
	}
}

// An answer for which there is no room is refused while nothing of it is out, and
// breaks off visibly after that.
func TestHandler_AnswersTakeTheirLength(t *testing.T) {
	t.Parallel()
	answers := map[string]struct {
		answer http.HandlerFunc
		status int // 0: it breaks off
	}{
		"small":                     {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 100)) }, http.StatusOK},
		"large":                     {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) }, http.StatusOK},
		"too large":                 {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 2<<20)) }, http.StatusBadGateway},
		"too large, of this length": {func(w http.ResponseWriter, _ *http.Request) { length(w, 2<<20) }, http.StatusBadGateway},
		"no body":                   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }, http.StatusAccepted},
		"nothing at all":            {func(http.ResponseWriter, *http.Request) {}, http.StatusOK},
		"too large, in the middle": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, 100))
			if _, err := w.Write(make([]byte, 2<<20)); err == nil {
				t.Error("more than the share was written")
			}
			_, _ = w.Write(make([]byte, 100))
		}, 0},
		"parts that are each no more than the share": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			for range 4 {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					t.Error(err)
				}
			}
		}, http.StatusOK},
	}
	for name, tc := range answers {
		for version, c := range serving(t, newLimits(t, small()), tc.answer) {
			for range 3 {
				status, _, err := c.ask("a", http.NoBody, 0)
				if tc.status == 0 && err == nil || tc.status != 0 && (err != nil || status != tc.status) {
					t.Errorf("%s, %s: %d %v, want %d", version, name, status, err, tc.status)
				}
			}
		}
	}
}

// length answers with a body whose length stands in the header.
func length(w http.ResponseWriter, n int) {
	w.Header().Set("Content-Length", strconv.Itoa(n))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(make([]byte, n))
}

// Over HTTP/2 a reader may read its connection and leave one answer alone.
func TestHandler_AnAnswerThatIsNotReadEnds(t *testing.T) {
	t.Parallel()
	limits := small()
	limits.Bytes, limits.BytesPerCaller = 128<<20, 32<<20
	ended := make(chan error, 1)
	c := serving(t, newLimits(t, limits), func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Caller") == "reader" {
			_, _ = io.WriteString(w, "ok")
			return
		}
		_, err := w.Write(make([]byte, 16<<20))
		ended <- err
	})["HTTP/2.0"]
	got, err := c.do("a", http.NoBody, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = got.Body.Close() }()
	if status, text, err := c.ask("reader", http.NoBody, 0); err != nil || status != http.StatusOK || string(text) != "ok" {
		t.Errorf("another answer on the same connection: %d %s %v", status, text, err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("an answer was written that its client did not read")
		}
	case <-time.After(5 * time.Second):
		t.Error("an answer that its client does not read is not ended")
	}
	if n, err := io.Copy(io.Discard, got.Body); err == nil {
		t.Errorf("%d bytes came as a whole answer", n)
	}
}

// What takes a connection over has it as it is, and counts as a stream.
func TestHandler_HandsConnectionsOver(t *testing.T) {
	t.Parallel()
	limits := small()
	limits.RequestsPerCaller = 1
	l := newLimits(t, limits)
	c := serving(t, l, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack() //nolint:forcetypeassert // a test
		if err != nil {
			t.Error(err)
			return
		}
		other, err := l.Begin(r.Header.Get("Caller"), true)
		if err != nil {
			t.Errorf("a connection that was taken over counts as a request: %v", err)
		} else {
			other.End()
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
		_ = conn.Close()
	})["HTTP/1.1"]
	if status, text, err := c.ask("a", http.NoBody, 0); err != nil || status != http.StatusOK || string(text) != "ok" {
		t.Errorf("%d %s %v", status, text, err)
	}
}

// Without a Handler around nothing is bounded, and a request is admitted once.
func TestAdmit_WithoutAHandler(t *testing.T) {
	t.Parallel()
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x"))
	before := r.Body
	if err := inflight.Admit(w, r, "a", true); err != nil || r.Body != before {
		t.Errorf("%v", err)
	}
	limits := small()
	limits.RequestsPerCaller = 1
	newLimits(t, limits).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 2 {
			if err := inflight.Admit(w, r, "a", true); err != nil {
				t.Error(err)
			}
		}
		_ = r.Body.Close()
	})).ServeHTTP(w, r)
	exceeded := &quota.ExceededError{}
	if err := problem.Reading(exceeded); !errors.Is(err, exceeded) {
		t.Errorf("reading says %v", err)
	}
}
