package a2a

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Describe reads an agent's card. The endpoint's URL may be the agent's base
// URL, its JSON-RPC URL or that of the card itself; the endpoint that comes
// back has the URL, version and form of the interface that suits us best, as
// the card names it, if that is at the same origin. An endpoint that names a
// version is kept to it.
func (d *Dialer) Describe(ctx context.Context, e transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	base, err := url.Parse(e.URL)
	if err != nil || base.Host == "" {
		return nil, e, &transport.UnreachableError{Agent: e.Agent, Err: errors.New("the configured URL is none")}
	}
	var first error
	for _, place := range places(base) {
		description, err := d.read(ctx, e, place)
		if err == nil {
			return d.reached(e, base, description)
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

// places lists where the card may be: below the URL, then at the origin.
func places(base *url.URL) []string {
	plain := *base
	plain.RawQuery, plain.Fragment = "", ""
	if isCard(base) {
		return []string{base.String()}
	}
	below := plain.JoinPath(CardPath).String()
	plain.Path, plain.RawPath = CardPath, ""
	return slices.Compact([]string{below, plain.String()})
}

// notA2A is the usual mistake where there is no card.
const notA2A = "; is it an A2A agent? An MCP server is listed with the binding mcp-v1 (--mcp)"

func isCard(u *url.URL) bool { return strings.HasSuffix(u.Path, "/agent-card.json") }

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
	bad := func(reason string) error { return transport.BadStatus(e.Agent, reason, got.status, got.header) }
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

// preferred are the interfaces that a Dialer can use, best first.
var preferred = []struct{ version, transport, form string }{
	{form.Version, form.TransportJSONRPC, ""},
	{form.Version, form.FormHTTP, form.FormHTTP},
	{form.Version, form.FormGRPC, form.FormGRPC},
	{form.Version03, form.TransportJSONRPC, ""},
	{form.Version03, form.FormHTTP, form.FormHTTP},
}

// reached finds out where and how the agent takes calls. A card is a claim: an
// interface elsewhere than at the configured origin is not taken.
func (d *Dialer) reached(e transport.Endpoint, base *url.URL, description *canonical.Description) (*canonical.Description, transport.Endpoint, error) {
	spoken, asked := false, e.Version
	if e.GRPC != "" { // its operator's word
		if e.URL, e.Version, e.Form = PlaceGRPC(e.GRPC, base.Scheme), form.Version, form.FormGRPC; e.URL == "" || asked != "" && asked != form.Version {
			return nil, e, &transport.UnreachableError{Agent: e.Agent, Err: errors.New("no gRPC at the configured place in this version")}
		}
		e.Tenant = tenantAt(description, base.Scheme, e.URL)
		return description, e, nil
	}
	for _, p := range preferred {
		for _, f := range description.Interfaces {
			if !strings.EqualFold(f.Transport, p.transport) || form.Spoken(f.Version) != p.version || (asked != "" && asked != p.version) {
				continue
			}
			if !spoken {
				spoken, e.Version, e.Form = true, p.version, p.form
			}
			if place := taken(base, f, p.form); place != "" {
				e.URL, e.Version, e.Form = place, p.version, p.form
				if p.version == form.Version { // 0.3 has none
					e.Tenant = f.Tenant
				}
				return description, e, nil
			}
		}
	}
	switch {
	case !spoken:
		return nil, e, &transport.BadReplyError{Agent: e.Agent, Reason: "its card names no interface of A2A over JSON-RPC or HTTP in a version that is spoken here"}
	case isCard(base):
		return nil, e, &transport.BadReplyError{Agent: e.Agent, Reason: "its card names an interface at another origin only"}
	}
	return description, e, nil
}

// tenantAt is the tenant that the card wants named at a place over gRPC; empty: none.
func tenantAt(description *canonical.Description, scheme, place string) string {
	for _, f := range description.Interfaces {
		if strings.EqualFold(f.Transport, form.FormGRPC) && PlaceGRPC(f.URL, scheme) == place {
			return f.Tenant
		}
	}
	return ""
}

// taken is the place of an interface if it is at the configured origin; empty:
// it is not. gRPC has a port of its own, on the same host.
func taken(base *url.URL, f canonical.Interface, wireForm string) string {
	if wireForm == form.FormGRPC {
		at := PlaceGRPC(f.URL, base.Scheme)
		u, err := url.Parse(at)
		if err != nil || at == "" || !strings.EqualFold(base.Hostname(), u.Hostname()) {
			return ""
		}
		return at
	}
	u, err := url.Parse(f.URL)
	if err != nil || u.User != nil || u.Fragment != "" || !sameOrigin(base, u) {
		return ""
	}
	return f.URL
}

// PlaceGRPC reads where a card, or an operator, says that gRPC is spoken:
// host:port, as gRPC's own libraries take it, or a URL. What comes back is a
// URL without a path; empty: it is no such place. Without TLS is what says so
// and what the scheme of the agent's own place says, and no other.
func PlaceGRPC(text, scheme string) string {
	said, rest, isURL := strings.Cut(text, "://")
	if !isURL {
		said, rest = scheme, text
	}
	switch said {
	case "dns": // no server of names but our own is asked
		said, rest = scheme, strings.TrimPrefix(rest, "/")
	case "grpc":
		said = scheme
	case "grpcs":
		said = "https"
	}
	u, err := url.Parse(said + "://" + strings.TrimSuffix(rest, "/"))
	if err != nil || said != "https" && (said != "http" || scheme != "http") || u.Hostname() == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return ""
	}
	return u.String()
}

func sameOrigin(a, b *url.URL) bool {
	return strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case strings.EqualFold(u.Scheme, "http"):
		return "80"
	default:
		return "443"
	}
}
