package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/aepb/aepb-gateway/gateway/transport/sse"
)

const (
	mediaEvents = "text/event-stream"
	maxEvents   = 4096 // events of one reply's stream, the reply included
)

// read finds the reply to the request with this id in a response.
func (l *line) read(ctx context.Context, response *http.Response, id json.RawMessage) ([]byte, error) {
	code := response.StatusCode
	if code >= http.StatusMultipleChoices && code < http.StatusBadRequest {
		return nil, l.bad("a redirect, which is not followed")
	}
	switch media(response.Header.Get("Content-Type")) {
	case mediaJSON:
		return l.readJSON(ctx, response, id)
	case mediaEvents:
		if code != http.StatusOK {
			return nil, l.bad("an event stream with HTTP status " + strconv.Itoa(code))
		}
		return l.readEvents(ctx, response.Body, id)
	}
	switch {
	case code != http.StatusOK && code != http.StatusAccepted && code != http.StatusNoContent:
		return nil, l.bad("HTTP status " + strconv.Itoa(code) + " without a JSON-RPC body")
	case response.ContentLength == 0 || code != http.StatusOK:
		return nil, l.bad("no reply at all")
	default:
		return nil, l.bad("neither JSON nor an event stream")
	}
}

func (l *line) limit() int { return l.d.deps.Form.Info().BodyLimit }

func (l *line) readJSON(ctx context.Context, response *http.Response, id json.RawMessage) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, int64(l.limit())+1))
	switch {
	case err != nil:
		return nil, l.failed(ctx, err)
	case len(body) > l.limit():
		return nil, l.bad("larger than " + strconv.Itoa(l.limit()) + " octets")
	case len(bytes.TrimSpace(body)) == 0:
		return nil, l.bad("an empty reply with HTTP status " + strconv.Itoa(response.StatusCode))
	}
	answer, err := parse(body)
	switch {
	case err != nil && response.StatusCode != http.StatusOK:
		return nil, l.bad("HTTP status " + strconv.Itoa(response.StatusCode) + " without a JSON-RPC body")
	case err != nil:
		return nil, l.bad("not a JSON-RPC message")
	case response.StatusCode >= http.StatusBadRequest && answer.Error == nil:
		return nil, l.bad("HTTP status " + strconv.Itoa(response.StatusCode) + " without an error")
	case !answer.answers(id):
		return nil, l.bad("not the reply to this request")
	}
	return body, nil
}

// readEvents reads until the reply. What else a server says meanwhile, its
// notifications and its own requests, was not asked for and is passed over.
func (l *line) readEvents(ctx context.Context, body io.Reader, id json.RawMessage) ([]byte, error) {
	events := sse.NewReader(body, sse.Limits{Event: l.limit(), Events: maxEvents, Total: 2 * l.limit()})
	for {
		event, err := events.Next()
		if errors.Is(err, io.EOF) {
			return nil, l.bad("its event stream ended without a reply")
		}
		if err != nil {
			return nil, l.failed(ctx, err)
		}
		answer, err := parse(event.Data)
		if err != nil {
			return nil, l.bad("an event that is no JSON-RPC message")
		}
		if answer.Method == "" && answer.answers(id) {
			return event.Data, nil
		}
	}
}

// envelope is what tells a reply from other messages. The codec judges the rest.
type envelope struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

func parse(body []byte) (envelope, error) {
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil {
		return e, err
	}
	if e.Version != "2.0" {
		return e, errors.New("not JSON-RPC 2.0")
	}
	return e, nil
}

// answers reports whether this is the reply to the request with this id. An
// error may come without one: a server that could not read the id has none.
func (e envelope) answers(id json.RawMessage) bool {
	unnamed := len(e.ID) == 0 || string(e.ID) == "null"
	if e.Method != "" || (e.Result == nil) == (e.Error == nil) {
		return false
	}
	return bytes.Equal(e.ID, id) || (unnamed && e.Error != nil)
}
