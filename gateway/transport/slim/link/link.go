package link

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/frame"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/worker"
)

// Times of a link.
const (
	backoffFirst = 100 * time.Millisecond
	backoffLast  = 10 * time.Second
	setUpLimit   = 15 * time.Second // connection, greeting and subscriptions
	pingAfter    = 20 * time.Second // of silence
	pingLimit    = 10 * time.Second
	queueLength  = 1024 // messages waiting to be sent
)

// Errors of Send and of a connection's end.
var (
	ErrDown  = errors.New("slim link: no connection to the node: send again later")
	ErrBusy  = errors.New("slim link: the send queue is full: send again later")
	errDeps  = errors.New("slim link: incomplete Deps")
	errTaken = errors.New("slim link: the name is already subscribed")
)

// Dial opens a connection to the node, guarded and authenticated.
type Dial func(ctx context.Context) (net.Conn, error)

// Subscriber is who lives behind a name.
type Subscriber interface {
	// Token is for the subscription's message, each time it is made.
	Token(ctx context.Context) (string, error)
	// Receive takes a message and does not wait.
	Receive(m *dataplane.Message)
	// Connected tells whether there is a connection now. It does not wait.
	Connected(up bool)
}

// Deps is what a Link needs.
type Deps struct {
	Dial   Dial         // required
	Node   string       // host:port, for logs and as the connection's authority; required
	Logger *slog.Logger // nil: nothing is logged
}

// Link is the connection to one node. Safe for concurrent use. It works while
// Run does.
type Link struct {
	deps Deps

	mu          sync.Mutex
	subscribers map[name.Key]subscription
	stream      *stream // nil: no connection
	changed     chan struct{}
}

type subscription struct {
	name name.Name
	to   Subscriber
}

// New makes a link. It fails for incomplete Deps.
func New(deps Deps) (*Link, error) {
	if deps.Dial == nil || deps.Node == "" {
		return nil, errDeps
	}
	deps.Logger = cmp.Or(deps.Logger, slog.New(slog.DiscardHandler))
	return &Link{deps: deps, subscribers: map[name.Key]subscription{}, changed: make(chan struct{})}, nil
}

// Run keeps the connection until the context ends, and returns the context's
// cause. Each failure is followed by a longer wait, 10 s at most.
func (l *Link) Run(ctx context.Context) error {
	wait := backoffFirst
	for {
		began := time.Now()
		err := l.connection(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if time.Since(began) > backoffLast {
			wait = backoffFirst
		}
		l.deps.Logger.WarnContext(ctx, "no connection to the SLIM node",
			slog.String("node", l.deps.Node), slog.Any("error", err), slog.Duration("again_in", wait))
		// About so long, so that many who lost one node do not return to it in one moment.
		if !worker.Pause(ctx, wait/2+rand.N(wait)) { //nolint:gosec // spreads load, keeps no secret
			return context.Cause(ctx)
		}
		wait = min(2*wait, backoffLast)
	}
}

// connection lives through one connection and says why it ended.
func (l *Link) connection(ctx context.Context) error {
	s, err := open(ctx, l.deps)
	if err != nil {
		return err
	}
	defer l.retire(s)
	err = s.run(ctx, func(ctx context.Context) error { return l.announce(ctx, s) }, l.receive)
	return err
}

// announce subscribes all names on a new connection and then gives it to use. A
// name that the node refuses is no reason to do without the others.
func (l *Link) announce(ctx context.Context, s *stream) error {
	known := map[name.Key]bool{}
	for {
		sub, more := l.adopt(s, known)
		if !more {
			break
		}
		known[sub.name.Key()] = true
		err := s.subscribe(ctx, sub)
		if refused, ok := errors.AsType[*RefusedError](err); ok {
			l.deps.Logger.WarnContext(ctx, "agent name refused by the SLIM node",
				slog.String("name", sub.name.String()), slog.String("reason", refused.Reason))
		} else if err != nil {
			return err
		}
	}
	for _, sub := range l.all() {
		sub.to.Connected(true)
	}
	l.deps.Logger.InfoContext(ctx, "connected to the SLIM node", slog.String("node", l.deps.Node))
	return nil
}

// adopt gives a name that the connection does not know yet. When there is none
// it puts the connection to use, in the same moment, so that no name is missed.
func (l *Link) adopt(s *stream, known map[name.Key]bool) (subscription, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, sub := range l.subscribers {
		if !known[key] {
			return sub, true
		}
	}
	l.stream = s
	close(l.changed)
	l.changed = make(chan struct{})
	return subscription{}, false
}

func (l *Link) retire(s *stream) {
	l.mu.Lock()
	used := l.stream == s
	if used {
		l.stream = nil
		close(l.changed)
		l.changed = make(chan struct{})
	}
	l.mu.Unlock()
	if used {
		for _, sub := range l.all() {
			sub.to.Connected(false)
		}
	}
}

func (l *Link) all() []subscription {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.subscribers))
}

