package mcp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/transport"
	tmcp "github.com/aepb/aepb-gateway/gateway/transport/mcp"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// sessionFor is a keeper over the real entries.
type stored struct{ *state.Entries }

func newKept(t testing.TB, now func() time.Time) stored {
	t.Helper()
	memory, err := state.New(state.Config{}, state.Deps{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return stored{memory.Entries()}
}

func (k stored) Get(ctx context.Context, group, id string) ([]byte, uint64, bool, error) {
	e, ok, err := k.Entries.Get(ctx, state.EntryKey{Kind: "session", Group: group, ID: id})
	return e.Value, e.Revision, ok, err
}

func (k stored) Swap(ctx context.Context, group, id string, old uint64, value []byte, until time.Time) (bool, error) {
	_, ok, err := k.Entries.Swap(ctx, state.EntryKey{Kind: "session", Group: group, ID: id}, old, value, until)
	return ok, err
}

func (k stored) Delete(ctx context.Context, group, id string) error {
	return k.Entries.Delete(ctx, state.EntryKey{Kind: "session", Group: group, ID: id})
}

func (k stored) All(ctx context.Context, group string, limit int) (map[string][]byte, error) {
	entries, err := k.List(ctx, "session", group, "", limit)
	all := map[string][]byte{}
	for _, entry := range entries {
		all[entry.Key.ID] = entry.Value
	}
	return all, err
}

// clock is set by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) time() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now }

func (c *clock) add(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.now = c.now.Add(d) }

// notifying is a road that answers with a stream.
type notifying struct {
	handler
	mu     sync.Mutex
	calls  []transport.Call
	says   []string
	broken error
	waits  bool // after what it says, until its caller is gone
	closed int
}

func (r *notifying) Exchange(_ context.Context, c transport.Call) (transport.Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
	if len(r.says) == 0 {
		return transport.Answer{}, nil
	}
	return transporttest.Stream(&script{handler: r}, "open.e.s"), nil
}

type script struct {
	handler *notifying
	at      int
}

func (s *script) Next(ctx context.Context) (transport.Event, error) {
	s.at++
	switch {
	case s.at <= len(s.handler.says):
		return transport.Event{Wire: translators.Wire{Event: true, Body: []byte(s.handler.says[s.at-1])}}, nil
	case s.handler.waits:
		<-ctx.Done()
		return transport.Event{}, ctx.Err()
	case s.handler.broken != nil:
		return transport.Event{}, s.handler.broken
	case s.at == len(s.handler.says)+1:
		return transport.Event{Evidence: []string{"close.e.s"}}, nil
	}
	return transport.Event{}, io.EOF
}

func (s *script) Close() error {
	s.handler.mu.Lock()
	defer s.handler.mu.Unlock()
	s.handler.closed++
	return nil
}

// building is a door over a real connection.
type building struct {
	*httptest.Server
	server *tmcp.Server
	clock  *clock
}

func newBuilding(t *testing.T, r transport.Handler) *building {
	t.Helper()
	c := &clock{now: time.Unix(1_000_000, 0)}
	endpoint, err := tmcp.NewServer(tmcp.ServerDeps{Form: mcp.New(translators.Config{}), Keeper: newKept(t, c.time), Now: c.time})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/agents/{agent}/mcp", endpoint.Handler(r))
	h := &building{httptest.NewServer(mux), endpoint, c}
	t.Cleanup(h.Close)
	return h
}

func (h *building) do(t *testing.T, method, session, body string, more ...string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, h.URL+"/agents/chef/mcp", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		request.Header.Set("Mcp-Session-Id", session)
	}
	for i := 0; i < len(more); i += 2 {
		request.Header.Set(more[i], more[i+1])
	}
	response, err := h.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		content = append(content, "BROKEN"...)
	}
	return response, string(content)
}

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"c","version":"1"}}}`

func TestSession_Lifecycle(t *testing.T) {
	t.Parallel()
	r := &notifying{handler: handler{description: chef()}, says: []string{`{"jsonrpc":"2.0","id":2,"result":{"content":[]}}`}}
	h := newBuilding(t, r)
	first, _ := h.do(t, http.MethodPost, "", hello)
	id := first.Header.Get("Mcp-Session-Id")
	if first.StatusCode != http.StatusOK || len(id) < 20 {
		t.Fatalf("got %d, session %q", first.StatusCode, id)
	}
	call := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}}`
	if got, text := h.do(t, http.MethodPost, id, call); got.StatusCode != http.StatusOK {
		t.Fatalf("got %d %s", got.StatusCode, text)
	}
	c := r.calls[0]
	if c.Session != id || !c.Detached || c.Wire.Version != mcp.Legacy || !slices.Equal(c.CanAnswer, []canonical.Mode{canonical.ModeForm}) {
		t.Errorf("the call: %+v", c)
	}
	if got, _ := h.do(t, http.MethodPost, id, `{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}`); got.StatusCode != http.StatusOK && got.StatusCode != http.StatusAccepted {
		t.Errorf("an answer: %d", got.StatusCode)
	}
	if len(r.calls) != 2 || r.calls[1].Session != id {
		t.Errorf("the answer did not pass: %+v", r.calls)
	}
	for range 5 { // used, it lives on
		h.clock.add(20 * time.Minute)
		if got, text := h.do(t, http.MethodPost, id, `{"jsonrpc":"2.0","id":3,"method":"ping"}`); got.StatusCode != http.StatusOK {
			t.Fatalf("got %d %s", got.StatusCode, text)
		}
	}
	for name, status := range map[string]int{"unknown": 404, strings.Repeat("x", 100): 404} {
		if got, _ := h.do(t, http.MethodPost, name, call); got.StatusCode != status {
			t.Errorf("session %s: got %d", name, got.StatusCode)
		}
	}
	if got, _ := h.do(t, http.MethodDelete, id, "", "Origin", "https://evil.example"); got.StatusCode != http.StatusForbidden {
		t.Errorf("from elsewhere: %d", got.StatusCode)
	}
	if got, _ := h.do(t, http.MethodDelete, id, ""); got.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE: %d", got.StatusCode)
	}
	if got, _ := h.do(t, http.MethodPost, id, call); got.StatusCode != http.StatusNotFound {
		t.Errorf("after its end: %d", got.StatusCode)
	}
	second, _ := h.do(t, http.MethodPost, "", hello)
	h.clock.add(31 * time.Minute)
	if got, _ := h.do(t, http.MethodPost, second.Header.Get("Mcp-Session-Id"), call); got.StatusCode != http.StatusNotFound {
		t.Errorf("idle: %d", got.StatusCode)
	}
	modern, _ := h.do(t, http.MethodGet, id, "", "Mcp-Protocol-Version", mcp.Modern)
	if modern.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("modern GET: %d", modern.StatusCode)
	}
}

