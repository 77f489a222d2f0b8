package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// Client sends a request to a server that must prove the expected SPIFFE id,
// or its host name when that is empty. Redirects come back as they are.
type Client interface {
	DoAs(request *http.Request, expected ect.Identity) (*http.Response, error)
}

// DialerDeps is what a dialer is built from.
type DialerDeps struct {
	Client Client
	Form   translators.Translator // the MCP codec
	Now    func() time.Time       // nil: the real clock
	Limits ect.Limits             // of the evidence on replies; zero: the defaults (R11)
}

// Dialer carries messages to MCP servers. It is safe for concurrent use. Close
// it to end its sessions.
type Dialer struct {
	deps     DialerDeps
	sessions *sessions
	serial   atomic.Uint64 // ids of our own requests
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
	return &Dialer{deps: deps, sessions: newSessions(deps.Now)}, nil
}

// Dial carries a sealed message out and its reply back. It is sent once; a
// second time only to a legacy server that said, with 404, that it no longer
// knows the session and hence did not take the message.
func (d *Dialer) Dial(ctx context.Context, ep transport.Endpoint, sealed transport.Sealed) (transport.Reply, error) {
	wire, evidence, err := sealed.Open()
	if err != nil {
		return transport.Reply{}, err
	}
	l := &line{d: d, ep: ep, evidence: evidence}
	if wire.Version == mcp.Modern {
		return l.ask(ctx, wire, session{}, canonical.OpInvoke)
	}
	return d.inSession(ctx, l, wire, canonical.OpInvoke)
}

// inSession asks a legacy server, in the session of this agent and caller that
// speaks the revision of the message.
func (d *Dialer) inSession(ctx context.Context, l *line, wire translators.Wire, re canonical.Op) (transport.Reply, error) {
	for again := false; ; again = true {
		s, _, err := d.session(ctx, l.ep, wire.Version)
		if err != nil {
			return transport.Reply{}, err
		}
		if s.version != wire.Version {
			return transport.Reply{}, l.bad("it does not speak " + wire.Version + " any more")
		}
		reply, err := l.ask(ctx, wire, s, re)
		if _, gone := errors.AsType[*goneError](err); !gone {
			return reply, err
		}
		d.sessions.forget(keyOf(l.ep, wire.Version), s)
		if again {
			return transport.Reply{}, l.bad("the session is gone as soon as it is begun")
		}
	}
}

// line is a request to one server.
type line struct {
	d        *Dialer
	ep       transport.Endpoint
	evidence []string
}

// goneError: the server does not know the session any more.
type goneError struct{}

func (*goneError) Error() string { return "the session is gone" }

// post sends one message. The caller closes the response's body.
func (l *line) post(ctx context.Context, wire translators.Wire, s session) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.ep.URL, bytes.NewReader(wire.Body))
	if err != nil {
		return nil, &transport.UnreachableError{Agent: l.ep.Agent, Err: err}
	}
	for name, values := range wire.Header {
		request.Header[http.CanonicalHeaderKey(name)] = values
	}
	request.Header.Set("Content-Type", mediaJSON)
	request.Header.Set("Accept", "application/json, text/event-stream")
	s.mark(request.Header)
	for _, token := range l.evidence {
		request.Header.Add(ect.HeaderName, token)
	}
	response, err := l.d.deps.Client.DoAs(request, l.ep.ID)
	if err != nil {
		return nil, l.failed(ctx, err)
	}
	return response, nil
}

// ask sends a request and reads its reply.
func (l *line) ask(ctx context.Context, wire translators.Wire, s session, re canonical.Op) (transport.Reply, error) {
	response, err := l.post(ctx, wire, s)
	if err != nil {
		return transport.Reply{}, err
	}
	defer func() { _ = response.Body.Close() }()
	if s.id != "" && response.StatusCode == http.StatusNotFound {
		return transport.Reply{}, &goneError{}
	}
	body, err := l.read(ctx, response, wire)
	if err != nil {
		return transport.Reply{}, err
	}
	evidence, err := ect.ParseHeader(response.Header.Values(ect.HeaderName), l.d.deps.Limits)
	if err != nil {
		return transport.Reply{}, l.bad("its Execution-Context header is malformed or too large")
	}
	return transport.Reply{Evidence: evidence, Wire: translators.Wire{
		Binding: mcp.Binding, Version: wire.Version, Media: mediaJSON, Body: body, Re: re, Status: response.StatusCode,
	}}, nil
}

func requestID(body []byte) json.RawMessage {
	e, _ := mcp.Skim(body) // our own codec wrote it
	return e.ID
}

func (l *line) bad(reason string) error {
	return &transport.BadReplyError{Agent: l.ep.Agent, Reason: reason}
}

// failed says what it means that a request or its answer broke off.
func (l *line) failed(ctx context.Context, err error) error {
	var denied *egress.DeniedError
	var limit *sse.LimitError
	switch {
	case errors.As(err, &denied):
		return denied
	case errors.As(err, &limit):
		return l.bad("its event stream is too large: " + limit.What + " beyond " + strconv.Itoa(limit.Limit))
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return &transport.TimeoutError{Agent: l.ep.Agent, After: l.ep.Timeout}
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return &transport.UnreachableError{Agent: l.ep.Agent, Err: err}
	}
}
