package uacp

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/uacp"
)

// Config bounds a listener. A zero field takes its default.
type Config struct {
	Handshake   time.Duration // for TLS; 5 s
	Idle        time.Duration // without a whole frame; 2 min
	Write       time.Duration // for one reply, and for the rest of a frame once it has begun; 10 s
	Connections int           // at once, of callers with an identity; 1024. More are told so, and closed
	InFlight    int           // requests at once on a connection; 16. More wait unread

	PerCaller    int // connections of one caller; half of all
	Unidentified int // besides, in their handshake; 1024. For one more the oldest of the address with most is closed
	PerAddress   int // of these, from one address; a quarter of them
}

func (c Config) withDefaults() Config {
	quota.OrDefault(&c.Handshake, 5*time.Second)
	quota.OrDefault(&c.Idle, 2*time.Minute)
	quota.OrDefault(&c.Write, 10*time.Second)
	quota.ConnectionDefaults(&c.Connections, &c.InFlight, &c.PerCaller, &c.Unidentified, &c.PerAddress)
	return c
}

// bound makes the pools of connections.
func (l *Listener) bound(c Config) (err error) {
	l.identified, err = quota.NewPlaces(quota.Config{Resource: "µACP connections", Total: int64(c.Connections), PerHolder: int64(c.PerCaller)})
	if err == nil {
		l.unidentified, err = quota.NewPlaces(quota.Config{
			Resource: "µACP handshakes", Total: int64(c.Unidentified), PerHolder: int64(c.PerAddress),
		})
	}
	return err
}

// Usage says how many connections there are: of identified callers, and in their handshake.
func (l *Listener) Usage() []quota.Usage {
	return []quota.Usage{l.identified.Usage(), l.unidentified.Usage()}
}

// begin takes the place of a connection whose caller is not known yet. When there are too
// many, one of the address with most is closed, the oldest: an honest handshake takes
// milliseconds, so silent connections lock out no others, not even at their address.
func (l *Listener) begin(conn net.Conn) (*quota.Place, error) {
	return l.unidentified.Take(limit.Address(conn.RemoteAddr().String()), false, func() { _ = conn.Close() })
}

// turnAway answers the first frame of a caller that has too many connections with
// the reason. Until then, for as long as a handshake may take, the connection is
// counted among those of its address.
func (g *session) turnAway(ctx context.Context, conn *tls.Conn, reason error) {
	defer g.group.Wait()
	if conn.SetDeadline(time.Now().Add(g.l.deps.Config.Handshake)) != nil || ctx.Err() != nil {
		return
	}
	body, err := readFrame(conn)
	if err != nil {
		return
	}
	opened, _ := form.Open(body)
	wire := translators.Wire{Binding: form.Binding, Form: opened.Form(), Media: form.Media, Body: body}
	if m, _ := g.l.deps.Form.Decode(wire); m != nil {
		g.fail(wire, m, reason, nil)
	}
}

// read reads the next frame. Until it begins the connection may be idle; then the
// rest has to follow soon, also while something is observed.
func (g *session) read(ctx context.Context, conn *tls.Conn) ([]byte, error) {
	if err := readBy(ctx, conn, g.idle()); err != nil {
		return nil, err
	}
	length, err := readLength(conn)
	if err != nil {
		return nil, err
	}
	if err := readBy(ctx, conn, time.Now().Add(g.l.deps.Config.Write)); err != nil {
		return nil, err
	}
	return readBody(conn, length)
}

// readBy sets a read deadline, unless ctx has ended: its end sets one too, and
// that has to stay.
func readBy(ctx context.Context, conn *tls.Conn, deadline time.Time) error {
	if err := conn.SetReadDeadline(deadline); err != nil {
		return err
	}
	return ctx.Err()
}
