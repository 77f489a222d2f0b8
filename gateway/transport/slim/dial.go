package slim

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/session"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	form "github.com/aepb/aepb-gateway/translators/slim"
)

// patience is for endpoints without a timeout of their own.
const patience = 30 * time.Second

// DialerDeps is what a Dialer needs.
type DialerDeps struct {
	Network *Network
	Form    translators.Translator // the SLIM codec
	Limits  ect.Limits             // of the evidence on replies; zero: the defaults
}

// Dialer carries messages to agents on SLIM. It is safe for concurrent use.
type Dialer struct{ deps DialerDeps }

var (
	_ transport.Dialer     = (*Dialer)(nil)
	_ transport.Describer  = (*Dialer)(nil)
	_ transport.WireFormat = (*Dialer)(nil)
)

// NewDialer checks its dependencies.
func NewDialer(deps DialerDeps) (*Dialer, error) {
	if deps.Network == nil || deps.Form == nil || deps.Form.Info().Binding != form.Binding {
		return nil, errors.New("slim: incomplete DialerDeps")
	}
	return &Dialer{deps}, nil
}

// Frame is the function of that name.
func (d *Dialer) Frame(w translators.Wire) (translators.Wire, []canonical.Loss, error) {
	return Frame(w)
}

// Unframe is the function of that name.
func (d *Dialer) Unframe(w translators.Wire) (translators.Wire, error) { return Unframe(w) }

// target is an agent on a node of ours.
type target struct {
	node *node
	name name.Name
}

// reach finds an agent's node, and waits a moment for the connection to it.
func (d *Dialer) reach(ctx context.Context, ep transport.Endpoint) (target, error) {
	at, err := ParseAddress(strings.Replace(ep.URL, secureScheme, scheme, 1))
	if err != nil {
		return target{}, &egress.DeniedError{Host: ep.URL, Reason: egress.ReasonURL}
	}
	n := d.deps.Network.find(at)
	if n == nil {
		return target{}, &egress.DeniedError{Host: at.Node, Reason: egress.ReasonNotListed}
	}
	ctx, cancel := context.WithTimeout(ctx, upWithin)
	defer cancel()
	if err := n.link.Up(ctx); err != nil {
		return target{}, &transport.UnreachableError{Agent: ep.Agent, Err: err}
	}
	return target{n, at.Name}, nil
}

// Dial carries a sealed message out, once, and its reply back.
func (d *Dialer) Dial(ctx context.Context, ep transport.Endpoint, sealed transport.Sealed) (transport.Reply, error) {
	wire, evidence, err := sealed.Open()
	if err != nil {
		return transport.Reply{}, err
	}
	if ep.Timeout <= 0 {
		ep.Timeout = patience
	}
	metadata := map[string]string{}
	if len(evidence) > 0 {
		metadata[keyEvidence], metadata[keyParent] = strings.Join(evidence, ","), string(sealed.Token())
	}
	for key, field := range map[string]string{keyCallback: form.FieldCallback, keyExtensions: form.FieldExtensions} {
		if value := wire.Header.Get(field); value != "" {
			metadata[key] = value
		}
	}
	if wire.Form == form.FormRPC {
		return d.call(ctx, ep, wire, metadata)
	}
	return d.converse(ctx, ep, wire, metadata)
}

// call makes a call of A2A's service.
func (d *Dialer) call(ctx context.Context, ep transport.Endpoint, wire translators.Wire, metadata map[string]string) (transport.Reply, error) {
	service, called := serviceIn(wire.Path), methodIn(wire.Path)
	limited, cancel, received := patient(ctx, ep.Timeout, streams(called))
	to, err := d.reach(limited, ep)
	if err != nil {
		cancel()
		return transport.Reply{}, err
	}
	metadata[keyVersion] = "1.0"
	request := rpc.Request{Service: service, Method: called, Metadata: metadata, Body: wire.Body}
	responses, err := to.calls(limited, request)
	if err != nil {
		cancel()
		return transport.Reply{}, failed(limited, ep, err)
	}
	s := &events{d: d, ep: ep, path: wire.Path, responses: responses, cancel: cancel, single: !streams(called)}
	if !s.single {
		defer received()
		return s.begin(limited)
	}
	defer func() { _ = s.Close() }()
	event, err := s.Next(limited)
	if errors.Is(err, io.EOF) { // an empty message may come as none at all
		event, err = transport.Event{Wire: s.wire(rpc.Frame{})}, nil
	}
	return transport.Reply{Wire: event.Wire, Evidence: event.Evidence}, err
}

