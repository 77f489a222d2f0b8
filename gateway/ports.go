package gateway

import (
	"context"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// Answers keeps what was answered to a message with an ECT, for as long as the
// ECT lives, so that a byte-identical repetition gets the same answer (R6).
type Answers interface {
	// Finish stores an answer; one that is too large or finds no room is not
	// kept, and its repetition is then refused as in progress.
	Finish(ctx context.Context, key ect.ReplayKey, answer []byte, until time.Time)
	// Load finds a stored answer; false: still in progress.
	Load(ctx context.Context, key ect.ReplayKey) ([]byte, bool)
}

// Confirmer is Answers that others share, and that can say when one is kept even
// if the place where it was written is lost (R18). How a task ended is told its
// caller only then.
type Confirmer interface {
	// Confirm is Finish; an error: it may be lost.
	Confirm(ctx context.Context, key ect.ReplayKey, answer []byte, until time.Time) error
}

// Conversations remembers the workflow and the last ECT of each dialogue (R3).
// The key "" is never remembered and never found. A key begins with whose the
// dialogue is, up to the first NUL: one owner cannot have those of others
// forgotten. An error of Last says that it is not known whether it is remembered.
type Conversations interface {
	Last(ctx context.Context, key string) (workflow string, id ect.ID, ok bool, err error)
	Remember(ctx context.Context, key, workflow string, id ect.ID)
}

// Entries keeps small records that outlive a request: tasks, native sessions,
// continuations, push configs. An error other than the context's is a
// *state.FullError (nothing was written) or a *state.UnavailableError (after a
// Swap or a Delete: it may have been written all the same; read before trying
// again).
type Entries interface {
	// Get finds an entry; false: there is none (any more).
	Get(ctx context.Context, key EntryKey) (Entry, bool, error)
	// Swap writes value if the entry is still at revision old (0: there must be
	// none), and returns the new revision; false: somebody else was first.
	Swap(ctx context.Context, key EntryKey, old uint64, value []byte, until time.Time) (revision uint64, ok bool, err error)
	// Delete removes an entry; one that is not there is no error.
	Delete(ctx context.Context, key EntryKey) error
	// List returns up to limit entries of one group in order of ID (by octets),
	// after the given id; values included.
	List(ctx context.Context, kind, group, after string, limit int) ([]Entry, error)
	// Await returns as soon as the entry's revision is greater than after, or it
	// is gone (false), or ctx ends (its error).
	Await(ctx context.Context, key EntryKey, after uint64) (Entry, bool, error)
}

// EntryKey names an entry. Kind is a constant of ours ("task"…), Group whose it
// is: entries of one kind and group are listed together and live in one cluster slot.
type EntryKey = state.EntryKey

// Entry is a small record with its revision, which grows with every write.
type Entry = state.Entry
