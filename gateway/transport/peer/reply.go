package peer

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/reply"
	"github.com/aepb/aepb-gateway/translators"
)

const maxRefusal = 16 << 10 // bytes of a problem document

// read says what a whole response is: a message, or a refusal. judge says why a
// message is no reply to the one that was sent; nil: it is to be none.
func read(
	e transport.Endpoint, sent translators.Wire, response *http.Response, body []byte, tokens []string, judge func(request, body []byte) string,
) (translators.Wire, error) {
	switch status := response.StatusCode; {
	case status >= 300 && status < 400:
		return translators.Wire{}, badStatus(e, "a redirect (HTTP status "+strconv.Itoa(status)+"), which is not followed", response)
	case response.Header.Get("Content-Encoding") != "":
		return translators.Wire{}, bad(e, "compressed (Content-Encoding), expected it uncompressed")
	case status != http.StatusOK:
		refusal, ok := parseRefusal(body)
		if !ok || transport.MediaType(response.Header) != mediaProblem {
			return translators.Wire{}, badStatus(e, "HTTP status "+strconv.Itoa(status)+" without a problem document", response)
		}
		refusal.Agent, refusal.Status, refusal.Evidence = e.Agent, status, tokens
		refusal.RetryAfter = transport.RetryAfter(response.Header)
		return translators.Wire{}, refusal
	case judge == nil:
		return message(e, response.Header, body)
	case transport.MediaType(response.Header) != mediaJSON:
		return translators.Wire{}, bad(e, "not "+mediaJSON)
	}
	if reason := judge(sent.Body, body); reason != "" {
		return translators.Wire{}, bad(e, reason)
	}
	return received(sent, response.Header, body), nil
}

// message is one in another protocol, which need not be spoken here.
func message(e transport.Endpoint, header http.Header, body []byte) (translators.Wire, error) {
	kind := transport.MediaType(header)
	if len(body) == 0 || kind == "" || kind == mediaProblem {
		return translators.Wire{}, bad(e, "no message")
	}
	return translators.Wire{Media: kind, Header: fields(header), Body: body}, nil
}

// received is a message of the agent's, as the gateway before it tells it.
func received(sent translators.Wire, header http.Header, body []byte) translators.Wire {
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

// event tells a message of the stream from the problem that ends it, and from
// what belongs to something else. Notices on the way have no id.
func event(peer reply.Peer, sent translators.Wire, header http.Header, data []byte) (translators.Wire, error) {
	members, ok := envelope(data)
	if ok && members["jsonrpc"] == nil {
		if refusal, ok := parseRefusal(data); ok {
			refusal.Agent = peer.Endpoint.Agent
			return translators.Wire{}, refusal
		}
	}
	notice := ok && members["method"] != nil && string(members["jsonrpc"]) == `"2.0"`
	if reason := misfit(sent.Body, data); reason != "" && !notice {
		return translators.Wire{}, peer.Bad(reason)
	}
	return received(sent, header, data), nil
}