// receive hands a message to the one it is for: by its id, else to any instance.
func (l *Link) receive(m *dataplane.Message) {
	to, err := name.DecodeKey(m.GetPublish().GetHeader().GetDestination())
	if err != nil {
		return
	}
	l.mu.Lock()
	sub, ok := l.subscribers[to]
	if !ok && to.ID == name.AnyID() {
		sub, ok = l.instance(to)
	}
	l.mu.Unlock()
	if ok {
		sub.to.Receive(m)
	}
}

func (l *Link) instance(of name.Key) (subscription, bool) {
	for key, sub := range l.subscribers {
		if key.Any() == of {
			return sub, true
		}
	}
	return subscription{}, false
}

// Subscribe makes a name's messages come to a subscriber, from now on and after
// every reconnection. It waits for the node's consent if there is a connection,
// else it is content to have it written down. Errors, after which the name is
// not subscribed: the context's, the subscriber's, *RefusedError.
func (l *Link) Subscribe(ctx context.Context, n name.Name, to Subscriber) error {
	sub := subscription{n, to}
	l.mu.Lock()
	if _, taken := l.subscribers[n.Key()]; taken {
		l.mu.Unlock()
		return errTaken
	}
	l.subscribers[n.Key()] = sub
	s := l.stream
	l.mu.Unlock()
	if s == nil {
		return nil
	}
	err := s.subscribe(ctx, sub)
	switch {
	case errors.Is(err, ErrDown): // the next connection will know it
		return nil
	case err != nil:
		l.Unsubscribe(context.WithoutCancel(ctx), n)
		return err
	}
	to.Connected(true)
	return nil
}

// Unsubscribe takes a name back.
func (l *Link) Unsubscribe(ctx context.Context, n name.Name) {
	l.mu.Lock()
	sub, ok := l.subscribers[n.Key()]
	delete(l.subscribers, n.Key())
	s := l.stream
	l.mu.Unlock()
	if !ok || s == nil {
		return
	}
	token, err := sub.to.Token(ctx)
	if err == nil {
		err = s.send(frame.UnsubscribeFrom(n, token))
	}
	if err != nil {
		l.deps.Logger.DebugContext(ctx, "agent name not unsubscribed from the SLIM node", slog.Any("error", err))
	}
}

// Send sends a message, or says at once why not: *frame.TooLargeError (the node would
// end the connection of all sessions), ErrDown, ErrBusy.
func (l *Link) Send(m *dataplane.Message) error {
	if _, err := frame.Fits(m); err != nil {
		return err
	}
	l.mu.Lock()
	s := l.stream
	l.mu.Unlock()
	if s == nil {
		return ErrDown
	}
	return s.send(m)
}

// Up waits until there is a connection. Errors: the context's.
func (l *Link) Up(ctx context.Context) error {
	for {
		l.mu.Lock()
		up, changed := l.stream != nil, l.changed
		l.mu.Unlock()
		if up {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
