package link

import (
	"cmp"
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/frame"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// node is a gRPC server that greets as it is told, consents to every name but
// "nobody", and sends what it gets to its sender.
type node struct {
	version string
	keyed   testing.TB // nil: it has no key; else it refuses what comes without a MAC
	at      string
	server  *grpc.Server
	seen    chan *dataplane.Message
}

// forged is the id of messages that a node with a key answers with a wrong MAC.
const forged = 666

func startNode(t *testing.T, at, version string) *node {
	t.Helper()
	return startNodeWith(t, &node{version: version, at: at})
}

func startNodeWith(t *testing.T, n *node) *node {
	t.Helper()
	at := cmp.Or(n.at, "127.0.0.1:0")
	listener, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	n.at, n.server, n.seen = listener.Addr().String(), grpc.NewServer(grpc.MaxRecvMsgSize(4<<20)), make(chan *dataplane.Message, 100)
	n.server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "dataplane.proto.v1.DataPlaneService",
		Streams:     []grpc.StreamDesc{{StreamName: "OpenChannel", ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error { return n.serve(s) }}},
	}, nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = n.server.Serve(listener)
	}()
	t.Cleanup(func() {
		n.server.Stop()
		<-done
	})
	return n
}

func (n *node) serve(s grpc.ServerStream) error {
	var sealing *mac
	for {
		m := new(dataplane.Message)
		if err := s.RecvMsg(m); err != nil {
			return err
		}
		if !sealing.genuine(m) {
			return errors.New("a header without its MAC")
		}
		answer := n.answer(m)
		if hello := m.GetLink().GetLinkNegotiation(); hello != nil && n.keyed != nil {
			reply, key := theirHalf(n.keyed, hello, true)
			answer.GetLink().LinkType = &dataplane.Link_LinkNegotiation{LinkNegotiation: reply}
			sealing = newMAC(key, hello.GetLinkId())
		}
		if m.GetPublish() != nil && sealing != nil {
			sealing.seal(answer)
			if m.GetPublish().GetSession().GetMessageId() == forged {
				answer.GetPublish().GetHeader().HeaderMac[0] ^= 1
			}
		}
		if err := s.SendMsg(answer); err != nil {
			return err
		}
		n.seen <- m
	}
}

func (n *node) answer(m *dataplane.Message) *dataplane.Message {
	if hello := m.GetLink().GetLinkNegotiation(); hello != nil {
		return &dataplane.Message{MessageType: &dataplane.Message_Link{Link: &dataplane.Link{LinkType: &dataplane.Link_LinkNegotiation{
			LinkNegotiation: &dataplane.LinkNegotiationPayload{LinkId: hello.GetLinkId(), SlimVersion: n.version, IsReply: true},
		}}}}
	}
	if subscribe := m.GetSubscribe(); subscribe != nil {
		ok := subscribe.GetHeader().GetSource().GetStrName().GetStrComponent_2() != "nobody"
		return &dataplane.Message{MessageType: &dataplane.Message_SubscriptionAck{SubscriptionAck: &dataplane.SubscriptionAck{
			SubscriptionId: subscribe.GetSubscriptionId(), Success: ok, Error: "not here",
		}}}
	}
	return m
}

// inbox is a subscriber.
type inbox struct {
	messages chan *dataplane.Message
	up       chan bool
}

func newInbox() inbox { return inbox{make(chan *dataplane.Message, 10), make(chan bool, 10)} }

func (inbox) Token(context.Context) (string, error) { return "token", nil }

func (i inbox) Receive(m *dataplane.Message) { i.messages <- m }

func (i inbox) Connected(up bool) { i.up <- up }

