package transport

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// CheckOrigin refuses what a web page of another origin has a browser send. A browser may
// speak to us from our own pages and from this very machine, so that no web site reaches a
// gateway by rebinding a name (MCP, Streamable HTTP, security warning). Other clients send
// no Origin. ours reports whether a host name is one of the gateway's: a page that was
// loaded under any other came from elsewhere, whatever Host says; nil: all are.
func CheckOrigin(r *http.Request, ours func(host string) bool) error {
	values := r.Header.Values("Origin")
	if listed, _ := r.Context().Value(originKey{}).(bool); len(values) == 0 || listed {
		return nil
	}
	origin, err := url.Parse(values[0])
	if err == nil && len(values) == 1 && origin.Host != "" &&
		(strings.EqualFold(origin.Host, r.Host) && (ours == nil || ours(origin.Hostname())) || IsLoopback(origin.Hostname())) {
		return nil
	}
	return &canonical.Error{Code: canonical.CodeForbidden, Message: "requests from this origin are not taken"}
}

type originKey struct{}

// WithOrigin marks a request whose origin the operator lists.
func WithOrigin(ctx context.Context) context.Context {
	return context.WithValue(ctx, originKey{}, true)
}

// IsLoopback reports whether a host is this machine.
func IsLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Unmap().IsLoopback()
}
