package worker

import (
	"context"
	"sync"
)

// Requests counts the requests that are under way. The zero value is ready for use, and safe
// for concurrent use.
type Requests struct {
	mu       sync.Mutex
	count    int
	draining bool
	idle     chan struct{} // closed when no request is under way; nil: Drain does not wait
}

// Enter counts a request until leave is called.
func (r *Requests) Enter() (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	return r.leave
}

func (r *Requests) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count--; r.count == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// Drain stops new work ([Requests.Draining]), and waits until no request is under way or ctx
// ends.
func (r *Requests) Drain(ctx context.Context) {
	r.mu.Lock()
	r.draining = true
	if r.count == 0 {
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

// Idle reports whether no request is under way.
func (r *Requests) Idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count == 0
}

// Draining reports whether Drain was called.
func (r *Requests) Draining() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draining
}

// Cancels holds requests that are under way in this process by their names, so that they can
// be canceled, and no two have one name. The zero value is ready for use, and safe for
// concurrent use.
type Cancels struct {
	mu      sync.Mutex
	cancels map[string]context.CancelFunc
}

// Register adds a request until release is called; false: its name is in use. A request that
// is canceled has the cause as that of its context.
func (c *Cancels) Register(ctx context.Context, name string, cause error) (_ context.Context, release func(), ok bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancels == nil {
		c.cancels = map[string]context.CancelFunc{}
	}
	if c.cancels[name] != nil {
		cancel(nil)
		return nil, nil, false
	}
	c.cancels[name] = func() { cancel(cause) }
	return ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.cancels, name)
		cancel(nil)
	}, true
}

// Cancel cancels a request. It reports whether the request is under way here.
func (c *Cancels) Cancel(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cancel, ok := c.cancels[name]
	if ok {
		cancel()
	}
	return ok
}
