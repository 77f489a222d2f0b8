package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// Bounds of a batch. What all its answers together weigh is bounded like a body.
const (
	maxBatch         = 64       // messages
	maxBatchEvidence = 12 << 10 // bytes of tokens on one response: some clients refuse headers of 16 KiB (R4)
)

// batch answers a JSON-RPC batch, which only 2025-03-26 has (R8): one exchange
// and ECT for each message, one after the other, so that a later one sees what
// an earlier one did; the answers go back in the order of the requests.
func (v *serverCall) batch(ctx context.Context, wire translators.Wire) {
	messages, err := v.split(wire)
	if err != nil {
		v.fail(err)
		return
	}
	wire.Version = mcp.LegacyMarch
	var answers collection
	pass := v.pass // of the request as a whole, and so of the first message
	for _, message := range messages {
		one := &note{header: http.Header{}}
		wire.Body = message
		(&serverCall{
			server: v.server, handler: v.handler, w: one, r: v.r, pass: pass,
			session: v.session, guest: v.guest, knows: v.knows, quiet: true,
		}).member(ctx, wire, answers.size)
		pass = limit.Pass{}
		if ctx.Err() != nil {
			return // the caller went away
		}
		answers.add(one)
	}
	answers.write(v.w)
}

// split judges a batch as a whole and gives its messages.
func (v *serverCall) split(wire translators.Wire) ([]json.RawMessage, error) {
	if version := wire.Header.Get(headerVersion); version != "" && version != mcp.LegacyMarch {
		return nil, v.noBatches(wire.Header)
	}
	v.version = mcp.LegacyMarch
	if len(v.evidence) > 0 {
		return nil, batchError("an ECT testifies to one message: send that one by itself")
	}
	in := json.NewDecoder(bytes.NewReader(wire.Body))
	if _, err := in.Token(); err != nil {
		return nil, syntax()
	}
	var messages []json.RawMessage
	for in.More() {
		var message json.RawMessage
		if err := in.Decode(&message); err != nil {
			return nil, syntax()
		}
		if messages = append(messages, message); len(messages) > maxBatch {
			return nil, batchError("a batch has at most " + strconv.Itoa(maxBatch) + " messages")
		}
	}
	if _, err := in.Token(); err != nil || len(bytes.TrimLeft(wire.Body[in.InputOffset():], " \t\r\n")) > 0 {
		return nil, syntax()
	}
	if len(messages) == 0 {
		return nil, batchError("the batch is empty")
	}
	return messages, nil
}

func syntax() error {
	return &admissionError{http.StatusBadRequest, &translators.MalformedError{Reason: "not valid JSON", Syntax: true}}
}

func batchError(reason string) error {
	return &admissionError{http.StatusBadRequest, &canonical.Error{Code: canonical.CodeInvalidRequest, Message: reason}}
}

// noBatches refuses a batch of another revision than the one that has them, in
// the words of that revision. Whether it is one at all, the codec knows.
func (v *serverCall) noBatches(h http.Header) error {
	probe := translators.Wire{Binding: mcp.Binding, Header: h, Body: []byte(`{"jsonrpc":"2.0","id":0,"method":"` + mcp.MethodList + `"}`)}
	_, err := v.server.deps.Form.Decode(probe)
	if failure, ok := errors.AsType[*canonical.Error](err); ok && failure.Code == canonical.CodeUnsupportedVersion {
		return failure
	}
	v.version = h.Get(headerVersion)
	return batchError("batches are in revision " + mcp.LegacyMarch + " alone")
}

// member answers one message of a batch; spent is what the answers before it weigh.
func (v *serverCall) member(ctx context.Context, wire translators.Wire, spent int) {
	v.version = mcp.LegacyMarch
	var err error
	v.message, err = v.server.deps.Form.Decode(wire)
	switch err := badParams(err); {
	case err != nil:
		v.fail(err)
	case v.message.Op == canonical.OpDescribe:
		v.fail(&canonical.Error{Code: canonical.CodeInvalidRequest, Message: "initialize is never part of a batch"})
	case spent > v.server.deps.Form.Info().BodyLimit && v.message.Op != canonical.OpNotice:
		v.fail(&canonical.Error{Code: canonical.CodeUnavailable, Message: "not done: the answers before this one fill the batch's reply"})
	default:
		if err := v.limit(ctx); err != nil {
			v.fail(err)
			return
		}
		v.answer(ctx, wire)
	}
}

// note takes down the answer to one message of a batch.
type note struct {
	header http.Header
	code   int
	body   []byte
}

var _ http.ResponseWriter = (*note)(nil)

func (n *note) Header() http.Header { return n.header }

func (n *note) WriteHeader(code int) { n.code = code }

func (n *note) Write(data []byte) (int, error) {
	n.body = append(n.body, data...)
	return len(data), nil
}

// collection is the answers to a batch so far.
type collection struct {
	notes []*note // of requests; a notification has no answer
	size  int     // bytes
}

func (c *collection) add(n *note) {
	if len(n.body) > 0 {
		c.notes = append(c.notes, n)
		c.size += len(n.body)
	}
}

// write sends the answers as one array. A failure that HTTP clients act on
// keeps its status if all of them failed so. The evidence of those answers that
// do not fit into the header any more stays with the gateway.
func (c *collection) write(w http.ResponseWriter) {
	if len(c.notes) == 0 {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	h := w.Header()
	code, space := c.notes[0].code, maxBatchEvidence
	bodies := make([][]byte, len(c.notes))
	for i, n := range c.notes {
		bodies[i] = n.body
		if n.code != code {
			code = http.StatusOK
		}
		tokens := n.header.Values(ect.HeaderName)
		if space -= weight(tokens); space >= 0 {
			transport.AddEvidence(h, tokens)
		}
	}
	if code != http.StatusOK {
		for _, name := range []string{"Retry-After", "Www-Authenticate"} {
			if value := c.notes[0].header.Get(name); value != "" {
				h.Set(name, value)
			}
		}
	}
	transport.Respond(w, mediaJSON, slices.Concat([]byte("["), bytes.Join(bodies, []byte(",")), []byte("]")), code)
}

func weight(tokens []string) int {
	size := 0
	for _, token := range tokens {
		size += len(token)
	}
	return size
}
