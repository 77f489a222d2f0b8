package accept

import (
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
	Connections  int           // open at once of callers with an identity; a quarter as many strangers', and a quarter as many new ones, each at least 1
	PerAddress   int           // of strangers, and of new ones; 0: no limit
	PerIdentity  int           // at least 1
	FirstRequest time.Duration // from accepting a connection until its first request
	StrangerIdle time.Duration // for which a stranger's connection may have no request under way
	WriteWait    time.Duration // in which a reader must take a part of what is written
}

// Validate refuses bounds that bound nothing.
func (c Config) Validate() error {
	if c.FirstRequest <= 0 || c.StrangerIdle <= 0 || c.WriteWait <= 0 || c.PerAddress < 0 || c.PerIdentity < 1 {
		return errors.New("accept: expected a limit for each identity, and times above zero")
	}
	return errors.Join(c.byAddress().Validate(), c.byIdentity().Validate())
}

func (c Config) byAddress() quota.Config {
	total := int64(max(1, c.Connections/4))
	out := quota.Config{Resource: "open connections", Total: total, PerHolder: total}
	if c.PerAddress > 0 {
		out.PerHolder = min(total, int64(c.PerAddress))
	}
	return out
}

func (c Config) byIdentity() quota.Config {
	return quota.Config{Resource: "open connections", Total: int64(c.Connections), PerHolder: min(int64(c.Connections), int64(c.PerIdentity))}
}

// Gate counts the connections of its listeners. It is safe for concurrent use.
type Gate struct {
	config     atomic.Pointer[Config]
	fresh      *quota.Places // connections before their first request, by address
	strangers  *quota.Places // those whose caller has proved no identity, by address
	identified *quota.Places // the others, by identity
}

// New makes a gate without connections.
func New(config Config) (*Gate, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	g := &Gate{}
	var errs [3]error
	g.fresh, errs[0] = quota.NewPlaces(config.byAddress())
	g.strangers, errs[1] = quota.NewPlaces(config.byAddress())
	g.identified, errs[2] = quota.NewPlaces(config.byIdentity())
	g.config.Store(&config)
	return g, errors.Join(errs[:]...)
}

// Reconfigure changes the bounds for new connections, and how long old ones wait.
// On an error nothing changes.
func (g *Gate) Reconfigure(config Config) error {
	if err := config.Validate(); err != nil {
		return err
	}
	g.config.Store(&config)
	return errors.Join(g.fresh.Reconfigure(config.byAddress()), g.strangers.Reconfigure(config.byAddress()), g.identified.Reconfigure(config.byIdentity()))
}

// OnRefusal has f called for each connection over a limit, to count it.
func (g *Gate) OnRefusal(f func()) {
	for _, places := range []*quota.Places{g.fresh, g.strangers, g.identified} {
		places.OnRefusal(f)
	}
}

// Usage is how many connections a gate has.
type Usage struct {
	Fresh      quota.Usage // before their first request
	Strangers  quota.Usage // whose caller has proved no identity
	Identified quota.Usage
}

// Usage counts the connections that are open.
func (g *Gate) Usage() Usage {
	return Usage{Fresh: g.fresh.Usage(), Strangers: g.strangers.Usage(), Identified: g.identified.Usage()}
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
	config := g.config.Load()
	place, err := g.fresh.Take(config.holder(inner), false, func() { _ = inner.Close() })
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: inner, gate: g, place: place}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endsAfter(config.FirstRequest)
	return c, nil
}

// holder is who a connection counts for while its caller has proved no identity.
func (c Config) holder(conn net.Conn) string {
	remote := conn.RemoteAddr().String()
	if c.PerAddress == 0 {
		return remote // with its port: every connection is a holder of its own
	}
	return limit.Address(remote)
}

