package ainp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/transport"
	wire "github.com/aepb/aepb-gateway/gateway/transport/ainp"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	form "github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// socketEndpoint serves a door's WebSocket until the test ends.
func socketEndpoint(t *testing.T, r *fakeHandler, who identity.Caller, limits wire.SocketConfig) string {
	t.Helper()
	endpoint := newEndpoint(t, func(d *wire.ServerDeps) { d.Socket = limits })
	handler := endpoint.Handler(r)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.SetPathValue("agent", "chef")
		handler.ServeHTTP(w, r.WithContext(transport.WithCaller(r.Context(), who, "192.0.2.1")))
	}))
	t.Cleanup(func() { endpoint.Close(); server.Close() })
	return "ws" + strings.TrimPrefix(server.URL, "http")
}

func dialEndpoint(t *testing.T, at string) *websocket.Conn {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), at, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

// says sends a text and reads one, or why there is none.
func says(t *testing.T, conn *websocket.Conn, kind websocket.MessageType, text string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := conn.Write(ctx, kind, []byte(text)); err != nil {
		return "", err
	}
	_, body, err := conn.Read(ctx)
	return string(body), err
}

// numbered is a signed note with an id of its own.
func numbered(t *testing.T, who wire.Identity, digit string) string {
	t.Helper()
	return string(sign(t, who, []byte(strings.Replace(note(who), requestID, requestID[:35]+digit, 1)), form.SigDraft))
}

// TestWebSocket_Refusals: what each refusal is on a connection that stays open, and
// that good messages are answered afterwards, or how the connection ends.
func TestWebSocket_Refusals(t *testing.T) {
	t.Parallel()
	a, stranger := party("alice"), party("stranger")
	edited := func(before, after string) string {
		return string(sign(t, a, []byte(strings.Replace(note(a), before, after, 1)), form.SigDraft))
	}
	for name, tc := range map[string]struct {
		text  string
		kind  websocket.MessageType
		query string
		code  string
		ends  websocket.StatusCode // 0: the connection goes on
	}{
		"no JSON":                {text: "{", code: "VALIDATION_ERROR"},
		"nothing":                {text: "", code: "VALIDATION_ERROR"},
		"a list":                 {text: "[]", code: "VALIDATION_ERROR"},
		"too deep":               {text: strings.Repeat("[", 200) + strings.Repeat("]", 200), code: "VALIDATION_ERROR"},
		"unsigned":               {text: note(a), code: "INVALID_SIGNATURE"},
		"signed by another":      {text: string(sign(t, stranger, []byte(note(a)), form.SigDraft)), code: "INVALID_SIGNATURE"},
		"in another name":        {text: string(sign(t, stranger, []byte(note(stranger)), form.SigDraft)), query: "?did=" + a.DID, code: "INVALID_SIGNATURE"},
		"another version":        {text: edited("0.1.0", "0.2.0"), code: "UNSUPPORTED_SCHEMA"},
		"expired":                {text: edited("1728259400000", "1728250000000"), code: "VALIDATION_ERROR"},
		"from the future":        {text: edited("1728259400000", "1728359400000"), code: "VALIDATION_ERROR"},
		"a ttl without end":      {text: edited(`"ttl":30000`, `"ttl":999999999`), code: "VALIDATION_ERROR"},
		"no such type":           {text: edited(`"INTENT"`, `"SHOUT"`), code: "NOT_IMPLEMENTED"},
		"a discovery's answer":   {text: edited(`"INTENT"`, `"DISCOVER_RESULT"`), code: "VALIDATION_ERROR"},
		"a decision half made":   {text: edited(`"INTENT"`, `"RESULT"`), code: "VALIDATION_ERROR"},
		"a partial decision":     {text: strings.Replace(edited(`"INTENT","id"`, `"RESULT","id"`), `"payload":{`, `"payload":{"status":"partial",`, 1), code: "VALIDATION_ERROR"},
		"a negotiation too long": {text: strings.Replace(edited(`"INTENT","id"`, `"NEGOTIATE","id"`), `"payload":{`, `"payload":{"negotiation_id":"n","phase":"OFFER","round":11,`, 1), code: "VALIDATION_ERROR"},
		"evidence of numbers":    {text: edited(`"semantics"`, `"aepb":{"ect":[1]},"semantics"`), code: "VALIDATION_ERROR"},
		"bytes":                  {text: note(a), kind: websocket.MessageBinary, ends: websocket.StatusUnsupportedData},
		"too long":               {text: strings.Repeat(" ", 2<<20), ends: websocket.StatusMessageTooBig},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &fakeHandler{exchange: echo}
			conn := dialEndpoint(t, socketEndpoint(t, r, nobody(), wire.SocketConfig{})+tc.query)
			if tc.kind == 0 {
				tc.kind = websocket.MessageText
			}
			got, err := says(t, conn, tc.kind, tc.text)
			if tc.ends != 0 {
				// Whoever writes too much may not get to read why it is cut off.
				if err == nil || websocket.CloseStatus(err) != tc.ends && tc.ends != websocket.StatusMessageTooBig {
					t.Errorf("it ends with %v, want %v", err, tc.ends)
				}
				return
			}
			if err != nil || !strings.Contains(got, `"msg_type":"ERROR"`) || !strings.Contains(got, `"error_code":"`+tc.code+`"`) {
				t.Fatalf("got %s, %v, want %s", got, err, tc.code)
			}
			holds(t, []byte(got), form.SigDraft)
			if len(r.seen()) != 0 {
				t.Error("it went into the pipeline")
			}
			if got, err := says(t, conn, websocket.MessageText, numbered(t, a, "9")); err != nil || !strings.Contains(got, `"status":"success"`) {
				t.Errorf("afterwards: %s, %v", got, err)
			}
		})
	}
}

