package outbound

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
)

// Lifetime is that of one request: it ends with the agent's time limit, or with the caller
// who waits. A reply that turns out to be a stream is kept beyond both.
type Lifetime struct {
	ctx    context.Context //nolint:containedctx // what it is the lifetime of
	agent  string
	limit  time.Duration
	end    context.CancelFunc
	unlink func() bool
	timer  *time.Timer
	late   atomic.Bool
}

// limited tells a dialer its time limit, so that it can share it out.
type limited struct {
	context.Context //nolint:containedctx // this is one
	end             time.Time
}

// Deadline implements context.Context.
func (l limited) Deadline() (time.Time, bool) { return l.end, true }

// NewLifetime begins the lifetime of a request to an agent. It has to be closed.
func NewLifetime(ctx context.Context, agent string, limit time.Duration) *Lifetime {
	l := &Lifetime{agent: agent, limit: limit}
	inner, end := context.WithCancel(context.WithoutCancel(ctx))
	l.ctx, l.end = limited{inner, time.Now().Add(limit)}, end
	l.unlink = context.AfterFunc(ctx, l.end)
	l.timer = time.AfterFunc(limit, func() {
		l.late.Store(true)
		l.end()
	})
	return l
}

// Context ends with the lifetime.
func (l *Lifetime) Context() context.Context { return l.ctx }

// Keep lets it go on until it is closed.
func (l *Lifetime) Keep() {
	l.timer.Stop()
	l.unlink()
}

// Close ends it.
func (l *Lifetime) Close() {
	l.Keep()
	l.end()
}

// Judge says why a request failed: a *[transport.TimeoutError] if that is the reason.
func (l *Lifetime) Judge(err error) error {
	if l.late.Load() && errors.Is(err, context.Canceled) {
		return &transport.TimeoutError{Agent: l.agent, After: l.limit}
	}
	return err
}
