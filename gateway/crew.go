package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// maxCrew bounds the work that goes on after its request was answered, by default.
const maxCrew = 10_000

// messagePart is how many bytes of the message that began it work may hold for one
// place; what holds more takes a place for each further part.
const messagePart = 32 << 10

// ErrBusy: as much work goes on in the background as is allowed.
var ErrBusy = errors.New("gateway: too much goes on in the background")

// crew is the work that goes on after its request was answered. Whoever closes
// it waits for it.
type crew struct {
	shares  *quota.Pool // of the work that callers have here
	most    int         // of all work
	mu      sync.Mutex
	ended   *sync.Cond // one work has ended
	working int
	serving int // of these, those that last as long as the crew
	closed  bool
	all     sync.WaitGroup
	ctx     context.Context //nolint:containedctx // the life of the crew, not of a call
	cancel  context.CancelFunc
}

// newCrew makes a crew of so many, zero: maxCrew, of which one caller may have so many;
// zero: a sixteenth.
func newCrew(total, perCaller int) (*crew, error) {
	total = cmp.Or(total, maxCrew)
	shares, err := quota.New(quota.Config{Resource: "tasks that go on in the background", Total: int64(total), PerHolder: int64(perCaller)})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &crew{shares: shares, most: total, ctx: ctx, cancel: cancel}
	c.ended = sync.NewCond(&c.mu)
	return c, nil
}

// reserve takes a share for work of a caller that holds so many bytes of a message.
// [quota.ExceededError]: it has as much as it may, or all callers have.
func (c *crew) reserve(owner string, size int) (*quota.Grant, error) {
	return c.shares.Take(limit.Identity(owner), 1+int64(size/messagePart))
}

// runFor is run for the work of a caller, within its share.
func (c *crew) runFor(owner string, work func(context.Context)) error {
	return c.runHolding(owner, 0, work)
}

// runHolding is runFor for work that holds so many bytes of a message.
func (c *crew) runHolding(owner string, size int, work func(context.Context)) error {
	grant, err := c.reserve(owner, size)
	if err != nil {
		return err
	}
	return c.runGranted(grant, work)
}

// runGranted is run for work whose share was reserved. The share is given back when
// the work has ended, or does not begin.
func (c *crew) runGranted(grant *quota.Grant, work func(context.Context)) error {
	err := c.run(func(ctx context.Context) {
		defer grant.Release()
		work(ctx)
	})
	if err != nil {
		grant.Release()
	}
	return err
}

// run lets one more work. ErrBusy: there are too many, or the crew is closed.
func (c *crew) run(work func(context.Context)) error { return c.admit(c.most, work) }

// serve is run for work that lasts as long as the crew. What all the others need has
// room above their number, so that it is there also when there are too many.
func (c *crew) serve(work func(context.Context)) error {
	err := c.admit(c.most+1, work)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.serving++
		c.ended.Broadcast()
	}
	return err
}

// admit lets one more work if fewer do than there may be.
func (c *crew) admit(most int, work func(context.Context)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.working >= most {
		return ErrBusy
	}
	c.working++
	c.all.Go(func() {
		work(c.ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.working--
		c.ended.Broadcast()
	})
	return nil
}

// settle waits until all work has ended but that which lasts as long as the crew, or
// until ctx ends. It reports whether the work has ended.
func (c *crew) settle(ctx context.Context) bool {
	defer context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ended.Broadcast()
	})()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.working > c.serving && ctx.Err() == nil {
		c.ended.Wait()
	}
	return c.working <= c.serving
}

// bound is ctx, but ends with the crew too. release gives back what that takes.
func (c *crew) bound(ctx context.Context) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancel(ctx)
	unlink := context.AfterFunc(c.ctx, cancel)
	return ctx, func() { unlink(); cancel() }
}

// detached has the values of a request and ends with the crew alone.
type detached struct {
	context.Context                 //nolint:containedctx // of the crew
	values          context.Context //nolint:containedctx // this is one
}

// Value implements [context.Context].
func (d detached) Value(key any) any {
	if v := d.Context.Value(key); v != nil { // how package context finds what ends with it
		return v
	}
	return d.values.Value(key)
}

// close ends the work and waits until it has ended.
func (c *crew) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.all.Wait()
}

// requests counts those that are under way. Once it drains, no new work is taken.
type requests struct {
	mu       sync.Mutex
	under    int
	draining bool
	idle     chan struct{} // closed when none is under way; nil: it is not waited for
}

// enter counts a request until leave is called.
func (r *requests) enter() (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.under++
	return r.leave
}

func (r *requests) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.under--; r.under == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// drain lets no new work be taken, and waits until no request is under way or ctx ends.
func (r *requests) drain(ctx context.Context) {
	r.mu.Lock()
	r.draining = true
	if r.under == 0 {
		r.mu.Unlock()
		return
	}
	if r.idle == nil {
		r.idle = make(chan struct{})
	}
	idle := r.idle
	r.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

func (r *requests) settled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.under == 0
}

