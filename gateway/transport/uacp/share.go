package uacp

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
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

	PerCaller    int // connections of one caller; a sixteenth of all
	Unidentified int // besides, in their handshake; 256. For one more the oldest is closed
	PerAddress   int // of these, from one address; a quarter of them
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		value *time.Duration
		is    time.Duration
	}{{&c.Handshake, 5 * time.Second}, {&c.Idle, 2 * time.Minute}, {&c.Write, 10 * time.Second}} {
		if *d.value <= 0 {
			*d.value = d.is
		}
	}
	if c.Connections <= 0 {
		c.Connections = 1024
	}
	if c.InFlight <= 0 {
		c.InFlight = 16
	}
	if c.Unidentified <= 0 {
		c.Unidentified = 256
	}
	if c.PerAddress <= 0 {
		c.PerAddress = max(1, c.Unidentified/4)
	}
	return c
}

// bound makes the pools of connections.
func (l *Listener) bound(c Config) (err error) {
	l.identified, err = quota.New(quota.Config{Resource: "µACP connections", Total: int64(c.Connections), PerHolder: int64(c.PerCaller)})
	if err == nil {
		l.unidentified.pool, err = quota.New(quota.Config{
			Resource: "µACP handshakes", Total: int64(c.Unidentified), PerHolder: int64(c.PerAddress),
		})
	}
	return err
}

// handshakes are connections whose caller is not known yet. When their number or
// that of an address is reached, the oldest one is closed for the next: an
// honest handshake takes milliseconds, so silent connections do not lock out other
// callers, not even at the same address.
type handshakes struct {
	pool *quota.Pool // by address

	mu   sync.Mutex
	open []*handshake // the oldest first
}

type handshake struct {
	holder string
	conn   net.Conn
	grant  *quota.Grant
}

// begin makes room for a connection.
func (h *handshakes) begin(conn net.Conn) (*handshake, error) {
	one := &handshake{holder: limit.Address(conn.RemoteAddr().String()), conn: conn}
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		grant, err := h.pool.Take(one.holder, 1)
		if err == nil {
			one.grant = grant
			h.open = append(h.open, one)
			return one, nil
		}
		if !h.evict(one.holder) {
			return nil, err
		}
	}
}

// evict closes the oldest connection of a holder, or of all if it has none; false:
// there is none at all. The lock is held.
func (h *handshakes) evict(holder string) bool {
	if len(h.open) == 0 {
		return false
	}
	i := max(0, slices.IndexFunc(h.open, func(one *handshake) bool { return one.holder == holder }))
	h.open[i].grant.Release()
	_ = h.open[i].conn.Close()
	h.open = slices.Delete(h.open, i, i+1)
	return true
}

// end gives back what a connection was granted.
func (h *handshakes) end(one *handshake) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one.grant.Release()
	h.open = slices.DeleteFunc(h.open, func(other *handshake) bool { return other == one })
}

// holder is who a connection is counted for: its caller, or, for anonymous callers
// of a development gateway, its address.
func holder(ctx context.Context) string {
	if caller := transport.CallerFrom(ctx); caller.ID != "" && !caller.Anonymous {
		return limit.Identity(string(caller.ID))
	}
	return limit.Address(transport.AddressFrom(ctx))
}

// turnAway answers the first frame of a caller that has too many connections with
// the reason. Until then, for as long as a handshake may take, the connection is
// counted among those of its address.
func (g *guest) turnAway(ctx context.Context, conn *tls.Conn, reason error) {
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
func (g *guest) read(ctx context.Context, conn *tls.Conn) ([]byte, error) {
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
