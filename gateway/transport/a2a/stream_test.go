package a2a

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

const (
	streamed  = `{"jsonrpc":"2.0","id":"q1","method":"SendStreamingMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}}`
	subscribe = `{"jsonrpc":"2.0","id":"q1","method":"SubscribeToTask","params":{"id":"t"}}`
	working   = `{"jsonrpc":"2.0","id":"q1","result":{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}}`
	completed = `{"jsonrpc":"2.0","id":"q1","result":{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}}}`
)

// script is a stream that says what it was given, then ends as it was told. It
// keeps how many events were asked for.
type script struct {
	events    []transport.Event
	end       error
	requested chan struct{} // nil: nobody watches
	closed    chan struct{}
}

func (s *script) Next(ctx context.Context) (transport.Event, error) {
	if s.requested != nil {
		select {
		case s.requested <- struct{}{}:
		case <-ctx.Done():
			return transport.Event{}, ctx.Err()
		}
	}
	if len(s.events) == 0 {
		if s.end == nil {
			<-ctx.Done()
			return transport.Event{}, ctx.Err()
		}
		return transport.Event{}, s.end
	}
	event := s.events[0]
	s.events = s.events[1:]
	return event, nil
}

func (s *script) Close() error {
	close(s.closed)
	return nil
}

func scripted(end error, bodies ...string) *script {
	s := &script{end: end, closed: make(chan struct{})}
	for _, body := range bodies {
		s.events = append(s.events, transport.Event{Wire: translators.Wire{Body: []byte(body), Event: true}})
	}
	return s
}

// endpointServer serves a door over a real connection, of HTTP/1.1 or of HTTP/2.
func endpointServer(t *testing.T, fake *fakeHandler, http2 bool) *httptest.Server {
	t.Helper()
	endpoint := newEndpoint(t, 0).Handler(fake)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.SetPathValue("agent", "bob")
		r.SetPathValue("rest", strings.TrimPrefix(r.URL.Path, "/agents/bob/a2a"))
		endpoint.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = http2
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func send(t *testing.T, server *httptest.Server, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/agents/bob/a2a", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// TestServer_StreamWithEvidence: events go out one by one, with the evidence that opened the
// stream in the header and that which closes it in the trailer.
func TestServer_StreamWithEvidence(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		events := scripted(io.EOF, working, "{\n\"a\": 1}", completed)
		events.events = append(events.events, transport.Event{Evidence: []string{"close.b.c"}})
		fake := &fakeHandler{answer: transporttest.Stream(events, "open.b.c")}
		response := send(t, endpointServer(t, fake, http2), streamed)
		body, err := io.ReadAll(response.Body)
		if err != nil || response.Body.Close() != nil {
			t.Fatal(err)
		}
		want := "data: " + working + "\n\ndata: {\ndata: \"a\": 1}\n\ndata: " + completed + "\n\n"
		if diff := cmp.Diff(want, string(body)); diff != "" {
			t.Error(diff)
		}
		if response.Header.Get("Content-Type") != "text/event-stream" || response.StatusCode != http.StatusOK {
			t.Errorf("%d %v", response.StatusCode, response.Header)
		}
		if got := response.Header.Values(ect.HeaderName); !cmp.Equal(got, []string{"open.b.c"}) {
			t.Errorf("opened with %v", got)
		}
		if got := response.Trailer.Values(ect.HeaderName); !cmp.Equal(got, []string{"close.b.c"}) {
			t.Errorf("closed with %v", got)
		}
		<-events.closed
		if !fake.call.Detached {
			t.Error("the work ends with the connection")
		}
	}
}

// TestServer_PullsEventsAsWritten: the next event is asked for when the last was
// written, and each is written at once.
func TestServer_PullsEventsAsWritten(t *testing.T) {
	t.Parallel()
	events := scripted(nil, working, completed)
	events.requested = make(chan struct{})
	response := send(t, endpointServer(t, &fakeHandler{answer: transporttest.Stream(events)}, false), subscribe)
	in := bufio.NewReader(response.Body)
	for _, want := range []string{working, completed} {
		<-events.requested
		if line, err := in.ReadString('\n'); err != nil || line != "data: "+want+"\n" {
			t.Fatalf("%q %v", line, err)
		}
		_, _ = in.ReadString('\n')
	}
	_ = response.Body.Close() // the caller is gone
	<-events.closed
}

// TestServer_HalfClosedCallerIsGone: one that has closed its half of the connection counts
// as gone. What it still reads is no stream that ended properly.
func TestServer_HalfClosedCallerIsGone(t *testing.T) {
	t.Parallel()
	events := scripted(nil, working)
	server := endpointServer(t, &fakeHandler{answer: transporttest.Stream(events)}, false)
	client, ok := server.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatal("no transport")
	}
	conn, err := tls.Dial("tcp", server.Listener.Addr().String(), client.TLSClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn, "POST /agents/bob/a2a HTTP/1.1\r\nHost: gw\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(streamed), streamed)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(response.Body); err == nil {
		t.Errorf("a stream without its end ended properly: %q", body)
	}
	<-events.closed
}

