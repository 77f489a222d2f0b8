package bolt

import (
	"context"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
)

// Entries are [state.Entries] whose writers and readers learn of a change when it is on disk.
// Concurrent writers share a commit. [state.UnavailableError] after a Swap or a Delete: the change
// is tried again, and may be written later.
type Entries struct {
	store  *Store
	memory *state.Entries
}

// Entries are kept beside the rest: their methods have names of their own kind.
func (s *Store) Entries() *Entries { return &Entries{store: s, memory: s.Memory.Entries()} }

// Get finds an entry, as [state.Entries.Get] does.
func (e *Entries) Get(ctx context.Context, key state.EntryKey) (state.Entry, bool, error) {
	return e.durable(ctx)(e.memory.Get(ctx, key))
}

// Swap writes an entry, as [state.Entries.Swap] does, and returns when it is on disk.
func (e *Entries) Swap(ctx context.Context, key state.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	if err := e.store.queue.admit(ctx); err != nil {
		return 0, false, err
	}
	revision, ok, err := e.memory.Swap(ctx, key, old, value, until)
	if err != nil || !ok {
		return 0, false, err
	}
	if err := e.settled(ctx, revision); err != nil {
		return 0, false, err
	}
	return revision, true, nil
}

// Confirm reports whether an entry is still at a revision, as [state.Entries.Confirm] does: Get returns
// what is on disk.
func (e *Entries) Confirm(ctx context.Context, key state.EntryKey, revision uint64) (bool, error) {
	found, ok, err := e.Get(ctx, key)
	return ok && found.Revision == revision, err
}

// Delete removes an entry, and returns when it has left the disk.
func (e *Entries) Delete(ctx context.Context, key state.EntryKey) error {
	if err := e.store.queue.admit(ctx); err != nil {
		return err
	}
	if err := e.memory.Delete(ctx, key); err != nil {
		return err
	}
	return e.flush(ctx)
}

// List lists entries, as [state.Entries.List] does.
func (e *Entries) List(ctx context.Context, kind, group, after string, limit int) ([]state.Entry, error) {
	found, err := e.memory.List(ctx, kind, group, after, limit)
	var latest uint64
	for _, one := range found {
		latest = max(latest, one.Revision)
	}
	if err == nil {
		err = e.settled(ctx, latest)
	}
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Await waits for an entry, as [state.Entries.Await] does.
func (e *Entries) Await(ctx context.Context, key state.EntryKey, after uint64) (state.Entry, bool, error) {
	return e.durable(ctx)(e.memory.Await(ctx, key, after))
}

// durable holds back what was found until it is on disk.
func (e *Entries) durable(ctx context.Context) func(state.Entry, bool, error) (state.Entry, bool, error) {
	return func(found state.Entry, ok bool, err error) (state.Entry, bool, error) {
		if err == nil && ok {
			err = e.settled(ctx, found.Revision)
		}
		if err != nil {
			return state.Entry{}, false, err
		}
		return found, ok, nil
	}
}

// settled waits until the revision is on disk: a commit takes everything that
// came before it, in order.
func (e *Entries) settled(ctx context.Context, revision uint64) error {
	if revision <= e.store.owner.counters.settled.Load() {
		return nil
	}
	return e.flush(ctx)
}

// flush waits for a commit, but not for a disk that hangs.
func (e *Entries) flush(ctx context.Context) error {
	limited, cancel := context.WithTimeoutCause(ctx, longestWait, errQueueFull)
	defer cancel()
	err := e.store.Flush(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return unavailable(errQueueFull)
	}
	return err
}
