package store

import (
	"encoding/json"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/idempotency"
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
