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

// preferred are the interfaces that a Dialer can use, best first.
var preferred = []struct{ version, transport, form string }{
	{form.Version, form.TransportJSONRPC, ""},
	{form.Version, form.FormHTTP, form.FormHTTP},
	{form.Version, form.FormGRPC, form.FormGRPC},
	{form.Version03, form.TransportJSONRPC, ""},
	{form.Version03, form.FormHTTP, form.FormHTTP},
}

// cardAt is a card, and where it was found.
type cardAt struct {
	base *url.URL // as the agent is listed
	at   *url.URL // of the card
	grpc string   // where its operator wants it reached over gRPC; empty: as the card says
	*canonical.Description
}

// way is an interface that a Dialer can use.
type way struct {
	canonical.Interface

	version, form string
	u             *url.URL // its URL, resolved against that of the card (RFC 3986, 5.1.3); nil: it is none
}

// ways are the interfaces that a Dialer can use in a version, best first; empty: in any.
func (c cardAt) ways(version string) []way {
	var list []way
	for _, p := range preferred {
		for _, f := range c.Interfaces {
			if strings.EqualFold(f.Transport, p.transport) && form.Spoken(f.Version) == p.version && (version == "" || version == p.version) {
				list = append(list, way{f, p.version, p.form, c.resolve(f)})
			}
		}
	}
	return list
}

func (c cardAt) resolve(f canonical.Interface) *url.URL {
	u, err := c.at.Parse(f.URL)
	if err != nil || f.URL == "" || u.Host == "" {
		return nil
	}
	return u
}

// counts refuses a card at the origin that names nothing of what is listed: it is that
// of another agent of the same host. A card does not always know the host by which its
// agent is reached, so that the path decides.
func (c cardAt) counts(e transport.Endpoint) error {
	at := pathOf(c.at)
	if isCard(c.base) || pathOf(c.base) == "" || at != CardPath && at != oldCardPath {
		return nil
	}
	names := "no URL"
	for _, f := range c.Interfaces {
		u := c.resolve(f)
		switch {
		case u != nil && c.isListed(u), c.grpc != "" && PlaceGRPC(f.URL, c.base.Scheme) == PlaceGRPC(c.grpc, c.base.Scheme):
			return nil
		case u != nil && names == "no URL":
			names = transport.Shown(u)
		}
	}
	return &transport.BadReplyError{
		Agent:  e.Agent,
		Reason: "there is no card below its URL, and the card at the origin is that of another agent; correct the URL",
		Place:  "listed as " + transport.Shown(c.base) + "; the card at " + transport.Shown(c.at) + " names " + names,
	}
}

// isListed reports whether a URL is the listed one, apart from its host.
func (c cardAt) isListed(u *url.URL) bool {
	return pathOf(u) == pathOf(c.base) && (u.RawQuery == "" || u.RawQuery == c.base.RawQuery)
}

// pathOf is the path of a URL without dots and without a slash at its end.
func pathOf(u *url.URL) string { return strings.TrimSuffix(u.JoinPath().EscapedPath(), "/") }

// reached finds out where and how the agent takes calls. A card is a claim: no call goes
// to another origin than the listed one. Of an interface elsewhere, its version, form and
// tenant count, and its path where the listed URL takes no calls.
func (d *Dialer) reached(ctx context.Context, e transport.Endpoint, c cardAt) (*canonical.Description, transport.Endpoint, error) {
	if e.GRPC != "" { // its operator's word
		version := e.Version
		if e.URL, e.Version, e.Form = PlaceGRPC(e.GRPC, c.base.Scheme), form.Version, form.FormGRPC; e.URL == "" || version != "" && version != form.Version {
			return nil, e, &transport.UnreachableError{Agent: e.Agent, Err: errors.New("no gRPC at the configured place in this version")}
		}
		e.Tenant = tenantAt(c.Description, c.base.Scheme, e.URL)
		return c.Description, e, nil
	}
	ways := c.ways(e.Version)
	if len(ways) == 0 {
		return nil, e, &transport.BadReplyError{Agent: e.Agent, Reason: "its card names no interface of A2A over JSON-RPC or HTTP in a version that is spoken here"}
	}
	for _, w := range ways {
		if place := w.taken(c.base); place != "" {
			why := "its card names this URL"
			if w.u != nil && c.isListed(w.u) {
				why = ""
			}
			return c.Description, w.on(e, place, why), nil
		}
	}
	e, err := d.elsewhere(ctx, e, c, ways)
	return c.Description, e, err
}

