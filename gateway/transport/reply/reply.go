// Package reply reads what a peer answers over HTTP within bounds: a body to its end, or
// a stream of events that ends with the peer's evidence in a trailer.
package reply

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/translators"
)

// Bounds of one stream, beyond those of one event.
const (
	MaxEvents = 1 << 16
	MaxStream = 1 << 30 // bytes
)

// afterLast is how long a peer has to end its stream after its last event, so that its evidence
// comes, and it is not cut off in what it does at its end.
const afterLast = time.Second

// Peer is who answers, and what its answers are bounded by.
type Peer struct {
	Endpoint transport.Endpoint
	Limit    int        // bytes of a body, and of an event
	Limits   ect.Limits // of its evidence
	Prefix   string     // of what is said of its answers; empty: the agent itself answers
}

// Life is how long a request goes on: at the most as long as the one for which it is made,
// unless its answer is a stream.
type Life struct {
	Cancel  context.CancelFunc // ends the request
	release func() bool
	streams bool
}

// Outlive gives a request a context that ends with ctx, until [Life.Keep].
func Outlive(ctx context.Context) (context.Context, Life) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	return longer, Life{Cancel: cancel, release: context.AfterFunc(ctx, cancel)}
}

// Keep lets the request go on for as long as its stream, unless its time is up already.
func (l *Life) Keep() { l.streams = l.release() }

// End ends the request, unless it is kept.
func (l *Life) End() {
	if !l.streams {
		l.release()
		l.Cancel()
	}
}

// Bad is a *transport.BadReplyError.
func (p Peer) Bad(reason string) error {
	return &transport.BadReplyError{Agent: p.Endpoint.Agent, Reason: p.Prefix + reason}
}

func (p Peer) tooLong(reason string) error {
	return &transport.BadReplyError{Agent: p.Endpoint.Agent, Reason: p.Prefix + reason, Err: transport.ErrTooLong}
}

// Evidence reads the tokens of a header or trailer. Its error is a *transport.BadReplyError.
func (p Peer) Evidence(header http.Header) ([]string, error) {
	tokens, err := ect.ParseHeader(header.Values(ect.HeaderName), p.Limits)
	if err != nil {
		return nil, p.Bad("its execution context is malformed or too large")
	}
	return tokens, nil
}

// Whole reads a response to its end and closes it. Errors: those of
// [transport.CallError], and *transport.BadReplyError with transport.ErrTooLong.
func (p Peer) Whole(ctx context.Context, response *http.Response) ([]byte, error) {
	body, err := transport.ReadAll(io.LimitReader(response.Body, int64(p.Limit)+1), response.ContentLength)
	closed := response.Body.Close()
	if err == nil {
		err = ctx.Err() // a server that sees the deadline may end half an answer properly
	}
	switch {
	case err != nil:
		return nil, transport.CallError(ctx, p.Endpoint, err)
	case len(body) > p.Limit:
		return nil, p.tooLong("longer than " + strconv.Itoa(p.Limit) + " bytes")
	case closed != nil:
		return nil, transport.CallError(ctx, p.Endpoint, closed)
	}
	return body, nil
}

// Stream is a peer's stream. One event of it is read when one is asked for.
type Stream struct {
	peer     Peer
	response *http.Response
	reader   *sse.Reader
	cancel   context.CancelFunc
	judge    Judge
	last     bool // its last event was read
	closed   sync.Once
	err      error // what ended it, and ends it again
	trailed  bool  // its trailer was read
}

var _ transport.Events = (*Stream)(nil)

// Judge makes a message of an event, or says with its error why the stream ends there. last:
// nothing that follows belongs to the stream but its trailer.
type Judge func(data []byte) (wire translators.Wire, last bool, err error)

// Stream reads events from a response until it is closed, or the peer ends it; cancel ends
// the request.
func (p Peer) Stream(response *http.Response, cancel context.CancelFunc, judge Judge) *Stream {
	limits := sse.Limits{Event: p.Limit, Events: MaxEvents, Total: MaxStream}
	return &Stream{peer: p, response: response, reader: sse.NewReader(response.Body, limits), cancel: cancel, judge: judge}
}

// Next reads the next event; when ctx ends before it has come, the stream ends too. Errors:
// io.EOF, judge's, *transport.BadReplyError, and those of [transport.CallError].
func (s *Stream) Next(ctx context.Context) (transport.Event, error) {
	if s.err != nil {
		return transport.Event{}, s.err
	}
	if s.last && !s.trailed {
		return s.ending()
	}
	stop := context.AfterFunc(ctx, s.cancel)
	event, err := s.reader.Next()
	alive := stop()
	switch {
	case !alive:
		return s.end(transport.CallError(ctx, s.peer.Endpoint, context.Cause(ctx)))
	case errors.Is(err, io.EOF):
		return s.trailer()
	case err != nil:
		if limit, ok := errors.AsType[*sse.LimitError](err); ok {
			return s.end(s.peer.tooLong(limit.Error()))
		}
		return s.end(&transport.UnreachableError{Agent: s.peer.Endpoint.Agent, Err: err})
	}
	wire, last, err := s.judge(event.Data)
	if err != nil {
		return s.end(err)
	}
	wire.Event, s.last = true, last
	return transport.Event{Wire: wire}, nil
}

// ending reads on after the last event to the end of the stream, for a while.
func (s *Stream) ending() (transport.Event, error) {
	timer := time.AfterFunc(afterLast, s.cancel)
	defer timer.Stop()
	for {
		switch _, err := s.reader.Next(); {
		case errors.Is(err, io.EOF) && timer.Stop(): // of a stream that was cut, the server may say the end as well
			return s.trailer()
		case err != nil:
			return s.end(io.EOF)
		}
	}
}

func (s *Stream) end(err error) (transport.Event, error) {
	s.err = err
	_ = s.Close()
	return transport.Event{}, err
}

// trailer is the evidence that closes a stream, if its peer gives any.
func (s *Stream) trailer() (transport.Event, error) {
	if s.trailed || len(s.response.Trailer.Values(ect.HeaderName)) == 0 {
		return s.end(io.EOF)
	}
	s.trailed = true
	tokens, err := s.peer.Evidence(s.response.Trailer)
	if err != nil {
		return s.end(err)
	}
	return transport.Event{Evidence: tokens}, nil
}

// Close ends the stream and its connection.
func (s *Stream) Close() error {
	var err error
	s.closed.Do(func() {
		s.cancel()
		err = s.response.Body.Close()
	})
	return err
}
