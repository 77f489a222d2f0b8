package a2a

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/a2a/frame"
	"github.com/aepb/aepb-gateway/gateway/transport/reply"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
)

// frameHead is what stands before each message of gRPC: whether it is
// compressed, and its length.
const frameHead = 5

// timeoutSlack is how much longer an agent is given than there is time, so that
// it is we who say that the time is up.
const timeoutSlack = time.Second

// The fields of gRPC over HTTP/2.
const (
	fieldStatus  = "Grpc-Status"
	fieldMessage = "Grpc-Message"
	fieldDetails = "Grpc-Status-Details-Bin"
	mediaGRPC    = "application/grpc"
)

// requestGRPC is a message on its way out over gRPC. It goes the same way as
// every other request, so that everything the guard demands is demanded here.
func (d *Dialer) requestGRPC(ctx context.Context, e transport.Endpoint, wire translators.Wire, evidence []string) (*http.Request, error) {
	body := make([]byte, frameHead, frameHead+len(wire.Body))
	binary.BigEndian.PutUint32(body[1:], uint32(len(wire.Body))) //nolint:gosec // bounded by the form
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(e.URL, "/")+wire.Path, bytes.NewReader(append(body, wire.Body...)))
	if err != nil {
		return nil, &transport.UnreachableError{Agent: e.Agent, Err: err}
	}
	request.Proto, request.ProtoMajor, request.ProtoMinor = "HTTP/2.0", 2, 0
	request.Header = pick(wire.Header)
	request.Header.Set("Content-Type", mediaGRPC)
	request.Header.Set("Te", "trailers")
	request.Header.Set(form.HeaderVersion, form.Version)
	if deadline, ok := ctx.Deadline(); ok && !streams(wire) {
		request.Header.Set("Grpc-Timeout", strconv.FormatInt(max((time.Until(deadline)+timeoutSlack).Milliseconds(), 1), 10)+"m")
	}
	transport.AddEvidence(request.Header, evidence)
	return request, nil
}

// streams reports whether a method is answered with a stream.
func streams(wire translators.Wire) bool {
	method := frame.Method(wire.Path)
	return method != nil && method.IsStreamingServer()
}

// incoming is what an agent answers over gRPC. One message of it is read when
// one is asked for.
type incoming struct {
	d        *Dialer
	e        transport.Endpoint
	sent     translators.Wire
	response *http.Response
	cancel   context.CancelFunc
	closed   sync.Once
	events   int
	total    int
	err      error // what ended it, and ends it again
}

var _ transport.Events = (*incoming)(nil)

// answered reads the reply to a request: the one message of a unary method, or
// the beginning of a stream.
func (d *Dialer) answered(ctx context.Context, in *incoming) (transport.Reply, error) {
	reply, err := in.begin(ctx)
	if err != nil || reply.Events == nil {
		_ = in.Close()
	}
	return reply, err
}

func (in *incoming) begin(ctx context.Context) (transport.Reply, error) {
	var reply transport.Reply
	if reason := in.foreign(); reason != "" {
		return reply, in.bad(reason)
	}
	tokens, err := in.tokens(in.response.Header)
	if err != nil {
		return reply, err
	}
	reply.Evidence = tokens
	if in.response.Header.Get(fieldStatus) != "" { // nothing follows
		wire, err := in.failure(in.response.Header)
		reply.Wire = wire
		return reply, err
	}
	if streams(in.sent) {
		reply.Events = in
		return reply, nil
	}
	reply.Wire, err = in.sole(ctx)
	if err == nil {
		tokens, err = in.tokens(in.response.Trailer)
	}
	if cause := ctx.Err(); err != nil || cause != nil {
		if cause != nil {
			err = transport.CallError(ctx, in.e, cause)
		}
		return transport.Reply{}, err
	}
	reply.Evidence = append(reply.Evidence, tokens...)
	return reply, nil
}

// foreign says why a response is none of gRPC; "": it is one.
func (in *incoming) foreign() string {
	r := in.response
	kind := transport.MediaType(r.Header)
	switch {
	case r.StatusCode >= 300 && r.StatusCode < 400:
		return "a redirect (HTTP status " + strconv.Itoa(r.StatusCode) + "), which is not followed"
	case r.ProtoMajor != 2, kind != mediaGRPC && kind != frame.Media:
		return "HTTP status " + strconv.Itoa(r.StatusCode) + " and no gRPC"
	case r.StatusCode != http.StatusOK:
		return "HTTP status " + strconv.Itoa(r.StatusCode)
	case r.Header.Get("Grpc-Encoding") != "" && r.Header.Get("Grpc-Encoding") != "identity":
		return "compressed (Grpc-Encoding), expected it uncompressed"
	default:
		return ""
	}
}

func (in *incoming) bad(reason string) error {
	return transport.BadStatus(in.e, reason, in.response.StatusCode, in.response.Header)
}

func (in *incoming) tooLong(reason string) error {
	return &transport.BadReplyError{Agent: in.e.Agent, Reason: reason, Err: transport.ErrTooLong}
}

