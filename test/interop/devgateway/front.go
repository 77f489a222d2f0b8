package devgateway

import (
	"net/http"
	"net/http/httputil"
)

// Front serves a reverse proxy in such a way that an answer may begin while its
// request is still being sent.
//
// Otherwise net/http closes the body of the request when the answer begins, and
// the proxy's transport, which looks for the end of a body after it has sent it,
// may only come to that then. It takes the closed body for a failure, and closes
// its own connection in the middle of the answer: on a busy machine, one stream
// in a dozen.
func Front(proxy *httputil.ReverseProxy) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 needs no permission
		proxy.ServeHTTP(w, r)
	})
}
