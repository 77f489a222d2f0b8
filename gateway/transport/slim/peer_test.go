package slim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/credential"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/nodetest"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/plain"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func named(t *testing.T, text string) name.Name {
	t.Helper()
	n, err := name.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// agent answers both ways of calling; by service it says which one it knows.
type agent struct{ service string }

func (a agent) Serve(ctx context.Context, call rpc.Call, out rpc.Responder) error {
	if call.Service != "" && call.Service != a.service {
		return &rpc.StatusError{Code: rpc.Unimplemented, Message: "Method not found: " + call.Service + "/" + call.Method}
	}
	if call.Service != "" {
		return out.Send(ctx, rpc.Frame{Body: []byte(call.Service + " for " + call.Subject)})
	}
	var m struct {
		ID     json.RawMessage
		Method string
	}
	if err := json.Unmarshal(call.Body, &m); err != nil {
		return err
	}
	if m.ID == nil || m.Method == "" {
		return nil
	}
	if m.Method == "slow" {
		time.Sleep(time.Second)
	}
	for i := range 3 {
		if err := out.Send(ctx, rpc.Frame{Body: fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":%d}`, i)}); err != nil {
			return err
		}
	}
	return out.Send(ctx, rpc.Frame{Body: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%q}`, m.ID, m.Method)})
}

func startPeer(t *testing.T, node session.Node, as string, handler rpc.Handler) *Peer {
	t.Helper()
	who, err := credential.NewSecret(credential.SecretDeps{ID: as, Secret: []byte(strings.Repeat("secret", 6))})
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPeer(PeerDeps{Node: node, Name: named(t, as), Provider: who, Verifier: who, Handler: handler})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	synctest.Wait()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
	return p
}

func newNode(t *testing.T) *nodetest.Node {
	t.Helper()
	return nodetest.New(t, nil)
}

// TestPeer_FindsA2AServiceName: the name that an agent knows is found, and an agent that
// knows neither says so itself.
func TestPeer_FindsA2AServiceName(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ knows, first, answers string }{
		{ServiceA2A, "", ServiceA2A},
		{ServiceA2AOld, "", ServiceA2AOld},
		{ServiceA2AOld, ServiceA2AOld, ServiceA2AOld},
		{ServiceA2A, ServiceA2AOld, ServiceA2A},
		{"neither", "", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			node := newNode(t)
			server := startPeer(t, node, "org/ns/server", agent{row.knows})
			client := startPeer(t, node, "org/ns/client", nil)
			got, service, err := CallA2A(t.Context(), client, server.Name().Any(), rpc.Request{Service: row.first, Method: "GetTask"})
			if err != nil {
				t.Fatal(err)
			}
			defer got.Close()
			f, err := got.Next(t.Context())
			var status *rpc.StatusError
			if row.answers == "" {
				if !errors.As(err, &status) || status.Code != rpc.Unimplemented {
					t.Errorf("%+v: %v", row, err)
				}
				return
			}
			if err != nil || service != row.answers || string(f.Body) != row.answers+" for org/ns/client" {
				t.Errorf("%+v: %q by %s, %v", row, f.Body, service, err)
			}
			if _, err := got.Next(t.Context()); !errors.Is(err, io.EOF) {
				t.Errorf("%+v: at the end: %v", row, err)
			}
		})
	}
	if !IsA2A(ServiceA2A) || !IsA2A(ServiceA2AOld) || IsA2A("a2a") {
		t.Error("the services are not themselves")
	}
}

// refuser refuses whatever it is called for.
type refuser struct {
	says   string
	called []string
}

func (r *refuser) Serve(_ context.Context, call rpc.Call, _ rpc.Responder) error {
	r.called = append(r.called, call.Service)
	return &rpc.StatusError{Code: rpc.Unimplemented, Message: r.says}
}

// TestPeer_RefusedCallIsNotRetriedByOtherName: an agent that refuses a call has had it, and is
// not called by another name for the same.
func TestPeer_RefusedCallIsNotRetriedByOtherName(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		method, says string
		calls        int
	}{
		{"SendStreamingMessage", "UnsupportedOperationError: not here", 1},
		{"SendStreamingMessage", "PushNotificationNotSupportedError: ", 1},
		{"SendStreamingMessage", "MethodNotFoundError: no such method", 1},
		{"SendStreamingMessage", "Method not found: lf.a2a.v1.A2AService/SendStreamingMessage", 2},
		{"SendStreamingMessage", "Method not found: lf.a2a.v1.A2AService/SendMessage", 1}, // of a call of its own
		{"SendStreamingMessage", "Method not found", 1},
		{"SendMessage", "the model cannot do that", 1},
		{"CancelTask", "", 1},
		{"GetTask", "lf.a2a.v1.A2AService: unknown", 2}, // which changes nothing
		{"GetTask", "UnsupportedOperationError: not here", 1},
	} {
		method, says, calls := row.method, row.says, row.calls
		synctest.Test(t, func(t *testing.T) {
			node, agent := newNode(t), &refuser{says: says}
			server := startPeer(t, node, "org/ns/server", agent)
			got, service, err := CallA2A(t.Context(), startPeer(t, node, "org/ns/client", nil), server.Name().Any(), rpc.Request{Method: method})
			if err != nil {
				t.Fatal(err)
			}
			defer got.Close()
			_, err = got.Next(t.Context())
			var status *rpc.StatusError
			if !errors.As(err, &status) || status.Message != says || service != ServiceA2A {
				t.Errorf("%q is heard as %v of %s", says, err, service)
			}
			synctest.Wait()
			if len(agent.called) != calls {
				t.Errorf("%q: called as %q", says, agent.called)
			}
		})
	}
}

// TestConverse_RoutesResponsesByID: notifications and responses come to whose they are.
func TestConverse_RoutesResponsesByID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t)
		server := startPeer(t, node, "org/ns/server", agent{})
		c, err := startPeer(t, node, "org/ns/client", nil).Converse(t.Context(), server.Name().Any())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, id := range []string{`1`, `"a"`, `"\u0062"`} {
			stream, err := c.Call(t.Context(), []byte(`{"jsonrpc":"2.0","id":`+id+`,"method":"tools/list"}`), nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 4 {
				f, err := stream.Next(t.Context())
				if last := strings.Contains(string(f.Body), `"result":"tools/list"`); err != nil || last != (i == 3) {
					t.Errorf("%s, %d: %s %v", id, i, f.Body, err)
				}
			}
			if _, err := stream.Next(t.Context()); !errors.Is(err, io.EOF) {
				t.Errorf("%s: %v", id, err)
			}
			stream.Close()
		}
		slow, err := c.Call(t.Context(), []byte(`{"jsonrpc":"2.0","id":"slow","method":"slow"}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer slow.Close()
		if _, err := c.Call(t.Context(), []byte(`{"jsonrpc":"2.0","id":"\u0073low","method":"slow"}`), nil); !errors.Is(err, plain.ErrID) {
			t.Errorf("an id twice: %v", err)
		}
		fast, err := c.Call(t.Context(), []byte(`{"jsonrpc":"2.0","id":2,"method":"fast"}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer fast.Close()
		if f, err := fast.Next(t.Context()); err != nil || !strings.Contains(string(f.Body), `"result":"fast"`) {
			t.Errorf("%s %v", f.Body, err)
		}
		notified, err := c.Call(t.Context(), []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := notified.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("a notification is answered: %v", err)
		}
		for _, no := range []string{``, `[]`, `[{"id":1,"method":"x"}]`, `{}`, `{"id":1,"result":1}`, `{"id":null}`, `x`} {
			if _, err := c.Call(t.Context(), []byte(no), nil); !errors.Is(err, plain.ErrMessage) {
				t.Errorf("%s: %v", no, err)
			}
		}
	})
}

// TestConverse_PeerWithoutAgentEndsTheSession: whom nobody serves learns it by the end of the session, which
// may come before he has heard that it has begun.
func TestConverse_PeerWithoutAgentEndsTheSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t)
		mute := startPeer(t, node, "org/ns/mute", nil)
		c, err := startPeer(t, node, "org/ns/client", nil).Converse(t.Context(), mute.Name().Any())
		var broken *session.BrokenError
		if errors.As(err, &broken) && broken.Fault == session.FaultRefused {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		synctest.Wait()
		if _, err := c.Call(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`), nil); !errors.Is(err, session.ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}

// TestConverse_SilentSessionIsClosed are given up, lest they be collected here.
func TestConverse_SilentSessionIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t)
		server := startPeer(t, node, "org/ns/server", agent{})
		c, err := startPeer(t, node, "org/ns/client", nil).Converse(t.Context(), server.Name().Any())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		time.Sleep(silentLimit + time.Minute)
		if _, err := c.Call(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`), nil); !errors.Is(err, session.ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}

func TestParseAddress_Forms(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"org/ns/svc":                                      "|org/ns/svc",
		"slim://org/ns/svc":                               "|org/ns/svc",
		"slim://node.example/org/ns/svc":                  "node.example:46357|org/ns/svc",
		"slim://node.example:47000/org/ns/svc":            "node.example:47000|org/ns/svc",
		"slim://[::1]/org/ns/svc":                         "[::1]:46357|org/ns/svc",
		"slim://[::1]:1/org/ns/svc":                       "[::1]:1|org/ns/svc",
		"slim://10.0.0.1/org/ns/svc":                      "10.0.0.1:46357|org/ns/svc",
		"":                                                "",
		"slim://":                                         "",
		"slim:///org/ns/svc":                              "",
		"slim://node/ns/svc/x/y":                          "",
		"slim://node:0/org/ns/svc":                        "",
		"slim://node:70000/org/ns/svc":                    "",
		"slim://:1/org/ns/svc":                            "",
		"slim://a:b:c/org/ns/svc":                         "",
		"slim://user@host:x/org/ns/svc":                   "",
		"slim://user@host/org/ns/svc":                     "",
		"slim://ho st/org/ns/svc":                         "",
		"http://org/ns/svc":                               "",
		"org/ns":                                          "",
		"org/ns/svc/00000000-0000-0001-0000-02":           "",
		"org/ns/svc/00000000-0000-0001-0000-000000000002": "",
	} {
		got, err := ParseAddress(text)
		if written := got.Node + "|" + got.Name.Base(); (err == nil) != (want != "") || err == nil && written != want {
			t.Errorf("%q: %s %v", text, written, err)
		}
	}
}

func FuzzParseAddress_Roundtrip(f *testing.F) {
	f.Add("slim://node.example:47000/org/ns/svc")
	f.Add("slim://[::1]/org/ns/svc")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAddress(text)
		if err != nil {
			return
		}
		written := a.Name.String()
		if a.Node != "" {
			written = scheme + a.Node + "/" + written
		}
		if again, err := ParseAddress(written); err != nil || again != a {
			t.Errorf("%q is %+v; %q is %+v, %v", text, a, written, again, err)
		}
	})
}
