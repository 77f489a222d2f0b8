package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/credential"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/nodetest"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/session"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/policy/quota"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, node session.Node, as string) *session.App {
	t.Helper()
	who, err := credential.NewSecret(credential.SecretDeps{ID: as, Secret: []byte(strings.Repeat("secret", 6))})
	if err != nil {
		t.Fatal(err)
	}
	n, err := name.Parse(as)
	if err != nil {
		t.Fatal(err)
	}
	a, err := session.NewApp(session.Deps{Node: node, Name: n, Provider: who, Verifier: who})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	synctest.Wait()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
	return a
}

// echo is a handler with a method for each shape and failure.
type echo struct{}

func (echo) Serve(ctx context.Context, call Call, out Responder) error {
	switch call.Method {
	case "Echo":
		return out.Send(ctx, Frame{Metadata: call.Metadata, Body: call.Body})
	case "Count":
		for i := range 1500 {
			if err := out.Send(ctx, Frame{Body: fmt.Appendf(nil, "%d", i)}); err != nil {
				return err
			}
		}
		return nil
	case "Fail":
		return &StatusError{NotFound, "no such thing"}
	case "Odd":
		return &StatusError{OK, "not all right"}
	case "Break":
		return errors.New("a secret of the house")
	case "Wait":
		<-ctx.Done()
		return ctx.Err()
	default:
		return &StatusError{Unimplemented, "unknown method"}
	}
}

// serve answers calls until the test ends.
func serve(t *testing.T, app *session.App) {
	t.Helper()
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	pool := worker.NewPool(1)
	calls, err := quota.New(quota.Config{Resource: "calls", Total: 256, PerHolder: 256})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		for {
			s, err := app.Accept(ctx)
			if err != nil {
				return
			}
			if first, err := s.Receive(ctx); err == nil {
				_ = ServeSession(ctx, s, first, echo{}, pool, calls, slog.New(slog.DiscardHandler))
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		pool.Wait()
	})
}

// world is a server, and a client that knows its name.
func world(t *testing.T) (*Client, name.Name) {
	t.Helper()
	node := nodetest.New(t, nil)
	server, app := start(t, node, "org/ns/server"), start(t, node, "org/ns/client")
	serve(t, server)
	client, err := NewClient(app)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client, server.Name().Any()
}

func TestClient_UnaryCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, to := world(t)
		got, err := client.Unary(t.Context(), to, Request{Service: "s", Method: "Echo", Body: []byte("hi"), Metadata: map[string]string{"k": "v", "slimrpc-code": "5", "rpc-id": "x"}})
		if err != nil || string(got.Body) != "hi" || got.Metadata["k"] != "v" || len(got.Metadata) != 1 {
			t.Errorf("%q %v %v", got.Body, got.Metadata, err)
		}
		for method, code := range map[string]Code{"Fail": NotFound, "Odd": Unknown, "Break": Internal, "Nothing": Unimplemented} {
			_, err := client.Unary(t.Context(), to, Request{Service: "s", Method: method})
			var status *StatusError
			if !errors.As(err, &status) || status.Code != code || strings.Contains(status.Message, "secret") {
				t.Errorf("%s: %v %+v", method, err, status)
			}
		}
		if _, err := client.Unary(t.Context(), to, Request{Service: "s", Method: "Count"}); err == nil {
			t.Error("a stream passes for one response")
		}
	})
}

// TestClient_ConcurrentCallsShareASession share a session and do not mix.
func TestClient_ConcurrentCallsShareASession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, to := world(t)
		done := make(chan error, 50)
		for i := range 50 {
			go func() {
				want := fmt.Sprint(i)
				got, err := client.Unary(t.Context(), to, Request{Service: "s", Method: "Echo", Body: []byte(want)})
				if err == nil && string(got.Body) != want {
					err = fmt.Errorf("%q for %q", got.Body, want)
				}
				done <- err
			}()
		}
		for range 50 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if len(client.channels) != 1 {
			t.Errorf("%d sessions", len(client.channels))
		}
	})
}

// TestClient_StreamsInOrderAndIndependent: a reader that reads gets all of it, in order; one that does not
// is told so, and holds up nobody else.
func TestClient_StreamsInOrderAndIndependent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, to := world(t)
		stream, err := client.Call(t.Context(), to, Request{Service: "s", Method: "Count"})
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		for i := range 1500 {
			f, err := stream.Next(t.Context())
			if err != nil || string(f.Body) != fmt.Sprint(i) {
				t.Fatalf("%d: %q %v", i, f.Body, err)
			}
		}
		if _, err := stream.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
		lazy, err := client.Call(t.Context(), to, Request{Service: "s", Method: "Count"})
		if err != nil {
			t.Fatal(err)
		}
		defer lazy.Close()
		time.Sleep(time.Minute)
		if _, err := client.Unary(t.Context(), to, Request{Service: "s", Method: "Echo"}); err != nil {
			t.Errorf("another call: %v", err)
		}
		read := 0
		for err == nil {
			if _, err = lazy.Next(t.Context()); err == nil {
				read++
			}
		}
		if !errors.Is(err, ErrSlow) || read != bufferCount {
			t.Errorf("%d and %v", read, err)
		}
	})
}

