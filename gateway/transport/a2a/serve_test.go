package a2a

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hello = `{"jsonrpc":"2.0","id":"q1","method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}}`

// fakeHandler is a fake exchanger: it keeps the call and answers as it was told.
type fakeHandler struct {
	call        transport.Call
	inquiry     transport.CallInfo
	answer      transport.Answer
	description *canonical.Description
	err         error
	full        error // what Limit says
	limits      int   // how often it was asked
}

func (r *fakeHandler) Limit(_ context.Context, q transport.CallInfo) (limit.Pass, error) {
	r.inquiry = q
	r.limits++
	return transporttest.Pass(r.full)
}

func (r *fakeHandler) Admit(context.Context, transport.CallInfo) error { return r.err }

func (r *fakeHandler) Exchange(_ context.Context, call transport.Call) (transport.Answer, error) {
	r.call = call
	if !call.Pass.Valid() {
		return transport.Answer{}, limit.ErrNoPass
	}
	return r.answer, r.err
}

func (r *fakeHandler) Describe(_ context.Context, q transport.CallInfo) (*canonical.Description, error) {
	r.inquiry = q
	if !q.Pass.Valid() {
		return nil, limit.ErrNoPass
	}
	return r.description, r.err
}

func newEndpoint(t *testing.T, limit int) *Server {
	t.Helper()
	endpoint, err := NewServer(ServerDeps{
		Form:    form.New(translators.Config{BodyLimit: limit}),
		BaseURL: func(_ *http.Request, agent string) string { return "https://gw.example/agents/" + agent },
	})
	if err != nil {
		t.Fatal(err)
	}
	return endpoint
}

var caller = identity.Caller{Peer: ect.Peer{ID: "spiffe://example.com/client"}}

