package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/idempotency"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// The kinds of entries. Stored data names them, so they never change.
const (
	KindTask      = "task"     // a record
	KindControl   = "mail"     // control messages for the replica that works on a task
	KindQuestion  = "question" // the work that a question in a session belongs to
	KindCancel    = "halt"     // a request of a session is to be canceled
	KindReplica   = "runner"   // the heartbeat of a replica
	KindPush      = "push"     // where changes of a task are posted to
	KindCallback  = "callback" // who is told what a human decides
	KindDecision  = "decided"  // what a human decided
	KindRollback  = "undone"   // the result of a rollback
	KindArtifacts = "shelf"    // an index of artifacts of replies
	KindFailover  = "watched"  // a task whose changes are posted, also if its replica is lost
	kindEnded     = "ended"    // the replicas that have an index of ended tasks
)

// MaxTaskID bounds, in bytes, the id of a task that a caller may name.
const MaxTaskID = 256

// TaskKey names the record of a caller's task at an agent.
func TaskKey(owner, agent, id string) EntryKey {
	return EntryKey{Kind: KindTask, Group: owner + "\x00" + agent, ID: id}
}

// ControlKey names the entry with the control messages for the record's replica.
func (r *Record) ControlKey() EntryKey {
	return EntryKey{Kind: KindControl, Group: r.Key.Group, ID: r.Queue}
}

// CancelKey names the entry that cancels a request of a session. The request's id may be
// of any length.
func CancelKey(owner, session string, id json.RawMessage) EntryKey {
	return EntryKey{Kind: KindCancel, Group: session, ID: ect.Hash(id), Owner: owner}
}

// FailoverKey names the entry that has a task followed by other replicas if its own is
// lost.
func FailoverKey(task EntryKey) EntryKey {
	return EntryKey{Kind: KindFailover, ID: ect.Hash(idempotency.AppendTexts(nil, task.Group, task.ID)), Owner: task.OwnerOf()}
}

func replicaKey(replica string) EntryKey {
	return EntryKey{Kind: KindReplica, Group: replica, ID: replica}
}

// endedKey is where an ended task is kept among the replies. No issuer of tokens has such
// a name.
func endedKey(task EntryKey) ect.ReplayKey {
	return ect.ReplayKey{Issuer: ect.Identity("task\x00" + task.Group), ID: ect.ID(task.ID)}
}

// Entries keeps small records that outlive a request: tasks, native sessions,
// continuations, push configurations. An error other than the context's is a
// *state.FullError (nothing was written) or a *state.UnavailableError (after a Swap or a
// Delete: it may have been written all the same; read before trying again).
type Entries interface { //nolint:interfacebloat // the operations of one store of entries
	// Get finds an entry; false: there is none, or it has expired.
	Get(ctx context.Context, key EntryKey) (Entry, bool, error)
	// Swap writes value if the entry is still at revision old (0: there must be no
	// entry), and returns the new revision; false: another writer was first.
	Swap(ctx context.Context, key EntryKey, old uint64, value []byte, until time.Time) (revision uint64, ok bool, err error)
	// Confirm reports whether an entry is still at a revision, and returns when that write lasts.
	Confirm(ctx context.Context, key EntryKey, revision uint64) (bool, error)
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