// TestWebSocket_MessageTakenOnce, whichever connection brings it.
func TestWebSocket_MessageTakenOnce(t *testing.T) {
	t.Parallel()
	at := socketEndpoint(t, &fakeHandler{exchange: echo}, nobody(), wire.SocketConfig{})
	for i, want := range []string{`"status":"success"`, "DUPLICATE_INTENT"} {
		if got, err := says(t, dialEndpoint(t, at), websocket.MessageText, numbered(t, party("alice"), "1")); err != nil || !strings.Contains(got, want) {
			t.Errorf("time %d: %s, %v", i, got, err)
		}
	}
}

// TestWebSocket_Limits: connections, messages at once and pages of others.
func TestWebSocket_Limits(t *testing.T) {
	t.Parallel()
	t.Run("connections", func(t *testing.T) {
		t.Parallel()
		request, answers := make(chan struct{}), make(chan struct{})
		waiting := func(call transport.Call) (transport.Answer, error) {
			request <- struct{}{}
			<-answers
			return echo(call)
		}
		at := socketEndpoint(t, &fakeHandler{exchange: waiting}, nobody(), wire.SocketConfig{Connections: 1})
		first := dialEndpoint(t, at)
		if err := first.Write(t.Context(), websocket.MessageText, []byte(numbered(t, party("alice"), "1"))); err != nil {
			t.Fatal(err)
		}
		<-request
		if _, response, err := websocket.Dial(t.Context(), at, nil); err == nil || response == nil || response.StatusCode != http.StatusTooManyRequests {
			t.Errorf("a second connection, while a message is under way on the first: %v", err)
		}
		close(answers)
		if _, _, err := first.Read(t.Context()); err != nil {
			t.Errorf("the first connection: %v", err)
		}
		var err error
		for range 100 { // until it is noticed that nothing is under way
			var second *websocket.Conn
			if second, _, err = websocket.Dial(t.Context(), at, nil); err == nil {
				defer func() { _ = second.CloseNow() }()
				break
			}
		}
		if err != nil {
			t.Errorf("a second connection, while nothing is under way: %v", err)
		}
		if _, _, err := first.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusTryAgainLater {
			t.Errorf("the first connection, which has given way: %v", err)
		}
	})
	t.Run("another origin", func(t *testing.T) {
		t.Parallel()
		at := socketEndpoint(t, &fakeHandler{exchange: echo}, nobody(), wire.SocketConfig{})
		_, response, err := websocket.Dial(t.Context(), at, &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"https://evil.example"}}})
		if err == nil || response == nil || response.StatusCode != http.StatusForbidden {
			t.Errorf("a page of another origin: %v", err)
		}
	})
	t.Run("a caller over its limit", func(t *testing.T) {
		t.Parallel()
		over := &canonical.Error{Code: canonical.CodeRateLimited, Message: "slow down"}
		at := socketEndpoint(t, &fakeHandler{exchange: echo, limit: func(transport.CallInfo) error { return over }}, nobody(), wire.SocketConfig{})
		if _, response, err := websocket.Dial(t.Context(), at, nil); err == nil || response == nil || response.StatusCode != http.StatusTooManyRequests {
			t.Errorf("got %v", err)
		}
	})
	t.Run("messages at once", func(t *testing.T) {
		t.Parallel()
		hold := make(chan struct{})
		r := &fakeHandler{exchange: func(call transport.Call) (transport.Answer, error) {
			<-hold
			return echo(call)
		}}
		conn := dialEndpoint(t, socketEndpoint(t, r, nobody(), wire.SocketConfig{InFlight: 1}))
		defer close(hold)
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(numbered(t, party("alice"), "1"))); err != nil {
			t.Fatal(err)
		}
		if got, err := says(t, conn, websocket.MessageText, numbered(t, party("alice"), "2")); err != nil || !strings.Contains(got, "RATE_LIMIT_EXCEEDED") {
			t.Errorf("got %s, %v", got, err)
		}
	})
}