// ask sends a request to a handler, as the listener hands it over.
func ask(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	r = r.WithContext(transport.WithCaller(r.Context(), caller, "192.0.2.1"))
	r.SetPathValue("agent", "bob")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func post(body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/agents/bob/a2a", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	return r
}

func TestServer_PassesCallToPipeline(t *testing.T) {
	t.Parallel()
	fake := &fakeHandler{answer: transporttest.Answer(translators.Wire{Body: []byte(`{"jsonrpc":"2.0","id":"q1","result":{}}`), Header: http.Header{"A2a-Version": {"1.0"}, "X-Else": {"no"}}, Status: 503}, "a.b.c", "d.e.f")}
	r := post(hello)
	r.Header.Add(ect.HeaderName, "aa.bb.cc, dd.ee.ff")
	r.Header.Add(ect.HeaderName, "gg.hh.ii")
	r.Header.Set("A2A-Extensions", "urn:x")
	r.Header.Set("Traceparent", "00-1-2-01")
	r.Header.Set("Authorization", "Bearer secret")
	r.URL.RawQuery = "A2A-Version=1.0"
	w := ask(newEndpoint(t, 0).Handler(fake), r)

	pass, _ := transporttest.Pass(nil)
	want := transport.Call{
		EntryPoint: transport.Native, Agent: "bob", Caller: caller, Detached: true, Address: "192.0.2.1",
		Pass: pass, Evidence: []string{"aa.bb.cc", "dd.ee.ff", "gg.hh.ii"},
		Wire: translators.Wire{
			Binding: form.Binding, Media: form.Media, Body: []byte(hello),
			Header: http.Header{"A2a-Version": {"1.0"}, "A2a-Extensions": {"urn:x"}, "Traceparent": {"00-1-2-01"}},
		},
	}
	if fake.limits != 1 {
		t.Errorf("asked the limit %d times", fake.limits)
	}
	if diff := cmp.Diff(want, fake.call, cmpopts.EquateComparable(pass)); diff != "" {
		t.Errorf("the call: %s", diff)
	}
	if w.Code != http.StatusOK || w.Body.String() != string(fake.answer.Wire().Body) || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
	if got := w.Header().Values(ect.HeaderName); !cmp.Equal(got, fake.answer.Evidence) {
		t.Errorf("evidence %v", got)
	}
	if w.Header().Get("X-Else") != "" || w.Header().Get("A2A-Version") != "1.0" {
		t.Errorf("headers %v", w.Header())
	}
}

func TestServer_Refusals(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change func(*http.Request)
		err    error
		status int
		code   string // JSON-RPC
		id     string
	}{
		"get":               {func(r *http.Request) { r.Method = http.MethodGet }, nil, 405, "-32600", "null"},
		"another type":      {func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, nil, 415, "-32005", "null"},
		"no type":           {func(r *http.Request) { r.Header.Del("Content-Type") }, nil, 415, "-32005", "null"},
		"compressed":        {func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, nil, 415, "-32005", "null"},
		"too large":         {func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(strings.Repeat(" ", 2000))) }, nil, 413, "-32600", "null"},
		"broken evidence":   {func(r *http.Request) { r.Header.Set(ect.HeaderName, "a.b") }, nil, 400, "-31403", `"q1"`},
		"too much evidence": {func(r *http.Request) { r.Header.Set(ect.HeaderName, strings.Repeat("a", 20000)) }, nil, 431, "-31403", `"q1"`},
		"unknown agent":     {nil, &problem.UnknownAgentError{Agent: "bob"}, 404, "-32602", `"q1"`},
		"unauthenticated":   {nil, &problem.UnauthenticatedError{}, 401, "-31401", `"q1"`},
		"no path":           {nil, &problem.NoPathError{}, 200, "-32004", `"q1"`},
		"timeout":           {nil, &transport.TimeoutError{Agent: "bob"}, 504, "-32603", `"q1"`},
		"unreachable":       {nil, &transport.UnreachableError{Agent: "bob", Err: io.EOF}, 200, "-32603", `"q1"`},
		"bad reply":         {nil, &transport.BadReplyError{Agent: "bob"}, 200, "-32006", `"q1"`},
		"draining":          {nil, &problem.DrainingError{RetryAfter: 1500 * time.Millisecond}, 503, "-32603", `"q1"`},
		"the codec refuses": {nil, &canonical.Error{Code: canonical.CodeBadParams, Message: "no"}, 200, "-32602", `"q1"`},
		"no JSON":           {nil, &translators.MalformedError{Syntax: true, Reason: "truncated"}, 200, "-32700", `"q1"`},
		"anything else":     {nil, errors.New("secret"), 200, "-32603", `"q1"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := &fakeHandler{err: c.err, answer: transport.Answer{Evidence: []string{"e.e.e"}}}
			r := post(hello)
			if c.change != nil {
				c.change(r)
			}
			w := ask(newEndpoint(t, 1000).Handler(fake), r)
			body := w.Body.String()
			if w.Code != c.status || !strings.Contains(body, `"code":`+c.code+",") || !strings.Contains(body, `"id":`+c.id+",") {
				t.Errorf("%d %s, want %d with %s under %s", w.Code, body, c.status, c.code, c.id)
			}
			if w.Header().Get("Content-Type") != "application/json" || strings.Contains(body, "secret") {
				t.Errorf("%v %s", w.Header(), body)
			}
			if got := w.Header().Get(ect.HeaderName); (got == "e.e.e") != (c.err != nil) {
				t.Errorf("evidence %q", got)
			}
			if (c.err == nil) != (fake.call.Agent == "") {
				t.Error("the pipeline was asked, or not")
			}
		})
	}
}

// TestAttack_PageOfAnotherOrigin: a page of a web site has a browser, which shows the user's
// certificate, send a message or read a task, under its own name or after that was made to
// lead here. Our own pages, those of this machine and clients without a browser are served.
func TestAttack_PageOfAnotherOrigin(t *testing.T) {
	t.Parallel()
	served := newEndpoint(t, 0)
	served.deps.Ours = func(host string) bool { return host == "gw.example" }
	reads := func() *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/agents/bob/a2a/tasks/1", http.NoBody)
		r.SetPathValue("rest", "/tasks/1")
		return r
	}
	for origin, want := range map[string]int{
		"https://evil.example": 403, "null": 403, "https://gw.example:444": 403, "https://rebound.example": 403,
		"": 200, "https://gw.example": 200, "http://localhost:3000": 200, "http://[::1]:8080": 200,
	} {
		for name, r := range map[string]*http.Request{"a message": post(hello), "a task": reads()} {
			if r.Host = "gw.example"; origin == "https://rebound.example" {
				r.Host = "rebound.example"
			}
			if origin != "" {
				r.Header.Set("Origin", origin)
			}
			fake := &fakeHandler{}
			w := ask(served.Handler(fake), r)
			if (w.Code == 403) != (want == 403) || (fake.call.Agent != "") != (want == 200) {
				t.Errorf("%s from %q: %d %s", name, origin, w.Code, w.Body)
			}
		}
	}
}

func TestServer_RefusalHeaders(t *testing.T) {
	t.Parallel()
	h := newEndpoint(t, 0)
	for name, c := range map[string]struct {
		err           error
		header, value string
	}{
		"when to come again": {&problem.DrainingError{RetryAfter: 1500 * time.Millisecond}, "Retry-After", "2"},
		"where to go":        {&problem.DrainingError{Location: "https://other.example"}, "Location", "https://other.example"},
		"how to say who":     {&problem.UnauthenticatedError{}, "WWW-Authenticate", "Bearer"},
	} {
		w := ask(h.Handler(&fakeHandler{err: c.err}), post(hello))
		if !strings.HasPrefix(w.Header().Get(c.header), c.value) {
			t.Errorf("%s: %v", name, w.Header())
		}
	}
	r := post(hello)
	r.Method = http.MethodDelete
	if w := ask(h.Handler(&fakeHandler{}), r); w.Header().Get("Allow") != "POST" {
		t.Errorf("Allow: %v", w.Header())
	}
}

func description() *canonical.Description {
	return &canonical.Description{Name: "Bob", Version: "1", Description: "builds", Capabilities: []canonical.Capability{{ID: "build", Title: "Build", Description: "b", Tags: []string{"t"}}}}
}

func TestCardHandler_ServesCard(t *testing.T) {
	t.Parallel()
	fake := &fakeHandler{description: description()}
	h := newEndpoint(t, 0).CardHandler(fake)
	get := func(method, tag string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "/agents/bob/.well-known/agent-card.json", http.NoBody)
		if tag != "" {
			r.Header.Set("If-None-Match", tag)
		}
		return ask(h, r)
	}
	w := get(http.MethodGet, "")
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"url":"https://gw.example/agents/bob/a2a"`) || w.Header().Get("Cache-Control") != "max-age=300" {
		t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	if fake.limits != 1 || !fake.inquiry.Pass.Valid() {
		t.Errorf("asked the limit %d times", fake.limits)
	}
	if fake.inquiry.Agent != "bob" || fake.inquiry.Caller.ID != caller.ID || fake.inquiry.Binding != form.Binding || fake.inquiry.Address != "192.0.2.1" {
		t.Errorf("asked as %+v", fake.inquiry)
	}
	m, err := form.New(translators.Config{}).Decode(translators.Wire{Body: w.Body.Bytes(), Re: canonical.OpDescribe})
	if err != nil || m.Body.(*canonical.Description).Capabilities[0].ID != "build" {
		t.Errorf("the card is not read again: %v", err)
	}
	tag := w.Header().Get("ETag")
	for value, status := range map[string]int{tag: 304, `"x", W/` + tag: 304, "*": 304, `"x"`: 200} {
		if w := get(http.MethodGet, value); w.Code != status || (status == 304 && w.Body.Len() > 0) {
			t.Errorf("If-None-Match %s: %d", value, w.Code)
		}
	}
	if w := get(http.MethodHead, ""); w.Code != http.StatusOK || w.Body.Len() > 0 || w.Header().Get("ETag") != tag {
		t.Errorf("HEAD: %d %v", w.Code, w.Header())
	}
	if w := get(http.MethodPost, ""); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d %v", w.Code, w.Header())
	}
}

