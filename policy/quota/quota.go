package quota

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config bounds one resource, in the unit of that resource.
type Config struct {
	Resource  string // its name in errors, in the plural: "open connections"
	Total     int64  // that all holders may hold together, at least 1
	PerHolder int64  // that one holder may hold; 0: a sixteenth of Total, at least 1
	// Even lets a holder have PerHolder only while the pool is unused, and the same proportion of what
	// is free otherwise: however much others hold, the next holder gets a part of the rest. Without
	// it the last quarter is kept for holders of little.
	Even bool
}

// Validate checks the bounds. It refuses those without effect.
func (c Config) Validate() error {
	if c.Resource == "" || c.Total < 1 || c.PerHolder < 0 || c.PerHolder > c.Total {
		return fmt.Errorf("quota: %q: total %d, per holder %d: expected a name, a total of at least 1, and at most as much per holder", c.Resource, c.Total, c.PerHolder)
	}
	return nil
}

// complete returns the configuration with its defaults, or the error of [Config.Validate].
func (c Config) complete() (Config, error) {
	c.PerHolder = cmp.Or(c.PerHolder, max(1, c.Total/16))
	return c, c.Validate()
}

// Admit checks whether a holder of has units may get n more of a resource of which used are taken.
// It is the rule of a [Pool], for callers that count themselves. nil: it may.
func (c Config) Admit(used, has, n int64) *ExceededError {
	has += n
	free := c.Total - used - n
	switch {
	case n == 0:
		return nil
	case n < 0 || has > c.PerHolder:
		return &ExceededError{Resource: c.Resource, Own: true}
	case free < 0,
		!c.Even && free < c.Total/4 && has > max(1, c.PerHolder/8),
		c.Even && !c.little(n) && has*(c.Total-c.PerHolder) > c.PerHolder*free:
		return &ExceededError{Resource: c.Resource}
	}
	return nil
}

// little reports whether n is so small that a holder of much may still have it, to finish its work.
func (c Config) little(n int64) bool { return n <= c.Total/512 }

// bounds are those of a resource, and who counts refusals.
type bounds struct {
	refused atomic.Pointer[func()]

	mu     sync.Mutex
	config Config
}

// Reconfigure changes the bounds for what is taken from now on. What was granted stays
// granted; a holder above its new limit gets nothing more until it is below. On an error
// nothing changes.
func (b *bounds) Reconfigure(config Config) error {
	config, err := config.complete()
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.config = config
	return nil
}

// OnRefusal has f called for each share that is refused from now on, to count it. f
// must not block.
func (b *bounds) OnRefusal(f func()) { b.refused.Store(&f) }

func (b *bounds) refuse() {
	if refused := b.refused.Load(); refused != nil {
		(*refused)()
	}
}

// Pool grants shares of one resource. It is safe for concurrent use.
type Pool struct {
	bounds

	used    int64
	current map[string]int64
	waiting []*waiter        // in the order in which they came
	served  map[string]int64 // of the holders that wait: the turn in which each was served last
	turns   int64
}

// waiter waits for units; the pool closes ready when its grant has them.
type waiter struct {
	grant *Grant
	n     int64
	ready chan struct{}
}

// New makes a pool of which nothing is held.
func New(config Config) (*Pool, error) {
	p := &Pool{current: map[string]int64{}, served: map[string]int64{}}
	if err := p.Reconfigure(config); err != nil {
		return nil, err
	}
	return p, nil
}

// Take grants n units to a holder until the grant is released. An
// [*ExceededError] says which bound is in the way; nothing is granted then.
func (p *Pool) Take(holder string, n int64) (*Grant, error) {
	g := &Grant{pool: p, holder: holder}
	if err := g.Grow(n); err != nil {
		return nil, err
	}
	return g, nil
}

// take books n units; the lock is not held.
func (p *Pool) take(holder string, n int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if refusal := p.refusal(holder, n); refusal != nil {
		return refusal
	}
	p.book(holder, n)
	return nil
}

// refusal is why a holder does not get n units more; nil: it may. The lock is held.
func (p *Pool) refusal(holder string, n int64) error {
	c, has := p.config, p.current[holder]
	if refusal := c.Admit(p.used, has, n); refusal != nil {
		return refusal
	}
	if has += n; !c.little(n) && has > c.Total/4 && p.waits(holder) {
		return &ExceededError{Resource: c.Resource}
	}
	return nil
}

// waits reports whether another holder waits. The lock is held.
func (p *Pool) waits(holder string) bool {
	return slices.ContainsFunc(p.waiting, func(w *waiter) bool { return w.grant.holder != holder })
}

func (p *Pool) book(holder string, n int64) {
	if n > 0 { // who holds nothing has no entry
		p.used += n
		p.current[holder] += n
	}
}

// give returns n units that take granted.
func (p *Pool) give(holder string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= n
	if p.current[holder] -= n; p.current[holder] == 0 {
		delete(p.current, holder)
	}
	p.serve()
}

