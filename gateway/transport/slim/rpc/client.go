package rpc

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/session"
)

// Bounds of a call out.
const (
	maxCalls      = 4096 // on one session
	maxNames      = 1024 // sessions
	maxUnanswered = 3    // calls in a row that were given up before anything came
)

// Errors of calls out.
var (
	errApp   = errors.New("slim rpc: a client needs an application")
	errCalls = errors.New("slim rpc: too many calls: wait for one to end")
	// ErrSlow: responses came faster than they were read.
	ErrSlow = errors.New("slim rpc: too many unread responses: read them sooner")
)

// Opener begins sessions; *session.App is one.
type Opener interface {
	Open(ctx context.Context, to name.Name, metadata map[string]string) (*session.Session, error)
}

// Client makes calls, with one session for each name. Safe for concurrent use.
type Client struct {
	app    Opener
	ctx    context.Context //nolint:containedctx // the life of all its sessions, ended by Close
	cancel context.CancelFunc
	lives  sync.WaitGroup

	mu       sync.Mutex
	over     bool
	channels map[name.Name]*channel
}

// NewClient makes a client; Close ends it.
func NewClient(app Opener) (*Client, error) {
	if app == nil {
		return nil, errApp
	}
	c := &Client{app: app, channels: map[name.Name]*channel{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// Close ends all calls and their sessions, and waits for them.
func (c *Client) Close() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.cancel()
	c.lives.Wait()
}

// Call sends a request. The context's deadline goes with it, and the context's
// end ends the call. The server learns of that by its own deadline alone. Errors:
// *session.BrokenError when there is no answer, *frame.TooLargeError, the
// context's. The caller closes the stream.
func (c *Client) Call(ctx context.Context, to name.Name, r Request) (*Stream, error) {
	ch, err := c.channel(ctx, to)
	if err != nil {
		return nil, err
	}
	s, err := ch.register()
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(MaxTimeout)
	if at, ok := ctx.Deadline(); ok && at.Before(deadline) {
		deadline = at
	}
	if err = ch.session.Send(ctx, opening(s.id, r, deadline)); err == nil {
		err = ch.session.Send(ctx, noMore(s.id))
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Unary makes a call that has one response. More than one is a failure of the
// other end (Internal); none is an empty one, since servers of old end the
// stream with it.
func (c *Client) Unary(ctx context.Context, to name.Name, r Request) (Frame, error) {
	s, err := c.Call(ctx, to, r)
	if err != nil {
		return Frame{}, err
	}
	defer s.Close()
	first, err := s.Next(ctx)
	if errors.Is(err, io.EOF) {
		return Frame{Metadata: map[string]string{}}, nil
	}
	if err != nil {
		return Frame{}, err
	}
	_, err = s.Next(ctx)
	switch {
	case errors.Is(err, io.EOF):
		return first, nil
	case err == nil:
		return Frame{}, &StatusError{Internal, "more than one response"}
	default:
		return Frame{}, err
	}
}

// channel is the session for a name, begun when there is none. Callers of one
// name wait for one beginning.
func (c *Client) channel(ctx context.Context, to name.Name) (*channel, error) {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return nil, session.ErrClosed
	}
	ch, ok := c.channels[to]
	if !ok {
		if len(c.channels) >= maxNames {
			c.mu.Unlock()
			return nil, errCalls
		}
		ch = &channel{client: c, to: to, ready: make(chan struct{}), streams: map[string]*Stream{}}
		c.channels[to] = ch
		c.lives.Go(ch.live)
	}
	c.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-ch.ready:
		return ch, ch.failure
	}
}

// channel is one session and the calls on it.
type channel struct {
	client *Client
	to     name.Name

	ready   chan struct{}    // closed when session or failure is there
	session *session.Session // nil: it could not be begun
	failure error            // why

	mu      sync.Mutex
	over    error // why there is no session any more
	streams map[string]*Stream
	unheard int // calls in a row that were given up before anything came
}

// live begins the session and hands out its messages until it ends. A channel
// that has ended is forgotten, and the next call begins another.
func (ch *channel) live() {
	ctx := ch.client.ctx
	ch.session, ch.failure = ch.client.app.Open(ctx, ch.to, nil)
	close(ch.ready)
	err := ch.failure
	for err == nil {
		var m session.Message
		if m, err = ch.session.Receive(ctx); err == nil {
			ch.deliver(m)
		}
	}
	if ch.session != nil {
		ch.session.Close()
	}
	ch.forget()
	ch.finish(err)
}

// forget makes the next call begin another session.
func (ch *channel) forget() {
	ch.client.mu.Lock()
	defer ch.client.mu.Unlock()
	if ch.client.channels[ch.to] == ch {
		delete(ch.client.channels, ch.to)
	}
}

// release takes a call off the channel. A server that took us for gone goes on
// acknowledging and answers no more: a channel on which nothing is heard is not
// used for new calls, and ends with its last one.
func (ch *channel) release(s *Stream, unheard bool) {
	ch.mu.Lock()
	delete(ch.streams, s.id)
	if unheard {
		ch.unheard++
	}
	stale := ch.unheard >= maxUnanswered
	idle := len(ch.streams) == 0
	ch.mu.Unlock()
	if stale {
		ch.forget()
	}
	if stale && idle {
		ch.session.Close()
	}
}

// finish ends all calls: a session that ends before them has failed them.
func (ch *channel) finish(err error) {
	if errors.Is(err, io.EOF) {
		err = &StatusError{Unavailable, "the session was ended"}
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.over = err
	for _, s := range ch.streams {
		s.End(err)
	}
	clear(ch.streams)
}

func (ch *channel) register() (*Stream, error) {
	s := &Stream{Queue: NewQueue(), channel: ch, id: uuid.NewString()}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	switch {
	case ch.over != nil:
		return nil, ch.over
	case len(ch.streams) >= maxCalls:
		return nil, errCalls
	}
	ch.streams[s.id] = s
	return s, nil
}

func (ch *channel) deliver(m session.Message) {
	if m.Metadata[keyDirection] == request {
		return
	}
	ch.mu.Lock()
	s := ch.streams[m.Metadata[keyID]]
	if s != nil {
		ch.unheard = 0
	}
	ch.mu.Unlock()
	if s != nil {
		s.deliver(m)
	}
}

// Stream is the responses of one call. One reader at a time. Its Next ends with io.EOF
// after the last response, *StatusError, ErrSlow, *session.BrokenError or
// session.ErrClosed.
type Stream struct {
	*Queue
	channel  *channel
	id       string
	answered atomic.Bool
}

func (s *Stream) deliver(m session.Message) {
	s.answered.Store(true)
	if last, err := ended(m); last {
		s.End(cmp.Or(err, io.EOF))
	} else {
		s.Put(Frame{visible(m.Metadata), m.Blob}, false)
	}
}

// Close gives the call up: what still comes is dropped. SLIMRPC has no way to
// tell the server.
func (s *Stream) Close() {
	open := s.End(session.ErrClosed)
	s.channel.release(s, open && !s.answered.Load())
}
