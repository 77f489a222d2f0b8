// Package failover is a model of a store whose master can be lost: what was written while no replica heard of it can be read,
// is not confirmed, and is forgotten by a failover (R18). It is for simulations in virtual time, where no Redis can be.
//
// In good order it passes the contract of every driver of entries, which its own test runs.
//
// Alternatives considered: a fake of its own for each simulation. Two such fakes would differ from each other, and from
// Redis.
package failover

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/statetest"
)

// ErrUnconfirmed is what a write gets that too few replicas acknowledge. It may last, or not.
var ErrUnconfirmed = errors.New("failover: no replica has acknowledged the write")

// Store is a master with one replica. It is safe for concurrent use.
type Store struct {
	statetest.Entries

	mu     sync.Mutex
	apart  bool
	before map[state.EntryKey]*state.Entry // of what was written since the replica is away, as the replica has it; nil: it has none
}

// New makes a store whose master and replica are connected.
func New(over statetest.Entries) *Store {
	return &Store{Entries: over, before: map[state.EntryKey]*state.Entry{}}
}

// Separate cuts the link between master and replica.
func (s *Store) Separate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apart = true
}

// Rejoin lets the replica catch up.
func (s *Store) Rejoin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apart = false
	clear(s.before)
}

// Failover makes the replica the master: what it has not heard of is forgotten.
func (s *Store) Failover(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, entry := range s.before {
		if err := s.restore(ctx, key, entry); err != nil {
			return err
		}
	}
	s.apart = false
	clear(s.before)
	return nil
}

func (s *Store) restore(ctx context.Context, key state.EntryKey, entry *state.Entry) error {
	now, there, err := s.Entries.Get(ctx, key)
	switch {
	case err != nil:
		return err
	case entry == nil && there:
		return s.Entries.Delete(ctx, now.Key)
	case entry == nil:
		return nil
	}
	_, _, err = s.Entries.Swap(ctx, entry.Key, now.Revision, entry.Value, entry.Until)
	return err
}

// Swap writes at the master, and fails while the replica does not hear of it.
func (s *Store) Swap(ctx context.Context, key state.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.remember(ctx, key); err != nil {
		return 0, false, err
	}
	revision, first, err := s.Entries.Swap(ctx, key, old, value, until)
	if err == nil && first && s.apart {
		return 0, false, ErrUnconfirmed
	}
	return revision, first, err
}

// Delete deletes at the master, and fails while the replica does not hear of it.
func (s *Store) Delete(ctx context.Context, key state.EntryKey) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.remember(ctx, key); err != nil {
		return err
	}
	err := s.Entries.Delete(ctx, key)
	if err == nil && s.apart {
		return ErrUnconfirmed
	}
	return err
}

// Confirm fails while the replica does not hear of it.
func (s *Store) Confirm(ctx context.Context, key state.EntryKey, revision uint64) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	same, err := s.Entries.Confirm(ctx, key, revision)
	if err == nil && same && s.apart {
		return false, ErrUnconfirmed
	}
	return same, err
}

// remember notes what the replica has of an entry that is about to change.
func (s *Store) remember(ctx context.Context, key state.EntryKey) error {
	name := key
	name.Owner = ""
	if _, known := s.before[name]; known || !s.apart {
		return nil
	}
	entry, there, err := s.Entries.Get(ctx, key)
	if err != nil {
		return err
	}
	s.before[name] = nil
	if there {
		s.before[name] = &entry
	}
	return nil
}
