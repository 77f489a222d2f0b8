package oldsse

import (
	"errors"
	"net/url"
	"strings"
)

// maxEndpoint is how long the URI of an endpoint event may be, in bytes.
const maxEndpoint = 8 << 10

// Why an endpoint event is not followed.
var (
	errEndpoint = errors.New("its endpoint event is not a URI")
	errOrigin   = errors.New("its endpoint event names another origin than that of the stream")
)

// Endpoint is where messages are posted: what an endpoint event says, relative to the URL of
// the stream. It has the origin of that URL.
func Endpoint(stream *url.URL, data []byte) (*url.URL, error) {
	text := string(data)
	if len(text) > maxEndpoint || text == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }) {
		return nil, errEndpoint
	}
	parsed, err := url.Parse(text)
	if err != nil || parsed.Opaque != "" {
		return nil, errEndpoint
	}
	out := stream.ResolveReference(parsed)
	if out.User != nil && parsed.Host != "" || !sameOrigin(stream, out) {
		return nil, errOrigin
	}
	out.User, out.Fragment, out.RawFragment = stream.User, "", ""
	return out, nil
}

func sameOrigin(a, b *url.URL) bool {
	return strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case strings.EqualFold(u.Scheme, "https"):
		return "443"
	default:
		return "80"
	}
}
