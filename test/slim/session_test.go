package slim_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/session"
)

type received struct {
	Body     string            `json:"body"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata"`
	From     string            `json:"from"`
}

type handle struct {
	Session  string            `json:"session"`
	Metadata map[string]string `json:"metadata"`
}

// open has a real application begin a session with ours.
func open(t *testing.T, theirs *peer, as string, us ours, more job) (string, *session.Session) {
	t.Helper()
	what := job{"job": "open", "app": as, "to": us.app.Name().Base()}
	maps.Copy(what, more)
	var h handle
	wait := theirs.begin(t, what)
	s, err := us.app.Accept(limited(t, 20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := wait(&h); err != nil {
		t.Fatal(err)
	}
	return h.Session, s
}

// TestSession_OpenedByARealApp: messages, types and metadata both ways, and a
// proper end.
func TestSession_OpenedByARealApp(t *testing.T) {
	t.Parallel()
	_, at := startNode(t)
	theirs := startApp(t, at, "org/ns/alice", false)
	us := join(t, at, "org/ns/gogate", plaintext(at))
	id, s := open(t, theirs, "org/ns/alice", us, job{"metadata": job{"aepb-conversation": "c1"}})

	if s.Metadata()["aepb-conversation"] != "c1" || s.Peer().Base() != "org/ns/alice" || s.Group() {
		t.Errorf("session of %v with %v", s.Peer(), s.Metadata())
	}
	ctx := limited(t, 30*time.Second)
	ect := strings.Repeat("t", 4096)
	theirs.do(t, job{"job": "publish", "session": id, "body": "hi", "type": "application/json", "metadata": job{"execution-context": ect}}, nil)
	m, err := s.Receive(ctx)
	if err != nil || string(m.Blob) != "hi" || m.Type != "application/json" || m.Metadata["execution-context"] != ect {
		t.Fatalf("%.100q %v %v", m.Blob, m.Type, err)
	}
	for i := range 100 {
		if err := s.Send(ctx, session.Message{Type: "msg", Blob: fmt.Appendf(nil, "item %d", i), Metadata: map[string]string{"k": "v"}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		var got received
		theirs.do(t, job{"job": "receive", "session": id}, &got)
		if got.Body != fmt.Sprintf("item %d", i) || got.Metadata["k"] != "v" || got.From != us.app.Name().String() && !strings.HasPrefix(got.From, "org/ns/gogate") {
			t.Fatalf("%d: %+v", i, got)
		}
	}
	if err := s.Delivered(ctx); err != nil {
		t.Error(err)
	}
	theirs.do(t, job{"job": "close", "app": "org/ns/alice", "session": id}, nil)
	if _, err := s.Receive(ctx); !errors.Is(err, io.EOF) {
		t.Errorf("after the close: %v", err)
	}
}

// TestSession_OpenedByUs, and end it.
func TestSession_OpenedByUs(t *testing.T) {
	t.Parallel()
	_, at := startNode(t)
	theirs := startApp(t, at, "org/ns/alice", false)
	us := join(t, at, "org/ns/gogate", plaintext(at))
	ctx := limited(t, 30*time.Second)
	s, err := us.app.Open(ctx, parse(t, "org/ns/alice"), map[string]string{"a": "b"})
	if err != nil {
		t.Fatal(err)
	}
	var h handle
	theirs.do(t, job{"job": "listen", "app": "org/ns/alice"}, &h)
	if h.Metadata["a"] != "b" {
		t.Errorf("session metadata %v", h.Metadata)
	}
	if err := s.Send(ctx, session.Message{Type: "msg", Blob: []byte("ping")}); err != nil {
		t.Fatal(err)
	}
	var got received
	theirs.do(t, job{"job": "receive", "session": h.Session}, &got)
	if got.Body != "ping" {
		t.Errorf("%+v", got)
	}
	theirs.do(t, job{"job": "publish", "session": h.Session, "body": "pong"}, nil)
	if m, err := s.Receive(ctx); err != nil || string(m.Blob) != "pong" {
		t.Errorf("%q %v", m.Blob, err)
	}
	s.Close()
	if err := theirs.begin(t, job{"job": "receive", "session": h.Session})(&got); err == nil {
		t.Error("the session lives on at the other end")
	}
}

// TestSession_LargestMessage goes both ways, and a greater one is refused here,
// where it costs nobody the connection.
func TestSession_LargestMessage(t *testing.T) {
	t.Parallel()
	_, at := startNode(t)
	theirs := startApp(t, at, "org/ns/alice", false)
	us := join(t, at, "org/ns/gogate", plaintext(at))
	id, s := open(t, theirs, "org/ns/alice", us, nil)
	ctx := limited(t, time.Minute)

	var large *session.TooLargeError
	if err := s.Send(ctx, session.Message{Blob: make([]byte, 5<<20)}); !errors.As(err, &large) {
		t.Fatalf("5 MiB: %v", err)
	}
	blob := bytes.Repeat([]byte{'x'}, 4<<20-16<<10)
	if err := s.Send(ctx, session.Message{Blob: blob}); err != nil {
		t.Fatal(err)
	}
	var got received
	theirs.do(t, job{"job": "receive", "session": id}, &got)
	if len(got.Body) != len(blob) {
		t.Errorf("%d bytes came", len(got.Body))
	}
	theirs.do(t, job{"job": "publish", "session": id, "size": 4<<20 - 16<<10}, nil)
	if m, err := s.Receive(ctx); err != nil || len(m.Blob) != len(blob) {
		t.Errorf("%d bytes, %v", len(m.Blob), err)
	}
}

// TestSession_EncryptionIsRefused: SLIM's own clients of SLIMRPC want it.
func TestSession_EncryptionIsRefused(t *testing.T) {
	t.Parallel()
	_, at := startNode(t)
	theirs := startApp(t, at, "org/ns/alice", false)
	join(t, at, "org/ns/gogate", plaintext(at))
	began := time.Now()
	err := theirs.begin(t, job{
		"job": "call", "app": "org/ns/alice", "to": "org/ns/gogate", "service": "test.Echo", "method": "Echo", "body": "x", "timeout": 20000,
	})(new(struct{}))
	took := time.Since(began)
	var thrown *peerError
	if !errors.As(err, &thrown) || thrown.Code != int(rpc.Unavailable) || took > 5*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
}

// TestSession_UnreachablePeerTimesOut: nodes do not say so; our patience does.
func TestSession_UnreachablePeerTimesOut(t *testing.T) {
	t.Parallel()
	_, at := startNode(t)
	us := join(t, at, "org/ns/gogate", plaintext(at))
	_, err := us.app.Open(limited(t, 2*time.Second), parse(t, "org/ns/nobody"), nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	var broken *session.BrokenError
	if _, err := us.app.Open(limited(t, time.Minute), parse(t, "org/ns/nobody"), nil); !errors.As(err, &broken) || broken.Fault != session.FaultSilent {
		t.Errorf("%v", err)
	}
}

// TestGroup_RealModerator: a real moderator invites us and another; everybody hears everybody.
func TestGroup_RealModerator(t *testing.T) {
	t.Parallel()
	_, at := startNode(t)
	moderator, bob := startApp(t, at, "org/ns/alice", false), startApp(t, at, "org/ns/bob", false)
	us := join(t, at, "org/ns/gogate", plaintext(at))
	var group, member handle
	moderator.do(t, job{"job": "open", "app": "org/ns/alice", "to": "org/ns/group", "group": true}, &group)
	moderator.do(t, job{"job": "invite", "app": "org/ns/alice", "session": group.Session, "who": "org/ns/gogate"}, nil)
	ctx := limited(t, time.Minute)
	s, err := us.app.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !s.Group() || s.Peer().Base() != "org/ns/alice" {
		t.Errorf("group %v of %v", s.Group(), s.Peer())
	}
	moderator.do(t, job{"job": "invite", "app": "org/ns/alice", "session": group.Session, "who": "org/ns/bob"}, nil)
	bob.do(t, job{"job": "listen", "app": "org/ns/bob"}, &member)

	moderator.do(t, job{"job": "publish", "session": group.Session, "body": "to all"}, nil)
	if m, err := s.Receive(ctx); err != nil || string(m.Blob) != "to all" || m.From.Base() != "org/ns/alice" {
		t.Errorf("%q from %v, %v", m.Blob, m.From, err)
	}
	bob.do(t, job{"job": "publish", "session": member.Session, "body": "from bob"}, nil)
	if m, err := s.Receive(ctx); err != nil || string(m.Blob) != "from bob" || m.From.Base() != "org/ns/bob" {
		t.Errorf("%q from %v, %v", m.Blob, m.From, err)
	}
	if err := s.Send(ctx, session.Message{Type: "msg", Blob: []byte("from us")}); err != nil {
		t.Fatal(err)
	}
	var got received
	bob.do(t, job{"job": "receive", "session": member.Session}, &got) // alice's
	bob.do(t, job{"job": "receive", "session": member.Session}, &got)
	if got.Body != "from us" {
		t.Errorf("bob has %+v", got)
	}
	if err := s.Delivered(ctx); err != nil {
		t.Errorf("delivered: %v", err)
	}
	moderator.do(t, job{"job": "close", "app": "org/ns/alice", "session": group.Session}, nil)
	if _, err := s.Receive(ctx); !errors.Is(err, io.EOF) {
		t.Errorf("after the close: %v", err)
	}
}
