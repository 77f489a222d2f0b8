package outbound

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
)

// Deadline is the stage that ends a call with its time limit ([Call.Limit]), which is a
// *[transport.TimeoutError], or with the caller who waits. A reply that turns out to be a
// stream goes on beyond both until it is closed.
func Deadline(next Sender) Sender {
	return SendFunc(func(ctx context.Context, call *Call) (Reply, error) {
		if call.Limit <= 0 {
			return next.Send(ctx, call)
		}
		l := newLifetime(ctx, call.Limit)
		reply, err := next.Send(l.ctx, call) //nolint:contextcheck // a stream goes on when its caller waits no longer
		if err == nil && reply.Events != nil {
			l.unlink()
			reply.Events = &lasting{Events: reply.Events, end: l.end}
			return reply, nil
		}
		l.end()
		if l.late.Load() && errors.Is(err, context.Canceled) {
			err = &transport.TimeoutError{Agent: call.Endpoint.Agent, After: call.Limit}
		}
		return reply, err
	})
}

// lifetime is that of one call.
type lifetime struct {
	ctx    context.Context //nolint:containedctx // what it is the lifetime of
	cancel context.CancelFunc
	left   func() bool // stops to listen to the caller
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

func newLifetime(ctx context.Context, limit time.Duration) *lifetime {
	l := &lifetime{}
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l.ctx, l.cancel = limited{inner, time.Now().Add(limit)}, cancel
	l.left = context.AfterFunc(ctx, cancel)
	l.timer = time.AfterFunc(limit, func() {
		l.late.Store(true)
		cancel()
	})
	return l
}

// unlink lets it go on until it is ended.
func (l *lifetime) unlink() {
	l.timer.Stop()
	l.left()
}

func (l *lifetime) end() {
	l.unlink()
	l.cancel()
}

// lasting is a stream whose call ends with it.
type lasting struct {
	transport.Events

	end func()
}

// Close implements transport.Events.
func (l *lasting) Close() error {
	err := l.Events.Close()
	l.end()
	return err
}
