package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// Bounds of the stream that answers one request. One event is held at a time.
const (
	maxStream   = 1 << 20         // events
	maxBytes    = 64 << 20        // of the whole stream
	maxResumes  = 3               // broken connections in a row, with nothing said between
	longestWait = 5 * time.Second // before a stream is taken up again
)

// streaming reports whether a response is an event stream.
func streaming(response *http.Response) bool {
	return response.StatusCode == http.StatusOK && response.Header.Get("Content-Encoding") == "" &&
		transport.MediaType(response.Header) == mediaEvents
}

// flow is what a server says until its reply, the reply included. A legacy
// stream whose events have ids is taken up again when its connection ends.
type flow struct {
	l       *upstreamCall
	request translators.Wire
	session session
	id      json.RawMessage
	wire    translators.Wire // all but the body of what is said
	inner   context.Context  //nolint:containedctx // the connection's, which is longer than the caller's
	cancel  context.CancelFunc

	in      *sse.Reader
	queue   []json.RawMessage // the rest of a batch
	first   json.RawMessage   // read before the first call of Next
	over    bool              // the reply was given
	trailer http.Header       // of the response, once it was read to its end
	resumes int

	mu     sync.Mutex
	body   io.ReadCloser
	closed bool
}

var _ transport.Events = (*flow)(nil)

func (l *upstreamCall) flow(inner context.Context, response *http.Response, request translators.Wire, s session) *flow {
	f := &flow{l: l, request: request, session: s, id: requestID(request.Body), inner: inner, cancel: func() {}}
	f.read(response)
	return f
}

// read goes on with another response.
func (f *flow) read(response *http.Response) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.body, f.trailer = response.Body, response.Trailer
	f.in = sse.NewReader(response.Body, sse.Limits{Event: f.l.limit(), Events: maxStream, Total: max(maxBytes, 2*f.l.limit())})
	if f.closed {
		_ = response.Body.Close()
	}
}

// Next waits for the next message.
func (f *flow) Next(ctx context.Context) (transport.Event, error) {
	body := f.first
	if f.first = nil; body == nil {
		if f.over {
			return f.closing(ctx)
		}
		defer context.AfterFunc(ctx, f.cancel)()
		var err error
		if body, err = f.next(ctx); err != nil {
			return transport.Event{}, err
		}
	}
	wire := f.wire
	wire.Body, wire.Event = body, true
	return transport.Event{Wire: wire}, nil
}

// trailWait is how long a server may take from its reply to the end of its stream.
const trailWait = 250 * time.Millisecond

// closing is the evidence that closes a stream, if its server has said that
// there would be some. In a batch it covers other bytes than ours: it is not
// read there.
func (f *flow) closing(ctx context.Context) (transport.Event, error) {
	trailer := f.trailer
	if _, announced := trailer[ect.HeaderName]; !announced || f.request.Version == mcp.LegacyMarch {
		return transport.Event{}, io.EOF
	}
	f.trailer = nil
	defer context.AfterFunc(ctx, f.cancel)()
	late := time.AfterFunc(trailWait, f.cancel)
	defer late.Stop()
	if _, err := f.in.Next(); !errors.Is(err, io.EOF) {
		return transport.Event{}, io.EOF
	}
	tokens, err := ect.ParseHeader(trailer.Values(ect.HeaderName), f.l.d.deps.Limits)
	if err != nil {
		return transport.Event{}, f.l.bad("the Execution-Context that closes its stream is malformed or too large")
	}
	if len(tokens) == 0 {
		return transport.Event{}, io.EOF
	}
	return transport.Event{Evidence: tokens}, nil
}

// maxTail bounds, in bytes, what a server says between its reply and the end of its
// stream.
const maxTail = 4 << 10

// Close gives the connection back, without waiting. After the reply it is kept for other
// requests if the server ends its stream soon: HTTP/1.1 uses no connection again whose
// answer was not read to its end.
func (f *flow) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	if body := f.body; f.over {
		late := time.AfterFunc(trailWait, f.cancel)
		f.l.d.tails.Go(func() {
			_, _ = io.CopyN(io.Discard, body, maxTail)
			late.Stop()
			f.cancel()
			_ = body.Close()
		})
		return nil
	}
	f.cancel()
	return f.body.Close()
}