// TestClient_DeadlineEndsBothSides goes with the call and ends it at both ends.
func TestClient_DeadlineEndsBothSides(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, to := world(t)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		stream, err := client.Call(ctx, to, Request{Service: "s", Method: "Wait"})
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		began := time.Now()
		var status *StatusError
		if _, err := stream.Next(t.Context()); !errors.As(err, &status) || status.Code != DeadlineExceeded {
			t.Errorf("the server: %v", err)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("after %v", took)
		}
		if _, err := client.Unary(ctx, to, Request{Service: "s", Method: "Echo"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("too late already: %v", err)
		}
	})
}

// TestClient_NewSessionAfterTheLastEnded is begun when the one that there was has ended.
func TestClient_NewSessionAfterTheLastEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, to := world(t)
		stream, err := client.Call(t.Context(), to, Request{Service: "s", Method: "Wait"})
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		stream.channel.session.Close()
		if _, err := stream.Next(t.Context()); !errors.Is(err, session.ErrClosed) {
			t.Errorf("the call that ran: %v", err)
		}
		synctest.Wait()
		if _, err := client.Unary(t.Context(), to, Request{Service: "s", Method: "Echo"}); err != nil {
			t.Errorf("the next: %v", err)
		}
		client.Close()
		if _, err := client.Call(t.Context(), to, Request{Service: "s", Method: "Echo"}); !errors.Is(err, session.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// TestClient_LeavesSilentSession is left after some calls that nobody answered; those that
// run on it are let be.
func TestClient_LeavesSilentSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, to := world(t)
		runs, err := client.Call(t.Context(), to, Request{Service: "s", Method: "Wait"})
		if err != nil {
			t.Fatal(err)
		}
		for range maxUnanswered {
			if client.channels[to] != runs.channel {
				t.Fatal("left too early")
			}
			stream, err := client.Call(t.Context(), to, Request{Service: "s", Method: "Wait"})
			if err != nil {
				t.Fatal(err)
			}
			stream.Close()
		}
		if client.channels[to] != nil {
			t.Error("not left")
		}
		synctest.Wait()
		if err := runs.channel.session.Delivered(t.Context()); err != nil {
			t.Errorf("the call that runs: %v", err)
		}
		runs.Close()
		if err := runs.channel.session.Delivered(t.Context()); !errors.Is(err, session.ErrClosed) {
			t.Errorf("the session that is left: %v", err)
		}
	})
}

// TestEnded_OldAndNewServers: the one rule that reads old servers and new ones.
func TestEnded_OldAndNewServers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		code, body string
		last       bool
		fails      Code
	}{
		{"-", "x", false, 0},
		{"-", "", false, 0},
		{"0", "x", false, 0},
		{"0", "", true, 0},
		{"5", "no", true, NotFound},
		{"5", "", true, NotFound},
		{"99", "", true, Unknown},
		{"x", "x", true, Unknown},
		{"", "", true, Unknown},
		{"-1", "", true, Unknown},
	} {
		metadata := map[string]string{}
		if row.code != "-" {
			metadata[keyStatus] = row.code
		}
		last, err := ended(session.Message{Metadata: metadata, Blob: []byte(row.body)})
		var status *StatusError
		if errors.As(err, &status); last != row.last || (status == nil) != (row.fails == 0) || status != nil && status.Code != row.fails {
			t.Errorf("%q %q: %v %v", row.code, row.body, last, err)
		}
	}
}

func TestParseDeadline_Values(t *testing.T) {
	t.Parallel()
	now := time.Unix(1700000000, 0)
	for text, want := range map[string]time.Duration{
		"": MaxTimeout, "1700000001.5": 1500 * time.Millisecond, "1700000000": 0, "0": -1700000000 * time.Second, "1e300": MaxTimeout, "+Inf": MaxTimeout,
	} {
		if at, ok := parseDeadline(text, now); !ok || !at.Equal(now.Add(want)) {
			t.Errorf("%q: %v %v", text, at, ok)
		}
	}
	for _, text := range []string{"x", "NaN", "-1", "-Inf", " 1", strings.Repeat("1", 65)} {
		if at, ok := parseDeadline(text, now); ok {
			t.Errorf("%q: %v", text, at)
		}
	}
	if at, ok := parseDeadline(seconds(now.Add(1234*time.Millisecond)), now); !ok || !at.Equal(now.Add(1234*time.Millisecond)) {
		t.Errorf("%v %v", at, ok)
	}
}

func FuzzMetadata_Bounds(f *testing.F) {
	f.Add("slimrpc-code", "0", "slimrpc-timeout", "1700000001.5", "")
	f.Add("rpc-id", "x", "service", "s", "body")
	now := time.Unix(1700000000, 0)
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2, body string) {
		m := session.Message{Metadata: map[string]string{k1: v1, k2: v2}, Blob: []byte(body)}
		last, err := ended(m)
		if err != nil && !last {
			t.Error("a failure that does not end the call")
		}
		for key := range visible(m.Metadata) {
			if reserved(key) {
				t.Errorf("%q is visible", key)
			}
		}
		if at, ok := parseDeadline(v2, now); ok && at.After(now.Add(MaxTimeout+time.Second)) {
			t.Errorf("%q: %v", v2, at)
		}
		sent := opening("id", Request{Service: "s", Method: "m", Metadata: m.Metadata}, now)
		if sent.Metadata[keyService] != "s" || sent.Metadata[keyID] != "id" || sent.Metadata[keyStatus] != "" {
			t.Errorf("%v", sent.Metadata)
		}
	})
}