func startLink(t *testing.T, at string) *Link {
	t.Helper()
	return startLinkWith(t, Deps{Node: at, Dial: func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", at) }})
}

func startLinkWith(t *testing.T, deps Deps) *Link {
	t.Helper()
	l, err := New(deps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	enough := errors.New("enough")
	t.Cleanup(func() {
		cancel(enough)
		if err := <-done; !errors.Is(err, enough) {
			t.Errorf("run: %v", err)
		}
	})
	return l
}

func limited(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func named(t *testing.T, text string) name.Name {
	t.Helper()
	n, err := name.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func next[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

func TestLink_Subscriptions(t *testing.T) {
	t.Parallel()
	l := startLink(t, startNode(t, "127.0.0.1:0", "3.4.6").at)
	early, late, none := newInbox(), newInbox(), newInbox()
	instance := named(t, "org/ns/a").With(name.ID{High: 1, Low: 2})
	if err := l.Subscribe(t.Context(), instance, early); err != nil {
		t.Fatal(err)
	}
	if err := l.Up(limited(t, patience)); err != nil {
		t.Fatal(err)
	}
	if !next(t, early.up) {
		t.Error("not connected")
	}
	if err := l.Subscribe(t.Context(), named(t, "org/ns/b"), late); err != nil || !next(t, late.up) {
		t.Errorf("late: %v", err)
	}
	if err := l.Subscribe(t.Context(), instance, late); err == nil {
		t.Error("one name for two")
	}
	var refused *RefusedError
	for range 2 { // a name that was refused can be tried again
		if err := l.Subscribe(t.Context(), named(t, "org/ns/nobody"), none); !errors.As(err, &refused) || refused.Reason != "not here" {
			t.Errorf("refused: %v", err)
		}
	}
	for to, want := range map[name.Name]inbox{instance: early, instance.Any(): early, named(t, "org/ns/b"): late} {
		if err := l.Send(frame.Data(frame.Route{From: instance, To: to, Message: 7}, frame.Msg, frame.Payload{}, nil)); err != nil {
			t.Fatal(err)
		}
		if m := next(t, want.messages); m.GetPublish().GetSession().GetMessageId() != 7 {
			t.Errorf("%v: %v", to, m)
		}
	}
	l.Unsubscribe(t.Context(), named(t, "org/ns/b"))
	if err := l.Subscribe(t.Context(), named(t, "org/ns/b"), early); err != nil {
		t.Errorf("a name that was taken back: %v", err)
	}
}

// TestLink_SubscribesAgainAfterReconnecting: whoever is subscribed is so again, and knows of it.
func TestLink_SubscribesAgainAfterReconnecting(t *testing.T) {
	t.Parallel()
	first := startNode(t, "127.0.0.1:0", "2.0.0")
	l := startLink(t, first.at)
	in := newInbox()
	if err := l.Subscribe(t.Context(), named(t, "org/ns/a"), in); err != nil {
		t.Fatal(err)
	}
	if !next(t, in.up) {
		t.Error("not connected")
	}
	first.server.Stop()
	if next(t, in.up) {
		t.Error("connected to nothing")
	}
	if err := l.Send(frame.Data(frame.Route{}, frame.Msg, frame.Payload{}, nil)); !errors.Is(err, ErrDown) {
		t.Errorf("sent to nobody: %v", err)
	}
	again := startNode(t, first.at, "2.0.0")
	if !next(t, in.up) {
		t.Error("not connected again")
	}
	next(t, again.seen) // the greeting
	if next(t, again.seen).GetSubscribe() == nil {
		t.Error("the name is not subscribed again")
	}
}

// TestLink_UnsupportedVersionIsSentNothing has other field numbers: nothing is said to it.
func TestLink_UnsupportedVersionIsSentNothing(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1.4.0", "4.0.0", "20.0.0", ""} {
		n := startNode(t, "127.0.0.1:0", version)
		l := startLink(t, n.at)
		for range 2 { // it is tried again
			if next(t, n.seen).GetLink() == nil {
				t.Errorf("%q is told something", version)
			}
		}
		if err := l.Up(limited(t, 10*time.Millisecond)); err == nil {
			t.Errorf("%q is up", version)
		}
	}
}

func TestLink_MessageTooLarge(t *testing.T) {
	t.Parallel()
	n := startNode(t, "127.0.0.1:0", "2.0.0")
	l := startLink(t, n.at)
	if err := l.Up(limited(t, patience)); err != nil {
		t.Fatal(err)
	}
	var large *frame.TooLargeError
	m := frame.Data(frame.Route{From: named(t, "a/b/c"), To: named(t, "a/b/c")}, frame.Msg, frame.Payload{Blob: make([]byte, frame.MaxMessage)}, nil)
	if err := l.Send(m); !errors.As(err, &large) || large.Limit != frame.MaxMessage {
		t.Errorf("%v", err)
	}
}

func TestNew_IncompleteDeps(t *testing.T) {
	t.Parallel()
	for _, deps := range []Deps{{}, {Node: "x"}, {Dial: func(context.Context) (net.Conn, error) { return nil, nil }}} {
		if _, err := New(deps); err == nil {
			t.Errorf("%+v", deps)
		}
	}
}