// TestServer_BrokenStreamEndsWithErrorEvent: with an event, under the caller's id.
func TestServer_BrokenStreamEndsWithErrorEvent(t *testing.T) {
	t.Parallel()
	events := scripted(&transport.UnreachableError{Agent: "bob", Err: errors.New("x")}, working)
	response := send(t, endpointServer(t, &fakeHandler{answer: transporttest.Stream(events)}, true), streamed)
	body, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if !strings.Contains(string(body), "data: "+working) || !strings.Contains(string(body), `data: {"jsonrpc":"2.0","id":"q1","error":{"code":-32`) {
		t.Errorf("%s", body)
	}
}

// TestServer_RefusesStreamRequestWithAnEvent: a client that asked for a stream over JSON-RPC
// reads events.
func TestServer_RefusesStreamRequestWithAnEvent(t *testing.T) {
	t.Parallel()
	for body, fake := range map[string]*fakeHandler{
		streamed:  {err: &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "no"}},
		subscribe: {err: &canonical.Error{Code: canonical.CodeTaskNotFound, Message: "no"}},
		strings.Replace(streamed, "hi", "once", 1): {answer: transporttest.Answer(translators.Wire{Body: []byte(working)})},
	} {
		w := ask(newEndpoint(t, 0).Handler(fake), post(body))
		if w.Code != http.StatusOK || !strings.HasPrefix(w.Body.String(), `data: {"jsonrpc":"2.0","id":"q1",`) {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
	}
	// A message that only speaks of it is answered like any other.
	plain := strings.Replace(hello, `"hi"`, `"SendStreamingMessage"`, 1)
	w := ask(newEndpoint(t, 0).Handler(&fakeHandler{err: &canonical.Error{Code: canonical.CodeUnsupportedOp}}), post(plain))
	if w.Header().Get("Content-Type") != form.Media {
		t.Errorf("%v", w.Header())
	}
}

// TestDoor_ExtendedCard: the agent is asked for it only if it says that it has one.
func TestDoor_ExtendedCard(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]func() *http.Request{
		"1.0": func() *http.Request { return post(`{"jsonrpc":"2.0","id":"q1","method":"GetExtendedAgentCard"}`) },
		"0.3": func() *http.Request {
			return post(`{"jsonrpc":"2.0","id":"q1","method":"agent/getAuthenticatedExtendedCard"}`)
		},
		"1.0 HTTP": func() *http.Request { return below(http.MethodGet, "/extendedAgentCard", "") },
		"0.3 HTTP": func() *http.Request { return below(http.MethodGet, "/v1/card", "") },
	} {
		fake := &fakeHandler{description: description()}
		w := ask(newEndpoint(t, 0).Handler(fake), request())
		if !strings.Contains(w.Body.String(), "no extended card") || fake.call.Agent != "" {
			t.Errorf("%s to an agent without one: %d %s", name, w.Code, w.Body)
		}
		extended := description()
		extended.Extended = true
		fake = &fakeHandler{description: extended, answer: transporttest.Answer(translators.Wire{Status: http.StatusOK})}
		if ask(newEndpoint(t, 0).Handler(fake), request()); fake.call.Agent != "bob" || fake.call.Card == nil || fake.limits != 1 {
			t.Fatalf("%s to an agent with one: called %q, asked the limit %d times", name, fake.call.Agent, fake.limits)
		}
		card, err := fake.call.Card(extended)
		if err != nil || !strings.Contains(string(card), `"url":"https://gw.example/agents/bob/a2a"`) {
			t.Errorf("%s: %v %s", name, err, card)
		}
	}
}