// serve gives those that wait what is free: of the holders for which there is enough, first the one that
// was served the longest ago, and of its waiters the first that came. The lock is held.
func (p *Pool) serve() {
	for {
		next := p.nextWaiter()
		if next < 0 {
			return
		}
		w := p.waiting[next]
		p.waiting = slices.Delete(p.waiting, next, next+1)
		p.turns++
		if holder := w.grant.holder; p.waitsFor(holder) > 0 {
			p.served[holder] = p.turns
		} else {
			delete(p.served, holder)
		}
		p.book(w.grant.holder, w.n)
		close(w.ready)
	}
}

// nextWaiter is the index of the waiter that is served now; -1: there is none.
func (p *Pool) nextWaiter() int {
	all := p.waiting
	p.waiting = nil // what waits is not before itself
	defer func() { p.waiting = all }()
	next, seen := -1, map[string]bool{}
	for i, w := range all {
		holder := w.grant.holder
		if !seen[holder] && p.refusal(holder, w.n) == nil && (next < 0 || p.served[holder] < p.served[all[next].grant.holder]) {
			next = i
		}
		seen[holder] = true
	}
	return next
}

func (p *Pool) resource() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.config.Resource
}

// Waiting is how many grants of a holder wait.
func (p *Pool) Waiting(holder string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waitsFor(holder)
}

func (p *Pool) waitsFor(holder string) (n int) {
	for _, w := range p.waiting {
		if w.grant.holder == holder {
			n++
		}
	}
	return n
}

// Usage is what is held of a pool.
type Usage struct {
	Used    int64
	Total   int64
	Holders int
}

// Ratio is the part of the bound that is held.
func (u Usage) Ratio() float64 { return float64(u.Used) / float64(max(1, u.Total)) }

// Usage says how full the pool is.
func (p *Pool) Usage() Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Usage{Used: p.used, Total: p.config.Total, Holders: len(p.current)}
}

// Grant is what a holder was granted. It is safe for concurrent use.
type Grant struct {
	pool   *Pool
	holder string

	mu       sync.Mutex
	n        int64
	released bool
}

// Shrink gives n units of the grant back, at most all of them.
func (g *Grant) Shrink(n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n = min(n, g.n)
	if g.released || n <= 0 {
		return
	}
	g.pool.give(g.holder, n)
	g.n -= n
}

// Grow adds n units to the grant. On an [*ExceededError] the grant is as before.
// A released grant does not grow.
func (g *Grant) Grow(n int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.released {
		return &ExceededError{Resource: g.pool.resource(), Own: true}
	}
	if err := g.pool.take(g.holder, n); err != nil {
		g.pool.refuse()
		return err
	}
	g.n += n
	return nil
}

// GrowWithin is Grow, but waits until there is enough, and takes turns with other holders. Errors: an
// [*ExceededError] if so much is never granted, or the cause of the end of ctx. One call at a time.
func (g *Grant) GrowWithin(ctx context.Context, n int64) error {
	if n > g.pool.most()-g.Current() {
		return g.Grow(n)
	}
	w := &waiter{grant: g, n: n, ready: make(chan struct{})}
	g.pool.wait(w)
	select {
	case <-w.ready:
	case <-ctx.Done():
		if g.pool.leave(w) {
			return context.Cause(ctx)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.released {
		g.pool.give(g.holder, n)
		return &ExceededError{Resource: g.pool.resource(), Own: true}
	}
	g.n += n
	return nil
}

// Current returns how many units the grant has.
func (g *Grant) Current() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}

// most is what one holder may hold.
func (p *Pool) most() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.config.PerHolder
}

func (p *Pool) wait(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = append(p.waiting, w)
	p.serve()
}

// leave takes a waiter out; false: it was served meanwhile.
func (p *Pool) leave(w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(p.waiting, w)
	if at < 0 {
		return false
	}
	p.waiting = slices.Delete(p.waiting, at, at+1)
	p.serve()
	return true
}

// Release gives everything back. A second Release does nothing.
func (g *Grant) Release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.released {
		return
	}
	g.released = true
	if g.n > 0 {
		g.pool.give(g.holder, g.n)
	}
}

// ExceededError refuses a share. It passes when the holder, or others, give back
// what they hold.
type ExceededError struct {
	Resource string // what there is not enough of
	Own      bool   // the holder is at its own limit; else all of it is in use
}

func (e *ExceededError) Error() string {
	if e.Own {
		return "quota: this caller holds too many " + e.Resource + ": end some and try again"
	}
	return "quota: too many " + e.Resource + " are in use by all callers: try again later"
}

// OrDefault gives a bound of zero or less its default.
func OrDefault[T int | time.Duration](bound *T, value T) {
	if *bound <= 0 {
		*bound = value
	}
}

// ConnectionDefaults are the defaults of what is open at once at a listener of connections
// that stay: 1024 with an identity, a half of them of one caller, 16 requests on each; and
// 1024 without an identity yet, a quarter of them from one address.
func ConnectionDefaults(connections, inFlight, perCaller, unidentified, perAddress *int) {
	OrDefault(connections, 1024)
	OrDefault(inFlight, 16)
	OrDefault(perCaller, max(1, *connections/2))
	OrDefault(unidentified, 1024)
	OrDefault(perAddress, max(1, *unidentified/4))
}
