package a2a

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Describe reads an agent's card. The endpoint's URL may be the agent's base
// URL, its JSON-RPC URL or that of the card itself; the endpoint that comes
// back has the URL, version and form of the interface that suits us best, at the
// same origin (reached), and in Why what its URL was taken from. An endpoint that
// names a version is kept to it.
func (d *Dialer) Describe(ctx context.Context, e transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	base, err := url.Parse(e.URL)
	if err != nil || base.Host == "" {
		return nil, e, &transport.UnreachableError{Agent: e.Agent, Err: errors.New("the configured URL is none")}
	}
	var first error
	for _, place := range places(base) {
		description, err := d.read(ctx, e, place.String())
		if err == nil {
			c := cardAt{base: base, at: place, grpc: e.GRPC, Description: description}
			if err = c.counts(e); err == nil {
				return d.reached(ctx, e, c)
			}
			first = nil // that there is a card says more than that there is none elsewhere
		}
		if first == nil {
			first = err
		}
		if _, answered := errors.AsType[*transport.BadReplyError](err); !answered {
			break
		}
	}
	return nil, e, first
}

// oldCardPath is where a card is found, below an agent's URL, before A2A 0.3.
const oldCardPath = "/.well-known/agent.json"

// places lists where the card may be: below the URL, then at the origin, where
// hosts of several agents may have that of another one ([cardAt.counts]).
func places(base *url.URL) []*url.URL {
	if isCard(base) {
		return []*url.URL{base}
	}
	plain := *base
	plain.RawQuery, plain.Fragment = "", ""
	list := []*url.URL{plain.JoinPath(CardPath), plain.JoinPath(oldCardPath)}
	if pathOf(base) == "" {
		return list
	}
	plain.Path, plain.RawPath = "/", ""
	return append(list, plain.JoinPath(CardPath), plain.JoinPath(oldCardPath))
}

// notA2A is the usual mistake where there is no card.
const notA2A = "; is it an A2A agent? An MCP server is listed with the binding mcp-v1 (--mcp)"

func isCard(u *url.URL) bool {
	return strings.HasSuffix(u.Path, "/agent-card.json") || strings.HasSuffix(u.Path, "/agent.json")
}

func (d *Dialer) read(ctx context.Context, e transport.Endpoint, place string) (*canonical.Description, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, place, http.NoBody)
	if err != nil {
		return nil, &transport.UnreachableError{Agent: e.Agent, Err: err}
	}
	if e.Version != form.Version03 {
		request.Header.Set(form.HeaderVersion, form.Version)
	}
	got, err := d.fetch(e, request)
	if err != nil {
		return nil, err
	}
	e.URL = place
	bad := func(reason string) error { return transport.BadStatus(e, reason, got.status, got.header) }
	if reason := unreadable(got); reason != "" {
		return nil, bad("no card: " + reason + notA2A)
	}
	if got.status != http.StatusOK {
		return nil, bad("no card: " + http.StatusText(got.status) + notA2A)
	}
	m, err := d.deps.Form.Decode(translators.Wire{Binding: form.Binding, Media: form.Media, Body: got.body, Re: canonical.OpDescribe})
	if err != nil {
		return nil, bad("its card: " + err.Error())
	}
	description, ok := m.Body.(*canonical.Description)
	if !ok {
		return nil, bad("an error in place of a card")
	}
	return description, nil
}
