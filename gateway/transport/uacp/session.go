package uacp

import (
	"context"
	"crypto/tls"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
)

// session is a context that ends with the SVID that the client showed. Reading
// stops then; what is being answered is answered. leave is called when the
// connection is closed.
func (l *Listener) session(ctx context.Context, conn *tls.Conn) (_ context.Context, leave func()) {
	if l.deps.Session == nil {
		return ctx, func() {}
	}
	session, state := l.deps.Session(), conn.ConnectionState()
	session.Begin(&state)
	ctx, cancel := session.Bound(identity.WithSession(ctx, session))
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	return ctx, func() { stop(); cancel(); session.Close() }
}
