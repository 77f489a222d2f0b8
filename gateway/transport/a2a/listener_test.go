package a2a

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// listening serves a fakeHandler over gRPC until the test ends, and connects to it.
func overTLS(t *testing.T, r transport.Handler, edit func(*ListenerDeps)) *grpc.ClientConn {
	t.Helper()
	borrowed := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	borrowed.Close()
	var lc net.ListenConfig
	accept, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	deps := ListenerDeps{
		Form: form.New(translators.Config{BodyLimit: 4096}), Accept: accept, TLS: borrowed.TLS, Logger: slog.New(slog.DiscardHandler),
		Identify: func(ctx context.Context, _ Arrival) context.Context {
			return transport.WithCaller(ctx, caller, "192.0.2.1")
		},
		AgentURL: func(agent string) string { return "https://gw.example/agents/" + agent }, GRPC: "gw.example:1",
	}
	if edit != nil {
		edit(&deps)
	}
	l, err := NewListener(deps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- l.Serve(ctx, r) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	pool := x509.NewCertPool()
	pool.AddCert(borrowed.Certificate())
	conn, err := grpc.NewClient(accept.Addr().String(),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "example.com", MinVersion: tls.VersionTLS13})),
		grpc.WithInitialWindowSize(1<<16), // else it grows with what other streams read
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

const requestBob = "\x0a\x03bob"

// begin opens a call and sends its message.
func begin(ctx context.Context, t *testing.T, conn *grpc.ClientConn, method string) grpc.ClientStream {
	t.Helper()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, form.ServiceGRPC+method)
	if err == nil {
		err = stream.SendMsg([]byte(requestBob))
	}
	if err == nil {
		err = stream.CloseSend()
	}
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// notified are the events that a fakeHandler tells.
type notified struct {
	events    []transport.Event
	err       error // after them; nil: io.EOF
	requested chan struct{}
	closed    chan struct{}
}

func (e *notified) Next(ctx context.Context) (transport.Event, error) {
	if len(e.events) > 0 {
		next := e.events[0]
		e.events = e.events[1:]
		return next, nil
	}
	if e.requested != nil {
		close(e.requested)
		<-ctx.Done()
		return transport.Event{}, ctx.Err()
	}
	if e.err != nil {
		return transport.Event{}, e.err
	}
	return transport.Event{}, io.EOF
}

func (e *notified) Close() error { close(e.closed); return nil }

func TestListener_UnaryCall(t *testing.T) {
	t.Parallel()
	r := &fakeHandler{answer: transporttest.Answer(translators.Wire{Body: []byte("answer"), Header: http.Header{"A2a-Version": {"1.0"}}}, "a.b.c", "d.e.f")}
	conn := overTLS(t, r, nil)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-1", "a2a-extensions", "urn:x")
	stream := begin(ctx, t, conn, "SendMessage")
	var body []byte
	if err := stream.RecvMsg(&body); err != nil || string(body) != "answer" {
		t.Fatalf("%q %v", body, err)
	}
	header, err := stream.Header()
	if err != nil || strings.Join(header.Get("execution-context"), " ") != "a.b.c d.e.f" || header.Get("a2a-version")[0] != "1.0" {
		t.Errorf("%v %v", header, err)
	}
	call := r.call
	if call.Agent != "bob" || !call.Tenanted || !call.Detached || !call.Pass.Valid() || r.limits != 1 || call.Wire.Form != form.FormGRPC || string(call.Wire.Body) != requestBob ||
		call.Wire.Path != form.ServiceGRPC+"SendMessage" || call.Wire.Header.Get("Traceparent") != "00-1" || call.Wire.Header.Get("A2A-Extensions") != "urn:x" || call.Caller.ID != caller.ID {
		t.Errorf("the pipeline got %+v", call)
	}
}