// calls makes one, of A2A's service by whichever of its names the agent knows.
func (t target) calls(ctx context.Context, r rpc.Request) (*Responses, error) {
	if r.Service == ServiceRollback {
		return opened(ctx, t.node.peer, t.name, r)
	}
	found, _, err := CallA2A(ctx, t.node.peer, t.name, r)
	return found, err
}

// patient bounds a call; of a stream only how long it is silent at first.
func patient(ctx context.Context, limit time.Duration, stream bool) (within context.Context, cancel context.CancelFunc, received func()) {
	if !stream {
		within, cancel = context.WithTimeout(ctx, limit)
		return within, cancel, func() {}
	}
	within, end := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { end(context.DeadlineExceeded) })
	stop := func() { timer.Stop() }
	return within, func() { stop(); end(nil) }, stop
}

func serviceIn(path string) string {
	service, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !IsA2A(service) && service != ServiceRollback {
		return ServiceA2A
	}
	return service
}

// events is what comes back from a call.
type events struct {
	d         *Dialer
	ep        transport.Endpoint
	path      string
	responses *Responses
	cancel    context.CancelFunc
	single    bool
	first     *transport.Event // was looked at
	ended     bool
}

// begin waits for the first event: a failure in its place is an answer and no
// stream.
func (s *events) begin(ctx context.Context) (transport.Reply, error) {
	event, err := s.Next(ctx)
	if errors.Is(err, io.EOF) {
		err = &transport.BadReplyError{Agent: s.ep.Agent, Reason: "an empty stream"}
	}
	if err != nil || event.Wire.Status != 0 {
		return transport.Reply{Wire: event.Wire, Evidence: event.Evidence}, errors.Join(err, s.Close())
	}
	evidence := event.Evidence
	event.Evidence = nil
	s.first = &event
	return transport.Reply{Events: s, Evidence: evidence}, nil
}

// Next waits for the next event. A failure of the agent is the last one.
func (s *events) Next(ctx context.Context) (transport.Event, error) {
	if s.first != nil {
		event := *s.first
		s.first = nil
		return event, nil
	}
	if s.ended {
		return transport.Event{}, io.EOF
	}
	f, err := s.responses.Next(ctx)
	var status *rpc.StatusError
	switch {
	case errors.Is(err, io.EOF):
		return transport.Event{}, io.EOF
	case errors.As(err, &status) && status.Code != rpc.Unavailable:
		s.ended = true
		w := s.wire(rpc.Frame{Body: []byte(status.Message)})
		w.Status = int(status.Code)
		return transport.Event{Wire: w}, nil
	case err != nil:
		return transport.Event{}, failed(ctx, s.ep, err)
	}
	evidence, err := s.d.evidence(f.Metadata, s.ep)
	return transport.Event{Wire: s.wire(f), Evidence: evidence}, err
}

func (s *events) wire(f rpc.Frame) translators.Wire {
	return translators.Wire{
		Binding: form.Binding, Version: form.VersionA2A, Form: form.FormRPC, Media: MediaProto,
		Body: f.Body, Path: s.path, Re: canonical.OpInvoke, Event: !s.single,
	}
}

// Close gives the call up.
func (s *events) Close() error {
	s.responses.Close()
	s.cancel()
	return nil
}

func (d *Dialer) evidence(metadata map[string]string, ep transport.Endpoint) ([]string, error) {
	text := metadata[keyEvidence]
	if text == "" {
		return nil, nil
	}
	tokens, err := ect.ParseHeader([]string{text}, d.deps.Limits)
	if err != nil {
		return nil, &transport.BadReplyError{Agent: ep.Agent, Reason: "its evidence is malformed or too large"}
	}
	return tokens, nil
}

// failed says what it means that a call broke off.
func failed(ctx context.Context, ep transport.Endpoint, err error) error {
	var tooLarge *session.TooLargeError
	switch {
	case errors.As(err, &tooLarge):
		return problem.Reading(&http.MaxBytesError{Limit: int64(tooLarge.Limit)})
	case errors.As(err, new(*session.MessageError)):
		return &canonical.Error{Code: canonical.CodeBadParams, Message: "the message has metadata that SLIM cannot carry"}
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return &transport.TimeoutError{Agent: ep.Agent, After: ep.Timeout}
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, rpc.ErrSlow):
		return &transport.BadReplyError{Agent: ep.Agent, Reason: "it answers faster than the caller reads"}
	default:
		return &transport.UnreachableError{Agent: ep.Agent, Err: err}
	}
}
