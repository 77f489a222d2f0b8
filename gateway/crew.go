package gateway

import (
	"context"
	"errors"
	"sync"
)

// maxCrew bounds the work that goes on after its request was answered.
const maxCrew = 10_000

// ErrBusy: as much work goes on in the background as is allowed.
var ErrBusy = errors.New("gateway: too much goes on in the background")

// crew is the work that goes on after its request was answered. Whoever closes
// it waits for it.
type crew struct {
	mu      sync.Mutex
	working int
	closed  bool
	all     sync.WaitGroup
	ctx     context.Context //nolint:containedctx // the life of the crew, not of a call
	cancel  context.CancelFunc
}

func newCrew() *crew {
	ctx, cancel := context.WithCancel(context.Background())
	return &crew{ctx: ctx, cancel: cancel}
}

// run lets one more work. ErrBusy: there are too many, or the crew is closed.
func (c *crew) run(work func(context.Context)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.working >= maxCrew {
		return ErrBusy
	}
	c.working++
	c.all.Go(func() {
		work(c.ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.working--
	})
	return nil
}

// count is how many work.
func (c *crew) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.working
}

// close ends the work and waits until it has ended.
func (c *crew) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.all.Wait()
}
