package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/a2a/frame"
	"github.com/aepb/aepb-gateway/gateway/transport/reply"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// DialerDeps is what a Dialer needs.
type DialerDeps struct {
	Client transport.Client
	Form   translators.Translator // of this protocol
	Limits ect.Limits             // of the evidence of one reply; zero: the defaults
}

// Dialer carries messages to A2A agents. Safe for concurrent use; it keeps nothing.
type Dialer struct {
	frame.Framer
	deps DialerDeps
}

var (
	_ transport.Dialer     = (*Dialer)(nil)
	_ transport.Describer  = (*Dialer)(nil)
	_ transport.WireFormat = (*Dialer)(nil)
)

// NewDialer checks its dependencies.
func NewDialer(deps DialerDeps) (*Dialer, error) {
	if deps.Client == nil || deps.Form == nil {
		return nil, errors.New("transport/a2a: incomplete DialerDeps")
	}
	return &Dialer{deps: deps}, nil
}

// Dial posts a sealed message and reads the reply to it.
func (d *Dialer) Dial(ctx context.Context, e transport.Endpoint, sealed transport.Sealed) (transport.Reply, error) {
	wire, evidence, err := sealed.Open()
	if err != nil {
		return transport.Reply{}, err
	}
	callCtx := ctx
	ctx, life := reply.Outlive(callCtx)
	defer life.End()
	request, err := d.request(ctx, e, wire, evidence)
	if err != nil {
		return transport.Reply{}, err
	}
	response, err := d.deps.Client.DoAs(request, e.ID) //nolint:bodyclose // its stream closes it, or what reads it whole
	if err != nil {
		return transport.Reply{}, transport.CallError(callCtx, e, err)
	}
	if wire.Form == form.FormGRPC {
		answer, err := d.answered(callCtx, &incoming{d: d, e: e, sent: wire, response: response, cancel: life.Cancel})
		if err == nil && answer.Events != nil {
			life.Keep()
		}
		return answer, err
	}
	peer := d.peer(e)
	tokens, err := peer.Evidence(response.Header)
	if err != nil {
		_ = response.Body.Close()
		return transport.Reply{}, err
	}
	if response.StatusCode == http.StatusOK && transport.MediaType(response.Header) == sse.Media && response.Header.Get("Content-Encoding") == "" {
		life.Keep()
		return transport.Reply{Evidence: tokens, Events: peer.Stream(response, life.Cancel, func(data []byte) (translators.Wire, bool, error) {
			out, err := d.event(peer, wire, response.Header, data)
			return out, wire.Version == form.Version03 && form.IsFinal(data), err
		})}, nil
	}
	got, err := d.whole(callCtx, e, response)
	if err != nil {
		return transport.Reply{}, err
	}
	if reason := misfit(wire, got); reason != "" {
		return transport.Reply{}, transport.BadStatus(e, reason, got.status, got.header)
	}
	return transport.Reply{Evidence: tokens, Wire: d.received(wire, got.header, got.body, got.status)}, nil
}

// received is a message of an agent.
func (d *Dialer) received(sent translators.Wire, header http.Header, body []byte, status int) translators.Wire {
	return translators.Wire{
		Binding: form.Binding, Version: sent.Version, Form: sent.Form, Media: form.Media, Header: pick(header),
		Body: body, Re: canonical.OpInvoke, Status: status,
	}
}

// event is a message of an agent's stream, if it belongs to the request.
func (d *Dialer) event(peer reply.Peer, sent translators.Wire, header http.Header, data []byte) (translators.Wire, error) {
	reason := ""
	if sent.Form != form.FormHTTP {
		reason = misfitRPC(sent.Body, fetched{status: http.StatusOK, body: data})
	} else if len(data) == 0 || data[0] != '{' {
		reason = "an event that is no object"
	}
	if reason != "" {
		return translators.Wire{}, peer.Bad(reason)
	}
	return d.received(sent, header, data, http.StatusOK), nil
}

// request is a message on its way out.
func (d *Dialer) request(ctx context.Context, e transport.Endpoint, wire translators.Wire, evidence []string) (*http.Request, error) {
	if wire.Form == form.FormGRPC {
		return d.requestGRPC(ctx, e, wire, evidence)
	}
	verb := http.MethodPost
	if wire.Verb != "" {
		verb = wire.Verb
	}
	var body io.Reader = http.NoBody
	if len(wire.Body) > 0 {
		body = bytes.NewReader(wire.Body)
	}
	request, err := http.NewRequestWithContext(ctx, verb, target(e, wire), body)
	if err != nil {
		return nil, &transport.UnreachableError{Agent: e.Agent, Err: err}
	}
	request.Header = pick(wire.Header)
	if len(wire.Body) > 0 {
		request.Header.Set("Content-Type", form.Media)
	}
	if wire.Version != form.Version03 { // which has no such field
		request.Header.Set(form.HeaderVersion, form.Version)
	}
	accept := form.Media
	if e.Form == form.FormHTTP && e.Version != form.Version03 {
		accept += ", " + form.MediaHTTP
	}
	if streaming(d.deps.Form, wire) {
		accept = sse.Media + ", " + accept
	}
	request.Header.Set("Accept", accept)
	transport.AddEvidence(request.Header, evidence)
	return request, nil
}

