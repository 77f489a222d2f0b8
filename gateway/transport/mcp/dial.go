package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/mcp/channel"
	"github.com/aepb/aepb-gateway/gateway/transport/mcp/oldsse"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// DialerDeps is what a dialer is built from.
type DialerDeps struct {
	Client transport.Client
	Form   translators.Translator // the MCP codec
	Now    func() time.Time       // nil: the real clock
	Limits ect.Limits             // of the evidence on replies; zero: the defaults (R11)
	// Programs runs the servers that are programs; nil: there are none.
	Programs Programs
	Keeper   Keeper          // keeps the sessions that mirror a caller's own for every replica; nil: this process alone
	Self     canonical.Party // what legacy servers are told as clientInfo; zero: a name without version
	Logger   *slog.Logger    // of lists that have no proper end; nil: it is not logged
}

// Dialer carries messages to MCP servers. It is safe for concurrent use. Close
// it to end its sessions.
type Dialer struct {
	deps     DialerDeps
	sessions *sessions
	serial   atomic.Uint64  // ids of our own requests
	tails    sync.WaitGroup // that read the ends of streams
	channels channel.Servers
	old      *oldsse.Client

	standalone standaloneStreams
}

var (
	_ transport.Dialer    = (*Dialer)(nil)
	_ transport.Describer = (*Dialer)(nil)
)

