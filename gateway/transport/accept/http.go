package accept

import (
	"context"
	"net"
	"net/http"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
)

type connKey struct{}

// Context lets [Handler] find the connection of a request: http.Server.ConnContext.
func Context(ctx context.Context, c net.Conn) context.Context {
	if found := From(c); found != nil {
		return context.WithValue(ctx, connKey{}, found)
	}
	return ctx
}

// Prove says of the connection of a request that its caller has proved an identity, as
// with a token ([Conn.Prove]).
func Prove(ctx context.Context, identity string) {
	conn, _ := ctx.Value(connKey{}).(*Conn)
	conn.Prove(identity)
}

// Handler begins each connection with its first request, and counts its requests. A
// connection whose identity has too many is refused with 429 and ends.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connKey{}).(*Conn)
		if !conn.Begun() {
			peer, _ := identity.PeerOf(r.TLS)
			if err := conn.Begin(string(peer.ID)); err != nil {
				w.Header().Set("Connection", "close")
				problem.Write(w, r, err)
				return
			}
		}
		conn.Enter()
		defer conn.Leave()
		next.ServeHTTP(w, r)
	})
}