// target is where a message goes: the HTTP form has a place below for each
// operation, which the message names.
func target(e transport.Endpoint, wire translators.Wire) string {
	if e.Form != form.FormHTTP {
		return e.URL
	}
	path := wire.Path
	if path == "" {
		if path = routeSend; e.Version == form.Version03 {
			path = form.Places03 + routeSend
		}
	}
	base, query, _ := strings.Cut(e.URL, "?")
	path = strings.TrimSuffix(base, "/") + path
	if query == "" {
		return path
	}
	if strings.Contains(path, "?") {
		return path + "&" + query
	}
	return path + "?" + query
}

// fetched is an HTTP response, read to its end.
type fetched struct {
	status int
	header http.Header
	body   []byte
}

// fetch sends a request and reads the response within bounds.
func (d *Dialer) fetch(e transport.Endpoint, request *http.Request) (fetched, error) {
	request.Header.Set("Accept", form.Media)
	response, err := d.deps.Client.DoAs(request, e.ID)
	if err != nil {
		return fetched{}, transport.CallError(request.Context(), e, err)
	}
	defer func() { _ = response.Body.Close() }()
	return d.whole(request.Context(), e, response)
}

func (d *Dialer) peer(e transport.Endpoint) reply.Peer {
	return reply.Peer{Endpoint: e, Limit: d.deps.Form.Info().BodyLimit, Limits: d.deps.Limits}
}

// whole reads a response to its end.
func (d *Dialer) whole(ctx context.Context, e transport.Endpoint, response *http.Response) (fetched, error) {
	body, err := d.peer(e).Whole(ctx, response)
	return fetched{response.StatusCode, response.Header, body}, err
}

// misfit says why a response is no reply to the request; "": it is one. An
// error status with a reply in it is a reply.
func misfit(sent translators.Wire, got fetched) string {
	if sent.Verb == http.MethodDelete && got.status < 300 && len(got.body) == 0 {
		return "" // there is nothing to say
	}
	if reason := unreadable(got); reason != "" {
		return reason
	}
	if sent.Form == form.FormHTTP {
		return misfitHTTP(got)
	}
	return misfitRPC(sent.Body, got)
}

// misfitHTTP returns why a response is no reply. It has no id; its status marks an error.
func misfitHTTP(got fetched) string {
	var answered map[string]json.RawMessage
	err := json.Unmarshal(got.body, &answered)
	_, failed := answered["error"]
	if err != nil || failed != (got.status >= http.StatusBadRequest) {
		return "HTTP status " + strconv.Itoa(got.status) + " and no reply that goes with it"
	}
	return ""
}

// misfitRPC sees to the envelopes alone: that all of it is JSON is the codec's to judge.
func misfitRPC(request []byte, got fetched) string {
	sent, ok := form.Skim(request)
	answered, readable := form.Skim(got.body)
	if !ok || !readable || answered.Version != "2.0" {
		return "HTTP status " + strconv.Itoa(got.status) + " and no JSON-RPC reply"
	}
	unknown := answered.ID == nil || string(answered.ID) == "null"
	if unknown && answered.Error != nil {
		return "" // it could not read the request, and so not its id
	}
	if !sameID(sent.ID, answered.ID) {
		return "the id is that of another request"
	}
	return ""
}

// medias are the media types of a reply: those of the protocol, and that of the
// problem document which the HTTP form took its errors for in earlier drafts.
var medias = []string{form.Media, form.MediaHTTP, "application/problem+json"}

// mediaText is what some servers say of their errors, because they leave the
// field to their HTTP library (a2a-go 2.4 where it speaks 0.3).
const mediaText = "text/plain"

// unreadable says why a response has no JSON to read.
func unreadable(got fetched) string {
	switch {
	case got.status >= 300 && got.status < 400:
		return "a redirect (HTTP status " + strconv.Itoa(got.status) + "), which is not followed"
	case got.header.Get("Content-Encoding") != "":
		return "compressed (Content-Encoding), expected it uncompressed"
	case !slices.Contains(medias, transport.MediaType(got.header)) && (transport.MediaType(got.header) != mediaText || !json.Valid(got.body)):
		return "HTTP status " + strconv.Itoa(got.status) + " and not " + form.Media
	case len(bytes.TrimSpace(got.body)) == 0:
		return "HTTP status " + strconv.Itoa(got.status) + " and an empty body"
	default:
		return ""
	}
}

// sameID compares ids as JSON values: "a" is "\u0061", and 1 is not "1".
func sameID(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y string
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && x == y && a[0] == '"' && b[0] == '"'
}
