package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/mcp/oldsse"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/embedded"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

const mediaJSON = "application/json"

// ServerDeps is what a server is built from.
type ServerDeps struct {
	Form    translators.Translator // the MCP codec
	Version string                 // of the gateway; stands for agents that do not say theirs
	Limits  ect.Limits             // of submitted evidence; zero: the defaults (R11)
	Keeper  Keeper                 // of the sessions of legacy clients; nil: none is given out
	Now     func() time.Time       // nil: the real clock

	Sessions int // of one caller at one agent; when there are more, the one that was not used for longest ends; zero: DefaultSessions
	Streams  int // standing streams of one caller; zero: a quarter of all
	// UnderWay is how many bytes of requests over HTTP with SSE may be under way; zero:
	// oldsse.DefaultUnderWay.
	UnderWay int64

	Logger *slog.Logger               // of internal errors; nil: they are not logged
	Base   func(*http.Request) string // the path of the server as clients see it; nil: as their request has it

	// Ours reports whether a host name is one of this gateway's: a page that was
	// loaded under any other came from elsewhere, whatever Host says. nil: all are.
	Ours func(host string) bool
}

// Server serves agents to MCP clients. It is safe for concurrent use.
type Server struct {
	deps     ServerDeps
	standing serverStreams
	shares   oldsse.Shares
	closing  context.Context //nolint:containedctx // a signal
	close    func()
}

var _ transport.HTTPServer = (*Server)(nil)

// NewServer builds a server; a codec of another protocol is an error.
func NewServer(deps ServerDeps) (*Server, error) {
	if deps.Form == nil || deps.Form.Info().Binding != mcp.Binding {
		return nil, errors.New("mcp: a server needs the MCP codec")
	}
	deps.Version = cmp.Or(deps.Version, "dev")
	if deps.Now == nil {
		deps.Now = time.Now
	}
	deps.Sessions = cmp.Or(deps.Sessions, DefaultSessions)
	deps.Streams = cmp.Or(deps.Streams, maxStanding/4)
	streams, err := quota.New(quota.Config{Resource: "open streams", Total: maxStanding, PerHolder: int64(deps.Streams)})
	if err != nil {
		return nil, err
	}
	shares, err := oldsse.NewShares(deps.Sessions, deps.UnderWay)
	if err != nil {
		return nil, err
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Server{deps: deps, standing: serverStreams{streams: streams}, shares: shares}
	d.closing, d.close = context.WithCancel(context.Background())
	return d, nil
}

// Close ends the streams that nothing else ends, so that a server can drain.
func (d *Server) Close() { d.close() }

// Handler serves the agent named by the path value "agent". The
// caller is in the request's context.
func (d *Server) Handler(handler transport.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.visit(handler, w, r).serve(r.Context()) })
}

func (d *Server) visit(handler transport.Handler, w http.ResponseWriter, r *http.Request) *serverCall {
	return &serverCall{server: d, handler: handler, w: w, r: r, knows: problem.Knows(r.Context())}
}

// serverCall is one request at the server.
type serverCall struct {
	server   *Server
	handler  transport.Handler
	w        http.ResponseWriter
	r        *http.Request
	evidence []string // submitted
	issued   []string // ours, to go back
	inside   bool     // in the body of an error too
	message  *canonical.Message
	pass     limit.Pass    // of what is answered next
	version  string        // in which to fail while the message does not say; empty: the modern one
	session  string        // that the request belongs to; empty: none
	guest    clientSession // what is known of it
	knows    bool          // why an agent failed
	quiet    bool          // the response writer takes no streams
	answers  bool          // what it brings is a response

	insists time.Time // until when what the message needs is tried again; zero: it is not
}

func (v *serverCall) serve(ctx context.Context) {
	h := v.w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	switch {
	case v.r.Method == http.MethodPost:
	case v.r.Method == http.MethodGet && v.hasSession():
		v.stand(ctx)
		return
	case v.r.Method == http.MethodDelete && v.hasSession():
		v.leave(ctx)
		return
	default:
		h.Set("Allow", http.MethodPost)
		http.Error(v.w, "POST a JSON-RPC message here (MCP, Streamable HTTP). Clients of HTTP with SSE (2024-11-05) GET mcp/sse", http.StatusMethodNotAllowed)
		return
	}
	if refused := v.admit(); refused != nil {
		v.fail(refused)
		return
	}
	wire, err := v.read(ctx)
	if err != nil {
		v.fail(err)
		return
	}
	v.decode(ctx, wire)
}

