package outbound

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
)

// ErrNothingYet: nothing came in time, and the reader still waits for more.
var ErrNothingYet = errors.New("outbound: nothing came in time")

// Incoming is one thing that came of a request.
type Incoming struct {
	Reply transport.Reply  // of the first; its Wire is set if it is no stream
	Event *transport.Event // of a stream, one after the other
	Err   error            // the end of it; nil: something came
}

// Reader sends a request and hands on what comes of it, one thing at a time: it reads the
// next only when the last was taken. A nil Reader has nothing and never will.
type Reader struct {
	out    chan Incoming
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// StartReader begins to send. The request lives until the reader is stopped, also when its
// caller waits no longer: ctx gives its values, and ends it.
func StartReader(ctx context.Context, send func(context.Context) (transport.Reply, error)) *Reader {
	ctx, cancel := context.WithCancel(ctx)
	r := &Reader{out: make(chan Incoming), cancel: cancel}
	r.done.Go(func() { r.work(ctx, send) })
	return r
}

func (r *Reader) work(ctx context.Context, send func(context.Context) (transport.Reply, error)) {
	defer close(r.out)
	reply, err := send(ctx)
	if err != nil {
		r.put(ctx, Incoming{Err: err})
		return
	}
	if reply.Events != nil {
		defer func() { _ = reply.Events.Close() }()
	}
	for ok := r.put(ctx, Incoming{Reply: reply}); ok && reply.Events != nil; {
		event, err := reply.Events.Next(ctx)
		if errors.Is(err, io.EOF) {
			return
		}
		ok = r.put(ctx, Incoming{Event: &event, Err: err}) && err == nil
	}
}

func (r *Reader) put(ctx context.Context, in Incoming) bool {
	select {
	case r.out <- in:
		return true
	case <-ctx.Done():
		return false
	}
}

// Out is where things come; it is closed at the end.
func (r *Reader) Out() <-chan Incoming {
	if r == nil {
		return nil
	}
	return r.out
}

// Next waits for the next thing, but no longer than limit. Its error is io.EOF (there is no
// more), ErrNothingYet, the context's, or that of what came.
func (r *Reader) Next(ctx context.Context, limit time.Duration) (Incoming, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case in, ok := <-r.Out():
		if !ok {
			return Incoming{}, io.EOF
		}
		return in, in.Err
	case <-timer.C:
		return Incoming{}, ErrNothingYet
	case <-ctx.Done():
		return Incoming{}, ctx.Err()
	}
}

// Stop ends the request and waits until it has ended.
func (r *Reader) Stop() {
	if r == nil {
		return
	}
	r.cancel()
	r.done.Wait()
}

// CloseReply gives back a reply that is not read.
func CloseReply(reply transport.Reply) {
	if reply.Events != nil {
		_ = reply.Events.Close()
	}
}
