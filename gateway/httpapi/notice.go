package httpapi

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/gateway/transport"
)

// announced has every answer of a native door, refusals and streams included,
// say what is known of its agent's future (AEPB, Lifecycle States: in all
// responses).
func announced(deps PublicDeps) gin.HandlerFunc {
	return func(c *gin.Context) {
		if deps.Notice == nil {
			return
		}
		ctx, agent := c.Request.Context(), c.Param("agent")
		c.Writer = &announcer{ResponseWriter: c.Writer, announce: func(h http.Header) {
			deps.Notice(transport.Asking(ctx, agent, "")).Announce(h)
		}}
	}
}

// announcer completes a header just before it goes out.
type announcer struct {
	gin.ResponseWriter
	announce func(http.Header)
	done     bool
}

// WriteHeader implements http.ResponseWriter.
func (a *announcer) WriteHeader(code int) {
	a.complete()
	a.ResponseWriter.WriteHeader(code)
}

// Write implements io.Writer.
func (a *announcer) Write(data []byte) (int, error) {
	a.complete()
	return a.ResponseWriter.Write(data)
}

func (a *announcer) complete() {
	if !a.done {
		a.done = true
		a.announce(a.Header())
	}
}

// Unwrap lets an http.ResponseController reach the connection.
func (a *announcer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