// TestSession_LeastRecentlyUsedEnds: a caller with as many sessions as it may have begins another,
// and the one that was not used for longest ends.
func TestSession_LeastRecentlyUsedEnds(t *testing.T) {
	t.Parallel()
	const ping = `{"jsonrpc":"2.0","id":3,"method":"ping"}`
	h := newBuilding(t, &notifying{handler: handler{description: chef()}})
	begin := func() string {
		h.clock.add(time.Second)
		got, text := h.do(t, http.MethodPost, "", hello)
		id := got.Header.Get("Mcp-Session-Id")
		if id == "" {
			t.Fatalf("no session: %d %s", got.StatusCode, text)
		}
		return id
	}
	var ids []string
	for range tmcp.DefaultSessions {
		ids = append(ids, begin())
	}
	h.clock.add(6 * time.Minute)
	if got, text := h.do(t, http.MethodPost, ids[0], ping); got.StatusCode != http.StatusOK {
		t.Errorf("the first, before there are too many: %d %s", got.StatusCode, text)
	}
	ids = append(ids, begin(), begin())
	for i, want := range map[int]int{0: 200, 1: 404, 2: 404, 3: 200, len(ids) - 2: 200, len(ids) - 1: 200} {
		if got, _ := h.do(t, http.MethodPost, ids[i], ping); got.StatusCode != want {
			t.Errorf("session %d of %d: %d, want %d", i, len(ids), got.StatusCode, want)
		}
	}
}

// TestServer_StreamOutcomes: a stream at the door, its end, and what else can become of it.
func TestServer_StreamOutcomes(t *testing.T) {
	t.Parallel()
	progress, reply := `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`, "{\"jsonrpc\":\"2.0\",\r\n\"id\":1,\"result\":{}}"
	for name, tc := range map[string]struct {
		says    []string
		broken  error
		accept  string
		want    string
		trailer string
	}{
		"whole":          {[]string{progress, reply}, nil, "", "event: message\ndata: " + progress + "\n\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"id\":1,\"result\":{}}\n\n", "close.e.s"},
		"no streams":     {[]string{progress, reply}, nil, "application/json", reply, ""},
		"breaks off":     {[]string{progress}, errors.New("x"), "", "event: message\ndata: " + progress + "\n\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"error\":", ""},
		"after its end":  {[]string{reply}, errors.New("x"), "", "BROKEN", ""},
		"ends too early": {[]string{progress}, nil, "application/json", `"error"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &notifying{handler: handler{description: chef()}, says: tc.says, broken: tc.broken}
			h := newBuilding(t, r)
			var more []string
			if tc.accept != "" {
				more = []string{"Accept", tc.accept}
			}
			got, text := h.do(t, http.MethodPost, "", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}`, more...)
			if !strings.Contains(text, tc.want) {
				t.Errorf("got %q, want %q", text, tc.want)
			}
			if tc.trailer != "" {
				if diff := cmp.Diff([]string{tc.trailer}, got.Trailer.Values("Execution-Context")); diff != "" || got.Header.Get("Execution-Context") != "open.e.s" {
					t.Errorf("evidence: %s, %v", diff, got.Header)
				}
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.closed != 1 {
				t.Errorf("closed %d times", r.closed)
			}
		})
	}
}