// TestWebSocket_IdleAndPingTimeouts: when nothing is said for five minutes, or when a ping,
// each thirty seconds, is not answered within ten.
func TestWebSocket_IdleAndPingTimeouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn, began := throughPipe(t, &fakeHandler{exchange: echo}), time.Now()
		if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
			t.Errorf("silence ends with %v", err)
		}
		if took := time.Since(began); took <= 5*time.Minute || took > 6*time.Minute {
			t.Errorf("silence ends after %v", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		left := make(chan struct{})
		conn, began := throughPipe(t, &fakeHandler{exchange: func(transport.Call) (transport.Answer, error) {
			return transporttest.Stream(&forever{left: left}), nil
		}}), time.Now()
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(numbered(t, party("alice"), "1"))); err != nil {
			t.Fatal(err)
		}
		select { // nobody reads, hence nobody answers pings
		case <-left:
		case <-time.After(time.Hour):
		}
		if took := time.Since(began); took <= 30*time.Second || took > 40*time.Second {
			t.Errorf("a caller that is not there: the stream is left after %v", took)
		}
	})
}

// TestWebSocket_StaysOpenWhileUsed as long as something is said now and then, however quickly it is
// answered.
func TestWebSocket_StaysOpenWhileUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := throughPipe(t, &fakeHandler{exchange: echo})
		var ended error
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ended == nil {
				_, _, ended = conn.Read(t.Context())
			}
		}()
		for n := range 20 {
			<-time.After(time.Minute)
			if err := conn.Write(t.Context(), websocket.MessageText, []byte(numbered(t, party("alice"), "1"))); err != nil {
				t.Fatalf("after %d minutes: %v", n, err)
			}
		}
		_ = conn.CloseNow()
		<-done
	})
}

// pipes is a listener within the process, which knows no time but the test's.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// throughPipe connects to a door, which is served until the test ends.
func throughPipe(t *testing.T, r *fakeHandler) *websocket.Conn {
	t.Helper()
	return throughPipeAs(t, r, func(ctx context.Context) context.Context { return transport.WithCaller(ctx, nobody(), "192.0.2.1") })
}

// throughPipeAs does it as the caller that mark says.
func throughPipeAs(t *testing.T, r *fakeHandler, mark func(context.Context) context.Context) *websocket.Conn {
	t.Helper()
	endpoint, p := newEndpoint(t, nil), &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	handler := endpoint.Handler(r)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.SetPathValue("agent", "chef")
		handler.ServeHTTP(w, r.WithContext(mark(r.Context())))
	})}
	var group sync.WaitGroup
	group.Go(func() { _ = server.Serve(p) })
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		p.conns <- far
		return near, nil
	}}}
	conn, _, err := websocket.Dial(t.Context(), "ws://door.example/", &websocket.DialOptions{HTTPClient: client})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.CloseNow()
		endpoint.Close()
		_ = server.Close()
		group.Wait()
	})
	return conn
}

// forever is a stream that says nothing until it is left.
type forever struct{ left chan struct{} }

func (f *forever) Next(ctx context.Context) (transport.Event, error) {
	<-ctx.Done()
	return transport.Event{}, ctx.Err()
}

func (f *forever) Close() error {
	close(f.left)
	return nil
}

