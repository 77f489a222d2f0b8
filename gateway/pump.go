package gateway

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
)

// heard is one thing that came from an agent.
type heard struct {
	reply transport.Reply  // of the first; its Wire is set if it was no stream
	event *transport.Event // of a stream, one after the other
	err   error            // the end of it; nil: something was said
}

// pump asks an agent and hands on what it says, one thing at a time: it reads
// the next only when the last was taken.
type pump struct {
	out    chan heard
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// startPump begins to ask. The request lives until the pump is stopped, whoever
// waits for it meanwhile.
func startPump(ctx context.Context, ask func(context.Context) (transport.Reply, error)) *pump {
	ctx, cancel := context.WithCancel(ctx)
	p := &pump{out: make(chan heard), cancel: cancel}
	p.done.Go(func() { p.work(ctx, ask) })
	return p
}

func (p *pump) work(ctx context.Context, ask func(context.Context) (transport.Reply, error)) {
	defer close(p.out)
	reply, err := ask(ctx)
	if err != nil {
		p.put(ctx, heard{err: err})
		return
	}
	if reply.Events != nil {
		defer func() { _ = reply.Events.Close() }()
	}
	for ok := p.put(ctx, heard{reply: reply}); ok && reply.Events != nil; {
		event, err := reply.Events.Next(ctx)
		if errors.Is(err, io.EOF) {
			return
		}
		ok = p.put(ctx, heard{event: &event, err: err}) && err == nil
	}
}

func (p *pump) put(ctx context.Context, h heard) bool {
	select {
	case p.out <- h:
		return true
	case <-ctx.Done():
		return false
	}
}

// errPatience: nothing was said for as long as one waits.
var errPatience = errors.New("gateway: nothing was said in time")

// next waits for the next thing, but no longer than patience. io.EOF: there is
// no more.
func (p *pump) next(ctx context.Context, patience time.Duration) (heard, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case h, ok := <-p.out:
		if !ok {
			return heard{}, io.EOF
		}
		return h, h.err
	case <-timer.C:
		return heard{}, errPatience
	case <-ctx.Done():
		return heard{}, ctx.Err()
	}
}

// stop ends the asking and waits until it has ended.
func (p *pump) stop() {
	if p == nil {
		return
	}
	p.cancel()
	p.done.Wait()
}