// Conn is a connection that counts. While no deadline for writing is set, each
// write has one of its own, so that a reader that never reads ends the connection
// and one that is slow does not.
type Conn struct {
	net.Conn
	gate  *Gate
	begun atomic.Bool
	timed atomic.Bool // its user has set a deadline for writing

	mu       sync.Mutex
	place    *quota.Place // among the fresh connections, the strangers' or the identified
	atWork   bool         // bytes came of which this side has not asked for more since; only before it begins
	requests int          // under way
	stranger bool         // its caller has asked something and proved no identity
	refused  bool         // it proved one that has too many
	timer    *time.Timer  // ends it when nothing is asked; nil: it may be idle for as long as its server lets it
	closing  bool
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
// empty: none. From then on the connection counts for that identity, or among those of
// strangers. An [*quota.ExceededError] says that there are too many: close the connection
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
	return c.move(identity)
}

// Prove says that the caller of a begun connection has proved an identity after all, as
// with a token. If that identity has too many connections, the connection stays among
// those of strangers.
func (c *Conn) Prove(identity string) {
	if c == nil || identity == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stranger && !c.refused && !c.closing {
		c.refused = c.move(identity) != nil // it is answered all the same
	}
}

// move takes a place for an identity, or a stranger's. The lock is held.
func (c *Conn) move(identity string) error {
	places, holder := c.gate.strangers, c.gate.config.Load().holder(c.Conn)
	if identity != "" {
		places, holder = c.gate.identified, limit.Identity(identity)
	}
	place, err := places.Take(holder, c.requests > 0, func() { _ = c.Conn.Close() })
	if err != nil {
		return err
	}
	c.place.Release()
	c.place, c.stranger, c.atWork = place, identity == "", false
	c.stopTimer()
	c.begun.Store(true)
	c.wait()
	return nil
}

// wait ends a stranger's connection, or one that never began, if no request comes. The
// lock is held.
func (c *Conn) wait() {
	if (c.stranger || !c.begun.Load()) && c.requests == 0 {
		c.endsAfter(c.gate.config.Load().StrangerIdle)
	}
}

// endsAfter closes the connection after a time, unless a request is under way then or it
// has another place. The lock is held.
func (c *Conn) endsAfter(d time.Duration) {
	c.stopTimer()
	place := c.place
	c.timer = time.AfterFunc(d, func() { c.closeUnused(place) })
}

// stopTimer lets the connection be idle. The lock is held.
func (c *Conn) stopTimer() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// closeUnused closes the connection if it has that place and no request is under way.
func (c *Conn) closeUnused(place *quota.Place) {
	c.mu.Lock()
	unused := c.place == place && c.requests == 0
	if unused {
		place.Release() // no Enter finds it in use any more
	}
	c.mu.Unlock()
	if unused {
		_ = c.Close()
	}
}

// Enter counts a request that is under way, until [Conn.Leave]: meanwhile the connection
// does not give way to others. Neither does anything to a nil Conn.
func (c *Conn) Enter() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests++; c.requests > 1 {
		return
	}
	c.place.Use()
	if c.stranger {
		c.stopTimer()
	}
}

// Leave ends what [Conn.Enter] began.
func (c *Conn) Leave() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests--; c.requests == 0 && !c.closing {
		c.place.Rest()
		c.wait()
	}
}

// Begun reports whether [Conn.Begin] has nothing to do any more.
func (c *Conn) Begun() bool { return c == nil || c.begun.Load() }

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closing = true
	c.stopTimer()
	c.place.Release()
	c.mu.Unlock()
	return c.Conn.Close()
}

// Read implements net.Conn. Before the connection begins, it does not give way from when
// bytes have come until more are asked for: its caller waits for this side then.
func (c *Conn) Read(b []byte) (int, error) {
	if c.begun.Load() {
		return c.Conn.Read(b)
	}
	c.works(false)
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.works(true)
	}
	return n, err
}

// works says whether it is this side that has something to do.
func (c *Conn) works(now bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.atWork == now || c.begun.Load():
		return
	case now:
		c.place.Use()
	default:
		c.place.Rest()
	}
	c.atWork = now
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
