package a2a

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/a2a/frame"
	"github.com/aepb/aepb-gateway/gateway/transport/inflight"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// fieldAgent is the metadata with an agent's name; without it the tenant of the
// request is the name.
const fieldAgent = "aepb-agent"

// remote is one call over gRPC.
type remote struct {
	*Listener
	handler transport.Handler
	stream  grpc.ServerStream
	fields  metadata.MD
	share   *callShare
	at      *connection     // nil: unknown
	last    *outgoing       // message that was sent; nil: none
	ctx     context.Context //nolint:containedctx // the call's own, with its caller
}

func (c *remote) serve(path string) error {
	method := frame.Method(path)
	call := transport.Call{
		EntryPoint: transport.Native, Caller: transport.CallerFrom(c.ctx), Address: transport.AddressFrom(c.ctx), Detached: true,
		Wire: translators.Wire{Binding: form.Binding, Form: form.FormGRPC, Media: frame.Media, Path: path, Header: c.header()},
	}
	if err := c.receive(method, &call); err != nil {
		return c.refuse(err)
	}
	arrived(c.stream.Context())
	if method.Name() == "GetExtendedAgentCard" {
		var err error
		if call, err = c.extended(call); err != nil {
			return c.refuse(err)
		}
	}
	answer, err := c.handler.Exchange(c.ctx, call)
	c.announce(answer)
	switch {
	case err != nil:
		return c.refuse(err)
	case answer.Events() != nil:
		return c.tell(answer.Events())
	default:
		return c.say(answer.Wire())
	}
}

// receive reads a request as far as a server may: metadata, then, once the limit
// is asked, the message and its evidence.
func (c *remote) receive(method protoreflect.MethodDescriptor, call *transport.Call) (err error) {
	if method == nil {
		return &canonical.Error{Code: canonical.CodeNoMethod, Message: "no such method"}
	}
	names := c.fields.Get(fieldAgent)
	if len(names) > 1 {
		return &canonical.Error{Code: canonical.CodeInvalidRequest, Message: fieldAgent + " is given twice"}
	}
	call.Agent = strings.Join(names, "")
	if call.Pass, err = c.handler.Limit(c.ctx, transport.CallInfoFrom(c.ctx, call.Agent, form.Binding)); err != nil {
		return err
	}
	if call.Wire.Body, err = c.read(); err != nil {
		return err
	}
	if call.Agent == "" {
		call.Agent, call.Tenanted = frame.Tenant(method, call.Wire.Body), true
	}
	if call.Agent == "" {
		return &canonical.Error{Code: canonical.CodeBadParams, Message: "name the agent as the tenant of the request, or in the metadata " + fieldAgent}
	}
	call.Parent = strings.Join(c.fields.Get(transport.FieldParent), ",")
	call.Evidence, err = ect.ParseHeader(c.fields.Get(ect.HeaderName), c.deps.Limits)
	return err
}

// read reads the one message of a request, to its end.
func (c *remote) read() ([]byte, error) {
	var body, more []byte
	arriving := &reading{share: c.share.Request, most: int64(c.deps.Form.Info().BodyLimit), cut: c.cut}
	if err := arriving.begin(); err != nil {
		return nil, err
	}
	err := c.stream.RecvMsg(&body)
	if over := arriving.end(len(body)); over != nil {
		return nil, over
	}
	if err == nil {
		if err = c.stream.RecvMsg(&more); err == nil {
			return nil, &canonical.Error{Code: canonical.CodeInvalidRequest, Message: "a second message where one belongs"}
		}
		if errors.Is(err, io.EOF) {
			return body, nil
		}
	}
	exceeded, over := errors.AsType[*quota.ExceededError](context.Cause(c.stream.Context()))
	switch {
	case over:
		return nil, exceeded
	case errors.Is(context.Cause(c.stream.Context()), errSlow):
		return nil, &canonical.Error{Code: canonical.CodeTimeout, Message: "the request did not arrive in time"}
	case errors.Is(err, io.EOF):
		return nil, &canonical.Error{Code: canonical.CodeInvalidRequest, Message: "no message"}
	case status.Code(err) == codes.ResourceExhausted:
		return nil, problem.Reading(&http.MaxBytesError{Limit: int64(c.deps.Form.Info().BodyLimit)})
	default:
		return nil, err
	}
}

// header picks the metadata that belong to the message.
func (c *remote) header() http.Header {
	h := http.Header{}
	for _, name := range messageFields {
		for _, value := range c.fields.Get(name) {
			h.Add(name, value)
		}
	}
	return h
}

