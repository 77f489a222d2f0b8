package uacp

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	form "github.com/aepb/aepb-gateway/translators/uacp"
)

// The schemes of an agent's address: uacps://host:port over TLS, and for
// development uacp://address:port in datagrams.
const (
	Scheme         = "uacps"
	SchemeDatagram = "uacp"
)

const (
	defaultPort = "8888" // the reference implementation's
	// strays is how many frames that answer something else are read over.
	strays = 16
	// patience is for endpoints without a timeout of their own.
	patience = 30 * time.Second
)

// Network opens connections by the rules of egress; *egress.Guard is one.
type Network interface {
	DialTLS(ctx context.Context, hostport string, expected ect.Identity, protocols ...string) (*tls.Conn, error)
	DialDatagrams(ctx context.Context, hostport string) (net.Conn, error)
}

var _ Network = (*egress.Guard)(nil)

// DialerDeps is what a Dialer needs.
type DialerDeps struct {
	Network     Network
	Form        translators.Translator // the µACP codec
	Limits      ect.Limits             // of the evidence on replies; zero: the defaults
	ByReference func(Reason)           // as ListenerDeps has it
}

// Dialer carries messages to µACP agents. It is safe for concurrent use.
type Dialer struct{ deps DialerDeps }

var (
	_ transport.Dialer    = (*Dialer)(nil)
	_ transport.Describer = (*Dialer)(nil)
)

// NewDialer checks its dependencies.
func NewDialer(deps DialerDeps) (*Dialer, error) {
	if deps.Network == nil || deps.Form == nil || deps.Form.Info().Binding != form.Binding {
		return nil, errors.New("uacp: incomplete DialerDeps")
	}
	return &Dialer{deps}, nil
}

// Dial carries a sealed message out and its reply back. It is sent once, and in
// datagrams, with quality of service 1, until something shows that it has come.
func (d *Dialer) Dial(ctx context.Context, ep transport.Endpoint, sealed transport.Sealed) (transport.Reply, error) {
	wire, evidence, err := sealed.Open()
	if err != nil {
		return transport.Reply{}, err
	}
	return d.ask(ctx, ep, wire.Body, evidence, canonical.OpInvoke)
}

func (d *Dialer) ask(ctx context.Context, ep transport.Endpoint, body []byte, evidence []string, re canonical.Op) (transport.Reply, error) {
	frame, err := form.ParseFrame(body)
	if err != nil {
		return transport.Reply{}, err
	}
	if ep.Timeout <= 0 {
		ep.Timeout = patience
	}
	body, reason := withEvidence(body, evidence, tokenSpace(ep))
	countReference(d.deps.ByReference, reason)
	if frame.Verb == form.Observe {
		return d.observe(ctx, ep, body, frame)
	}
	ctx, cancel := context.WithTimeout(ctx, ep.Timeout)
	defer cancel()
	answer, err := d.transact(ctx, ep, body, frame.ID)
	if err != nil {
		return transport.Reply{}, failed(ctx, ep, err)
	}
	return d.replied(ep, answer, re)
}

// replied is an answer with its evidence.
func (d *Dialer) replied(ep transport.Endpoint, answer []byte, re canonical.Op) (transport.Reply, error) {
	carriage, tokens, err := d.open(ep, answer)
	if err != nil {
		return transport.Reply{}, err
	}
	return transport.Reply{Evidence: tokens, Wire: translators.Wire{
		Binding: form.Binding, Version: form.Profile, Form: carriage, Media: form.Media, Body: answer, Re: re,
	}}, nil
}

// transact sends one frame over a connection of its own and waits for the one
// that answers it.
func (d *Dialer) transact(ctx context.Context, ep transport.Endpoint, body []byte, id uint32) ([]byte, error) {
	conn, err := d.connect(ctx, ep)
	if err != nil {
		return nil, err
	}
	defer conn.close()
	stop := context.AfterFunc(ctx, conn.interrupt)
	defer stop()
	if err := conn.write(body); err != nil {
		return nil, err
	}
	for range strays {
		answer, err := conn.read()
		if err != nil {
			return nil, err
		}
		frame, err := form.ParseFrame(answer)
		if err != nil {
			return nil, &transport.BadReplyError{Agent: ep.Agent, Reason: "not a µACP frame"}
		}
		if frame.Answers(id) != form.MatchNone {
			return answer, nil
		}
	}
	return nil, &transport.BadReplyError{Agent: ep.Agent, Reason: "it answers everything but the request"}
}

