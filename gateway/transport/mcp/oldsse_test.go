package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/transport"
	tmcp "github.com/aepb/aepb-gateway/gateway/transport/mcp"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// lane is an exchanger that many may use at once.
type lane struct {
	mu      sync.Mutex
	calls   []transport.Call
	full    error
	waits   chan struct{} // calls of "wait" wait for it
	ended   chan struct{} // takes those of them that were canceled
	unasked chan string   // said to those who listen
}

func (r *lane) Limit(context.Context, transport.CallInfo) (limit.Pass, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return transporttest.Pass(r.full)
}

func (*lane) Admit(context.Context, transport.CallInfo) error { return nil }

func (*lane) Describe(context.Context, transport.CallInfo) (*canonical.Description, error) {
	d := chef()
	return &d, nil
}

func (r *lane) Exchange(ctx context.Context, c transport.Call) (transport.Answer, error) {
	r.mu.Lock()
	r.calls = append(r.calls, c)
	r.mu.Unlock()
	body := string(c.Wire.Body)
	switch {
	case c.Wire.Verb == http.MethodGet:
		return transporttest.Stream(&unasked{r.unasked}, "open.e.s"), nil
	case strings.Contains(body, `"wait"`):
		select {
		case <-r.waits:
		case <-ctx.Done():
			r.ended <- struct{}{}
			return transport.Answer{}, ctx.Err()
		}
	case strings.Contains(body, `"break"`):
		panic("broken on purpose")
	case strings.Contains(body, `"stream"`):
		return transporttest.Stream(&line{[]string{`{"jsonrpc":"2.0","method":"notifications/progress","params":{"n":1}}`, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"n":2}}`, `{"jsonrpc":"2.0","id":"s","result":{}}`}}, "a.b.c"), nil
	}
	return transporttest.Answer(translators.Wire{Body: []byte(`{"jsonrpc":"2.0","id":"c","result":{"content":[]}}`)}, "a.b.c"), nil
}

func (r *lane) list() []transport.Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

type unasked struct{ events chan string }

func (h *unasked) Next(ctx context.Context) (transport.Event, error) {
	select {
	case text := <-h.events:
		return transport.Event{Wire: translators.Wire{Event: true, Body: []byte(text)}}, nil
	case <-ctx.Done():
		return transport.Event{}, ctx.Err()
	}
}

func (*unasked) Close() error { return nil }

type line struct{ says []string }

func (l *line) Next(context.Context) (transport.Event, error) {
	if len(l.says) == 0 {
		return transport.Event{}, io.EOF
	}
	text := l.says[0]
	l.says = l.says[1:]
	return transport.Event{Wire: translators.Wire{Event: true, Body: []byte(text)}}, nil
}

func (*line) Close() error { return nil }

// oldPlace serves the old transport; the header X-Caller says who calls.
type oldPlace struct {
	*httptest.Server
	close  func()
	keeper stored
}

func newOldPlace(t *testing.T, r transport.Handler) *oldPlace {
	t.Helper()
	return newBoundedPlace(t, r, 0)
}

// newBoundedPlace has room for so many bytes of requests under way; 0: the default.
func newBoundedPlace(t *testing.T, r transport.Handler, underWay int64) *oldPlace {
	t.Helper()
	keeper, longest := newKept(t, time.Now), 1<<12
	if underWay > 0 {
		longest = int(underWay)
	}
	mcps, err := tmcp.NewServer(tmcp.ServerDeps{Form: mcp.New(translators.Config{BodyLimit: longest}), Keeper: keeper, UnderWay: underWay})
	if err != nil {
		t.Fatal(err)
	}
	old := mcps.OverSSE(r)
	mux := http.NewServeMux()
	mux.HandleFunc("/agents/{agent}/mcp/sse", old.Stream)
	mux.HandleFunc("/agents/{agent}/mcp/messages", old.Messages)
	h := &oldPlace{close: mcps.Close, keeper: keeper, Server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := identity.Caller{Peer: ect.Peer{ID: ect.Identity("spiffe://td/" + r.Header.Get("X-Caller"))}}
		mux.ServeHTTP(w, r.WithContext(transport.WithCaller(r.Context(), who, "192.0.2.1")))
	}))}
	t.Cleanup(h.Close)
	t.Cleanup(mcps.Close)
	return h
}

// oldClient is a session over the old transport.
type oldClient struct {
	t      *testing.T
	at     *oldPlace
	who    string
	post   string // where messages are posted
	in     *sse.Reader
	cancel context.CancelFunc
}

func (h *oldPlace) get(t *testing.T, who string) (*http.Response, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+"/agents/chef/mcp/sse", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Caller", who)
	response, err := h.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response, cancel
}

func (h *oldPlace) open(t *testing.T, who string) *oldClient {
	t.Helper()
	response, cancel := h.get(t, who)
	c := &oldClient{t: t, at: h, who: who, in: sse.NewReader(response.Body, sse.Limits{}), cancel: cancel}
	first, err := c.in.Next()
	if err != nil || first.Type != "endpoint" || !strings.HasPrefix(string(first.Data), "/agents/chef/mcp/messages?session=") {
		t.Fatalf("%s began with %+v %v", response.Status, first, err)
	}
	c.post = string(first.Data)
	return c
}

// as posts a message as somebody, somewhere; more is header fields.
func (c *oldClient) as(who, where, body string, more ...string) (status int, text string) {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.at.URL+where, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("X-Caller", who)
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(more); i += 2 {
		request.Header.Set(more[i], more[i+1])
	}
	response, err := c.at.Client().Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.Header.Get(ect.HeaderName) != "" {
		c.t.Error("the answer to a POST bears evidence")
	}
	out, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Error(err)
	}
	return response.StatusCode, string(out)
}

// send posts a message that has to be taken.
func (c *oldClient) send(body string) {
	c.t.Helper()
	if status, text := c.as(c.who, c.post, body); status != http.StatusAccepted || text != "" {
		c.t.Fatalf("%s: %d %q", body, status, text)
	}
}

func (c *oldClient) next() string {
	c.t.Helper()
	event, err := c.in.Next()
	if err != nil || event.Type != "message" {
		c.t.Fatalf("got %+v %v", event, err)
	}
	return string(event.Data)
}

const (
	oldHello   = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{"roots":{},"sampling":{}},"clientInfo":{"name":"c","version":"1"}}}`
	oldBegun   = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	oldMessage = `{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":%q}}`
)

func oldCall(tool string) string { return fmt.Sprintf(oldMessage, tool) }

func (c *oldClient) begin() {
	c.t.Helper()
	c.send(oldHello)
	if got := c.next(); !strings.Contains(got, `"protocolVersion":"2024-11-05"`) {
		c.t.Fatalf("got %s", got)
	}
	c.send(oldBegun)
}

// TestOverSSE_Session: replies and what comes before them are events, in order; what the agent
// says without being asked comes too; and the pipeline knows the session of every message.
func TestOverSSE_Session(t *testing.T) {
	t.Parallel()
	r := &lane{unasked: make(chan string)}
	h := newOldPlace(t, r)
	c := h.open(t, "ada")
	c.begin()
	c.send(oldCall("echo"))
	if got := c.next(); got != `{"jsonrpc":"2.0","id":"c","result":{"content":[]}}` {
		t.Errorf("got %s", got)
	}
	change := `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
	r.unasked <- change
	if got := c.next(); got != change {
		t.Errorf("got %s", got)
	}
	c.send(oldCall("stream"))
	for _, want := range []string{`"n":1`, `"n":2`, `"result"`} {
		if got := c.next(); !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	c.send(`{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}`)
	c.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	if got := c.next(); !strings.Contains(got, `"id":2`) {
		t.Errorf("got %s", got)
	}
	calls := r.list()
	for i, call := range calls {
		if call.Session == "" || call.Session != calls[0].Session || call.Wire.Version != mcp.LegacyFirst || call.Caller.ID != "spiffe://td/ada" {
			t.Errorf("call %d: %+v", i, call)
		}
	}
	if len(calls) != 4 {
		t.Errorf("%d calls", len(calls))
	}
	c.send(oldCall("none"))
	c.next()
	c.send(`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":7}}`) // what is wrong with it is said on the stream
	if got := c.next(); !strings.Contains(got, `"id":9`) || !strings.Contains(got, "-32602") {
		t.Errorf("got %s", got)
	}
}

// TestAttack_SessionOverSSEOfAnother: nobody but its caller, at its agent, posts to a session, and
// nobody does when its stream has ended.
func TestAttack_SessionOverSSEOfAnother(t *testing.T) {
	t.Parallel()
	r := &lane{}
	h := newOldPlace(t, r)
	c := h.open(t, "ada")
	c.begin()
	for name, where := range map[string][2]string{
		"another caller": {"bob", c.post},
		"another agent":  {"ada", strings.Replace(c.post, "chef", "cook", 1)},
		"another id":     {"ada", c.post + "X"},
		"no id":          {"ada", strings.TrimRight(c.post, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")},
	} {
		if status, text := c.as(where[0], where[1], oldCall("echo")); status != http.StatusNotFound {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	fresh := h.open(t, "ada") // that no initialize has bound to anybody
	if status, text := fresh.as("bob", fresh.post, oldHello); status != http.StatusNotFound {
		t.Errorf("another caller begins it: %d %s", status, text)
	}
	fresh.begin()
	fresh.cancel()
	c.send(`{"jsonrpc":"2.0","id":6,"method":"ping"}`) // it goes on
	if got := c.next(); !strings.Contains(got, `"id":6`) {
		t.Errorf("got %s", got)
	}
	if n := len(r.list()); n > 2 { // the wishes to listen
		t.Errorf("%d calls", n)
	}
	c.cancel()
	ended(t, c)
	if all, err := h.keeper.All(t.Context(), "guest spiffe://td/ada\x00chef", 10); err != nil || len(all) != 0 {
		t.Errorf("the session is there still: %v %v", all, err)
	}
}

// ended waits until a session takes nothing more.
func ended(t *testing.T, c *oldClient) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		status, text := c.as(c.who, c.post, `{"jsonrpc":"2.0","id":5,"method":"ping"}`)
		all, err := c.at.keeper.All(t.Context(), "guest spiffe://td/ada\x00chef", 10)
		if status == http.StatusNotFound && len(all) == 0 && err == nil {
			return
		}
		if status != http.StatusAccepted && status != http.StatusNotFound {
			t.Fatalf("%d %s", status, text)
		}
		<-tick.C
	}
	t.Fatal("the session goes on without its stream")
}

// TestOverSSE_Refuses: what is refused before it is taken has an HTTP status.
func TestOverSSE_Refuses(t *testing.T) {
	t.Parallel()
	r := &lane{}
	h := newOldPlace(t, r)
	c := h.open(t, "ada")
	c.begin()
	for name, tc := range map[string]struct {
		body   string
		more   []string
		status int
	}{
		"another media type": {oldCall("x"), []string{"Content-Type", "text/plain"}, http.StatusUnsupportedMediaType},
		"too large":          {oldCall(strings.Repeat("x", 1<<13)), nil, http.StatusRequestEntityTooLarge},
		"another origin":     {oldCall("x"), []string{"Origin", "https://evil.example"}, http.StatusForbidden},
		"no JSON":            {`{`, nil, http.StatusBadRequest},
		"no message":         {`{}`, nil, http.StatusBadRequest},
		"initialize again":   {oldHello, nil, http.StatusBadRequest},
	} {
		if status, text := c.as("ada", c.post, tc.body, tc.more...); status != tc.status || !strings.Contains(text, `"error"`) {
			t.Errorf("%s: %d %s, want %d", name, status, text, tc.status)
		}
	}
	r.mu.Lock()
	r.full = &limit.ExceededError{}
	r.mu.Unlock()
	if status, _ := c.as("ada", c.post, oldCall("x")); status != http.StatusTooManyRequests {
		t.Errorf("over the limit: %d", status)
	}
	if response, _ := h.get(t, "ada"); response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a stream over the limit: %d", response.StatusCode)
	}
	for _, at := range []string{"/sse", "/messages"} {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, h.URL+"/agents/chef/mcp"+at, http.NoBody)
		response, err := h.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusMethodNotAllowed || response.Header.Get("Allow") == "" {
			t.Errorf("%s: %d", at, response.StatusCode)
		}
	}
}

// TestAttack_SessionsOverSSEWithoutEnd: a caller has 64 sessions; another caller has its own. Those that end make
// room.
func TestAttack_SessionsOverSSEWithoutEnd(t *testing.T) {
	t.Parallel()
	h := newOldPlace(t, &lane{})
	var first *oldClient
	ids := map[string]bool{}
	for range 64 {
		c := h.open(t, "ada")
		if first == nil {
			first = c
		}
		ids[c.post] = true
	}
	if len(ids) != 64 {
		t.Errorf("%d different sessions", len(ids))
	}
	if response, _ := h.get(t, "ada"); response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("one more: %d", response.StatusCode)
	}
	h.open(t, "bob")
	first.cancel()
	ended(t, first)
	h.open(t, "ada")
}

// TestAttack_RequestsOverSSEWithoutEnd: what waits for its reply counts for its caller, whichever
// session it is of.
func TestAttack_RequestsOverSSEWithoutEnd(t *testing.T) {
	t.Parallel()
	r := &lane{waits: make(chan struct{}), ended: make(chan struct{}, 256)}
	h := newOldPlace(t, r)
	one, two := h.open(t, "ada"), h.open(t, "ada")
	one.begin()
	two.begin()
	for i := range 32 {
		if c := []*oldClient{one, two}[i%2]; i < 31 {
			c.send(oldCall("wait"))
		} else if status, _ := c.as("ada", c.post, oldCall("wait")); status != http.StatusAccepted && status != http.StatusTooManyRequests {
			t.Errorf("%d", status)
		}
	}
	if status, _ := one.as("ada", one.post, oldCall("wait")); status != http.StatusTooManyRequests {
		t.Errorf("one more: %d", status)
	}
	other := h.open(t, "bob")
	other.begin()
	other.send(oldCall("echo"))
	close(r.waits)
	one.next()
}

// TestOverSSE_Close: when the door closes, requests that are under way are answered before the
// streams end, and nothing new is taken.
func TestOverSSE_Close(t *testing.T) {
	t.Parallel()
	r := &lane{waits: make(chan struct{}), ended: make(chan struct{}, 256)}
	h := newOldPlace(t, r)
	c, idle := h.open(t, "ada"), h.open(t, "ada")
	c.begin()
	c.send(oldCall("wait"))
	h.close()
	if _, err := idle.in.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("a stream with nothing under way: %v", err)
	}
	if status, _ := c.as("ada", c.post, oldCall("echo")); status != http.StatusNotFound {
		t.Errorf("a new message: %d", status)
	}
	close(r.waits)
	if got := c.next(); !strings.Contains(got, `"result"`) {
		t.Errorf("got %s", got)
	}
	if _, err := c.in.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after it: %v", err)
	}
}

