package hop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/translators"
)

// Bounds of a refusal, and of a stream beyond those of one event.
const (
	maxRefusal = 16 << 10 // octets of a problem document
	maxEvents  = 1 << 16
	maxStream  = 1 << 30 // octets
)

// read says what a whole response is: a message, or a refusal. judge says why a
// message is no reply to the one that was sent; nil: it is to be none.
func read(
	e transport.Endpoint, sent translators.Wire, response *http.Response, body []byte, tokens []string, judge func(request, body []byte) string,
) (translators.Wire, error) {
	switch status := response.StatusCode; {
	case status >= 300 && status < 400:
		return translators.Wire{}, badStatus(e, "a redirect (HTTP status "+strconv.Itoa(status)+"), which is not followed", response)
	case response.Header.Get("Content-Encoding") != "":
		return translators.Wire{}, bad(e, "compressed, although nobody asked for that")
	case status != http.StatusOK:
		refusal, ok := parseRefusal(body)
		if !ok || media(response.Header) != mediaProblem {
			return translators.Wire{}, badStatus(e, "HTTP status "+strconv.Itoa(status)+" without a problem document", response)
		}
		refusal.Agent, refusal.Status, refusal.Evidence = e.Agent, status, tokens
		refusal.RetryAfter = transport.RetryAfter(response.Header)
		return translators.Wire{}, refusal
	case judge == nil:
		return message(e, response.Header, body)
	case media(response.Header) != mediaJSON:
		return translators.Wire{}, bad(e, "not "+mediaJSON)
	}
	if reason := judge(sent.Body, body); reason != "" {
		return translators.Wire{}, bad(e, reason)
	}
	return heard(sent, response.Header, body), nil
}

// message is one in another protocol, which need not be spoken here.
func message(e transport.Endpoint, header http.Header, body []byte) (translators.Wire, error) {
	kind := media(header)
	if len(body) == 0 || kind == "" || kind == mediaProblem {
		return translators.Wire{}, bad(e, "no message")
	}
	return translators.Wire{Media: kind, Header: fields(header), Body: body}, nil
}

// heard is a message of the agent's, as the gateway before it tells it.
func heard(sent translators.Wire, header http.Header, body []byte) translators.Wire {
	return translators.Wire{Binding: sent.Binding, Version: sent.Version, Form: sent.Form, Media: mediaJSON, Header: fields(header), Body: body}
}

// parseRefusal reads a problem document; false: it is none.
func parseRefusal(body []byte) (*transport.RefusedError, bool) {
	if len(body) > maxRefusal {
		return nil, false
	}
	var members map[string]json.RawMessage // exact names: a struct would take others for them
	err := json.Unmarshal(body, &members)
	out := &transport.RefusedError{}
	for name, into := range map[string]any{"code": &out.Code, "detail": &out.Detail, "status": &out.Status} {
		if raw, ok := members[name]; ok && err == nil {
			err = json.Unmarshal(raw, into)
		}
	}
	return out, err == nil && out.Code != ""
}

// misfit says why a body is no reply to a JSON-RPC request; "": it is one.
func misfit(request, body []byte) string {
	sent, known := envelope(request)
	answered, ok := envelope(body)
	if !known || !ok || string(answered["jsonrpc"]) != `"2.0"` {
		return "no JSON-RPC reply"
	}
	id, unnamed := answered["id"], len(answered["id"]) == 0 || string(answered["id"]) == "null"
	switch {
	case answered["method"] != nil:
		return "a request and no reply"
	case unnamed && answered["error"] != nil:
		return "" // it could not read the request, and so not its id
	case !same(sent["id"], id):
		return "the id is that of another request"
	}
	return ""
}

// same compares ids as JSON values: "a" may come back as "\u0061".
func same(a, b json.RawMessage) bool {
	var x, y *string
	if json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && x != nil && y != nil {
		return *x == *y
	}
	return bytes.Equal(a, b)
}

func envelope(body []byte) (map[string]json.RawMessage, bool) {
	var members map[string]json.RawMessage
	err := json.Unmarshal(body, &members)
	return members, err == nil && members != nil
}

// listening is the stream of a gateway. One event of it is read when one is
// asked for.
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
	limits := sse.Limits{Event: d.deps.BodyLimit, Events: maxEvents, Total: maxStream}
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
		if limit, ok := errors.AsType[*sse.LimitError](err); ok {
			return l.end(tooLong(l.e, limit.Error()))
		}
		return l.end(&transport.UnreachableError{Agent: l.e.Agent, Err: err})
	}
	return l.judge(event.Data)
}

// judge tells a message of the stream from the problem that ends it, and from
// what belongs to something else. Notices on the way have no id.
func (l *listening) judge(data []byte) (transport.Event, error) {
	members, ok := envelope(data)
	if ok && members["jsonrpc"] == nil {
		if refusal, ok := parseRefusal(data); ok {
			refusal.Agent = l.e.Agent
			return l.end(refusal)
		}
	}
	notice := ok && members["method"] != nil && string(members["jsonrpc"]) == `"2.0"`
	if reason := misfit(l.sent.Body, data); reason != "" && !notice {
		return l.end(bad(l.e, reason))
	}
	wire := heard(l.sent, l.response.Header, data)
	wire.Event = true
	return transport.Event{Wire: wire}, nil
}

func (l *listening) end(err error) (transport.Event, error) {
	l.err = err
	_ = l.Close()
	return transport.Event{}, err
}

// trailer is the evidence that closes a stream, if the gateway gives any.
func (l *listening) trailer() (transport.Event, error) {
	values := l.response.Trailer.Values(ect.HeaderName)
	if l.trailed || len(values) == 0 {
		return l.end(io.EOF)
	}
	l.trailed = true
	tokens, err := ect.ParseHeader(values, l.d.deps.Limits)
	if err != nil {
		return l.end(bad(l.e, "its execution context is malformed or too large"))
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