func (r *requests) drains() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draining
}

// inflight is the requests of sessions that are under way here, so that their
// clients can stop them, and none of them takes another's name.
type inflight struct {
	mu    sync.Mutex
	stops map[string]context.CancelFunc
}

func inflightKey(session string, id json.RawMessage) string { return session + "\x00" + string(id) }

// errInUse: an id names one request of a session (MCP, "Requests"): of two that
// are under way, nobody could say which one a cancellation means.
var errInUse = &canonical.Error{
	Code: canonical.CodeInvalidRequest, Message: "a request with this id is under way in this session",
}

// enter lists a request until leave is called; errInUse.
func (f *inflight) enter(ctx context.Context, session string, id json.RawMessage) (_ context.Context, leave func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	key := inflightKey(session, id)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stops == nil {
		f.stops = map[string]context.CancelFunc{}
	}
	if f.stops[key] != nil {
		cancel(nil)
		return nil, nil, errInUse
	}
	f.stops[key] = func() { cancel(errCanceled) }
	return ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.stops, key)
		cancel(nil)
	}, nil
}

// enter lists the message's request until its books are settled. Without a session
// nothing can name it, and every answer goes the way its request came: then the
// same id twice is nobody's business but its sender's.
func (g *Gateway) enter(ctx context.Context, x *exchange) (context.Context, error) {
	x.stopped = g.lifetime(ctx, x)
	session := x.call.Session
	if session == "" || len(x.wireID) == 0 {
		return x.stopped, nil
	}
	ctx, stop := context.WithCancelCause(x.stopped)
	ctx, leave, err := g.inflight.enter(ctx, session, x.wireID)
	if err != nil {
		stop(nil)
		return nil, err
	}
	key := x.haltKey(x.wireID)
	long := time.AfterFunc(grace, func() { g.overhear(ctx, key, func() { stop(errCanceled) }) })
	x.stopped, x.forget = ctx, func() { long.Stop(); leave(); stop(nil) }
	return ctx, nil
}

// stopped tells an error that came of the end of this process, or of the caller's own
// cancellation, from others.
func (g *Gateway) stopped(x *exchange, err error) error {
	if !errors.Is(err, context.Canceled) {
		return err
	}
	if g.crew.ctx.Err() != nil {
		return errStopped
	}
	if x.stopped != nil && errors.Is(context.Cause(x.stopped), errCanceled) {
		return errCanceled
	}
	return err
}

// stop ends a request; false: it is not under way here.
func (f *inflight) stop(session string, id json.RawMessage) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	stop, ok := f.stops[inflightKey(session, id)]
	if ok {
		stop()
	}
	return ok
}

// haltLife is how long it is kept that a request of which nobody has heard yet is
// to be stopped: it may have only begun, at another replica.
const haltLife = 2 * time.Second

func (x *exchange) haltKey(id json.RawMessage) EntryKey {
	return EntryKey{Kind: entryHalt, Group: x.call.Session, ID: ect.Hash(id), Owner: x.owner()} // of any length
}

// halt ends a request of a session wherever it is under way; false: nobody says
// yet that it is.
func (g *Gateway) halt(ctx context.Context, x *exchange, id json.RawMessage) (bool, error) {
	session := x.call.Session
	if g.inflight.stop(session, id) {
		return true, nil
	}
	if session == "" || len(id) == 0 {
		return false, nil
	}
	key := x.haltKey(id)
	for range 8 {
		entry, attended, err := g.Entries.Get(ctx, key)
		if err != nil {
			return false, &problem.RecordingError{Err: err}
		}
		until := g.Now().Add(haltLife)
		if attended {
			until = entry.Until
		}
		_, ok, err := g.Entries.Swap(ctx, key, entry.Revision, []byte(`{"Cancel":true}`), until)
		if err != nil {
			return false, &problem.RecordingError{Err: err}
		}
		if ok {
			return attended, nil
		}
	}
	return false, nil // it comes and goes: it is as good as over
}

// overhear stops a request when another replica is told to. Most requests are
// over before it is worth a write.
func (g *Gateway) overhear(ctx context.Context, key EntryKey, stop func()) {
	_ = g.attending.runFor(key.OwnerOf(), func(life context.Context) {
		ctx, end := context.WithCancel(ctx)
		defer end()
		defer context.AfterFunc(life, end)()
		if ctx.Err() != nil {
			return
		}
		defer func() { _ = g.Entries.Delete(context.WithoutCancel(ctx), key) }()
		for seen := uint64(0); ctx.Err() == nil; {
			l, next, err := g.collect(ctx, key, seen)
			switch seen = next; {
			case err != nil:
				pause(ctx, collectAgain)
			case l.Cancel:
				stop()
				return
			}
		}
	})
}
