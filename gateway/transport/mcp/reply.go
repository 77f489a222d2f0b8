package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/mcp/channel"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

const (
	mediaEvents = "text/event-stream"
	maxEvents   = 4096 // messages of one batch
)

// read finds the reply to a request in a response.
func (l *upstreamCall) read(ctx context.Context, response *http.Response, request translators.Wire) ([]byte, error) {
	code := response.StatusCode
	switch {
	case code >= http.StatusMultipleChoices && code < http.StatusBadRequest:
		return nil, l.refused(response, "a redirect, which is not followed")
	case response.Header.Get("Content-Encoding") != "":
		return nil, l.bad("compressed (Content-Encoding), expected it uncompressed")
	}
	switch transport.MediaType(response.Header) {
	case mediaJSON:
		return l.readJSON(ctx, response, request)
	case mediaEvents:
		if code != http.StatusOK {
			return nil, l.refused(response, "an event stream with HTTP status "+strconv.Itoa(code))
		}
		f := l.flow(ctx, response, request, session{})
		for {
			body, err := f.next(ctx)
			if err != nil || f.over {
				return body, err
			}
		}
	}
	switch {
	case code != http.StatusOK && code != http.StatusAccepted && code != http.StatusNoContent:
		return nil, l.refused(response, withoutBody(code))
	case response.ContentLength == 0 || code != http.StatusOK:
		return nil, l.bad("no reply at all")
	default:
		return nil, l.bad("neither JSON nor an event stream")
	}
}

// withoutBody says what an answer lacks, and at a place that is not there what may be wrong.
func withoutBody(status int) string {
	text := "HTTP status " + strconv.Itoa(status) + " without a JSON-RPC body"
	if status == http.StatusNotFound || status == http.StatusMethodNotAllowed {
		text += "; is the path of its URL right? Many servers are at /mcp"
	}
	return text
}

func (l *upstreamCall) limit() int { return l.d.deps.Form.Info().BodyLimit }

func (l *upstreamCall) readJSON(ctx context.Context, response *http.Response, request translators.Wire) ([]byte, error) {
	body, err := l.whole(ctx, response, " bytes")
	switch {
	case err != nil:
		return nil, err
	case len(bytes.TrimSpace(body)) == 0:
		return nil, l.refused(response, "an empty reply with HTTP status "+strconv.Itoa(response.StatusCode))
	}
	id := requestID(request.Body)
	body = outOfBatch(body, request.Version, id)
	answer, err := parse(body)
	switch {
	case err != nil && response.StatusCode != http.StatusOK:
		return nil, l.refused(response, withoutBody(response.StatusCode))
	case err != nil:
		return nil, l.bad("not a JSON-RPC message")
	case response.StatusCode >= http.StatusBadRequest && answer.Error == nil:
		return nil, l.refused(response, "HTTP status "+strconv.Itoa(response.StatusCode)+" without an error")
	case !answer.answers(id):
		return nil, l.bad("not the reply to this request")
	}
	return body, nil
}

// refused reports whether a server refused a message with HTTP status 400 and a text. The SDK
// for Go up to 2025-11-25 does that for an unknown method and for missing params.
// The codec makes an error of it.
func refused(response *http.Response, re canonical.Op) bool {
	return re == canonical.OpInvoke && response.StatusCode == http.StatusBadRequest &&
		response.Header.Get("Content-Encoding") == "" && transport.MediaType(response.Header) == translators.MediaText
}

// whole reads a response to its end, within bounds.
func (l *upstreamCall) whole(ctx context.Context, response *http.Response, unit string) ([]byte, error) {
	body, err := transport.ReadAll(io.LimitReader(response.Body, int64(l.limit())+1), response.ContentLength)
	switch err = cmp.Or(err, ctx.Err()); { // a server that sees the deadline may end half an answer properly
	case err != nil:
		return nil, l.failed(ctx, err)
	case len(body) > l.limit():
		return nil, l.tooLong("larger than " + strconv.Itoa(l.limit()) + unit)
	default:
		return body, nil
	}
}

// outOfBatch is the reply to the request with this id if it came in a batch,
// as a server of 2025-03-26 may send it; else another message of the batch, or
// the body as it is.
func outOfBatch(body []byte, version string, id json.RawMessage) []byte {
	if version != mcp.LegacyMarch || !isBatch(body) {
		return body
	}
	var messages []json.RawMessage
	if json.Unmarshal(body, &messages) != nil || len(messages) == 0 || len(messages) > maxEvents {
		return body
	}
	for _, message := range messages {
		if answer, err := parse(message); err == nil && answer.answers(id) {
			return message
		}
	}
	return messages[0]
}

// answers reports whether this is the reply to the request with this id. An
// error may come without one: a server that could not read the id has none.
func (e envelope) answers(id json.RawMessage) bool {
	unnamed := len(e.ID) == 0 || string(e.ID) == "null"
	return e.Method == "" && (e.Result == nil) != (e.Error == nil) && (channel.SameID(e.ID, id) || unnamed && e.Error != nil)
}

// isReply reports whether a JSON-RPC message has the id of the request. Then the request
// arrived at the program that answers requests in the session.
func isReply(reply, request translators.Wire) bool {
	answer, err := parse(reply.Body)
	return err == nil && answer.Method == "" && channel.SameID(answer.ID, requestID(request.Body))
}

// goneError reports that the server may have lost the session. It refused a message in it
// with an HTTP status, and did no work for it.
type goneError struct {
	status int
	reply  transport.Reply // what it said of the message
	err    error           // what is wrong with that
}

func (*goneError) Error() string { return "the session is gone" }

// known is what a server said of a message, whether or not it lost the session.
func known(reply transport.Reply, err error) (transport.Reply, error) {
	if gone, ok := errors.AsType[*goneError](err); ok {
		return gone.reply, gone.err
	}
	return reply, err
}

// mayBeLost reports whether a status may mean a lost session. Servers send 404 (2025-11-25,
// Session Management), and some another of these statuses. After any other status the server may
// have done the work.
func (s session) mayBeLost(status int) bool {
	return s.id != "" && slices.Contains([]int{
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusNotFound, http.StatusGone, http.StatusServiceUnavailable,
	}, status)
}

// aliveWithin is how long a server may take to say that it knows a session.
const aliveWithin = 2 * time.Second

// hasLost reports whether a server that refused a message has lost the session of it. Statuses
// but 404 have other meanings as well: a ping in the session tells, which a server that knows
// it answers (2025-11-25, Ping). Without word the session is taken to live.
func (l *upstreamCall) hasLost(ctx context.Context, s session, version string, status int) bool {
	if status == http.StatusNotFound || l.d.sessions.replaced(keyOf(l.ep, version), s) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, aliveWithin)
	defer cancel()
	ping := translators.Wire{Version: version, Body: []byte(`{"jsonrpc":"2.0","id":` + l.d.nextID() + `,"method":"` + mcp.MethodPing + `"}`)}
	own := &upstreamCall{d: l.d, ep: l.ep} // with no evidence: it is no part of what the caller does
	reply, err := own.ask(ctx, ping, s, canonical.OpNative)
	if reply.Events != nil {
		_ = reply.Events.Close()
	}
	_, gone := errors.AsType[*goneError](err)
	return gone
}
