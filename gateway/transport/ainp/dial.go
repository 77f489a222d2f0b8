package ainp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Peer is what the operator says about one agent.
type Peer struct {
	DID      string          // whose signature its answers must have; empty: any did:key's
	Profile  ainp.SigProfile // empty: the draft's
	Unsigned bool            // its answers need no signature; for agents that cannot sign
}

// DialerDeps is what a Dialer needs.
type DialerDeps struct {
	Client transport.Client
	Form   translators.Translator // the AINP codec
	Self   Identity
	Keys   *Keys
	Peer   func(agent string) Peer // nil: no agent has one
	Limits ect.Limits              // of the evidence on replies; zero: the defaults
	Now    func() time.Time        // nil: the real clock
}

// Dialer carries messages to AINP agents. It is safe for concurrent use.
type Dialer struct {
	deps  DialerDeps
	talks talks
}

var (
	_ transport.Dialer    = (*Dialer)(nil)
	_ transport.Describer = (*Dialer)(nil)
	_ transport.Addresser = (*Dialer)(nil)
)

// NewDialer checks its dependencies.
func NewDialer(deps DialerDeps) (*Dialer, error) {
	if deps.Client == nil || deps.Form == nil || deps.Form.Info().Binding != ainp.Binding || !deps.Self.complete() || deps.Keys == nil {
		return nil, errors.New("ainp: incomplete DialerDeps")
	}
	if deps.Peer == nil {
		deps.Peer = func(string) Peer { return Peer{} }
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	return &Dialer{deps: deps}, nil
}

// Self is our DID.
func (d *Dialer) Self() string { return d.deps.Self.DID }

// Receiver is an agent's DID, where its operator said it.
func (d *Dialer) Receiver(agent string) string { return d.deps.Peer(agent).DID }

// Dial signs a sealed message, carries it out and its answer back. It is sent once.
func (d *Dialer) Dial(ctx context.Context, ep transport.Endpoint, sealed transport.Sealed) (transport.Reply, error) {
	wire, evidence, err := sealed.Open()
	if err != nil {
		return transport.Reply{}, err
	}
	return d.ask(ctx, ep, wire, evidence, d.operationOf(ep, wire))
}

// operationOf is what a message asks for, where it matters: only an invocation is
// answered with more than one message.
func (d *Dialer) operationOf(ep transport.Endpoint, wire translators.Wire) canonical.Op {
	if overSocket(ep.URL) {
		if m, err := d.deps.Form.Decode(wire); err == nil {
			return m.Op
		}
	}
	return canonical.OpInvoke
}

func (d *Dialer) ask(ctx context.Context, ep transport.Endpoint, wire translators.Wire, evidence []string, re canonical.Op) (transport.Reply, error) {
	if ep.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ep.Timeout)
		defer cancel()
	}
	peer := d.deps.Peer(ep.Agent)
	e, request, err := read(wire.Body)
	if err != nil {
		return transport.Reply{}, err
	}
	signed, err := d.deps.Self.finish(e, wire, evidence, peer.Profile)
	if err != nil {
		return transport.Reply{}, err
	}
	if given, err := d.answer(ctx, ep, request, signed); given || err != nil {
		return transport.Reply{}, err
	}
	if overSocket(ep.URL) {
		t := &talk{d: d, ep: ep, peer: peer, sent: request, re: re, seen: NewMemory(maxTold, d.deps.Now)}
		return t.converse(ctx, signed, evidence)
	}
	got, err := d.post(ctx, ep, signed, evidence)
	if err != nil {
		return transport.Reply{}, failed(ctx, ep, err)
	}
	seen, tokens, err := d.judge(ctx, ep, peer, request, got.body)
	if bad, ok := errors.AsType[*transport.BadReplyError](err); ok {
		err = transport.BadStatus(ep, bad.Reason, got.status, got.header)
	}
	if err != nil {
		return transport.Reply{}, err
	}
	return transport.Reply{Evidence: tokens, Wire: translators.Wire{
		Binding: ainp.Binding, Version: ainp.Version, Media: ainp.Media, Body: got.body, Re: re, Status: got.status,
		Hasher: d.hasher(seen, got.body),
	}}, nil
}

// evidence is what an agent's message holds.
func (d *Dialer) evidence(ep transport.Endpoint, e ainp.Envelope) ([]string, error) {
	tokens, err := e.Evidence()
	if err == nil && len(tokens) > 0 {
		tokens, err = ect.ParseHeader(tokens, d.deps.Limits)
	}
	if err != nil {
		return nil, &transport.BadReplyError{Agent: ep.Agent, Reason: "its evidence is malformed or too large"}
	}
	return tokens, nil
}

// posted is an HTTP response, read to its end.
type posted struct {
	status int
	header http.Header
	body   []byte
}

