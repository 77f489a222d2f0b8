package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

const (
	firstWait  = time.Second      // before a stream is opened again
	lastWait   = 30 * time.Second // before it is opened again and again
	maxRefused = 5                // times in a row that a server may refuse the stream
)

// listening is what a legacy server says without being asked (2025-11-25,
// Streamable HTTP, listening for messages from the server): in one session, on
// one stream after the other, since a server may end each. A server that has no
// such stream is silent.
type listening struct {
	l     *upstreamCall
	wire  translators.Wire // all but the body of what is said
	ctx   context.Context  //nolint:containedctx // the life of the connection
	close context.CancelFunc

	in      *sse.Reader // nil: no stream is open
	queue   []json.RawMessage
	session session
	gone    session       // that the server has lost
	last    string        // where to go on
	wait    time.Duration // before the next stream
	refused int           // streams, in a row
	first   bool          // the caller waits for the answer to the first request

	mu    sync.Mutex
	body  io.Closer
	ended bool // the session, with its only stream
}

var _ transport.Events = (*listening)(nil)

// listen returns a stream that sends its first request when a caller reads from it.
func (d *Dialer) listen(ctx context.Context, l *upstreamCall, wire translators.Wire) *listening {
	s := &listening{l: l, wire: translators.Wire{
		Binding: mcp.Binding, Version: wire.Version, Media: mediaJSON, Re: canonical.OpNative, Event: true,
	}}
	s.ctx, s.close = context.WithCancel(transport.OnBehalf(context.Background(), ctx))
	return s
}

// begin opens the first stream at once, for a caller that must know whether there is one.
// A Reply without Events: the server has none.
func (s *listening) begin(ctx context.Context) (transport.Reply, error) {
	defer context.AfterFunc(ctx, s.close)()
	s.first = true
	err := s.open(ctx)
	s.first = false
	if err != nil || s.in == nil {
		_ = s.Close() //nolint:contextcheck,nolintlint // what it ends has a life of its own
		return transport.Reply{}, err
	}
	return transport.Reply{Events: s}, nil
}

// Next waits for the next message.
func (s *listening) Next(ctx context.Context) (transport.Event, error) {
	defer context.AfterFunc(ctx, s.close)()
	for {
		message, err := s.message(ctx)
		if err != nil {
			return transport.Event{}, err
		}
		env, err := parse(message)
		switch {
		case err != nil:
			return transport.Event{}, s.l.bad("an event that is no JSON-RPC message")
		case env.Method == "": // an answer, and no request of this stream waits for one
		case env.Method == mcp.MethodPing && len(env.ID) > 0:
			_ = s.l.pong(s.ctx, env.ID, s.session) //nolint:contextcheck // the connection's own; a server repeats a ping without an answer
		default:
			wire := s.wire
			wire.Body = message
			return transport.Event{Wire: wire}, nil
		}
	}
}

// Close gives the connection back, and ends a session that was for it alone.
func (s *listening) Close() error {
	s.close()
	err := s.shut()
	s.mu.Lock()
	defer s.mu.Unlock()
	if ended := s.ended; !ended && s.l.ep.Alone {
		s.ended = true
		s.l.d.endAlone(s.l.ep, s.wire.Version, s.session) //nolint:contextcheck,nolintlint // as Close does; found or not, as the walk goes
	}
	return err
}

func (s *listening) shut() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.body == nil {
		return nil
	}
	body := s.body
	s.body = nil
	return body.Close()
}

// message is the next message, from whichever stream.
func (s *listening) message(ctx context.Context) (json.RawMessage, error) {
	for len(s.queue) == 0 {
		if s.in == nil {
			if err := s.open(ctx); err != nil {
				return nil, err
			}
			continue
		}
		event, err := s.in.Next()
		switch {
		case err == nil:
			s.queue, s.wait, s.refused = messagesOf(event.Data, s.wire.Version), 0, 0
		case ctx.Err() != nil:
			return nil, ctx.Err()
		default:
			s.last, s.wait = s.in.Resume()
			s.in = nil
			_ = s.shut() // it is over
		}
	}
	next := s.queue[0]
	s.queue = s.queue[1:]
	return next, nil
}

// passing reports whether what failed may work later.
func passing(err error) bool {
	return errors.As(err, new(*transport.UnreachableError)) || errors.As(err, new(*transport.CredentialError))
}

// open asks for a stream, after the wait that the last one left.
func (s *listening) open(ctx context.Context) error {
	if s.wait > 0 && !worker.Pause(ctx, s.wait) || ctx.Err() != nil {
		return ctx.Err()
	}
	s.wait = min(max(firstWait, 2*s.wait), lastWait)
	current, err := s.hold(ctx)
	switch {
	case passing(err) && !s.first:
		return nil // it may come back
	case err != nil:
		return err
	}
	s.session, s.gone = current, session{}
	response, err := s.l.get(s.ctx, current, s.last) //nolint:contextcheck // the connection's own
	switch {
	case ctx.Err() != nil:
		if err == nil {
			_ = response.Body.Close()
		}
		return ctx.Err()
	case err != nil && s.first:
		return s.l.failed(ctx, err)
	case err != nil:
		return nil // it may come back
	case streaming(response):
		s.mu.Lock()
		defer s.mu.Unlock()
		s.body = response.Body
		s.in = sse.NewReader(response.Body, sse.Limits{Event: s.l.limit(), Events: maxStream, Total: max(maxBytes, 2*s.l.limit())})
		return nil
	}
	_ = response.Body.Close()
	return s.refusal(ctx, response.StatusCode)
}

// hold returns the session to listen in. A session for this stream alone cannot begin
// again here: its subscriptions are lost with it.
func (s *listening) hold(ctx context.Context) (session, error) {
	if s.l.ep.Alone && !s.first {
		return s.session, nil
	}
	current, _, err := s.l.d.sessionAfter(ctx, s.l.ep, s.wire.Version, s.gone)
	return current, err
}

// refusal deals with a server that opens no stream.
func (s *listening) refusal(ctx context.Context, status int) error {
	gone := s.session.mayBeLost(status) && s.l.hasLost(ctx, s.session, s.wire.Version, status)
	if gone {
		s.gone, s.last = s.session, ""
	}
	s.refused++
	switch {
	case s.first && status == http.StatusMethodNotAllowed:
		return nil // it has none
	case s.first:
		return transport.BadStatus(s.l.ep, "it opens no stream: HTTP status "+strconv.Itoa(status), status, nil)
	case gone && s.l.ep.Alone:
		return s.l.bad("the session in which it was heard is gone")
	case status == http.StatusMethodNotAllowed, s.refused > maxRefused:
		<-ctx.Done() // it has nothing to say of its own accord
		return ctx.Err()
	}
	return nil
}

// get asks for the stream of a session, from where one broke off.
func (l *upstreamCall) get(ctx context.Context, s session, last string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.ep.URL, http.NoBody) //nolint:gosec // the operator says where an agent is, egress guards it
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", mediaEvents)
	if last != "" {
		request.Header.Set("Last-Event-ID", last)
	}
	transport.AddEvidence(request.Header, l.evidence)
	s.mark(request.Header)
	return l.do(request)
}
