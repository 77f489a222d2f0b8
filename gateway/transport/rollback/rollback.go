// Package rollback asks agents that are reached over HTTP to roll back: at
// /.well-known/atd/rollback of the host where their endpoint is, apart from that
// endpoint (ATD, Basic Rollback; AEPB, Checkpoint and Rollback Signal Carriage).
//
// The host is never the one that a checkpoint names (atd.rollback_uri): a token
// does not say where this gateway goes. A redirect is no answer. The result is the
// token of the act atd:rollback_result in Execution-Context, or, where there is
// none, the body as a compact token; the pipeline verifies it. Other tokens beside it
// testify to nothing here and are not looked at.
package rollback

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

// longest bounds the body of an answer, in bytes.
const longest = 64 << 10

// Deps is what a Dialer needs.
type Deps struct {
	Client transport.Client
	Limits ect.Limits // of the evidence on answers; zero: the defaults (R11)
}

// Dialer carries rollback requests. It keeps nothing, and is safe for concurrent use.
type Dialer struct{ deps Deps }

var _ transport.Dialer = (*Dialer)(nil)

// New checks its dependencies.
func New(deps Deps) (*Dialer, error) {
	if deps.Client == nil {
		return nil, errors.New("transport/rollback: incomplete Deps")
	}
	return &Dialer{deps}, nil
}

// Dial posts the request beside an agent's endpoint, once. Its token comes first,
// then those of the way here. An answer with a status other than success is a
// Reply with that status. Errors are those of [transport.Dialer].
func (d *Dialer) Dial(ctx context.Context, e transport.Endpoint, sealed transport.Sealed) (transport.Reply, error) {
	wire, evidence, err := sealed.Open()
	if err != nil {
		return transport.Reply{}, err
	}
	place, err := beside(e.URL)
	if err != nil {
		return transport.Reply{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, place, bytes.NewReader(wire.Body))
	if err != nil {
		return transport.Reply{}, &egress.DeniedError{Reason: egress.ReasonURL}
	}
	request.Header.Set("Content-Type", rollback.Media)
	request.Header.Set("Accept", rollback.Media)
	own := wire.Header.Values(rollback.Field)
	for _, token := range slices.Concat(own, evidence) {
		if !slices.Contains(request.Header.Values(ect.HeaderName), token) {
			request.Header.Add(ect.HeaderName, token)
		}
	}
	response, err := d.deps.Client.DoAs(request, e.ID)
	if err != nil {
		return transport.Reply{}, transport.CallError(ctx, e, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, longest+1))
	if err == nil {
		err = ctx.Err() // a server that sees the deadline may end half an answer properly
	}
	switch {
	case err != nil:
		return transport.Reply{}, transport.CallError(ctx, e, err)
	case len(body) > longest:
		return transport.Reply{}, &transport.BadReplyError{Agent: e.Agent, Reason: "its answer to a rollback is too long", Err: transport.ErrTooLong}
	}
	return d.read(e, wire, response, body)
}

// read finds the result in an answer.
func (d *Dialer) read(e transport.Endpoint, request translators.Wire, response *http.Response, body []byte) (transport.Reply, error) {
	wire := translators.Wire{
		Binding: request.Binding, Form: rollback.Name, Media: rollback.Media, Re: canonical.OpRollback, Status: response.StatusCode, Body: body,
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return transport.Reply{Wire: wire}, nil
	}
	tokens, err := ect.ParseHeader(response.Header.Values(ect.HeaderName), d.deps.Limits)
	if err != nil {
		return transport.Reply{}, &transport.BadReplyError{Agent: e.Agent, Reason: "its Execution-Context header is malformed or too large"}
	}
	result := string(bytes.TrimSpace(body))
	if at := slices.IndexFunc(tokens, isResult); at >= 0 {
		result = tokens[at]
	}
	if !isResult(result) {
		return transport.Reply{}, &transport.BadReplyError{Agent: e.Agent, Reason: "it answers a rollback without a result"}
	}
	wire.Status, wire.Header = 0, http.Header{rollback.Field: {result}}
	return transport.Reply{Wire: wire}, nil
}

// isResult reports whether an unverified token claims to be a rollback result.
func isResult(token string) bool {
	claims, _, err := ect.ParseUnverified(token)
	return err == nil && claims.Act == ect.ActRollbackResult
}

// beside is the place for rollbacks on the host of an agent's endpoint.
func beside(endpoint string) (string, error) {
	at, err := url.Parse(endpoint)
	if err != nil || at.Host == "" || !strings.HasPrefix(at.Scheme, "http") {
		return "", &egress.DeniedError{Reason: egress.ReasonURL}
	}
	return (&url.URL{Scheme: at.Scheme, Host: at.Host, Path: rollback.Path}).String(), nil
}