func (d *Dialer) post(ctx context.Context, ep transport.Endpoint, body []byte, evidence []string) (posted, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, ep.URL, bytes.NewReader(body))
	if err != nil {
		return posted{}, err
	}
	request.Header.Set("Content-Type", ainp.Media)
	request.Header.Set("Accept", ainp.Media)
	if len(evidence) > 0 { // those before it are in the envelope alone, which is what counts
		request.Header.Set(ect.HeaderName, evidence[0])
	}
	response, err := d.deps.Client.DoAs(request, ep.ID)
	if err != nil {
		return posted{}, err
	}
	defer func() { _ = response.Body.Close() }()
	limit := int64(d.deps.Form.Info().BodyLimit)
	answer, err := transport.ReadAll(io.LimitReader(response.Body, limit+1), response.ContentLength)
	if err == nil {
		err = ctx.Err() // a server that sees the deadline may end half an answer properly
	}
	if err == nil && int64(len(answer)) > limit {
		err = &transport.BadReplyError{Agent: ep.Agent, Reason: "longer than an envelope", Err: transport.ErrTooLong}
	}
	return posted{response.StatusCode, response.Header, answer}, err
}

// The ways in which an answer is none. Their texts are for BadReplyError.
var (
	errNoEnvelope = errors.New("no AINP envelope; an agent behind a broker that answers later cannot be waited for")
	errOther      = errors.New("an answer to another message")
	errSender     = errors.New("signed by another DID than the agent's")
	errReceiver   = errors.New("addressed to another receiver than this gateway")
	errSignature  = errors.New("the signature does not hold, or the message is too old")
)

// judge checks that an answer answers what was asked and is its sender's, and
// reads its evidence. A repeated answer can only be one to the same message, which
// was sent once. It fails with a *transport.BadReplyError.
func (d *Dialer) judge(ctx context.Context, ep transport.Endpoint, peer Peer, request ainp.Head, answer []byte) (verified, []string, error) {
	e, reply, err := read(answer)
	if err != nil {
		return verified{}, nil, &transport.BadReplyError{Agent: ep.Agent, Reason: errNoEnvelope.Error()}
	}
	seen, err := d.trust(ctx, peer, request, reply, e)
	if err != nil {
		return seen, nil, &transport.BadReplyError{Agent: ep.Agent, Reason: err.Error()}
	}
	tokens, err := d.evidence(ep, e)
	return seen, tokens, err
}

// trust is what judge finds out about answer and sender.
func (d *Dialer) trust(ctx context.Context, peer Peer, request, reply ainp.Head, answer ainp.Envelope) (verified, error) {
	unjudged := verified{Head: reply}
	switch {
	case reply.Kind == "":
		return unjudged, errNoEnvelope
	case reply.Intent != "" && reply.Intent != request.ID && (request.Kind != ainp.TypeResult || reply.Trace != request.Trace):
		return unjudged, errOther // what answers a decision may name the intent that it was about
	case reply.Intent == "" && reply.Trace != "" && reply.Trace != request.Trace:
		return unjudged, errOther
	case peer.DID != "" && reply.From != peer.DID:
		return unjudged, errSender
	case reply.To != "" && reply.To != request.From:
		return unjudged, errReceiver
	case peer.Unsigned:
		return unjudged, nil
	}
	named := func(did string) bool { return did == peer.DID }
	seen, err := (&verifier{d.deps.Keys, d.deps.Now, named}).verify(ctx, answer, reply)
	if err != nil {
		return seen, errSignature
	}
	return seen, nil
}

// hasher hashes an agent's answer, which has its text already if it was verified.
func (d *Dialer) hasher(seen verified, answer []byte) translators.Hasher {
	h := translators.HasherOf(d.deps.Form)
	if seen.text == nil {
		return h
	}
	return translators.Knowing(h, answer, seen.text.HashInput())
}

// failed maps the error of a request or an answer that broke off to a typed error.
func failed(ctx context.Context, ep transport.Endpoint, err error) error {
	if errors.As(err, new(*egress.DeniedError)) || errors.As(err, new(*transport.BadReplyError)) {
		return err
	}
	return transport.BrokenError(ctx, ep, err)
}

// Describe asks an agent who it is and what it can do.
func (d *Dialer) Describe(ctx context.Context, ep transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	if ep.Version, ep.Signed = ainp.Version, true; overSocket(ep.URL) {
		ep.Form = ainp.FormSocket
	}
	// The time makes the id unique, so that no other message has it.
	id, err := json.Marshal("describe " + ep.Agent + " " + d.deps.Now().Format(time.RFC3339Nano))
	if err != nil {
		return nil, ep, err
	}
	wire, _, err := d.deps.Form.Encode(&canonical.Message{
		Op: canonical.OpDescribe, Phase: canonical.PhaseRequest, Body: &canonical.DescribeRequest{},
		Correlation: canonical.Correlation{WireID: id},
	}, translators.Target{Stamp: translators.Addressing{From: d.deps.Self.DID, To: d.deps.Peer(ep.Agent).DID, At: d.deps.Now()}})
	if err != nil {
		return nil, ep, err
	}
	reply, err := d.ask(ctx, ep, wire, nil, canonical.OpDescribe)
	if err != nil {
		return nil, ep, err
	}
	m, err := d.deps.Form.Decode(reply.Wire)
	if err != nil {
		return nil, ep, &transport.BadReplyError{Agent: ep.Agent, Reason: "not a description"}
	}
	description, ok := m.Body.(*canonical.Description)
	if !ok {
		return nil, ep, &transport.BadReplyError{Agent: ep.Agent, Reason: "it does not say who it is"}
	}
	return description, ep, nil
}