// announce puts into the initial metadata what comes with an answer: the
// evidence, and what callers should know of the agent's future.
func (c *remote) announce(answer transport.Answer) {
	h := pick(answer.Wire().Header)
	answer.Notice.Announce(h)
	fields := metadata.MD{}
	for name, values := range h {
		fields.Append(name, values...)
	}
	fields.Append(ect.HeaderName, answer.Evidence...)
	_ = c.stream.SetHeader(fields) // it fails after the first message alone
}

// say answers with one message, or with the error that it is.
func (c *remote) say(wire translators.Wire) error {
	if wire.Status >= http.StatusBadRequest {
		return statusIn(wire.Body)
	}
	body := wire.Body
	if body == nil {
		body = []byte{}
	}
	return c.send(body)
}

// tell answers with a stream: one event at a time, the next one asked for when
// the last was taken. It ends with the evidence for all of it in the trailer.
func (c *remote) tell(events transport.Events) error {
	defer func() { _ = events.Close() }()
	if c.share.Request != nil {
		if err := c.share.Stream(); err != nil {
			return c.refuse(err)
		}
	}
	if err := c.stream.SendHeader(nil); err != nil {
		return err
	}
	ctx, leave := identity.Bound(c.ctx)
	defer leave()
	for {
		event, err := events.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(context.Cause(ctx), identity.ErrSessionEnded):
			return errSession
		case c.ctx.Err() != nil:
			return status.FromContextError(c.ctx.Err()).Err() // the caller has left
		case err != nil:
			return c.refuse(err)
		}
		if len(event.Evidence) > 0 {
			trailer := metadata.MD{}
			trailer.Append(ect.HeaderName, event.Evidence...)
			c.stream.SetTrailer(trailer)
		}
		if len(event.Wire.Body) == 0 {
			continue
		}
		if event.Wire.Status >= http.StatusBadRequest {
			return c.fail(events, event.Wire)
		}
		if err := c.send(event.Wire.Body); err != nil {
			return err
		}
	}
}

// fail ends a stream with the error that its last event is; the evidence may
// still come.
func (c *remote) fail(events transport.Events, wire translators.Wire) error {
	for {
		event, err := events.Next(c.ctx)
		if err != nil {
			return statusIn(wire.Body)
		}
		if len(event.Evidence) > 0 {
			trailer := metadata.MD{}
			trailer.Append(ect.HeaderName, event.Evidence...)
			c.stream.SetTrailer(trailer)
		}
	}
}

// extended makes the call that asks the agent for its extended card.
func (c *remote) extended(call transport.Call) (transport.Call, error) {
	wire, err := frame.Framer{}.Unframe(call.Wire)
	if err != nil {
		return call, err
	}
	request, err := c.deps.Form.Decode(wire)
	if err != nil {
		return call, err
	}
	return interfaceURLs{url: c.deps.AgentURL(call.Agent), grpc: c.deps.GRPC}.extended(c.ctx, c.deps.Form, c.handler, call, request)
}

// refuse is an error as gRPC says it (A2A 10.6): a status with an ErrorInfo.
func (c *remote) refuse(cause error) error {
	because := context.Cause(c.stream.Context())
	_, over := errors.AsType[*quota.ExceededError](because)
	if ended := c.stream.Context().Err(); ended != nil && !over && !errors.Is(because, errSlow) {
		return status.FromContextError(ended).Err()
	}
	if reported, ok := status.FromError(cause); ok {
		return reported.Err() // gRPC's own: a compressed message, say
	}
	p := problem.From(cause)
	m := &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseError, Body: problem.NativeFor(problem.Knows(c.ctx), cause)}
	wire, _, err := c.deps.Form.Encode(m, translators.Target{Version: form.Version, Form: form.FormGRPC})
	if err == nil {
		wire, _, err = frame.Framer{}.Frame(wire)
	}
	rpcStatus := &spb.Status{}
	if err != nil || proto.Unmarshal(wire.Body, rpcStatus) != nil {
		return status.Error(codes.Internal, p.Title)
	}
	if code, ok := codeOf(p); ok {
		rpcStatus.Code = int32(code) //nolint:gosec // small
	}
	return status.FromProto(rpcStatus).Err()
}

