package httpapi

import (
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
)

// identify is step 2: the transport identity only. A client certificate was
// verified in the handshake whenever one was given (R3). Callers without one
// are anonymous where the operator lets them be, else unauthenticated.
func identify(anonymous ect.Identity) gin.HandlerFunc {
	return func(c *gin.Context) {
		address, _, err := net.SplitHostPort(c.Request.RemoteAddr)
		if err != nil {
			address = c.Request.RemoteAddr
		}
		var caller identity.Caller
		if peer, ok := identity.PeerOf(c.Request.TLS); ok {
			caller.Peer = peer
		} else if anonymous != "" {
			caller = identity.Caller{Peer: ect.Peer{ID: anonymous}, Anonymous: true}
		}
		c.Request = c.Request.WithContext(transport.WithCaller(c.Request.Context(), caller, address))
		c.Next()
	}
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