// NewDialer builds a dialer; a codec of another protocol is an error.
func NewDialer(deps DialerDeps) (*Dialer, error) {
	if deps.Client == nil || deps.Form == nil || deps.Form.Info().Binding != mcp.Binding {
		return nil, errors.New("mcp: a dialer needs a client and the MCP codec")
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	old, err := oldsse.NewClient(oldsse.ClientDeps{Client: deps.Client, BodyLimit: deps.Form.Info().BodyLimit})
	if err != nil {
		return nil, err
	}
	return &Dialer{deps: deps, old: old, sessions: &sessions{now: deps.Now, table: map[sessionKey]*slot{}}}, nil
}

// Dial carries a sealed message out and its reply back: one message, or a stream
// if the server says anything before the reply. An answer to the server's own
// request, and a notification, have no reply. It is sent once; a second time
// only to a legacy server that has lost the session (goneError) and hence did not
// take the message. A stream outlives ctx: it ends with its last event or when it is
// closed.
func (d *Dialer) Dial(ctx context.Context, ep transport.Endpoint, sealed transport.Sealed) (transport.Reply, error) {
	wire, evidence, err := sealed.Open()
	if err != nil {
		return transport.Reply{}, err
	}
	l := &upstreamCall{d: d, ep: ep, evidence: evidence}
	if wire.Verb == http.MethodGet {
		s := d.listen(ctx, l, wire)
		if ep.Alone {
			return s.begin(ctx)
		}
		return transport.Reply{Events: s}, nil
	}
	switch env, err := parse(wire.Body); {
	case err != nil:
		return transport.Reply{}, err // our own codec wrote it
	case env.Method == "" || len(env.ID) == 0:
		return transport.Reply{}, d.tell(ctx, l, wire)
	case wire.Version == mcp.Modern:
		return l.ask(ctx, wire, session{}, canonical.OpInvoke)
	default:
		return l.inSession(ctx, wire, canonical.OpInvoke)
	}
}

// tell sends what has no reply, in the session where it was asked for. A notification goes
// into a new session where the server has lost that one. An answer does not: ids of requests
// are a session's own, and there it could answer another one.
func (d *Dialer) tell(ctx context.Context, l *upstreamCall, wire translators.Wire) error {
	if wire.Version == mcp.Modern {
		return l.tellIn(ctx, wire, session{})
	}
	env, err := parse(wire.Body)
	if answer := err == nil && env.Method == ""; answer {
		d.standalone.answered(keyOf(l.ep, wire.Version), env.ID)
		s, _, err := d.session(ctx, l.ep, wire.Version)
		if err != nil {
			return err
		}
		_, err = known(transport.Reply{}, l.tellIn(ctx, wire, s))
		return err
	}
	_, err = l.renewing(ctx, wire, func(s session) (transport.Reply, error) {
		return transport.Reply{}, l.tellIn(ctx, wire, s)
	})
	return err
}

// tellIn sends what has no reply.
func (l *upstreamCall) tellIn(ctx context.Context, wire translators.Wire, s session) error {
	response, err := l.post(ctx, wire, s)
	if err != nil {
		return l.failed(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode < http.StatusMultipleChoices {
		return nil
	}
	err = l.refused(response, "it does not take the message: HTTP status "+strconv.Itoa(response.StatusCode))
	if s.mayBeLost(response.StatusCode) {
		err = &goneError{status: response.StatusCode, err: err}
	}
	return err
}

// inSession asks a legacy server, in the session of this agent and caller that
// speaks the revision of the message.
func (l *upstreamCall) inSession(ctx context.Context, wire translators.Wire, re canonical.Op) (transport.Reply, error) {
	ask := l.ask
	if l.ep.Beside {
		ask = l.askBeside
	}
	return l.renewing(ctx, wire, func(s session) (transport.Reply, error) { return ask(ctx, wire, s, re) })
}

// renewing sends a message in its session, and once more in a new one if the server has lost
// that. Where no new one can be begun, or the message is refused there as well, what the
// server said of the message is the answer.
func (l *upstreamCall) renewing(ctx context.Context, wire translators.Wire, send func(session) (transport.Reply, error)) (transport.Reply, error) {
	s, _, err := l.d.session(ctx, l.ep, wire.Version)
	if err != nil {
		return transport.Reply{}, err
	}
	if s.version != wire.Version {
		return transport.Reply{}, l.bad("it does not speak " + wire.Version + " any more")
	}
	reply, err := send(s)
	gone, ok := errors.AsType[*goneError](err)
	if !ok || !l.hasLost(ctx, s, wire.Version, gone.status) {
		return known(reply, err)
	}
	fresh, _, begun := l.d.sessionAfter(ctx, l.ep, wire.Version, s)
	switch {
	case begun != nil && gone.status == http.StatusNotFound:
		return transport.Reply{}, begun
	case begun != nil:
		return known(reply, err)
	case fresh.version != wire.Version:
		return transport.Reply{}, l.bad("it does not speak " + wire.Version + " any more")
	}
	reply, err = send(fresh)
	if gone, ok := errors.AsType[*goneError](err); ok && gone.status == http.StatusNotFound {
		return transport.Reply{}, l.bad("the session is gone as soon as it is begun")
	}
	return known(reply, err)
}

// upstreamCall is a request to one server.
type upstreamCall struct {
	d        *Dialer
	ep       transport.Endpoint
	evidence []string
	listed   int // bytes of the lists that were read
}

// post sends one message. The caller closes the response's body.
func (l *upstreamCall) post(ctx context.Context, wire translators.Wire, s session) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.ep.URL, bytes.NewReader(wire.Body)) //nolint:gosec,nolintlint // gosec finds this or does not, as its walk goes: an operator says where an agent is, and package egress guards it
	if err != nil {
		return nil, &transport.UnreachableError{Agent: l.ep.Agent, Err: err}
	}
	for name, values := range wire.Header {
		request.Header[http.CanonicalHeaderKey(name)] = values
	}
	request.Header.Set("Content-Type", mediaJSON)
	request.Header.Set("Accept", "application/json, text/event-stream")
	s.mark(request.Header)
	transport.AddEvidence(request.Header, l.evidence)
	return l.do(request)
}

// ask sends a request and reads its reply, or what comes before it.
func (l *upstreamCall) ask(ctx context.Context, wire translators.Wire, s session, re canonical.Op) (transport.Reply, error) {
	// What was opened lives on as a stream, so ctx ends it only until then.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, cancel)()
	reply, f, err := l.open(ctx, inner, wire, s, re)
	if f == nil {
		cancel()
		return reply, err
	}
	if f.cancel = cancel; reply.Events == nil {
		_ = f.Close()
	}
	return reply, err
}

// open sends a request within inner; ctx is whose end it means when that breaks off.
// A flow that it returns must be closed.
func (l *upstreamCall) open(ctx, inner context.Context, wire translators.Wire, s session, re canonical.Op) (transport.Reply, *flow, error) {
	response, err := l.post(inner, wire, s)
	if err != nil {
		return transport.Reply{}, nil, l.failed(ctx, err)
	}
	if s.mayBeLost(response.StatusCode) {
		defer func() { _ = response.Body.Close() }()
		reply, err := l.answer(ctx, response, wire, re)
		if response.StatusCode == http.StatusNotFound || !isReply(reply.Wire, wire) {
			err = &goneError{response.StatusCode, reply, err}
		}
		return reply, nil, err
	}
	if !streaming(response) {
		defer func() { _ = response.Body.Close() }()
		reply, err := l.answer(ctx, response, wire, re)
		return reply, nil, err
	}
	evidence, err := ect.ParseHeader(response.Header.Values(ect.HeaderName), l.d.deps.Limits)
	if err != nil {
		_ = response.Body.Close()
		return transport.Reply{}, nil, l.bad("its Execution-Context header is malformed or too large")
	}
	out := translators.Wire{Binding: mcp.Binding, Version: wire.Version, Media: mediaJSON, Re: re, Status: response.StatusCode}
	f := l.flow(inner, response, wire, s)
	first, err := f.next(ctx)
	if err != nil || f.over {
		out.Body = first
		return transport.Reply{Evidence: evidence, Wire: out}, f, err
	}
	f.first, f.wire = first, out
	return transport.Reply{Evidence: evidence, Events: f}, f, nil
}

// answer reads a response that is no event stream. The caller closes its body.
func (l *upstreamCall) answer(ctx context.Context, response *http.Response, wire translators.Wire, re canonical.Op) (transport.Reply, error) {
	evidence, err := ect.ParseHeader(response.Header.Values(ect.HeaderName), l.d.deps.Limits)
	if err != nil {
		return transport.Reply{}, l.bad("its Execution-Context header is malformed or too large")
	}
	out := translators.Wire{Binding: mcp.Binding, Version: wire.Version, Media: mediaJSON, Re: re, Status: response.StatusCode}
	if refused(response, re) {
		out.Media = translators.MediaText
		out.Body, err = l.whole(ctx, response, " bytes")
	} else {
		out.Body, err = l.read(ctx, response, wire)
	}
	return transport.Reply{Evidence: evidence, Wire: out}, err
}

func requestID(body []byte) json.RawMessage {
	e, _ := mcp.Skim(body) // our own codec wrote it
	return e.ID
}

func (l *upstreamCall) bad(reason string) error {
	return &transport.BadReplyError{Agent: l.ep.Agent, Reason: reason}
}

// refused is a reply that an HTTP status is in place of.
func (l *upstreamCall) refused(response *http.Response, reason string) error {
	return transport.BadStatus(l.ep, reason, response.StatusCode, response.Header)
}

func (l *upstreamCall) tooLong(reason string) error {
	return &transport.BadReplyError{Agent: l.ep.Agent, Reason: reason, Err: transport.ErrTooLong}
}

// failed says what it means that a request or its answer broke off.
func (l *upstreamCall) failed(ctx context.Context, err error) error {
	if limit, ok := errors.AsType[*sse.LimitError](err); ok {
		return l.tooLong("its event stream is too large: " + limit.What + " beyond " + strconv.Itoa(limit.Limit))
	}
	if bad, ok := errors.AsType[*transport.BadReplyError](err); ok {
		return bad
	}
	return transport.BrokenError(ctx, l.ep, err)
}

// encodeFor writes a request of our own.
func (d *Dialer) encodeFor(modes []canonical.Mode, body canonical.Body, op canonical.Op, version string) (translators.Wire, error) {
	wire, _, err := d.deps.Form.Encode(&canonical.Message{
		Op: op, Phase: canonical.PhaseRequest, Body: body,
		Correlation: canonical.Correlation{WireID: json.RawMessage(d.nextID())}, Origin: canonical.Origin{Binding: mcp.Binding},
		Preferences: canonical.Preferences{CanAnswer: modes},
	}, translators.Target{Version: version})
	return wire, err
}

// nextID is the id of a request of our own.
func (d *Dialer) nextID() string { return `"aepb-` + strconv.FormatUint(d.serial.Add(1), 10) + `"` }

// decode reads a reply to a request of the gateway's own. An error of the server is the
// gateway's error: no caller asked.
func (d *Dialer) decode(l *upstreamCall, body []byte, op canonical.Op, version string) (*canonical.Message, error) {
	m, err := d.deps.Form.Decode(translators.Wire{Binding: mcp.Binding, Version: version, Media: mediaJSON, Body: body, Re: op})
	if err != nil {
		return nil, l.bad("not a valid answer to " + string(op) + ": " + translators.Explain(err))
	}
	if refusal, ok := m.Body.(*canonical.Error); ok {
		if op == canonical.OpDescribe {
			return nil, &refusedError{l.bad("it refuses to say who it is: is it an MCP server?"), refusal}
		}
		return nil, &refusedError{l.bad("it refuses " + string(op)), refusal}
	}
	return m, nil
}

// refusedError is a bad reply of which the server's own word is still known.
type refusedError struct {
	error
	failure *canonical.Error
}

func (e *refusedError) Unwrap() error { return e.error }

// description reads who a server says it is.
func (d *Dialer) description(l *upstreamCall, body []byte, version string) (*canonical.Description, error) {
	m, err := d.decode(l, body, canonical.OpDescribe, version)
	if err != nil {
		return nil, err
	}
	description, ok := m.Body.(*canonical.Description)
	if !ok {
		return nil, l.bad("not a description")
	}
	return description, nil
}