func TestListener_Stream(t *testing.T) {
	t.Parallel()
	one := transport.Event{Wire: translators.Wire{Body: []byte("one"), Event: true}}
	last := transport.Event{Evidence: []string{"a.b.c"}}
	for name, c := range map[string]struct {
		events *notified
		want   codes.Code
		token  bool
	}{
		"to its end":      {&notified{events: []transport.Event{one, last}}, codes.OK, true},
		"that breaks off": {&notified{events: []transport.Event{one}, err: &transport.UnreachableError{Agent: "bob", Err: errors.New("x")}}, codes.Unavailable, false},
		"that fails": {&notified{events: []transport.Event{one, {Wire: translators.Wire{
			Body: []byte("\x08\x05\x12\x02no"), Status: 404, Event: true,
		}}, last}}, codes.NotFound, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.events.closed = make(chan struct{})
			conn := overTLS(t, &fakeHandler{answer: transporttest.Stream(c.events)}, nil)
			stream := begin(t.Context(), t, conn, "SendStreamingMessage")
			var body []byte
			if err := stream.RecvMsg(&body); err != nil || string(body) != "one" {
				t.Fatalf("%q %v", body, err)
			}
			err := stream.RecvMsg(&body)
			if errors.Is(err, io.EOF) {
				err = nil
			}
			if status.Code(err) != c.want || (len(stream.Trailer().Get("execution-context")) == 1) != c.token {
				t.Errorf("%v, %v", err, stream.Trailer())
			}
			<-c.events.closed
		})
	}
}

// A caller that leaves closes its stream, and nothing else.
func TestListener_CallerLeaves(t *testing.T) {
	t.Parallel()
	events := &notified{requested: make(chan struct{}), closed: make(chan struct{})}
	conn := overTLS(t, &fakeHandler{answer: transporttest.Stream(events)}, nil)
	ctx, leave := context.WithCancel(t.Context())
	begin(ctx, t, conn, "SubscribeToTask")
	<-events.requested
	leave()
	<-events.closed
}

// A stream ends with the token that its caller showed.
func TestListener_StreamEndsWithItsToken(t *testing.T) {
	t.Parallel()
	events := &notified{requested: make(chan struct{}), closed: make(chan struct{})}
	conn := overTLS(t, &fakeHandler{answer: transporttest.Stream(events)}, func(d *ListenerDeps) {
		d.Identify = func(ctx context.Context, _ Arrival) context.Context {
			until := caller
			until.Until = time.Now().Add(200 * time.Millisecond)
			return transport.WithCaller(ctx, until, "192.0.2.1")
		}
	})
	var body []byte
	if err := begin(t.Context(), t, conn, "SubscribeToTask").RecvMsg(&body); status.Code(err) != codes.Unauthenticated {
		t.Errorf("it ends with %v", err)
	}
	<-events.closed
}

// A request that does not arrive is not waited for.
func TestListener_SlowRequest(t *testing.T) {
	t.Parallel()
	conn := overTLS(t, &fakeHandler{}, func(d *ListenerDeps) { d.Read = 50 * time.Millisecond })
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, form.ServiceGRPC+"SendMessage")
	if err != nil {
		t.Fatal(err)
	}
	var body []byte
	if err := stream.RecvMsg(&body); status.Code(err) != codes.Canceled && status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
}

// panicking is a fakeHandler with a mistake in it.
type panicking struct{ fakeHandler }

func (*panicking) Exchange(context.Context, transport.Call) (transport.Answer, error) {
	panic("a mistake")
}

func TestListener_SurvivesPanic(t *testing.T) {
	t.Parallel()
	var logs bytes.Buffer
	conn := overTLS(t, &panicking{}, func(d *ListenerDeps) { d.Logger = slog.New(slog.NewTextHandler(&logs, nil)) })
	for range 2 {
		var body []byte
		err := begin(t.Context(), t, conn, "SendMessage").RecvMsg(&body)
		if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "mistake") {
			t.Errorf("got %v", err)
		}
	}
}

func TestListener_ExtendedCard(t *testing.T) {
	t.Parallel()
	r := &fakeHandler{description: &canonical.Description{Name: "Bob", Extended: true, Capabilities: []canonical.Capability{{ID: "s"}}}}
	var body []byte
	if err := begin(t.Context(), t, overTLS(t, r, nil), "GetExtendedAgentCard").RecvMsg(&body); err != nil {
		t.Fatal(err)
	}
	if r.limits != 1 {
		t.Errorf("asked the limit %d times", r.limits)
	}
	card, err := r.call.Card(r.description)
	for _, want := range []string{"Bob", "gw.example:1", "GRPC", "https://gw.example/agents/bob/a2a"} {
		if err != nil || !bytes.Contains(card, []byte(want)) {
			t.Errorf("%v, no %s in %s", err, want, card)
		}
	}
	r.description.Extended = false
	if err := begin(t.Context(), t, overTLS(t, r, nil), "GetExtendedAgentCard").RecvMsg(&body); err == nil {
		t.Error("an agent without an extended card is asked for it")
	}
}