// TestServer_HTTPOperationsByPath: each operation over HTTP reaches the pipeline as it came.
func TestServer_HTTPOperationsByPath(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ verb, rest, body string }{
		{http.MethodGet, "/tasks/t?historyLength=2", ""},
		{http.MethodGet, "/tasks?pageSize=3", ""},
		{http.MethodPost, "/tasks/t:cancel", ""},
		{http.MethodPost, "/tasks/t:subscribe", ""},
		{http.MethodGet, "/tasks/t:subscribe", ""},
		{http.MethodPost, "/tasks/t/pushNotificationConfigs", `{"url":"https://h.example"}`},
		{http.MethodDelete, "/tasks/t/pushNotificationConfigs/c", ""},
		{http.MethodGet, "/acme/tasks/t", ""},
		{http.MethodGet, "/v1/tasks/t", ""},
		{http.MethodGet, "/tasks/a%2Fb", ""},
	} {
		fake := &fakeHandler{answer: transporttest.Answer(translators.Wire{Status: http.StatusOK, Body: []byte("{}")})}
		r := httptest.NewRequest(c.verb, "/agents/bob/a2a"+c.rest, strings.NewReader(c.body))
		r.SetPathValue("rest", strings.TrimPrefix(r.URL.Path, "/agents/bob/a2a"))
		if c.body != "" {
			r.Header.Set("Content-Type", form.Media)
		}
		w := ask(newEndpoint(t, 0).Handler(fake), r)
		want := "{}"
		if strings.HasSuffix(c.rest, ":subscribe") { // which is answered with a stream (A2A 1.0 section 11.7)
			want = "data: {}\n\n"
		}
		if w.Code != http.StatusOK || w.Body.String() != want || fake.call.Wire.Verb != c.verb || fake.call.Wire.Path != c.rest {
			t.Errorf("%s %s: %d %s, called as %s %s", c.verb, c.rest, w.Code, w.Body, fake.call.Wire.Verb, fake.call.Wire.Path)
		}
	}
}

func events(w http.ResponseWriter, bodies ...string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for _, body := range bodies {
		_, _ = io.WriteString(w, "data: "+body+"\n\n")
		_ = http.NewResponseController(w).Flush()
	}
}

// TestDial_StreamWithTrailerEvidence: an agent's stream is heard event by event, and the evidence
// in its trailer is the last thing heard.
func TestDial_StreamWithTrailerEvidence(t *testing.T) {
	t.Parallel()
	sealed, _ := seal(t, streamed)
	d, e, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.Header.Get("Accept"), "text/event-stream") {
			t.Errorf("accepts %s", r.Header.Get("Accept"))
		}
		w.Header().Set("Trailer", ect.HeaderName)
		w.Header().Set(ect.HeaderName, "open.b.c")
		events(w, working, completed)
		w.Header().Set(ect.HeaderName, "close.b.c")
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	reply, err := d.Dial(ctx, e, sealed)
	cancel() // whoever waited for the beginning waits no more
	if err != nil || reply.Events == nil || !cmp.Equal(reply.Evidence, []string{"open.b.c"}) {
		t.Fatalf("%+v %v", reply, err)
	}
	defer func() { _ = reply.Events.Close() }()
	for _, want := range []string{working, completed} {
		event, err := reply.Events.Next(t.Context())
		if err != nil || string(event.Wire.Body) != want || !event.Wire.Event {
			t.Fatalf("%s %v", event.Wire.Body, err)
		}
	}
	if event, err := reply.Events.Next(t.Context()); err != nil || !cmp.Equal(event.Evidence, []string{"close.b.c"}) {
		t.Errorf("%+v %v", event, err)
	}
	for range 2 {
		if _, err := reply.Events.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	}
}