func TestCardHandler_Refusals(t *testing.T) {
	t.Parallel()
	empty := description()
	empty.Capabilities = nil
	for name, c := range map[string]struct {
		fakeHandler *fakeHandler
		status      int
	}{
		"unknown agent":  {&fakeHandler{err: &problem.UnknownAgentError{}}, 404},
		"nothing to do":  {&fakeHandler{description: empty}, 404},
		"not reachable":  {&fakeHandler{err: &transport.UnreachableError{}}, 502},
		"some other way": {&fakeHandler{err: errors.New("secret")}, 500},
	} {
		w := ask(newEndpoint(t, 0).CardHandler(c.fakeHandler), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		if w.Code != c.status || w.Header().Get("Content-Type") != problem.MediaType || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s: %d %v %s", name, w.Code, w.Header(), w.Body)
		}
	}
}

func TestNew_IncompleteDeps(t *testing.T) {
	t.Parallel()
	if _, err := NewServer(ServerDeps{}); err == nil {
		t.Error("a door without anything")
	}
	if _, err := NewDialer(DialerDeps{}); err == nil {
		t.Error("a dialer without anything")
	}
}

// untouched is a body that nobody may read.
type untouched struct{ t *testing.T }

func (u untouched) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.ErrUnexpectedEOF
}

// Whoever asks too often gets no work done, not even the reading of a body.
func TestLimit_BeforeBody(t *testing.T) {
	t.Parallel()
	fake := &fakeHandler{full: &limit.ExceededError{}}
	r := post(hello)
	r.Body = io.NopCloser(untouched{t})
	w := ask(newEndpoint(t, 0).Handler(fake), r)
	if w.Code != http.StatusTooManyRequests || fake.call.Agent != "" || fake.inquiry.Agent != "bob" || fake.inquiry.Caller.ID != caller.ID {
		t.Errorf("got %d %s, asked for %+v", w.Code, w.Body, fake.inquiry)
	}
}