// next reads one message; over is then set if it is the reply.
func (f *flow) next(ctx context.Context) (json.RawMessage, error) {
	for {
		message, err := f.message(ctx)
		if err != nil {
			return nil, err
		}
		env, err := parse(message)
		switch {
		case err != nil:
			return nil, f.l.bad("an event that is no JSON-RPC message")
		case env.Method == "" && !env.answers(f.id):
			return nil, f.l.bad("an event that is not the reply to this request")
		case env.Method == mcp.MethodPing && len(env.ID) > 0 && f.request.Version != mcp.Modern:
			if err := f.l.pong(f.inner, env.ID, f.session); err != nil { //nolint:contextcheck // the connection's own
				return nil, f.l.failed(ctx, err)
			}
			continue
		}
		f.over, f.resumes = env.Method == "", 0
		return message, nil
	}
}

// message is the next message of the stream, whatever it is.
func (f *flow) message(ctx context.Context) (json.RawMessage, error) {
	for len(f.queue) == 0 {
		event, err := f.in.Next()
		switch {
		case err == nil:
			f.queue = messagesOf(event.Data, f.request.Version)
		case errors.Is(ctx.Err(), context.Canceled), errors.Is(ctx.Err(), context.DeadlineExceeded):
			return nil, f.l.failed(ctx, err)
		default:
			if err := f.resume(ctx, err); err != nil {
				return nil, err
			}
		}
	}
	next := f.queue[0]
	f.queue = f.queue[1:]
	return next, nil
}

// messagesOf takes a batch apart, which a server of 2025-03-26 may send.
func messagesOf(data []byte, version string) []json.RawMessage {
	var batch []json.RawMessage
	if version == mcp.LegacyMarch && isBatch(data) && json.Unmarshal(data, &batch) == nil && len(batch) <= maxEvents {
		return batch
	}
	return []json.RawMessage{data}
}

// resume takes the stream up where it broke off, if the server keeps it
// (legacy, resumability).
func (f *flow) resume(ctx context.Context, cause error) error {
	last, wait := f.in.Resume()
	if last == "" || f.request.Version == mcp.Modern || f.resumes >= maxResumes || errors.As(cause, new(*sse.LimitError)) {
		if errors.Is(cause, io.EOF) {
			return f.l.bad("its event stream ended without a reply")
		}
		return f.l.failed(ctx, cause)
	}
	f.resumes++
	if !worker.Pause(f.inner, min(wait, longestWait)) { //nolint:contextcheck // the connection has a context of its own
		return f.l.failed(ctx, f.inner.Err())
	}
	response, err := (&upstreamCall{d: f.l.d, ep: f.l.ep}).get(f.inner, f.session, last) //nolint:contextcheck // the connection has a context of its own
	if err != nil {
		return f.l.failed(ctx, err)
	}
	if !streaming(response) {
		_ = response.Body.Close()
		return f.l.bad("its event stream ended without a reply, and cannot be taken up again")
	}
	f.mu.Lock()
	_ = f.body.Close()
	f.mu.Unlock()
	f.read(response)
	return nil
}

// pong answers a ping of the server.
func (l *upstreamCall) pong(ctx context.Context, id json.RawMessage, s session) error {
	body := bytes.Join([][]byte{[]byte(`{"jsonrpc":"2.0","id":`), id, []byte(`,"result":{}}`)}, nil)
	response, err := l.post(ctx, translators.Wire{Body: body}, s)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// settled waits for the reply to a request of the gateway's own. It drops the events
// before the reply, since no caller waits for them.
func (l *upstreamCall) settled(ctx context.Context, reply transport.Reply, err error) (transport.Reply, error) {
	if err != nil || reply.Events == nil {
		return reply, err
	}
	f, _ := reply.Events.(*flow)
	defer func() { _ = f.Close() }()
	for {
		event, err := f.Next(ctx)
		if err != nil || f.over {
			return transport.Reply{Wire: event.Wire, Evidence: reply.Evidence}, err
		}
	}
}

// askAlone asks something of our own.
func (l *upstreamCall) askAlone(ctx context.Context, wire translators.Wire, s session, re canonical.Op) (transport.Reply, error) {
	reply, err := l.ask(ctx, wire, s, re)
	return l.settled(ctx, reply, err)
}
