package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Client is the one door to the network: *egress.Guard is one. It sends a
// request to a server that must prove the expected SPIFFE id (empty: its host
// name) and hands redirects back as they are.
type Client interface {
	DoAs(request *http.Request, expected ect.Identity) (*http.Response, error)
}

// DialerDeps is what a Dialer needs.
type DialerDeps struct {
	Client Client
	Form   translators.Translator // of this protocol
	Limits ect.Limits             // of the evidence of one reply; zero: the defaults
}

// Dialer carries messages to A2A agents. Safe for concurrent use; it keeps nothing.
type Dialer struct{ deps DialerDeps }

var (
	_ transport.Dialer    = (*Dialer)(nil)
	_ transport.Describer = (*Dialer)(nil)
	_ Client              = (*egress.Guard)(nil)
)

// NewDialer checks its dependencies.
func NewDialer(deps DialerDeps) (*Dialer, error) {
	if deps.Client == nil || deps.Form == nil {
		return nil, errors.New("transport/a2a: incomplete DialerDeps")
	}
	return &Dialer{deps}, nil
}

// Dial posts a sealed message and reads the reply to it.
func (d *Dialer) Dial(ctx context.Context, e transport.Endpoint, sealed transport.Sealed) (transport.Reply, error) {
	wire, evidence, err := sealed.Open()
	if err != nil {
		return transport.Reply{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target(e), bytes.NewReader(wire.Body))
	if err != nil {
		return transport.Reply{}, &transport.UnreachableError{Agent: e.Agent, Err: err}
	}
	request.Header = pick(wire.Header)
	request.Header.Set("Content-Type", form.Media)
	if wire.Version != form.Version03 { // which has no such field
		request.Header.Set(form.HeaderVersion, form.Version)
	}
	for _, token := range evidence {
		request.Header.Add(ect.HeaderName, token)
	}
	got, err := d.fetch(e, request)
	if err != nil {
		return transport.Reply{}, err
	}
	if reason := misfit(wire, got); reason != "" {
		return transport.Reply{}, &transport.BadReplyError{Agent: e.Agent, Reason: reason}
	}
	tokens, err := ect.ParseHeader(got.header.Values(ect.HeaderName), d.deps.Limits)
	if err != nil {
		return transport.Reply{}, &transport.BadReplyError{Agent: e.Agent, Reason: "its execution context is malformed or too large"}
	}
	return transport.Reply{Evidence: tokens, Wire: translators.Wire{
		Binding: form.Binding, Version: wire.Version, Form: wire.Form, Media: form.Media, Header: pick(got.header),
		Body: got.body, Re: canonical.OpInvoke, Status: got.status,
	}}, nil
}

// target is where a message goes: the HTTP form has a place below for each operation.
func target(e transport.Endpoint) string {
	if e.Form != form.FormHTTP {
		return e.URL
	}
	u, err := url.Parse(e.URL)
	if err != nil {
		return e.URL // it cannot be requested either
	}
	if e.Version == form.Version03 {
		return u.JoinPath(places03, routeSend).String()
	}
	if e.Tenant != "" { // one segment, whatever it holds
		return u.JoinPath(escapeTenant(e.Tenant), routeSend).String()
	}
	return u.JoinPath(routeSend).String()
}

// escapeTenant makes one path segment of a tenant. Dots alone would be a step
// in the path rather than a name.
func escapeTenant(tenant string) string {
	if strings.Trim(tenant, ".") == "" {
		return strings.ReplaceAll(tenant, ".", "%2E")
	}
	return url.PathEscape(tenant)
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
	if e.Form == form.FormHTTP && e.Version != form.Version03 {
		request.Header.Set("Accept", form.Media+", "+form.MediaHTTP)
	}
	response, err := d.deps.Client.DoAs(request, e.ID)
	if err != nil {
		return fetched{}, failure(request.Context(), e, err)
	}
	limit := d.deps.Form.Info().BodyLimit
	body, err := io.ReadAll(io.LimitReader(response.Body, int64(limit)+1))
	closed := response.Body.Close()
	if err == nil {
		// At the deadline the connection is closed, which the server hears: it may
		// end its half answer properly, and the half would pass for the whole.
		err = request.Context().Err()
	}
	switch {
	case err != nil:
		return fetched{}, failure(request.Context(), e, err)
	case len(body) > limit:
		return fetched{}, &transport.BadReplyError{Agent: e.Agent, Reason: "longer than " + strconv.Itoa(limit) + " octets"}
	case closed != nil:
		return fetched{}, failure(request.Context(), e, closed)
	}
	return fetched{response.StatusCode, response.Header, body}, nil
}

// failure sorts out why there is no response. A caller that went away is
// nobody's fault, least of all the agent's.
func failure(ctx context.Context, e transport.Endpoint, err error) error {
	var denied *egress.DeniedError
	var network net.Error
	switch {
	case errors.As(err, &denied):
		return denied
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &transport.TimeoutError{Agent: e.Agent, After: e.Timeout}
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &network) && network.Timeout():
		return &transport.TimeoutError{Agent: e.Agent, After: e.Timeout}
	default:
		return &transport.UnreachableError{Agent: e.Agent, Err: err}
	}
}

// misfit says why a response is no reply to the request; "": it is one. An
// error status with a reply in it is a reply.
func misfit(sent translators.Wire, got fetched) string {
	if reason := unreadable(got); reason != "" {
		return reason
	}
	if sent.Form == form.FormHTTP {
		return misfitHTTP(got)
	}
	return misfitRPC(sent.Body, got)
}

// misfitHTTP: there is no id, and a status tells an error from an answer.
func misfitHTTP(got fetched) string {
	var answered map[string]json.RawMessage
	err := json.Unmarshal(got.body, &answered)
	_, failed := answered["error"]
	if err != nil || failed != (got.status >= http.StatusBadRequest) {
		return "HTTP status " + strconv.Itoa(got.status) + " and no reply that goes with it"
	}
	return ""
}

func misfitRPC(request []byte, got fetched) string {
	var sent, answered struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   json.RawMessage `json:"error"`
	}
	if json.Unmarshal(request, &sent) != nil || json.Unmarshal(got.body, &answered) != nil || answered.Version != "2.0" {
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

// unreadable says why a response has no JSON to read.
func unreadable(got fetched) string {
	switch {
	case got.status >= 300 && got.status < 400:
		return "a redirect (HTTP status " + strconv.Itoa(got.status) + "), which is not followed"
	case got.header.Get("Content-Encoding") != "":
		return "compressed, although nobody asked for that"
	case !slices.Contains(medias, media(got.header)):
		return "HTTP status " + strconv.Itoa(got.status) + " and not " + form.Media
	case len(bytes.TrimSpace(got.body)) == 0:
		return "HTTP status " + strconv.Itoa(got.status) + " and an empty body"
	default:
		return ""
	}
}

// sameID compares ids as JSON values: "a" is "\u0061", and 1 is not "1".
func sameID(a, b json.RawMessage) bool {
	var x, y string
	if json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil {
		return x == y && len(a) > 0 && len(b) > 0 && a[0] == '"' && b[0] == '"'
	}
	return bytes.Equal(a, b)
}