// TestWebSocket_MisbehavingAgent: what an agent behind a WebSocket says that is no answer.
func TestWebSocket_MisbehavingAgent(t *testing.T) {
	t.Parallel()
	g := party("gateway")
	answer := func(kind, id, payload string) string {
		return `{"version":"0.1.0","msg_type":"` + kind + `","id":"880e8400-e29b-41d4-a716-44665544000` + id + `","timestamp":1728259400000,"ttl":30000,"trace_id":"` + requestID +
			`","from_did":"` + g.DID + `","payload":` + payload + `}`
	}
	by := func(who wire.Identity, text string) string { return string(sign(t, who, []byte(text), form.SigDraft)) }
	result := func(id, status string) string {
		return answer("RESULT", id, `{"intent_id":"`+requestID+`","status":"`+status+`","result":"x"}`)
	}
	partial, done := by(g, result("1", "partial")), by(g, result("2", "success"))
	bad, gone := as[*transport.BadReplyError], as[*transport.UnreachableError]
	fine := func(err error) bool { return err == nil }
	for name, tc := range map[string]struct {
		says []string
		kind websocket.MessageType
		is   func(error) bool
	}{
		"fine":                         {says: []string{done}, is: fine},
		"one thing after the other":    {says: []string{partial, done}, is: fine},
		"nothing":                      {is: gone},
		"nothing more":                 {says: []string{partial}, is: gone},
		"no JSON":                      {says: []string{"<html>"}, is: bad},
		"bytes":                        {says: []string{done}, kind: websocket.MessageBinary, is: bad},
		"too long":                     {says: []string{strings.Repeat(" ", 2<<20)}, is: bad},
		"unsigned":                     {says: []string{result("1", "success")}, is: bad},
		"in somebody's name":           {says: []string{by(party("eve"), result("1", "success"))}, is: bad},
		"unsigned in the middle":       {says: []string{partial, result("2", "partial")}, is: bad},
		"the same twice":               {says: []string{partial, partial}, is: bad},
		"about another intent":         {says: []string{by(g, strings.Replace(result("1", "success"), `"intent_id":"`, `"intent_id":"x`, 1))}, is: bad},
		"about another intent, later":  {says: []string{partial, by(g, strings.Replace(result("2", "success"), `"intent_id":"`, `"intent_id":"x`, 1))}, is: bad},
		"old":                          {says: []string{by(g, strings.Replace(result("1", "success"), "1728259400000", "1728250000000", 1))}, is: bad},
		"evidence of another shape":    {says: []string{by(g, strings.Replace(result("1", "success"), `"status"`, `"aepb":{"ect":7},"status"`, 1))}, is: bad},
		"routed, as brokers answer":    {says: []string{`{"status":"routed","agent_count":1}`}, is: bad},
		"a question of another's work": {says: []string{by(g, answer("INTENT", "1", `{"@type":"ApprovalRequest","intent_id":"x","semantics":{"description":"?"}}`))}, is: bad},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				conn, err := websocket.Accept(w, r, nil)
				if err != nil {
					return
				}
				defer func() { _ = conn.CloseNow() }()
				if _, _, err = conn.Read(r.Context()); err != nil {
					return
				}
				for _, text := range tc.says {
					if tc.kind == 0 {
						tc.kind = websocket.MessageText
					}
					if conn.Write(r.Context(), tc.kind, []byte(text)) != nil {
						return
					}
				}
			}))
			defer server.Close()
			ep := transport.Endpoint{Agent: "chef", URL: "ws" + strings.TrimPrefix(server.URL, "http"), Timeout: 5 * time.Second}
			reply, err := newDialer(t, direct{}, wire.Peer{}).Dial(t.Context(), ep, seal(t))
			if reply.Events != nil {
				for err == nil {
					_, err = reply.Events.Next(t.Context())
				}
				if errors.Is(err, io.EOF) {
					err = nil
				}
				_ = reply.Events.Close()
			}
			if !tc.is(err) {
				t.Errorf("got %T %v", err, err)
			}
		})
	}
}

// TestWebSocket_NotOpened: what it is called when there is no WebSocket.
func TestWebSocket_NotOpened(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		client direct
		status int
		is     func(error) bool
	}{
		"a page":            {status: 200, is: as[*transport.BadReplyError]},
		"not found":         {status: 404, is: as[*transport.BadReplyError]},
		"a redirect":        {status: 302, is: as[*transport.BadReplyError]},
		"not reached":       {client: direct{errors.New("refused")}, is: as[*transport.UnreachableError]},
		"refused by egress": {client: direct{&egress.DeniedError{Host: "x", Reason: egress.ReasonNotListed}}, is: as[*egress.DeniedError]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "https://evil.example/")
				w.WriteHeader(tc.status)
			}))
			defer server.Close()
			ep := transport.Endpoint{Agent: "chef", URL: "ws" + strings.TrimPrefix(server.URL, "http"), Timeout: 5 * time.Second}
			if _, err := newDialer(t, tc.client, wire.Peer{}).Dial(t.Context(), ep, seal(t)); !tc.is(err) {
				t.Errorf("got %T %v", err, err)
			}
		})
	}
}