// connect opens a connection to an agent.
func (d *Dialer) connect(ctx context.Context, ep transport.Endpoint) (link, error) {
	scheme, hostport, ok := hostPort(ep.URL)
	switch {
	case !ok:
		return nil, &egress.DeniedError{Host: ep.URL, Reason: egress.ReasonURL}
	case scheme == SchemeDatagram && ep.ID != "":
		return nil, &egress.DeniedError{Host: hostport, Reason: egress.ReasonScheme} // without TLS no peer can prove that it is this agent
	case scheme == SchemeDatagram:
		conn, err := d.deps.Network.DialDatagrams(ctx, hostport)
		if err != nil {
			return nil, err
		}
		return &datagramConn{conn: conn}, nil
	}
	conn, err := d.deps.Network.DialTLS(ctx, hostport, ep.ID, Protocol)
	if err != nil {
		return nil, err
	}
	return secured{conn}, nil
}

// secured is a connection over TLS.
type secured struct{ conn *tls.Conn }

func (s secured) read() ([]byte, error)   { return readFrame(s.conn) }
func (s secured) write(body []byte) error { return writeFrame(s.conn, body) }
func (s secured) interrupt()              { _ = s.conn.SetDeadline(time.Unix(1, 0)) }
func (s secured) close()                  { _ = s.conn.Close() }

// hostPort reads an agent's address.
func hostPort(address string) (scheme, at string, ok bool) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != Scheme && u.Scheme != SchemeDatagram || u.Hostname() == "" || u.User != nil || u.Path != "" && u.Path != "/" {
		return "", "", false
	}
	port := cmp.Or(u.Port(), defaultPort)
	return u.Scheme, net.JoinHostPort(u.Hostname(), port), true
}

// tokenSpace is how long a frame to an agent may be, in bytes.
func tokenSpace(ep transport.Endpoint) int {
	if scheme, _, _ := hostPort(ep.URL); scheme == SchemeDatagram {
		return MaxDatagram
	}
	return form.MaxFrame
}

// failed says what it means that a request or its answer broke off.
func failed(ctx context.Context, ep transport.Endpoint, err error) error {
	switch {
	case errors.As(err, new(*egress.DeniedError)), errors.As(err, new(*transport.BadReplyError)), errors.As(err, new(*canonical.Error)):
		return err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &transport.TimeoutError{Agent: ep.Agent, After: ep.Timeout}
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &transport.TimeoutError{Agent: ep.Agent, After: ep.Timeout}
	case errors.Is(err, errFrame), errors.Is(err, errTooLong):
		return &transport.BadReplyError{Agent: ep.Agent, Reason: "not a µACP frame"}
	default:
		return &transport.UnreachableError{Agent: ep.Agent, Err: err}
	}
}

// Describe asks an agent who it is and what it can do. An agent that cannot
// say who it is has its tools for a description.
func (d *Dialer) Describe(ctx context.Context, ep transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	ep.Version = form.Profile
	described := &canonical.Description{}
	m, err := d.inquire(ctx, ep, canonical.OpDescribe, &canonical.DescribeRequest{})
	if err != nil {
		return nil, ep, err
	}
	if description, ok := m.Body.(*canonical.Description); ok {
		described = description
	}
	if m, err = d.inquire(ctx, ep, canonical.OpCapabilities, &canonical.Page{}); err != nil {
		return nil, ep, err
	}
	if list, ok := m.Body.(*canonical.CapabilityList); ok {
		described.Capabilities = list.Capabilities
	}
	return described, ep, nil
}

// inquire asks one question of ours; an error that the agent says is an answer.
func (d *Dialer) inquire(ctx context.Context, ep transport.Endpoint, op canonical.Op, body canonical.Body) (*canonical.Message, error) {
	wire, _, err := d.deps.Form.Encode(&canonical.Message{
		Op: op, Phase: canonical.PhaseRequest, Body: body, Correlation: canonical.Correlation{WireID: json.RawMessage("1")},
	}, translators.Target{Form: form.FormBare})
	if err != nil {
		return nil, err
	}
	reply, err := d.ask(ctx, ep, wire.Body, nil, op)
	if err != nil {
		return nil, err
	}
	m, err := d.deps.Form.Decode(reply.Wire)
	if err != nil {
		return nil, &transport.BadReplyError{Agent: ep.Agent, Reason: "not a description"}
	}
	return m, nil
}