// decode finds out what a message is, and does what it asks.
func (v *serverCall) decode(ctx context.Context, wire translators.Wire) {
	if isBatch(wire.Body) {
		v.batch(ctx, wire)
		return
	}
	var err error
	v.message, err = v.server.deps.Form.Decode(wire)
	if err := v.mirrored(badParams(err)); err != nil {
		v.endQuestion(ctx, wire)
		v.fail(v.first(ctx, err))
		return
	}
	v.answer(ctx, wire)
}

// endQuestion ends the question that a response answers which cannot be read, as an error of the client
// does: the call that waits for the answer learns at once that there is none.
func (v *serverCall) endQuestion(ctx context.Context, wire translators.Wire) {
	received, _ := parse(wire.Body)
	if !v.answers || v.session == "" || len(received.ID) == 0 {
		return
	}
	wire.Body = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32600,"message":"the client's response is neither a result nor an error"}}`, received.ID)
	m, err := v.server.deps.Form.Decode(wire)
	if err != nil {
		return
	}
	response := *v
	response.message, wire.Version = m, m.Origin.Version
	call := response.call(ctx)
	call.Wire, call.Message = wire, m
	_, _ = v.handler.Exchange(ctx, call) // the client gets the error of its response
}

// first is what to say of a message that cannot be read: those who may not call
// the agent hear that instead (architecture section 5, policy before form).
func (v *serverCall) first(ctx context.Context, unreadable error) error {
	return cmp.Or(v.handler.Admit(ctx, v.asking(ctx)), unreadable)
}

// limit asks for a Pass, unless the request has one.
func (v *serverCall) limit(ctx context.Context) (err error) {
	if !v.pass.Valid() {
		v.pass, err = v.handler.Limit(ctx, v.asking(ctx))
	}
	return err
}

// read asks the limit, then takes the body and the evidence.
func (v *serverCall) read(ctx context.Context) (translators.Wire, error) {
	if err := v.limit(ctx); err != nil {
		return translators.Wire{}, err
	}
	if err := transport.MayRead(ctx, v.handler, v.asking(ctx), v.r.ContentLength); err != nil {
		return translators.Wire{}, err
	}
	body, err := transport.ReadAll(http.MaxBytesReader(v.w, v.r.Body, int64(v.server.deps.Form.Info().BodyLimit)), v.r.ContentLength)
	if err != nil {
		return translators.Wire{}, problem.Reading(err)
	}
	if v.evidence, err = ect.ParseHeader(v.r.Header.Values(ect.HeaderName), v.server.deps.Limits); err != nil {
		return translators.Wire{}, err
	}
	received, _ := parse(body) // the codec says what is wrong
	if v.answers = received.Method == "" && (received.Result != nil || received.Error != nil || len(received.ID) > 0); v.answers {
		v.insists = time.Now().Add(transport.AnswerRetryWindow)
	}
	if err := v.retryWhileAway(ctx, func() error { return v.loadSession(ctx) }); err != nil {
		return translators.Wire{}, v.first(ctx, err)
	}
	wire := translators.Wire{Binding: mcp.Binding, Media: mediaJSON, Header: messageHeader(v.r.Header), Body: body}
	if v.session != "" && wire.Header.Get(headerVersion) == "" {
		wire.Version = v.guest.Version
	}
	return wire, nil
}

// messageHeader is the part of the header that belongs to the message.
func messageHeader(h http.Header) http.Header {
	out := http.Header{}
	for _, name := range []string{headerVersion, headerMethod, headerName, "Traceparent", "Tracestate", "Baggage"} {
		if values := h.Values(name); len(values) > 0 {
			out[http.CanonicalHeaderKey(name)] = values
		}
	}
	for name, values := range h {
		if strings.HasPrefix(name, headerParam) {
			out[name] = values
		}
	}
	return out
}

// answer does what the message asks.
func (v *serverCall) answer(ctx context.Context, wire translators.Wire) {
	switch v.message.Op {
	case canonical.OpNotice, canonical.OpPing:
		v.acknowledge(ctx)
	case canonical.OpDescribe:
		v.describe(ctx)
	case canonical.OpCapabilities:
		v.list(ctx)
	default:
		v.exchange(ctx, wire)
	}
}

// acknowledge answers what needs no agent, to those who may call it.
func (v *serverCall) acknowledge(ctx context.Context) {
	switch err := v.handler.Admit(ctx, v.asking(ctx)); {
	case err != nil:
		v.fail(err)
	case v.message.Op == canonical.OpNotice:
		v.w.WriteHeader(http.StatusAccepted)
	default:
		v.reply(nil)
	}
}

// asking returns what the pipeline needs to know of the caller.
func (v *serverCall) asking(ctx context.Context) transport.CallInfo {
	return transport.CallInfoFrom(ctx, v.r.PathValue("agent"), mcp.Binding).With(v.pass)
}

// issue adds tokens to those that go to the caller beside the answer.
func (v *serverCall) issue(tokens []string) { v.issued = append(v.issued, tokens...) }

// exchange sends a call into the pipeline.
func (v *serverCall) exchange(ctx context.Context, wire translators.Wire) {
	call := v.call(ctx)
	wire.Version = v.message.Origin.Version
	call.Wire, call.Message = wire, v.message
	var answer transport.Answer
	err := v.retryWhileAway(ctx, func() (err error) {
		answer, err = v.handler.Exchange(ctx, call)
		return err
	})
	v.issue(answer.Evidence)
	v.inside = answer.Inside
	answer.Notice.Announce(v.w.Header())
	switch {
	case err != nil:
		v.fail(err)
	case answer.Events() != nil:
		v.tell(ctx, answer)
	case v.message.Op == canonical.OpAnswer || v.message.Op == canonical.OpAbort:
		v.w.WriteHeader(http.StatusAccepted)
	default:
		v.write(answer.Wire(), answer.Wire().Status)
	}
}

// reply answers the message with a body of our own.
func (v *serverCall) reply(body canonical.Body) {
	m := &canonical.Message{
		Op: v.message.Op, Phase: canonical.PhaseResponse,
		Correlation: canonical.Correlation{WireID: v.message.Correlation.WireID}, Body: body,
	}
	wire, _, err := v.server.deps.Form.Encode(m, translators.Target{Version: v.message.Origin.Version})
	if err != nil {
		v.fail(err)
		return
	}
	v.write(wire, wire.Status)
}

// fail answers with the error in MCP's words, under the caller's own id where
// it could be read.
func (v *serverCall) fail(err error) {
	v.logInternal(err)
	wire, encodeErr := v.encodeFailure(problem.NativeFor(v.knows, err))
	if encodeErr != nil {
		v.w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if v.inside {
		wire, _ = embedded.Insert(v.server.deps.Form, wire, v.issued)
	}
	p := problem.From(err)
	p.Advise(v.w.Header())
	code := cmp.Or(status(err, p, wire.Status), http.StatusOK)
	if v.answers && code == http.StatusOK { // a response that is not taken (MCP 2025-11-25, Sending Messages to the Server, item 4)
		code = http.StatusBadRequest
	}
	v.write(wire, code)
}

// logInternal logs the cause of an internal error, which the response does not hold.
//
//nolint:contextcheck,nolintlint // contextcheck reads it at the declaration, and nolintlint does not know: the request that the visit holds has its context
func (v *serverCall) logInternal(err error) {
	if problem.From(err).Code == problem.CodeInternal {
		v.server.deps.Logger.ErrorContext(v.r.Context(), "internal error",
			slog.String("agent", v.r.PathValue("agent")), slog.String("caller", string(transport.CallerFrom(v.r.Context()).ID)), slog.Any("error", err))
	}
}

func (v *serverCall) encodeFailure(failure *canonical.Error) (translators.Wire, error) {
	m := &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseError, Body: failure}
	version := cmp.Or(v.version, mcp.Modern)
	if v.message != nil {
		m.Correlation.WireID = v.message.Correlation.WireID
		if v.message.Origin.Version != "" {
			version = v.message.Origin.Version
		}
		if result := mcp.Misfit(version, v.message, failure); result != nil {
			m.Phase, m.Body = canonical.PhaseResponse, result
		}
	}
	wire, _, err := v.server.deps.Form.Encode(m, translators.Target{Version: version})
	return wire, err
}

// status keeps the HTTP status where HTTP clients act on it. Everything else
// is an ordinary JSON-RPC answer, with the status that the revision wants.
func status(err error, p problem.Problem, protocol int) int {
	if refused, ok := errors.AsType[*admissionError](err); ok {
		return refused.status
	}
	if p.Code == problem.CodeApprovalRefused { // one call failed: some clients end their session when they get 403
		return protocol
	}
	switch p.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
		http.StatusTooManyRequests, http.StatusRequestHeaderFieldsTooLarge, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusGone:
		return p.Status
	case http.StatusNotFound:
		if p.Code == problem.CodeUnknownAgent {
			return p.Status
		}
	case http.StatusBadRequest:
		if p.Code == problem.CodeECTInvalid || p.Code == problem.CodeIdentityInvalid {
			return p.Status
		}
	}
	return protocol
}

func (v *serverCall) write(wire translators.Wire, code int) {
	transport.AddEvidence(v.w.Header(), v.issued)
	transport.Respond(v.w, mediaJSON, wire.Body, cmp.Or(code, http.StatusOK))
}
