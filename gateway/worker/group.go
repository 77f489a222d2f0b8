package worker

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// DefaultMax is how many goroutines a Group runs unless it is told otherwise.
const DefaultMax = 10_000

// bytesPerPlace is how many bytes one place of a holder's share covers. Work that
// holds a larger message takes a place for each further part.
const bytesPerPlace = 32 << 10

// ErrBusy: the group runs as much work as it may, or is closed.
var ErrBusy = errors.New("worker: too much work goes on in the background")

// Group runs background work. It is safe for concurrent use.
type Group struct {
	shares *quota.Pool
	max    int
	mu     sync.Mutex
	ended  *sync.Cond // work has ended, or service has started
	busy   int
	serves int // of these, work that lasts as long as the group
	closed bool
	all    sync.WaitGroup
	ctx    context.Context //nolint:containedctx // the life of the group, not of a call
	cancel context.CancelFunc
}

// NewGroup makes a group of at most maxWork goroutines (zero: DefaultMax), of which one
// holder has at most perHolder (zero: a sixteenth of maxWork).
func NewGroup(maxWork, perHolder int) (*Group, error) {
	maxWork = cmp.Or(maxWork, DefaultMax)
	shares, err := quota.New(quota.Config{Resource: "calls and tasks that go on in the background", Total: int64(maxWork), PerHolder: int64(perHolder)})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	g := &Group{shares: shares, max: maxWork, ctx: ctx, cancel: cancel}
	g.ended = sync.NewCond(&g.mu)
	return g, nil
}

// OnRefusal sets what is called when a holder is refused. It is called before the
// group is used.
func (g *Group) OnRefusal(refused func()) { g.shares.OnRefusal(refused) }

// Context ends when the group closes.
func (g *Group) Context() context.Context { return g.ctx }

// BytesOfWork is what one place takes in memory: stacks, a record, and 32 KiB of a message
// in three copies.
const BytesOfWork = 128 << 10

// Usage says how full the group is.
func (g *Group) Usage() quota.Usage { return g.shares.Usage() }

// Reserve takes places of a holder's share for work that holds a message of so many
// bytes. Its error is a [quota.ExceededError].
func (g *Group) Reserve(holder string, bytes int) (*quota.Grant, error) {
	return g.shares.Take(limit.Identity(holder), 1+int64(bytes/bytesPerPlace))
}

// Go runs work that belongs to no holder. Its error is ErrBusy.
func (g *Group) Go(work func(context.Context)) error { return g.start(g.max, work) }

// GoFor runs work within a holder's share, see [Group.Reserve].
func (g *Group) GoFor(holder string, bytes int, work func(context.Context)) error {
	grant, err := g.Reserve(holder, bytes)
	if err != nil {
		return err
	}
	return g.GoGranted(grant, work)
}

// GoGranted runs work whose places were reserved. The places are given back when the
// work has ended, or did not start.
func (g *Group) GoGranted(grant *quota.Grant, work func(context.Context)) error {
	err := g.Go(func(ctx context.Context) {
		defer grant.Release()
		work(ctx)
	})
	if err != nil {
		grant.Release()
	}
	return err
}

// Serve runs work that lasts as long as the group. It uses one place more than there
// are for other work, so that a heartbeat can always start.
func (g *Group) Serve(work func(context.Context)) error {
	err := g.start(g.max+1, work)
	if err == nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.serves++
		g.ended.Broadcast()
	}
	return err
}

// start runs work if fewer than maxWork goroutines are busy.
func (g *Group) start(maxWork int, work func(context.Context)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.busy >= maxWork {
		return ErrBusy
	}
	g.busy++
	g.all.Go(func() {
		work(g.ctx)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.busy--
		g.ended.Broadcast()
	})
	return nil
}

// Drain waits until all work has ended, except work of [Group.Serve], or until ctx
// ends. It reports whether the work has ended.
func (g *Group) Drain(ctx context.Context) bool {
	defer context.AfterFunc(ctx, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.ended.Broadcast()
	})()
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.busy > g.serves && ctx.Err() == nil {
		g.ended.Wait()
	}
	return g.busy <= g.serves
}

// Bind returns a context that ends with ctx and with the group. release gives back
// what that takes.
func (g *Group) Bind(ctx context.Context) (bound context.Context, release func()) {
	ctx, cancel := context.WithCancel(ctx)
	unlink := context.AfterFunc(g.ctx, cancel)
	return ctx, func() { unlink(); cancel() }
}

// Detach returns a context with the values of ctx that ends with the group alone.
func (g *Group) Detach(ctx context.Context) context.Context {
	return detached{g.ctx, context.WithoutCancel(ctx)}
}

// Close ends the work and waits until it has ended.
func (g *Group) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.cancel()
	g.all.Wait()
}

// detached has the values of one context and the end of another.
type detached struct {
	context.Context                 //nolint:containedctx // of the group
	values          context.Context //nolint:containedctx // this is one
}

// Value implements [context.Context].
func (d detached) Value(key any) any {
	if v := d.Context.Value(key); v != nil { // so package context finds its own parent
		return v
	}
	return d.values.Value(key)
}

// Pause waits; false: ctx has ended.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Every calls do whenever so much time is over, until ctx ends.
func Every(ctx context.Context, d time.Duration, do func()) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}