// codeOf is the code where a client acts on it before it reads the details: as
// statusOf, in gRPC's words.
func codeOf(p problem.Problem) (codes.Code, bool) {
	switch statusOf(p) {
	case http.StatusOK:
		return 0, false
	case http.StatusUnauthorized:
		return codes.Unauthenticated, true
	case http.StatusForbidden:
		return codes.PermissionDenied, true
	case http.StatusNotFound:
		return codes.NotFound, true
	case http.StatusRequestEntityTooLarge, http.StatusTooManyRequests, http.StatusRequestHeaderFieldsTooLarge:
		return codes.ResourceExhausted, true
	case http.StatusServiceUnavailable:
		return codes.Unavailable, true
	case http.StatusGatewayTimeout:
		return codes.DeadlineExceeded, true
	default:
		return codes.InvalidArgument, true
	}
}

// statusIn is the status that bytes are.
func statusIn(body []byte) error {
	reported := &spb.Status{}
	if proto.Unmarshal(body, reported) != nil || reported.GetCode() == 0 {
		return status.Error(codes.Internal, "the agent failed")
	}
	return status.FromProto(reported).Err()
}

const (
	promptly    = 250 * time.Millisecond // in which most requests have arrived
	promptBytes = 64 << 10               // that a request counts for until then
)

// reading bounds the bytes of a message that is arriving, whose length gRPC does
// not tell before it is there: most arrive promptly and count for their length,
// one that does not counts for the largest there may be, or is cut off.
type reading struct {
	share *inflight.Request // nil: nothing is bounded
	most  int64
	cut   func(error)

	mu    sync.Mutex
	over  bool
	timer *time.Timer
}

func (r *reading) begin() error {
	if r.share == nil {
		return nil
	}
	if err := r.share.Hold(promptBytes); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(promptly, r.late)
	return nil
}

func (r *reading) late() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	if err := r.share.Hold(r.most); err != nil {
		r.cut(err)
	}
}

// end counts a message that is there for its length.
func (r *reading) end(length int) error {
	if r.share == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	r.timer.Stop()
	if err := r.share.Hold(int64(length)); err != nil {
		return err
	}
	r.share.Shrink(int64(length))
	return nil
}

// sendRate is how many bytes per second a reader must take of a message.
const sendRate = 64 << 10

// errUnread ends a call whose caller did not read its answer in time.
var errUnread = errors.New("transport/a2a: the answer was not read in time")

// callShare is the share of a call. It ends with the last of its users: the handler, and
// each message that gRPC still has.
type callShare struct {
	*inflight.Request // nil: nothing is bounded

	users atomic.Int32
}

func (h *callShare) use() { h.users.Add(1) }

func (h *callShare) done() {
	if h.users.Add(-1) == 0 && h.Request != nil {
		h.End()
	}
}

// outgoing is one message to a caller. gRPC queues it and returns; this tells when
// all of it is written to the connection, or dropped. gRPC itself tells that of no
// message, but it gives a message's memory back to its pool then, which this is.
type outgoing struct {
	body    []byte
	left    chan struct{}
	release func() // to be called once or more
}

var _ mem.BufferPool = (*outgoing)(nil)

// Get implements mem.BufferPool. Nothing is taken from this pool.
func (*outgoing) Get(length int) *[]byte {
	body := make([]byte, length)
	return &body
}

// Put implements mem.BufferPool: gRPC has no use for the message any more.
func (o *outgoing) Put(*[]byte) { o.release() }

// small reports whether gRPC calls no Put for a message of this size.
func (o *outgoing) small() bool { return mem.IsBelowBufferPoolingThreshold(cap(o.body)) }

// send queues one message. The message counts until it has left, and its connection
// is closed when its reader does not take it: gRPC cannot drop what it has queued
// for a stream. A second message waits for the first.
func (c *remote) send(body []byte) error {
	if c.last != nil {
		select {
		case <-c.last.left:
		case <-c.stream.Context().Done():
			return status.FromContextError(c.stream.Context().Err()).Err()
		}
	}
	if c.share.Request != nil {
		waits, cancel := context.WithTimeout(c.stream.Context(), c.deps.Write)
		defer cancel()
		if c.share.Send(waits, int64(len(body))) != nil {
			return c.refuse(&transport.OverBudgetError{Size: int64(len(body))})
		}
	}
	within := c.deps.Write + time.Duration(len(body)/sendRate)*time.Second
	timer := time.AfterFunc(within, func() {
		c.cut(errUnread)
		c.at.abandon()
	})
	m := &outgoing{body: body, left: make(chan struct{})}
	c.share.use()
	m.release = sync.OnceFunc(func() {
		timer.Stop()
		c.at.forget(m)
		if c.share.Request != nil {
			c.share.Sent()
		}
		c.share.done()
		close(m.left)
	})
	c.last = m
	c.at.queue(m)
	err := c.stream.SendMsg(m)
	if err != nil || m.small() {
		m.release()
	}
	return err
}