func (in *incoming) tokens(h http.Header) ([]string, error) {
	tokens, err := ect.ParseHeader(h.Values(ect.HeaderName), in.d.deps.Limits)
	if err != nil {
		return nil, in.bad("its execution context is malformed or too large")
	}
	return tokens, nil
}

// sole is the one message of a unary method.
func (in *incoming) sole(ctx context.Context) (translators.Wire, error) {
	body, err := in.frame(ctx)
	if err == nil {
		_, err = in.frame(ctx)
		if err == nil {
			return translators.Wire{}, in.bad("two messages where one belongs")
		}
	}
	if !errors.Is(err, io.EOF) {
		return translators.Wire{}, err
	}
	if in.response.Trailer.Get(fieldStatus) == "0" && body == nil {
		return translators.Wire{}, in.bad("no message")
	}
	if in.response.Trailer.Get(fieldStatus) == "0" {
		return in.received(body), nil
	}
	return in.failure(in.response.Trailer)
}

// frame reads one message; io.EOF: there is none.
func (in *incoming) frame(ctx context.Context) ([]byte, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(in.response.Body, head[:]); errors.Is(err, io.EOF) {
		return nil, io.EOF
	} else if err != nil {
		return nil, transport.CallError(ctx, in.e, err)
	}
	limit := in.d.deps.Form.Info().BodyLimit
	size := binary.BigEndian.Uint32(head[1:])
	switch {
	case head[0] != 0:
		return nil, in.bad("compressed, expected an uncompressed message")
	case int64(size) > int64(limit):
		return nil, in.tooLong("longer than " + strconv.Itoa(limit) + " bytes")
	}
	var body bytes.Buffer // grows with what comes, not with what is announced
	if n, err := io.CopyN(&body, in.response.Body, int64(size)); err != nil {
		if errors.Is(err, io.EOF) && n < int64(size) {
			err = io.ErrUnexpectedEOF
		}
		return nil, transport.CallError(ctx, in.e, err)
	}
	if body.Len() == 0 {
		return []byte{}, nil
	}
	return body.Bytes(), nil
}

// received is a message of the agent.
func (in *incoming) received(body []byte) translators.Wire {
	wire := in.d.received(in.sent, in.response.Header, body, http.StatusOK)
	wire.Media, wire.Path = frame.Media, in.sent.Path
	return wire
}

// failure is the status at the end of an answer, as a message. Its bytes are
// those of the google.rpc.Status.
func (in *incoming) failure(h http.Header) (translators.Wire, error) {
	number, err := strconv.ParseUint(h.Get(fieldStatus), 10, 16)
	if err != nil {
		return translators.Wire{}, in.bad("it ended without a status")
	}
	code := codes.Code(number)
	if code == codes.OK {
		return translators.Wire{}, in.bad("no message")
	}
	message, err := url.PathUnescape(h.Get(fieldMessage))
	if err != nil {
		message = h.Get(fieldMessage)
	}
	body := frame.Status(code, message)
	if details := h.Get(fieldDetails); details != "" {
		if body, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(details, "=")); err != nil {
			return translators.Wire{}, in.bad("the details of its status are unreadable")
		}
	}
	wire := in.received(body)
	wire.Status = frame.HTTPStatus(code)
	return wire, nil
}

// Next reads the next event. A caller that stops waiting for it ends the stream.
func (in *incoming) Next(ctx context.Context) (transport.Event, error) {
	if in.err != nil {
		return transport.Event{}, in.err
	}
	stop := context.AfterFunc(ctx, in.cancel)
	body, err := in.frame(ctx)
	alive := stop()
	in.events, in.total = in.events+1, in.total+len(body)
	switch {
	case !alive:
		return in.end(transport.CallError(ctx, in.e, context.Cause(ctx)))
	case errors.Is(err, io.EOF):
		return in.last()
	case err != nil:
		return in.end(err)
	case in.events > reply.MaxEvents || in.total > reply.MaxStream:
		return in.end(in.tooLong("its stream is too long"))
	}
	wire := in.received(body)
	wire.Event = true
	return transport.Event{Wire: wire}, nil
}

// last is what stands at the end of a stream: its evidence, or why it failed.
func (in *incoming) last() (transport.Event, error) {
	trailer := in.response.Trailer
	tokens, err := in.tokens(trailer)
	if err != nil {
		return in.end(err)
	}
	event := transport.Event{Evidence: tokens}
	if trailer.Get(fieldStatus) != "0" {
		if event.Wire, err = in.failure(trailer); err != nil {
			return in.end(err)
		}
		event.Wire.Event = true
	} else if len(tokens) == 0 {
		return in.end(io.EOF)
	}
	in.err = io.EOF
	_ = in.Close()
	return event, nil
}

func (in *incoming) end(err error) (transport.Event, error) {
	in.err = err
	_ = in.Close()
	return transport.Event{}, err
}

// Close ends the answer. The agent's work goes on (A2A 3.5.2).
func (in *incoming) Close() error {
	var err error
	in.closed.Do(func() {
		in.cancel()
		err = in.response.Body.Close()
	})
	return err
}
