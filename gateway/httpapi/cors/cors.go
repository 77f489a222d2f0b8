// Package cors lets pages of other origins, which an operator lists, ask the gateway from a browser
// (Fetch standard, CORS protocol).
//
// There is no wildcard, and no page is let show what a browser holds of its user (cookies, client
// certificates): no answer has Access-Control-Allow-Credentials. A page authenticates with a header.
//
// Alternative considered: a library. It would decide per route what here holds for a listener, and what
// is left is two answers and three headers.
package cors

import (
	"net/http"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/gateway/transport"
)

const (
	methods = "GET, POST, PUT, PATCH, DELETE"
	// exposed are what a page reads of an answer beside its body.
	exposed  = "Aepb-Reversible, Allow, Deprecation, ETag, Execution-Context, Link, Location, Mcp-Session-Id, Retry-After, Sunset, WWW-Authenticate"
	lifetime = "600" // seconds for which a browser remembers what it was answered before a request

	maxNames = 1 << 10 // bytes of the names of header fields that a page asks for
)

// Handler answers pages of the origins, which may change, in front of a handler.
func Handler(origins func() []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		listed, values := origins(), r.Header.Values("Origin")
		if len(listed) > 0 {
			w.Header().Add("Vary", "Origin") // also of an answer to others
		}
		if len(values) != 1 || !slices.Contains(listed, values[0]) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Access-Control-Allow-Origin", values[0])
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			before(w, r)
			return
		}
		w.Header().Set("Access-Control-Expose-Headers", exposed)
		next.ServeHTTP(w, r.WithContext(transport.WithOrigin(r.Context())))
	})
}

// before answers what a browser asks before the request of a page. It says nothing of the target: the request itself is
// judged when it comes.
func before(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Add("Vary", "Access-Control-Request-Headers")
	if names := strings.Join(r.Header.Values("Access-Control-Request-Headers"), ","); len(names) <= maxNames && strings.Trim(strings.ToLower(names), "abcdefghijklmnopqrstuvwxyz0123456789-, ") == "" && names != "" {
		h.Set("Access-Control-Allow-Headers", names)
	}
	h.Set("Access-Control-Allow-Methods", methods)
	h.Set("Access-Control-Max-Age", lifetime)
	w.WriteHeader(http.StatusNoContent)
}