// elsewhere is the endpoint of an agent whose card names no interface at the listed origin.
func (d *Dialer) elsewhere(ctx context.Context, e transport.Endpoint, c cardAt, ways []way) (transport.Endpoint, error) {
	w := ways[max(0, slices.IndexFunc(ways, func(w way) bool { return w.u != nil && c.isListed(w.u) }))]
	if w.u == nil || w.form == form.FormGRPC {
		if isCard(c.base) {
			return e, &transport.BadReplyError{Agent: e.Agent, Reason: "its card names no URL that can be called here; list the URL that takes calls"}
		}
		return w.on(e, e.URL, "the listed URL; its card names none that can be called here"), nil
	}
	names := "its card names " + transport.Shown(w.u) + ", which is not at the listed host and port"
	listed := w.on(e, e.URL, "the listed URL; "+names)
	if !isCard(c.base) && (c.isListed(w.u) || d.takesCalls(ctx, listed)) {
		return listed, nil
	}
	return w.on(e, c.below(w.u), names+": its path is called there, since the listed URL takes no calls"), nil
}

// below is the path of a URL at the listed origin. It stays below the listed URL, since
// what is beside it may be another agent: a card that knows nothing of a proxy's prefix
// names the rest of the path.
func (c cardAt) below(u *url.URL) string {
	root := *c.base
	if isCard(c.base) {
		path := strings.TrimSuffix(c.base.Path[:strings.LastIndex(c.base.Path, "/")], "/.well-known")
		root = url.URL{Scheme: root.Scheme, Host: root.Host, Path: path + "/"}
	}
	path, prefix := pathOf(u), pathOf(&root)
	if path != prefix && !strings.HasPrefix(path, prefix+"/") {
		return root.JoinPath(u.EscapedPath()).String()
	}
	root.Path, root.RawPath = "/", ""
	return root.JoinPath(u.EscapedPath()).String()
}

// takesCalls reports whether something answers calls there: 404 and 405 say that nothing
// does. What is sent is no JSON, so that no agent acts on it.
func (d *Dialer) takesCalls(ctx context.Context, e transport.Endpoint) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target(e, translators.Wire{}), strings.NewReader(`{"`))
	if err != nil {
		return false
	}
	request.Header.Set("Content-Type", form.Media)
	if e.Version != form.Version03 {
		request.Header.Set(form.HeaderVersion, form.Version)
	}
	got, err := d.fetch(e, request)
	return err != nil || got.status != http.StatusNotFound && got.status != http.StatusMethodNotAllowed
}

// on is an endpoint that is reached in this way.
func (w way) on(e transport.Endpoint, place, why string) transport.Endpoint {
	e.URL, e.Version, e.Form, e.Why = place, w.version, w.form, why
	if w.version == form.Version { // 0.3 has none
		e.Tenant = w.Tenant
	}
	return e
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
func (w way) taken(base *url.URL) string {
	if w.form == form.FormGRPC {
		at := PlaceGRPC(w.URL, base.Scheme)
		u, err := url.Parse(at)
		if err != nil || at == "" || !strings.EqualFold(base.Hostname(), u.Hostname()) {
			return ""
		}
		return at
	}
	if w.u == nil || w.u.User != nil || w.u.Fragment != "" || !sameOrigin(base, w.u) {
		return ""
	}
	return w.u.String()
}

// PlaceGRPC reads where a card, or an operator, says that gRPC is spoken:
// host:port, as gRPC's own libraries take it, or a URL. What comes back is a
// URL without a path; empty: it is no such place. Without TLS is what says so
// and what the scheme of the agent's own place says, and no other.
func PlaceGRPC(text, scheme string) string {
	value, rest, isURL := strings.Cut(text, "://")
	if !isURL {
		value, rest = scheme, text
	}
	switch value {
	case "dns": // no server of names but our own is asked
		value, rest = scheme, strings.TrimPrefix(rest, "/")
	case "grpc":
		value = scheme
	case "grpcs":
		value = "https"
	}
	u, err := url.Parse(value + "://" + strings.TrimSuffix(rest, "/"))
	if err != nil || value != "https" && (value != "http" || scheme != "http") || u.Hostname() == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
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
