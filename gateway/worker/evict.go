package worker

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/aepb/aepb-gateway/policy/quota"
)

// Evictor ends a holder's oldest work of those that may be ended, when the same holder exceeds its
// share. It is safe for concurrent use; the zero Evictor has no work.
type Evictor struct {
	mu   sync.Mutex
	work map[string][]*Evictable // by holder, the oldest first
}

// Evictable is work that may be evicted.
type Evictable struct {
	evict context.CancelFunc
	ended chan struct{}
}

// NewEvictable makes work, and the context that ends when the work is evicted or has ended.
func NewEvictable() (*Evictable, context.Context) {
	ctx, evict := context.WithCancel(context.Background())
	return &Evictable{evict, make(chan struct{})}, ctx
}

// End says, once, that the work has ended and given its share back.
func (w *Evictable) End() {
	w.evict()
	close(w.ended)
}

// Add lets work be evicted from now on, if it cannot be already.
func (e *Evictor) Add(holder string, w *Evictable) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.work == nil {
		e.work = map[string][]*Evictable{}
	}
	if !slices.Contains(e.work[holder], w) {
		e.work[holder] = append(e.work[holder], w)
	}
}

// Remove lets work be evicted no longer.
func (e *Evictor) Remove(holder string, w *Evictable) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.remove(holder, slices.Index(e.work[holder], w))
}

func (e *Evictor) remove(holder string, at int) {
	if at < 0 {
		return
	}
	if e.work[holder] = slices.Delete(e.work[holder], at, at+1); len(e.work[holder]) == 0 {
		delete(e.work, holder)
	}
}

// oldest removes a holder's oldest work; nil: there is none.
func (e *Evictor) oldest(holder string) *Evictable {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.work[holder]) == 0 {
		return nil
	}
	defer e.remove(holder, 0)
	return e.work[holder][0]
}

// Take calls take until it does not fail with a [quota.ExceededError], and evicts the oldest work of
// the holder before each further call. It waits until that work has ended, so that the holder never
// has more than its share. The error stands when no work is left to evict.
func (e *Evictor) Take(ctx context.Context, holder string, take func() error) error {
	for {
		err := take()
		if _, exceeded := errors.AsType[*quota.ExceededError](err); !exceeded {
			return err
		}
		w := e.oldest(holder)
		if w == nil {
			return err
		}
		w.evict()
		select {
		case <-w.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