// TestDial_InvalidStreamEndsWithError: what is no event of this request ends the stream with
// an error, and so does a stream that breaks off.
func TestDial_InvalidStreamEndsWithError(t *testing.T) {
	t.Parallel()
	sealed, _ := seal(t, streamed)
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		want  any
	}{
		"another id": {func(w http.ResponseWriter, _ *http.Request) { events(w, strings.Replace(working, "q1", "q2", 1)) }, new(*transport.BadReplyError)},
		"no reply":   {func(w http.ResponseWriter, _ *http.Request) { events(w, `{}`) }, new(*transport.BadReplyError)},
		"no JSON":    {func(w http.ResponseWriter, _ *http.Request) { events(w, `hello`) }, new(*transport.BadReplyError)},
		"too large":  {func(w http.ResponseWriter, _ *http.Request) { events(w, strings.Repeat("x", 5000)) }, new(*transport.BadReplyError)},
		"broken off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: {")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, new(*transport.UnreachableError)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, e, _ := serve(t, c.serve)
			reply, err := d.Dial(t.Context(), e, sealed)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = reply.Events.Next(t.Context()); !errors.As(err, c.want) {
				t.Errorf("got %T %v", err, err)
			}
			if _, again := reply.Events.Next(t.Context()); again != err { //nolint:errorlint // the very same
				t.Errorf("then %v", again)
			}
		})
	}
}

// TestDial_TimeoutClosesTheStream: whoever does not wait for an event ends the stream,
// which its agent hears.
func TestDial_TimeoutClosesTheStream(t *testing.T) {
	t.Parallel()
	sealed, _ := seal(t, streamed)
	gone := make(chan struct{})
	d, e, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		events(w, working)
		<-r.Context().Done()
		close(gone)
	})
	reply, err := d.Dial(t.Context(), e, sealed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reply.Events.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := reply.Events.Next(ctx); !errors.As(err, new(*transport.TimeoutError)) {
		t.Errorf("got %v", err)
	}
	<-gone
}

// TestDial_HTTPOperationsByPath: an operation over HTTP goes to its place, below the
// agent's URL.
func TestDial_HTTPOperationsByPath(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ verb, path, body string }{
		{http.MethodGet, "/tasks/a%2Fb?historyLength=2", ""},
		{http.MethodPost, "/tasks/t:cancel", `{}`},
		{http.MethodPost, "/acme/message:send", helloHTTP},
		{http.MethodGet, "/tasks/%2E%2E", ""},
	} {
		wire := translators.Wire{Binding: form.Binding, Version: form.Version, Form: form.FormHTTP, Body: []byte(c.body), Verb: c.verb, Path: c.path}
		sealed := sealWire(t, wire)
		d, e, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.Method != c.verb || r.RequestURI != "/base"+c.path || string(body) != c.body || (c.body == "") != (r.Header.Get("Content-Type") == "") {
				t.Errorf("%s %s %s", r.Method, r.RequestURI, body)
			}
			w.Header().Set("Content-Type", form.MediaHTTP)
			_, _ = io.WriteString(w, `{"task":{"id":"t","status":{"state":"TASK_STATE_COMPLETED"}}}`)
		})
		e.URL, e.Form = e.URL+"/base/", form.FormHTTP
		if _, err := d.Dial(t.Context(), e, sealed); err != nil {
			t.Error(err)
		}
	}
}
