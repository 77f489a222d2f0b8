package httpapi

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
)

// linger is how long the last answer on a connection may take to leave, once its
// session has ended.
const linger = time.Second

// Sessions ends the connections of an HTTP server with the SVIDs that their
// clients showed (identity.Session). A server needs Conn as its ConnContext, State
// as its ConnState and Handler around its handler.
//
// Shortly before the end answers say that the connection closes, in HTTP/2 with
// GOAWAY. At the end an idle connection is closed, streams end
// (identity.Bound), a request under way is answered, and a further one gets 401.
type Sessions struct {
	source *identity.Source
	open   sync.Map // net.Conn to *connection
}

// NewSessions makes the sessions of one server, which verifies clients by the source.
func NewSessions(source *identity.Source) *Sessions { return &Sessions{source: source} }

type connection struct {
	net.Conn
	session *identity.Session

	mu      sync.Mutex
	idle    bool
	closing bool // soon
}

// Conn gives a new connection its session: http.Server.ConnContext.
func (s *Sessions) Conn(ctx context.Context, c net.Conn) context.Context {
	at := &connection{Conn: c, session: s.source.Session()}
	at.session.AfterEnd(at.end) // for good: a closed session does not end
	s.open.Store(c, at)
	return identity.WithSession(ctx, at.session)
}

// State follows the connections: http.Server.ConnState. A handler that
// takes a connection over (for a WebSocket) ends it, and closes its session.
func (s *Sessions) State(c net.Conn, state http.ConnState) {
	found, ok := s.open.Load(c)
	if !ok {
		return
	}
	at, _ := found.(*connection)
	switch state {
	case http.StateNew:
	case http.StateActive, http.StateIdle:
		at.rest(state == http.StateIdle)
	case http.StateHijacked:
		at.rest(false)
		s.open.Delete(c)
	case http.StateClosed:
		at.session.Close()
		s.open.Delete(c)
	}
}

// rest notes whether a connection has nothing to do.
func (c *connection) rest(idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = idle
	if idle && c.session.Ended() {
		c.closing = true
		time.AfterFunc(linger, func() { _ = c.Close() })
	}
}

// end closes a connection that has nothing to do; others are closed once they
// have nothing more (rest).
func (c *connection) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle && !c.closing {
		_ = c.Close()
	}
}

// Handler refuses what comes after the end of a session.
func (s *Sessions) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		session := identity.SessionFrom(r.Context())
		session.Begin(r.TLS)
		if session.Ending() || session.Ended() {
			w.Header().Set("Connection", "close")
		}
		if session.Ended() {
			problem.Write(w, r, &problem.UnauthenticatedError{})
			return
		}
		next.ServeHTTP(w, r)
	})
}