// TestOverSSE_EndOfTheStreamEndsItsRequests: and a handler that panics ends its session alone.
func TestOverSSE_EndOfTheStreamEndsItsRequests(t *testing.T) {
	t.Parallel()
	r := &lane{waits: make(chan struct{}), ended: make(chan struct{})}
	h := newOldPlace(t, r)
	c := h.open(t, "ada")
	c.begin()
	c.send(oldCall("wait"))
	c.cancel()
	<-r.ended
	c = h.open(t, "ada")
	c.begin()
	c.send(oldCall("break"))
	if _, err := c.in.Next(); err == nil {
		t.Error("the stream goes on")
	}
	h.open(t, "ada").begin()
}

// TestOverSSE_LargeRequest: what one caller may have under way bounds one request.
func TestOverSSE_LargeRequest(t *testing.T) {
	t.Parallel()
	h := newBoundedPlace(t, &lane{ended: make(chan struct{}, 256)}, 256<<10)
	c := h.open(t, "ada")
	c.begin()
	large := strings.Replace(oldCall("echo"), `"echo"`, `"echo","arguments":{"text":"`+strings.Repeat("x", 200<<10)+`"}`, 1)
	if status, body := c.as("ada", c.post, large); status != http.StatusRequestEntityTooLarge || !strings.Contains(body, "at most 131072 bytes") {
		t.Errorf("%d %s", status, body)
	}
}
