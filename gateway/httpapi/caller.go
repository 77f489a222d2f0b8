package httpapi

import (
	"context"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
)

// Authenticator finds out who sent a request from its header fields; false if
// it shows no credential of that kind.
type Authenticator func(context.Context, credential.Request) (identity.Caller, bool, error)

// identify is step 2: the identity of the caller only. A client certificate was
// verified in the handshake whenever one was given (R3); a token may stand in
// for it, and beside it must name the same workload. Callers without either are
// anonymous where the operator lets them be, else unauthenticated.
func identify(deps PublicDeps) gin.HandlerFunc {
	return func(c *gin.Context) {
		address, _, err := net.SplitHostPort(c.Request.RemoteAddr)
		if err != nil {
			address = c.Request.RemoteAddr
		}
		caller, err := whoIs(c.Request, deps)
		if err != nil {
			problem.Write(c.Writer, c.Request, err)
			c.Abort()
			return
		}
		if caller.ID == "" && deps.Anonymous != "" {
			caller = identity.Caller{Peer: ect.Peer{ID: deps.Anonymous}, Anonymous: true}
		}
		c.Request = c.Request.WithContext(transport.WithCaller(c.Request.Context(), caller, address))
		c.Next()
	}
}

// whoIs is the caller by certificate, by token, or by both if they agree; the
// zero Caller: nobody.
func whoIs(r *http.Request, deps PublicDeps) (identity.Caller, error) {
	peer, certified := identity.PeerOf(r.TLS)
	request := credential.Request{Fields: r.Header.Values, Target: deps.BaseURL(r) + r.URL.EscapedPath()}
	for _, authenticate := range deps.Authenticators {
		caller, ok, err := authenticate(r.Context(), request)
		switch {
		case err != nil:
			return identity.Caller{}, err
		case ok && certified && caller.ID != peer.ID:
			return identity.Caller{}, &problem.IdentityError{Reason: "the certificate and the token name different workloads"}
		case ok:
			return caller, nil
		}
	}
	return identity.Caller{Peer: peer}, nil
}

// authenticated refuses callers without an identity of their own.
func authenticated(c *gin.Context) {
	caller := transport.CallerFrom(c.Request.Context())
	if caller.ID == "" || caller.Anonymous {
		problem.Write(c.Writer, c.Request, &problem.UnauthenticatedError{})
		c.Abort()
	}
}

// known refuses callers without any identity; anonymous is one where it is allowed.
func known(c *gin.Context) {
	if transport.CallerFrom(c.Request.Context()).ID == "" {
		problem.Write(c.Writer, c.Request, &problem.UnauthenticatedError{})
		c.Abort()
	}
}

// mount hands a gin route to a door, which knows the agent by path value. To
// the router an empty segment is a name too; to a door it would be no agent.
func mount(h http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		if c.Param("agent") == "" {
			problem.Write(c.Writer, c.Request, &problem.NotFoundError{What: "resource"})
			return
		}
		c.Request.SetPathValue("agent", c.Param("agent"))
		c.Request.SetPathValue("rest", c.Param("rest"))
		h.ServeHTTP(c.Writer, c.Request)
	}
}
