package link

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/frame"
)

// method is the one that nodes have.
const method = "/dataplane.proto.v1.DataPlaneService/OpenChannel"

// headroom is what nodes may add to a message of the greatest size.
const headroom = 64 << 10

// RefusedError reports that the node refuses a subscription of a name.
type RefusedError struct{ Reason string } // the text of the node, for logs only

func (e *RefusedError) Error() string { return "slim link: the node refuses the subscription" }

// stream is one connection.
type stream struct {
	conn   *grpc.ClientConn
	peer   grpc.ClientStream
	offer  *offer
	logger *slog.Logger
	queue  chan *dataplane.Message
	done   chan struct{}      // closed when the connection ends
	cancel context.CancelFunc // ends peer

	// Set before anything with a header is queued. nil: the node has no key.
	sealing, checking *mac

	mu   sync.Mutex
	acks map[uint64]chan *dataplane.SubscriptionAck
}

// lastWords is how long what is queued may take to be sent when the link is to end.
const lastWords = 300 * time.Millisecond

// open connects and opens the stream. Run it, which ends it.
func open(ctx context.Context, deps Deps) (*stream, error) {
	offer, err := newOffer(uuid.NewString())
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("passthrough:///"+deps.Node,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dialed(ctx, deps.Dial) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // TLS is the dialer's
		grpc.WithAuthority(deps.Node), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingLimit, PermitWithoutStream: true}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(frame.MaxMessage+headroom), grpc.MaxCallSendMsgSize(frame.MaxMessage+macSize)),
	)
	if err != nil {
		return nil, err
	}
	// The stream outlives ctx by what is queued then.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, cancel)()
	peer, err := conn.NewStream(life, &grpc.StreamDesc{StreamName: "OpenChannel", ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		cancel()
		return nil, errors.Join(err, conn.Close())
	}
	return &stream{
		conn: conn, peer: peer, cancel: cancel, offer: offer, logger: deps.Logger, queue: make(chan *dataplane.Message, queueLength),
		done: make(chan struct{}), acks: map[uint64]chan *dataplane.SubscriptionAck{},
	}, nil
}

func dialed(ctx context.Context, dial Dial) (net.Conn, error) {
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	return prompted(conn), nil
}

// run negotiates with the node, has the names announced, and then sends and receives
// until something fails, or ctx ends; then it sends what is queued. It returns when
// nothing of the connection is left.
func (s *stream) run(ctx context.Context, announce func(context.Context) error, receive func(*dataplane.Message)) error {
	group, ctx := errgroup.WithContext(ctx)
	greeted, ended := make(chan struct{}), make(chan struct{})
	group.Go(func() error { // whatever ends first ends the reader, who waits in the connection
		<-ctx.Done()
		close(s.done)
		select {
		case <-ended:
		case <-time.After(lastWords):
		}
		defer s.cancel()
		return s.conn.Close()
	})
	group.Go(func() error {
		defer close(ended)
		return s.read(ctx, greeted, receive)
	})
	group.Go(func() error { return s.write(ctx) })
	group.Go(func() error { return s.setUp(ctx, greeted, announce) })
	return group.Wait()
}

func (s *stream) setUp(ctx context.Context, greeted <-chan struct{}, announce func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, setUpLimit)
	defer cancel()
	if err := s.send(s.offer.greeting()); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-greeted:
		return announce(ctx)
	}
}

func (s *stream) write(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), s.finish())
		case m := <-s.queue:
			if err := s.transmit(m); err != nil {
				return err
			}
		}
	}
}

// transmit sends one message, with its MAC if the link has a key.
func (s *stream) transmit(m *dataplane.Message) error {
	s.sealing.seal(m)
	return s.peer.SendMsg(m)
}

// finish sends what is queued, and says that there is no more.
func (s *stream) finish() error {
	for {
		select {
		case m := <-s.queue:
			if err := s.transmit(m); err != nil {
				return err
			}
		default:
			return s.peer.CloseSend()
		}
	}
}

func (s *stream) read(ctx context.Context, greeted chan<- struct{}, receive func(*dataplane.Message)) error {
	met, warned := false, false
	for {
		m := new(dataplane.Message)
		if err := s.peer.RecvMsg(m); err != nil {
			return err
		}
		switch {
		case m.GetPublish() != nil && s.checking.genuine(m):
			receive(m)
		case m.GetPublish() != nil:
			if !warned { // once: a node may go on like that
				s.logger.WarnContext(ctx, "message of the SLIM node dropped: its header_mac is not that of this link")
			}
			warned = true
		case m.GetSubscriptionAck() != nil:
			s.acked(m.GetSubscriptionAck())
		case m.GetLink().GetLinkNegotiation().GetIsReply() && !met:
			key, err := s.offer.meet(m.GetLink().GetLinkNegotiation())
			if err != nil {
				return err
			}
			s.sealing, s.checking = newMAC(key, s.offer.linkID), newMAC(key, s.offer.linkID)
			met = true
			close(greeted)
		}
	}
}

func (s *stream) send(m *dataplane.Message) error {
	select {
	case <-s.done:
		return ErrDown
	default:
	}
	select {
	case s.queue <- m:
		return nil
	default:
		return ErrBusy
	}
}

// subscribe waits for the node's word.
func (s *stream) subscribe(ctx context.Context, sub subscription) error {
	token, err := sub.to.Token(ctx)
	if err != nil {
		return err
	}
	id, answer := s.expect()
	defer s.forget(id)
	if err := s.send(frame.SubscribeTo(sub.name, id, token)); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.done:
		return ErrDown
	case ack := <-answer:
		if !ack.GetSuccess() {
			return &RefusedError{ack.GetError()}
		}
		return nil
	}
}

func (s *stream) expect() (uint64, <-chan *dataplane.SubscriptionAck) {
	answer := make(chan *dataplane.SubscriptionAck, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		id := rand.Uint64() //nolint:gosec // tells our own requests apart
		if _, taken := s.acks[id]; id != 0 && !taken {
			s.acks[id] = answer
			return id, answer
		}
	}
}

func (s *stream) forget(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.acks, id)
}

func (s *stream) acked(ack *dataplane.SubscriptionAck) {
	s.mu.Lock()
	answer, ok := s.acks[ack.GetSubscriptionId()]
	delete(s.acks, ack.GetSubscriptionId())
	s.mu.Unlock()
	if ok {
		answer <- ack
	}
}
