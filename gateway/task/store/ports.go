package store

import (
	"context"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
)

// Entries keeps small records that outlive a request: tasks, native sessions,
// continuations, push configurations. An error other than the context's is a
// *state.FullError (nothing was written) or a *state.UnavailableError (after a Swap or a
// Delete: it may have been written all the same; read before trying again).
type Entries interface {
	// Get finds an entry; false: there is none, or it has expired.
	Get(ctx context.Context, key EntryKey) (Entry, bool, error)
	// Swap writes value if the entry is still at revision old (0: there must be no
	// entry), and returns the new revision; false: another writer was first.
	Swap(ctx context.Context, key EntryKey, old uint64, value []byte, until time.Time) (revision uint64, ok bool, err error)
	// Delete removes an entry. It is no error if there is no entry.
	Delete(ctx context.Context, key EntryKey) error
	// List returns up to limit entries of one group in the order of the bytes of their
	// ids, after the given id; values included.
	List(ctx context.Context, kind, group, after string, limit int) ([]Entry, error)
	// Await returns as soon as the entry's revision is greater than after, or it is gone
	// (false), or ctx ends (its error).
	Await(ctx context.Context, key EntryKey, after uint64) (Entry, bool, error)
}

// EntryKey names an entry. Kind is one of the Kind constants, Group says whose it is:
// entries of one kind and group are listed together and live in one cluster slot.
type EntryKey = state.EntryKey

// Entry is a small record with its revision, which grows with every write.
type Entry = state.Entry
