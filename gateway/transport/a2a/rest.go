package a2a

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
)

// routeMessage begins the places of messages, routeSend is that of one which is
// answered once; in 0.3 all places are below another.
const (
	routeMessage = "/message:"
	routeSend    = "/message:send"
)

// route is what a path below the agent's URL means.
type pathKind int

const (
	atNothing pathKind = iota
	atRPC
	atCard
	atOperation
)

// locate finds out what a request is for by its place: nothing or a slash is
// JSON-RPC, places below are the HTTP form's, and tell its versions apart. The
// version of a wire is empty for 1.0, which a header may say as well.
func (d *Server) locate(r *http.Request) (translators.Wire, pathKind) {
	wire := translators.Wire{Binding: form.Binding, Form: form.FormHTTP, Media: form.Media}
	path := strings.TrimSuffix(rest(r), "/")
	if strings.HasPrefix(path, form.Places03+"/") {
		wire.Version = form.Version03
	}
	switch path {
	case "":
		wire.Form = ""
		return wire, atRPC
	case CardPath:
		return wire, atCard
	}
	if _, _, found := form.Route(r.Method, path, wire.Version); !found {
		return wire, atNothing
	}
	wire.Verb, wire.Path = r.Method, path
	if r.URL.RawQuery != "" {
		wire.Path += "?" + r.URL.RawQuery
	}
	return wire, atOperation
}

// rest is what stands below the agent's own path, as it was escaped: a name of a
// task may hold a slash.
func rest(r *http.Request) string {
	if r.URL.RawPath == "" {
		return (&url.URL{Path: r.PathValue("rest")}).EscapedPath()
	}
	const above = 4 // "", agents, the agent, the server
	segments := strings.SplitN(r.URL.RawPath, "/", above+1)
	if len(segments) <= above {
		return ""
	}
	return "/" + segments[above]
}

// allowed judges the method of a request at its place.
func allowed(r *http.Request, wire translators.Wire) error {
	if wire.Path == "" {
		if r.Method != http.MethodPost {
			return &problem.MethodError{Allow: http.MethodPost, Hint: "POST a JSON-RPC message here; the card is at " + strings.TrimPrefix(CardPath, "/") + " below this URL"}
		}
		return nil
	}
	path, _, _ := strings.Cut(wire.Path, "?")
	if allow, _, _ := form.Route(r.Method, path, wire.Version); len(allow) > 0 {
		return &problem.MethodError{Allow: strings.Join(allow, ", ")}
	}
	return nil
}
