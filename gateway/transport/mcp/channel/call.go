package channel

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
)

// Bounds of what waits in one response to be read.
const (
	maxWaiting      = 8 << 20 // bytes
	maxWaitingCount = 4096    // messages
)

// errSlow: the caller reads more slowly than the server writes.
var errSlow = errors.New("the server sent more than the caller read: read its messages sooner")

// call is a request, or a stream that listens, and the response to it.
type call struct {
	names
	conn     *conn
	id       string // in its plain form; empty: it listens
	method   string
	token    string // for progress; empty: it wants none
	task     string // that it asks about; empty: none
	canceled bool   // the server was told that the request is canceled; of conn.mu
	granted  bool   // the reply is a result; of conn.mu
	mayAsk   bool   // it can be asked in the middle
	wake     chan struct{}
	released sync.Once

	mu      sync.Mutex
	waiting [][]byte // messages, the oldest first
	size    int      // of them, in bytes
	reply   bool     // the last of waiting is the reply
	err     error    // why nothing more comes; nil: more comes
}

// names are what a request is called on either side, and who asks.
type names struct {
	asker   context.Context //nolint:containedctx // of the request
	number  uint64          // in the order in which requests began; of conn.mu
	written json.RawMessage // the id, as the server was told it
	callers json.RawMessage // the id that its caller gave it, if the server was told another
	watched json.RawMessage // its caller's token for progress, likewise
}

func newCall(ctx context.Context, c *conn, id json.RawMessage, method string) *call {
	return &call{conn: c, id: plain(id), names: names{asker: ctx, written: id}, method: method, wake: make(chan struct{}, 1)}
}

// listens reports whether a call only listens, so that the server does no work for it.
func (c *call) listens() bool { return c.id == "" || c.method == methodListen }

// put adds a message; last says that it is the reply. A message beyond the bounds ends the
// call.
func (c *call) put(message []byte, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.waiting = append(c.waiting, message)
	c.size += len(message)
	switch {
	case last:
		c.reply, c.err = true, io.EOF
	case c.size > maxWaiting || len(c.waiting) > maxWaitingCount:
		c.waiting, c.size, c.err = nil, 0, errSlow
	}
	c.signal()
}

// fail ends the call without a reply.
func (c *call) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.signal()
}

func (c *call) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// next waits for a message; last says that it is the reply.
func (c *call) next(ctx context.Context) (message []byte, last bool, err error) {
	for {
		c.mu.Lock()
		if len(c.waiting) > 0 {
			message := c.waiting[0]
			c.waiting, c.size = c.waiting[1:], c.size-len(message)
			last := c.reply && len(c.waiting) == 0
			c.mu.Unlock()
			return message, last, nil
		}
		err := c.err
		c.mu.Unlock()
		if ended, ok := err.(blaming); ok { //nolint:errorlint // it is the channel's own
			err = ended.For(c.asker) //nolint:contextcheck // it says who asked
		}
		if err != nil {
			return nil, false, err
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

// respond waits for the first message and gives the response that it begins: JSON, if it is
// the reply, else a stream of events.
func (c *call) respond(ctx context.Context, header http.Header) (*http.Response, error) {
	first, last, err := c.next(ctx)
	if err != nil {
		c.release() //nolint:contextcheck // what ends is told apart from who asked
		return nil, err
	}
	if last {
		c.release() //nolint:contextcheck // the same
		header.Set("Content-Type", "application/json")
		return response(http.StatusOK, header, newBytes(first), len(first)), nil
	}
	return c.stream(ctx, header, event(first)), nil
}

// stream is a response that goes on until the reply, or until it is closed.
func (c *call) stream(ctx context.Context, header http.Header, first []byte) *http.Response {
	header.Set("Content-Type", "text/event-stream")
	ctx, cancel := context.WithCancel(ctx)
	return response(http.StatusOK, header, &stream{call: c, rest: first, ctx: ctx, cancel: cancel}, -1)
}

// release gives back what the call holds, once.
func (c *call) release() { c.released.Do(func() { c.conn.leave(c) }) }

// stream is the body of a response that is a stream of events.
type stream struct {
	call   *call
	ctx    context.Context //nolint:containedctx // of the request, as that of a response's body is
	cancel context.CancelFunc

	rest []byte // of the event that is being read
	over bool   // that event is the reply
}

// Read reads events in the form of Server-Sent Events.
func (s *stream) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		if s.over {
			return 0, io.EOF
		}
		message, last, err := s.call.next(s.ctx)
		if err != nil {
			return 0, err
		}
		s.rest, s.over = event(message), last
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Close ends the response; a request without a reply is canceled.
func (s *stream) Close() error {
	s.cancel()
	s.call.release()
	return nil
}

func event(message []byte) []byte {
	out := make([]byte, 0, len(message)+8)
	out = append(out, "data: "...)
	for _, c := range message {
		if c == '\n' || c == '\r' {
			c = ' ' // between tokens of JSON, where it means the same
		}
		out = append(out, c)
	}
	return append(out, "\n\n"...)
}

// failure is an error in the words of JSON-RPC.
func failure(id json.RawMessage, code, text string) []byte {
	quoted, _ := json.Marshal(text)
	return []byte(`{"jsonrpc":"2.0","id":` + string(id) + `,"error":{"code":` + code + `,"message":` + string(quoted) + `}}`)
}
