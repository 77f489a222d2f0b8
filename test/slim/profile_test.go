package slim_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/gateway/transport/slim"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/credential"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/link"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
)

// server answers a JSON-RPC request with two notifications and a response.
type server struct{}

func (server) Serve(ctx context.Context, call rpc.Call, out rpc.Responder) error {
	if call.Service != "" || !strings.Contains(string(call.Body), `"id":7`) {
		return nil
	}
	for i := range 2 {
		if err := out.Send(ctx, rpc.Frame{Body: fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":%d}}`, i)}); err != nil {
			return err
		}
	}
	return out.Send(ctx, rpc.Frame{Body: []byte(`{"jsonrpc":"2.0","id":7,"result":"for ` + call.Subject + " of " + call.From.Base() + `"}`), Metadata: call.Metadata})
}

// startOurs runs a peer of ours on its own link.
func startOurs(t *testing.T, at, as string) *slim.Peer {
	t.Helper()
	l, err := link.New(link.Deps{Dial: plaintext(at), Node: at, Logger: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	credentials, err := credential.NewSecret(credential.SecretDeps{ID: as, Secret: []byte(secret)})
	if err != nil {
		t.Fatal(err)
	}
	peer, err := slim.NewPeer(slim.PeerDeps{
		Node: l, Name: parse(t, as), Provider: credentials, Verifier: credentials, Handler: server{}, Logger: testLog(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return l.Run(ctx) })
	group.Go(func() error { return peer.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		_ = group.Wait()
	})
	if err := l.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	return peer
}

// TestJSONRPC_OverARealNode: a real application calls us, and we call it.
func TestJSONRPC_OverARealNode(t *testing.T) {
	t.Parallel()
	_, at := startNode(t)
	theirs, us := startApp(t, at, "org/ns/alice", false), startOurs(t, at, "org/ns/gogate")

	var request handle
	theirs.do(t, job{"job": "open", "app": "org/ns/alice", "to": us.Name().Base()}, &request)
	theirs.do(t, job{"job": "publish", "session": request.Session, "body": `{"jsonrpc":"2.0","id":7,"method":"tools/call"}`, "metadata": job{"execution-context": "e"}}, nil)
	var got received
	for range 2 {
		theirs.do(t, job{"job": "receive", "session": request.Session}, &got)
		if !strings.Contains(got.Body, "notifications/progress") {
			t.Errorf("%+v", got)
		}
	}
	theirs.do(t, job{"job": "receive", "session": request.Session}, &got)
	if !strings.Contains(got.Body, "of org/ns/alice") || got.Metadata["execution-context"] != "e" {
		t.Errorf("%+v", got)
	}

	ctx := limited(t, 30*time.Second)
	c, err := us.Converse(ctx, parse(t, "org/ns/alice"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var answered handle
	theirs.do(t, job{"job": "listen", "app": "org/ns/alice"}, &answered)
	stream, err := c.Call(ctx, []byte(`{"jsonrpc":"2.0","id":"x","method":"ping"}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	theirs.do(t, job{"job": "receive", "session": answered.Session}, &got)
	theirs.do(t, job{"job": "publish", "session": answered.Session, "body": `{"jsonrpc":"2.0","id":"x","result":{}}`}, nil)
	if f, err := stream.Next(ctx); err != nil || !strings.Contains(string(f.Body), `"result"`) {
		t.Errorf("%s %v", f.Body, err)
	}
	if _, err := stream.Next(ctx); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// TestA2A_ServiceByEitherName finds the service by either of its names.
func TestA2A_ServiceByEitherName(t *testing.T) {
	t.Parallel()
	_, at := startNode(t)
	us := startOurs(t, at, "org/ns/gogate")
	for i, service := range []string{slim.ServiceA2A, slim.ServiceA2AOld} {
		as := fmt.Sprintf("org/ns/agent%d", i)
		startPeer(t).do(t, job{
			"job": "app", "endpoint": "http://" + at, "name": as, "secret": secret, "rpc": true, "services": []string{service},
		}, nil)
		ctx := limited(t, 30*time.Second)
		got, answered, err := slim.CallA2A(ctx, us, parse(t, as), rpc.Request{Method: "GetTask", Body: []byte("task")})
		if err != nil {
			t.Fatal(err)
		}
		defer got.Close()
		if f, err := got.Next(ctx); err != nil || answered != service || string(f.Body) != service+" task" {
			t.Errorf("%s: %q by %s, %v", service, f.Body, answered, err)
		}
	}
}