// TestServer_HalfClosedClientIsGone: one that has closed its half of the connection counts as
// gone. What it still reads is no stream that ended properly.
func TestServer_HalfClosedClientIsGone(t *testing.T) {
	t.Parallel()
	r := &notifying{handler: handler{description: chef()}, says: []string{`{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`}, waits: true}
	h := newBuilding(t, r)
	conn, err := net.Dial("tcp", h.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	body := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}`
	_, err = fmt.Fprintf(conn, "POST /agents/chef/mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
		"Accept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s", h.Listener.Addr(), len(body), body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if half, ok := conn.(*net.TCPConn); !ok || half.CloseWrite() != nil {
		t.Fatal("the connection has no halves")
	}
	if content, err := io.ReadAll(response.Body); err == nil {
		t.Errorf("a stream without its reply ended properly: %q", content)
	}
}

// shaky is a road whose state is away at first.
type shaky struct {
	notifying
	fails int
}

func (r *shaky) Exchange(ctx context.Context, c transport.Call) (transport.Answer, error) {
	answer, err := r.notifying.Exchange(ctx, c)
	if len(r.calls) <= r.fails {
		return transport.Answer{}, &problem.RecordingError{}
	}
	return answer, err
}

// TestServer_RetriesAnswersUntilStateIsAvailable: an answer is said once, so it waits for the state that it
// needs; whoever calls is told at once.
func TestServer_RetriesAnswersUntilStateIsAvailable(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		body   string
		fails  int
		status int
		tries  int
		lasts  time.Duration
	}{
		"an answer":          {`{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}`, 3, http.StatusAccepted, 4, 700 * time.Millisecond},
		"a refusal":          {`{"jsonrpc":"2.0","id":"q","error":{"code":1,"message":"no"}}`, 3, http.StatusAccepted, 4, 700 * time.Millisecond},
		"an answer for long": {`{"jsonrpc":"2.0","id":"q","result":{}}`, 1000, http.StatusServiceUnavailable, 14, transport.AnswerRetryWindow},
		"a call":             {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}`, 3, http.StatusServiceUnavailable, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, began := &shaky{notifying: notifying{handler: handler{description: chef()}}, fails: tc.fails}, time.Now()
				got := knock(t, r, http.MethodPost, legacyHeader(), tc.body)
				if took := time.Since(began); got.Code != tc.status || len(r.calls) != tc.tries || took > tc.lasts {
					t.Errorf("%d %s after %d tries and %v", got.Code, got.Body, len(r.calls), took)
				}
			})
		})
	}
}

// TestServer_CloseEndsIdleStream: a stream on which nothing is said ends with the door.
func TestServer_CloseEndsIdleStream(t *testing.T) {
	t.Parallel()
	h := newBuilding(t, &notifying{handler: handler{description: chef()}})
	first, _ := h.do(t, http.MethodPost, "", hello)
	id := first.Header.Get("Mcp-Session-Id")
	if got, _ := h.do(t, http.MethodGet, id, "", "Accept", "application/json"); got.StatusCode != http.StatusNotAcceptable {
		t.Errorf("got %d", got.StatusCode)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+"/agents/chef/mcp", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Mcp-Session-Id", id)
	request.Header.Set("Accept", "text/event-stream")
	response, err := h.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("got %d %s", response.StatusCode, response.Header)
	}
	h.server.Close()
	if body, err := io.ReadAll(response.Body); err != nil || len(body) > 0 {
		t.Errorf("got %q, %v", body, err)
	}
}

// BenchmarkSession_Idle measures what a session costs that nobody uses.
func BenchmarkSession_Idle(b *testing.B) {
	const guests = 10_000
	for range b.N {
		entries := newKept(b, time.Now)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range guests {
			value := []byte(`{"Version":"2025-11-25","Asked":["form","url","native"],"Used":"2026-07-28T01:02:03.123456789Z"}`)
			if _, err := entries.Swap(b.Context(), fmt.Sprintf("guest spiffe://aepb.dev/caller-%d\x00chef", i), fmt.Sprintf("%026d", i), 0, value, time.Now().Add(time.Hour)); err != nil {
				b.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		each := (after.HeapAlloc - before.HeapAlloc) / guests
		b.ReportMetric(float64(each), "B/session")
		if each > 4<<10 {
			b.Errorf("%d bytes each", each)
		}
		runtime.KeepAlive(entries)
	}
}
