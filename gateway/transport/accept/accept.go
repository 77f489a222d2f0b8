package accept

import (
	"container/list"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// Config bounds the connections of all listeners of one [Gate].
type Config struct {
	Connections  int           // open at once of callers with an identity; half as many of those without, at least 1
	PerAddress   int           // of callers without an identity; 0: no limit
	PerIdentity  int           // at least 1
	FirstRequest time.Duration // from accepting a connection until its first request
	WriteWait    time.Duration // in which a reader must take a part of what is written
}

// Validate refuses bounds that bound nothing.
func (c Config) Validate() error {
	if c.FirstRequest <= 0 || c.WriteWait <= 0 || c.PerAddress < 0 || c.PerIdentity < 1 {
		return errors.New("accept: expected a limit for each identity, and times above zero")
	}
	return errors.Join(c.unidentified().Validate(), c.identified().Validate())
}

func (c Config) unidentified() quota.Config {
	total := int64(max(1, c.Connections/2))
	out := quota.Config{Resource: "open connections", Total: total, PerHolder: total}
	if c.PerAddress > 0 {
		out.PerHolder = min(total, int64(c.PerAddress))
	}
	return out
}

func (c Config) identified() quota.Config {
	return quota.Config{Resource: "open connections", Total: int64(c.Connections), PerHolder: min(int64(c.Connections), int64(c.PerIdentity))}
}

// Gate counts the connections of its listeners. It is safe for concurrent use.
type Gate struct {
	config       atomic.Pointer[Config]
	unidentified *quota.Pool
	identified   *quota.Pool

	mu      sync.Mutex
	waiting *list.List // of *Conn before their first request, the oldest first
}

// New makes a gate without connections.
func New(config Config) (*Gate, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	g := &Gate{waiting: list.New()}
	var err error
	if g.unidentified, err = quota.New(config.unidentified()); err != nil {
		return nil, err
	}
	if g.identified, err = quota.New(config.identified()); err != nil {
		return nil, err
	}
	g.config.Store(&config)
	return g, nil
}

// Reconfigure changes the bounds for new connections, and how long old ones wait.
// On an error nothing changes.
func (g *Gate) Reconfigure(config Config) error {
	if err := config.Validate(); err != nil {
		return err
	}
	g.config.Store(&config)
	return errors.Join(g.unidentified.Reconfigure(config.unidentified()), g.identified.Reconfigure(config.identified()))
}

// OnRefusal has f called for each connection over a limit, to count it.
func (g *Gate) OnRefusal(f func()) {
	g.unidentified.OnRefusal(f)
	g.identified.OnRefusal(f)
}

// Listen bounds the connections of a listener. It belongs below TLS.
func (g *Gate) Listen(l net.Listener) net.Listener { return &listener{Listener: l, gate: g} }

type listener struct {
	net.Listener
	gate *Gate
}

// Accept implements net.Listener. A connection over a limit is closed, and the
// next one is waited for.
func (l *listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		conn, err := l.gate.admit(inner)
		if err == nil {
			return conn, nil
		}
		_ = inner.Close() // it was never used
	}
}

func (g *Gate) admit(inner net.Conn) (*Conn, error) {
	config, remote := g.config.Load(), inner.RemoteAddr().String()
	holder := limit.Address(remote)
	if config.PerAddress == 0 {
		holder = remote // with its port: every connection is a holder of its own
	}
	share, err := g.unidentified.Take(holder, 1)
	if full, ok := errors.AsType[*quota.ExceededError](err); ok && !full.Own && g.closeOldest() {
		share, err = g.unidentified.Take(holder, 1)
	}
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: inner, gate: g, share: share}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.first = time.AfterFunc(config.FirstRequest, func() { _ = c.Close() })
	g.mu.Lock()
	defer g.mu.Unlock()
	c.place = g.waiting.PushBack(c)
	return c, nil
}

// closeOldest closes the connection that has waited longest for its first request,
// so that connections on which nothing is asked do not keep out callers that ask
// something; false: there is none.
func (g *Gate) closeOldest() bool {
	g.mu.Lock()
	front := g.waiting.Front()
	if front == nil {
		g.mu.Unlock()
		return false
	}
	oldest, _ := front.Value.(*Conn)
	g.mu.Unlock()
	_ = oldest.Close() // it is being given up
	return true
}

// settle takes a connection out of those that wait for their first request.
func (g *Gate) settle(c *Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.place != nil {
		g.waiting.Remove(c.place)
		c.place = nil
	}
}

// Conn is a connection that counts. While no deadline for writing is set, each
// write has one of its own, so that a reader that never reads ends the connection
// and one that is slow does not.
type Conn struct {
	net.Conn
	gate    *Gate
	begun   atomic.Bool
	timed   atomic.Bool // its user has set a deadline for writing
	mu      sync.Mutex
	share   *quota.Grant
	first   *time.Timer
	closing bool
	place   *list.Element // in gate.waiting, guarded by its lock; nil: it does not wait
}

// From finds the counted connection below others, such as TLS; nil: there is none.
func From(c net.Conn) *Conn {
	for {
		if found, ok := c.(*Conn); ok {
			return found
		}
		wrapper, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		c = wrapper.NetConn()
	}
}

// Begin says that the first request came, or that a handshake is over after which
// requests need not follow soon, and which identity the other end has proved;
// empty: none. From then on the connection counts for that identity. An
// [*quota.ExceededError] says that the identity has too many: close the connection
// then. A second Begin does nothing, and so does one of a nil Conn.
func (c *Conn) Begin(identity string) error {
	if c == nil || c.begun.Load() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun.Load() || c.closing {
		return nil
	}
	if identity != "" {
		share, err := c.gate.identified.Take(limit.Identity(identity), 1)
		if err != nil {
			return err
		}
		c.share.Release()
		c.share = share
	}
	c.first.Stop()
	c.begun.Store(true)
	c.gate.settle(c)
	return nil
}

// Begun reports whether [Conn.Begin] has nothing to do any more.
func (c *Conn) Begun() bool { return c == nil || c.begun.Load() }

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closing = true
	c.first.Stop()
	c.share.Release()
	c.gate.settle(c)
	c.mu.Unlock()
	return c.Conn.Close()
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	if !c.timed.Load() {
		if err := c.Conn.SetWriteDeadline(time.Now().Add(c.gate.config.Load().WriteWait)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
}

// SetWriteDeadline implements net.Conn. It stands instead of the connection's own
// until it is set to zero.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.timed.Store(!t.IsZero())
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	c.timed.Store(!t.IsZero())
	return c.Conn.SetDeadline(t)
}
