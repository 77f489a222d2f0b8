package plain

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/session"
)

// Bounds of a conversation.
const (
	maxCalls    = 256
	payloadType = "msg"
)

// Errors of conversations.
var (
	// ErrMessage: it is no JSON-RPC request or notification.
	ErrMessage = errors.New("slim plain: not a JSON-RPC message that can be sent")
	// ErrID: the id of a request is in use.
	ErrID    = errors.New("slim plain: the id is in use by another request")
	errCalls = errors.New("slim plain: too many calls: wait for one to end")
)

// Conversation is a session that the gateway began. Safe for concurrent use. The code
// that opened it closes it.
type Conversation struct {
	session *session.Session
	life    sync.WaitGroup
	cancel  context.CancelFunc

	mu    sync.Mutex
	calls []*Stream // in the order in which they began
	over  error
}

// Open begins a conversation. Errors: those of session.App.Open.
func Open(ctx context.Context, app rpc.Opener, to name.Name) (*Conversation, error) {
	s, err := app.Open(ctx, to, nil)
	if err != nil {
		return nil, err
	}
	c := &Conversation{session: s}
	reading, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = cancel
	c.life.Go(func() { c.read(reading) })
	return c, nil
}

// Close ends the conversation and its calls, and waits for them.
func (c *Conversation) Close() {
	c.session.Close()
	c.cancel()
	c.life.Wait()
}

// Call sends a request or a notification. What comes for a request is its
// notifications and the other end's own requests, and at last its response;
// JSON-RPC does not say which call they belong to, so they go to the one that
// began first. For a notification nothing comes. Errors: ErrMessage, ErrID, the
// session's, the context's. The caller closes the stream.
func (c *Conversation) Call(ctx context.Context, body []byte, metadata map[string]string) (*Stream, error) {
	e, ok := peek(body)
	if !ok || e.response() {
		return nil, ErrMessage
	}
	s := &Stream{Queue: rpc.NewQueue(), conversation: c}
	if e.notification() {
		s.End(io.EOF)
	} else if err := c.begin(s, e.key()); err != nil {
		return nil, err
	}
	if err := c.session.Send(ctx, session.Message{Type: payloadType, Blob: body, Metadata: metadata}); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Answer sends a response to a request of the other end. Errors: ErrMessage, the
// session's, the context's.
func (c *Conversation) Answer(ctx context.Context, body []byte) error {
	if e, ok := peek(body); !ok || !e.response() {
		return ErrMessage
	}
	return c.session.Send(ctx, session.Message{Type: payloadType, Blob: body})
}

func (c *Conversation) begin(s *Stream, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		return c.over
	}
	if len(c.calls) >= maxCalls {
		return errCalls
	}
	if slices.ContainsFunc(c.calls, func(other *Stream) bool { return other.id == id }) {
		return ErrID
	}
	s.id = id
	c.calls = append(c.calls, s)
	return nil
}

func (c *Conversation) read(ctx context.Context) {
	for {
		m, err := c.session.Receive(ctx)
		if err != nil {
			c.finish(err)
			return
		}
		if e, ok := peek(m.Blob); ok {
			c.deliver(e, m)
		}
	}
}

func (c *Conversation) finish(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
		err = session.ErrClosed
	}
	c.mu.Lock()
	calls := c.calls
	c.over, c.calls = err, nil
	c.mu.Unlock()
	for _, s := range calls {
		s.End(err)
	}
}

func (c *Conversation) deliver(e envelope, m session.Message) {
	c.mu.Lock()
	var to *Stream
	for i, s := range c.calls {
		if e.response() && s.id == e.key() {
			to = s
			c.calls = append(c.calls[:i:i], c.calls[i+1:]...)
			break
		}
		if !e.response() {
			to = s
			break
		}
	}
	c.mu.Unlock()
	if to != nil {
		to.Put(rpc.Frame{Metadata: m.Metadata, Body: m.Blob}, e.response())
	}
}

// Stream is what comes for one call; the last frame is the response. One reader at a
// time. Its Next ends with io.EOF after the response, rpc.ErrSlow, or the session's error.
type Stream struct {
	*rpc.Queue
	conversation *Conversation
	id           string
}

// Close gives the call up: what still comes is dropped.
func (s *Stream) Close() {
	c := s.conversation
	c.mu.Lock()
	for i, other := range c.calls {
		if other == s {
			c.calls = append(c.calls[:i:i], c.calls[i+1:]...)
			break
		}
	}
	c.mu.Unlock()
	s.End(session.ErrClosed)
}
