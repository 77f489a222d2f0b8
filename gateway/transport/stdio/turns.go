package stdio

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/aepb/aepb-gateway/ect"
)

type askerKey struct{}

// For says for which caller a message is sent, or a program is started: several may share one.
func For(ctx context.Context, caller ect.Identity) context.Context {
	return context.WithValue(ctx, askerKey{}, caller)
}

// ourselves asks where no caller does.
const ourselves = ect.Identity("\x00")

func askerOf(ctx context.Context) ect.Identity {
	caller, _ := ctx.Value(askerKey{}).(ect.Identity)
	return cmp.Or(caller, ourselves)
}

// turns let one at a time write: callers in turn, messages of one caller in their order.
type turns struct {
	mu      sync.Mutex
	taken   bool
	callers []ect.Identity // who waits, the next one first
	waiting map[ect.Identity][]chan struct{}
}

// take waits for the turn, which lasts until give. Its error is the context's.
func (t *turns) take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	mine := t.queue(askerOf(ctx))
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	if t.leave(askerOf(ctx), mine) {
		t.give() // it came meanwhile
	}
	return ctx.Err()
}

// queue gives what is closed when it is the caller's turn.
func (t *turns) queue(caller ect.Identity) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := make(chan struct{})
	if !t.taken {
		t.taken = true
		close(mine)
		return mine
	}
	if t.waiting == nil {
		t.waiting = map[ect.Identity][]chan struct{}{}
	}
	if len(t.waiting[caller]) == 0 {
		t.callers = append(t.callers, caller)
	}
	t.waiting[caller] = append(t.waiting[caller], mine)
	return mine
}

// leave takes out what waits; true: it has the turn.
func (t *turns) leave(caller ect.Identity, mine chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := slices.Index(t.waiting[caller], mine)
	if at < 0 {
		return true
	}
	t.keep(caller, slices.Delete(t.waiting[caller], at, at+1))
	return false
}

// keep notes what of a caller still waits.
func (t *turns) keep(caller ect.Identity, rest []chan struct{}) {
	if t.waiting[caller] = rest; len(rest) == 0 {
		delete(t.waiting, caller)
		t.callers = slices.DeleteFunc(t.callers, func(other ect.Identity) bool { return other == caller })
	}
}

// give hands the turn to the next caller.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken = len(t.callers) > 0; !t.taken {
		return
	}
	caller := t.callers[0]
	t.callers = append(t.callers[1:], caller)
	next := t.waiting[caller]
	t.keep(caller, next[1:])
	close(next[0])
}
