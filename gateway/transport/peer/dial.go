package peer

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/reply"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

const (
	mediaJSON    = "application/json"
	mediaProblem = "application/problem+json"
)

// Deps is what a Dialer needs.
type Deps struct {
	Client transport.Client
	// Cards asks an A2A endpoint for the agent's card. nil: no agent is asked.
	Cards     transport.Describer
	BodyLimit int        // bytes of one message; zero: translators.DefaultBodyLimit
	Limits    ect.Limits // of the evidence of one reply; zero: the defaults
}

// Dialer carries messages to other gateways. Safe for concurrent use; it keeps nothing.
type Dialer struct{ deps Deps }

var (
	_ transport.Dialer    = (*Dialer)(nil)
	_ transport.Describer = (*Dialer)(nil)
)

// New checks its dependencies.
func New(deps Deps) (*Dialer, error) {
	if deps.Client == nil {
		return nil, errors.New("transport/peer: incomplete Deps")
	}
	if deps.BodyLimit <= 0 {
		deps.BodyLimit = translators.DefaultBodyLimit
	}
	return &Dialer{deps: deps}, nil
}

// forNobody reports whether the request asks for a translation alone, and no reply.
func forNobody(target string) bool {
	u, err := url.Parse(target)
	return err == nil && u.Query().Has("to") && !u.Query().Has("dest")
}

// Dial posts a sealed message to the gateway at e.URL and reads what it
// answers. Its errors are those of [transport.Dialer] and *transport.RefusedError.
func (d *Dialer) Dial(ctx context.Context, e transport.Endpoint, sealed transport.Sealed) (transport.Reply, error) {
	wire, evidence, err := sealed.Open()
	if err != nil {
		return transport.Reply{}, err
	}
	callCtx := ctx
	ctx, life := reply.Outlive(callCtx)
	defer life.End()
	request, err := request(ctx, e, wire, evidence)
	if err != nil {
		return transport.Reply{}, err
	}
	response, err := d.deps.Client.DoAs(request, e.ID) //nolint:bodyclose // its stream closes it, or what reads it whole
	if err != nil {
		return transport.Reply{}, transport.CallError(callCtx, e, err)
	}
	peer := reply.Peer{Endpoint: e, Limit: d.deps.BodyLimit, Limits: d.deps.Limits, Prefix: before}
	tokens, err := peer.Evidence(response.Header)
	if err != nil {
		_ = response.Body.Close()
		return transport.Reply{}, err
	}
	if response.StatusCode == http.StatusOK && transport.MediaType(response.Header) == sse.Media && response.Header.Get("Content-Encoding") == "" {
		life.Keep()
		return transport.Reply{Evidence: tokens, Events: peer.Stream(response, life.Cancel, func(data []byte) (translators.Wire, bool, error) {
			out, err := event(peer, wire, response.Header, data)
			return out, false, err
		})}, nil
	}
	body, err := peer.Whole(callCtx, response)
	if err != nil {
		return transport.Reply{}, err
	}
	judge := misfit
	if forNobody(e.URL) {
		judge = nil
	}
	got, err := read(e, wire, response, body, tokens, judge)
	return transport.Reply{Evidence: tokens, Wire: got}, err
}

// request is a message on its way out. Of the fields of its protocol those go
// along that belong to the message; the next gateway reads them like the body.
func request(ctx context.Context, e transport.Endpoint, wire translators.Wire, evidence []string) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(wire.Body))
	if err != nil {
		return nil, &transport.UnreachableError{Agent: e.Agent, Err: err}
	}
	request.Header = fields(wire.Header)
	request.Header.Set("Content-Type", mediaJSON)
	request.Header.Set("Accept", mediaJSON+", "+sse.Media+", "+mediaProblem)
	transport.AddEvidence(request.Header, evidence)
	return request, nil
}

// fields are those that belong to a message: what its protocol says of it there,
// and its trace. No credential crosses (R2), and sessions are at our own endpoint.
func fields(all http.Header) http.Header {
	out := http.Header{}
	for name, values := range all {
		name = http.CanonicalHeaderKey(name)
		trace := name == "Traceparent" || name == "Tracestate" || name == "Baggage"
		if trace || strings.HasPrefix(name, "A2a-") || (strings.HasPrefix(name, "Mcp-") && name != "Mcp-Session-Id") {
			out[name] = values
		}
	}
	return out
}

// Describe asks who an agent behind a gateway is, at the A2A endpoint that it has
// there. e.URL is the gateway's translate endpoint. What comes back has the
// endpoint that was given: messages do not go to that endpoint.
func (d *Dialer) Describe(ctx context.Context, e transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	at, err := url.Parse(e.URL)
	if err != nil || d.deps.Cards == nil {
		return nil, e, bad(e, "it cannot be asked about agents")
	}
	server := e
	server.Binding, server.Version, server.Form, server.GRPC = "a2a-v1", "", "", ""
	server.URL = (&url.URL{Scheme: at.Scheme, Host: at.Host, Path: "/agents/" + e.Agent + "/a2a"}).String()
	description, _, err := d.deps.Cards.Describe(ctx, server)
	if err != nil {
		return nil, e, err
	}
	out := *description
	out.Extended = false // its endpoint hands that out, and messages do not go there
	return &out, e, nil
}

func bad(e transport.Endpoint, reason string) error {
	return &transport.BadReplyError{Agent: e.Agent, Reason: before + reason}
}

func badStatus(e transport.Endpoint, reason string, response *http.Response) error {
	return transport.BadStatus(e, before+reason, response.StatusCode, response.Header)
}

// before says that not the agent has answered so.
const before = "the gateway before it: "
