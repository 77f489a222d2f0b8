package slim_test

import (
	"context"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/session"
)

// idle is how long nobody says anything: longer than three of the other end's
// heartbeats, after which it would count us as gone.
const idle = 62 * time.Second

// TestLong_IdleMinute: sessions that nobody uses stay usable, both ways, because
// we give signs of life.
func TestLong_IdleMinute(t *testing.T) {
	t.Parallel()
	_, at := startNode(t)
	theirs := startApp(t, at, "org/ns/alice", false)
	us := join(t, at, "org/ns/gogate", plaintext(at))
	id, s := open(t, theirs, "org/ns/alice", us, nil)
	ours, err := us.app.Open(limited(t, 20*time.Second), parse(t, "org/ns/alice"), nil)
	if err != nil {
		t.Fatal(err)
	}
	var h handle
	theirs.do(t, job{"job": "listen", "app": "org/ns/alice"}, &h)
	wait(t, idle)
	ctx := limited(t, 30*time.Second)
	for _, pair := range []struct {
		theirs string
		ours   *session.Session
	}{{id, s}, {h.Session, ours}} {
		theirs.do(t, job{"job": "publish", "session": pair.theirs, "body": "awake?"}, nil)
		if m, err := pair.ours.Receive(ctx); err != nil || string(m.Blob) != "awake?" {
			t.Fatalf("%q %v", m.Blob, err)
		}
		if err := pair.ours.Send(ctx, session.Message{Type: "msg", Blob: []byte("yes")}); err != nil {
			t.Fatal(err)
		}
		var got received
		theirs.do(t, job{"job": "receive", "session": pair.theirs}, &got)
		if got.Body != "yes" {
			t.Errorf("%+v", got)
		}
	}
}

func wait(t *testing.T, long time.Duration) {
	t.Helper()
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// TestNode_RestartRestoresLinkAndSession: the link comes back and says again who is here, so that
// others find us; and the session with an agent that had to be started anew is
// replaced by one with the new instance, without anybody's doing. The real
// application is started anew because it does not always come back by itself.
func TestNode_RestartRestoresLinkAndSession(t *testing.T) {
	t.Parallel()
	node, at := startNode(t)
	theirs := startApp(t, at, "org/ns/rpcsrv", true)
	us := join(t, at, "org/ns/gogate", plaintext(at))
	client, to := us.client(t), parse(t, "org/ns/rpcsrv")
	call := rpc.Request{Service: "test.Echo", Method: "Echo", Body: []byte("hello")}
	if _, err := client.Unary(limited(t, 20*time.Second), to, call); err != nil {
		t.Fatal(err)
	}
	node.stop()
	theirs.stop()
	startPeer(t).do(t, job{"job": "node", "endpoint": at}, nil)
	startApp(t, at, "org/ns/rpcsrv", true)
	limit := limited(t, 90*time.Second)
	for again := true; again; {
		ctx, cancel := context.WithTimeout(limit, 5*time.Second)
		got, err := client.Unary(ctx, to, call)
		cancel()
		again = err != nil || string(got.Body) != "hello"
		if limit.Err() != nil {
			t.Fatalf("no call succeeds after the restart: %v", err)
		}
	}
	open(t, startApp(t, at, "org/ns/alice", false), "org/ns/alice", us, nil)
}
