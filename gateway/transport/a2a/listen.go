package a2a

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
)

// Bounds of one stream, beyond those of one event.
const (
	maxEvents = 1 << 16
	maxStream = 1 << 30 // octets
)

// listening is an agent's stream. One event of it is read when one is asked for.
type listening struct {
	d        *Dialer
	e        transport.Endpoint
	sent     translators.Wire
	response *http.Response
	reader   *sse.Reader
	cancel   context.CancelFunc
	closed   sync.Once
	err      error // what ended it, and ends it again
	trailed  bool  // its trailer was read
}

var _ transport.Events = (*listening)(nil)

func (d *Dialer) listen(e transport.Endpoint, sent translators.Wire, response *http.Response, cancel context.CancelFunc) *listening {
	limits := sse.Limits{Event: d.deps.Form.Info().BodyLimit, Events: maxEvents, Total: maxStream}
	return &listening{d: d, e: e, sent: sent, response: response, reader: sse.NewReader(response.Body, limits), cancel: cancel}
}

// Next reads the next event. Whoever does not wait for it ends the stream.
func (l *listening) Next(ctx context.Context) (transport.Event, error) {
	if l.err != nil {
		return transport.Event{}, l.err
	}
	stop := context.AfterFunc(ctx, l.cancel)
	event, err := l.reader.Next()
	alive := stop()
	switch {
	case !alive:
		return l.end(transport.CallError(ctx, l.e, context.Cause(ctx)))
	case errors.Is(err, io.EOF):
		return l.trailer()
	case err != nil:
		return l.end(l.broken(err))
	}
	if reason := l.misfit(event.Data); reason != "" {
		return l.end(&transport.BadReplyError{Agent: l.e.Agent, Reason: reason})
	}
	wire := l.d.heard(l.sent, l.response.Header, event.Data, http.StatusOK)
	wire.Event = true
	return transport.Event{Wire: wire}, nil
}

// misfit says why an event does not belong to the request; "": it does.
func (l *listening) misfit(data []byte) string {
	got := fetched{status: http.StatusOK, body: data}
	if l.sent.Form == form.FormHTTP {
		if len(data) == 0 || data[0] != '{' {
			return "an event that is no object"
		}
		return ""
	}
	return misfitRPC(l.sent.Body, got)
}

// broken says why there is no next event.
func (l *listening) broken(err error) error {
	if limit, ok := errors.AsType[*sse.LimitError](err); ok {
		return &transport.BadReplyError{Agent: l.e.Agent, Reason: limit.Error(), Err: limit}
	}
	return &transport.UnreachableError{Agent: l.e.Agent, Err: err}
}

func (l *listening) end(err error) (transport.Event, error) {
	l.err = err
	_ = l.Close()
	return transport.Event{}, err
}

// trailer is the evidence that closes a stream, if its agent gives any.
func (l *listening) trailer() (transport.Event, error) {
	values := l.response.Trailer.Values(ect.HeaderName)
	if l.trailed || len(values) == 0 {
		return l.end(io.EOF)
	}
	l.trailed = true
	tokens, err := ect.ParseHeader(values, l.d.deps.Limits)
	if err != nil {
		return l.end(&transport.BadReplyError{Agent: l.e.Agent, Reason: "its execution context is malformed or too large"})
	}
	return transport.Event{Evidence: tokens}, nil
}

// Close ends the stream and its connection.
func (l *listening) Close() error {
	var err error
	l.closed.Do(func() {
		l.cancel()
		err = l.response.Body.Close()
	})
	return err
}
