package task

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// page is how many entries one look at the store reads.
const page = 100

// watched is what another replica must know to follow a task in this one's place.
type watched struct {
	store.Principal

	Task store.EntryKey
	By   string    `json:",omitempty"` // the replica that followed it last
	At   time.Time `json:",omitzero"`
}

// Webhooks are told of changes of tasks.
type Webhooks interface {
	// Post posts in the background what happened to a task.
	Post(ctx context.Context, rec *store.Record, events []canonical.Event)
	// Extend lets the webhooks of a task live as long as its record.
	Extend(ctx context.Context, task store.EntryKey, extend func(context.Context, store.Entry) (bool, error)) error
}

// FailoverDeps is what a Failover is built from. Every field is required.
type FailoverDeps struct {
	Tasks    *store.Store
	Entries  store.Entries
	Webhooks Webhooks
	Workers  *worker.Group
	Follow   func(ctx context.Context, who store.Principal, rec *store.Record) error // posts a task as a whole, and follows it from there
	Replica  string
	Now      func() time.Time
	Logger   *slog.Logger
}

// Failover follows tasks in place of replicas that are lost. It is safe for concurrent use.
type Failover struct{ deps FailoverDeps }

// NewFailover makes one, which does nothing until Begin.
func NewFailover(deps FailoverDeps) *Failover { return &Failover{deps} }

// Enroll asks the other replicas to follow a task if this one is lost. If the store has no space
// for that, only this replica follows it.
func (f *Failover) Enroll(ctx context.Context, who store.Principal, rec *store.Record) {
	err := f.deps.Tasks.StartHeartbeat(ctx)
	var value []byte
	if err == nil {
		value, err = json.Marshal(watched{Principal: who, Task: rec.Key, By: f.deps.Replica})
	}
	if err == nil {
		_, _, err = f.deps.Entries.Swap(ctx, store.FailoverKey(rec.Key), 0, value, f.deps.Now().Add(store.RecordLife))
	}
	if err != nil {
		f.deps.Logger.WarnContext(ctx, "a task is followed by this process alone", slog.String("task", rec.Task.ID), slog.Any("error", err))
	}
}

// EndLost says of work whose replica is gone that it is lost, and posts that. Its errors are
// those of the store.
func (f *Failover) EndLost(ctx context.Context, rec *store.Record) error {
	before, err := f.deps.Tasks.FailLost(ctx, rec)
	if err == nil && before != nil {
		f.deps.Webhooks.Post(ctx, rec, stream.Diff(before, &rec.Task))
	}
	return err
}

// Begin follows tasks whose replica is lost from now on, for as long as a webhook is to be
// told of them. It is called once; the end of the workers ends it.
func (f *Failover) Begin() error {
	return f.deps.Workers.Serve(func(ctx context.Context) {
		for worker.Pause(ctx, store.HeartbeatInterval) {
			f.visitAll(ctx)
		}
	})
}

// visitAll looks at every task of which a webhook is told.
func (f *Failover) visitAll(ctx context.Context) {
	for after := ""; ctx.Err() == nil; {
		entries, err := f.deps.Entries.List(ctx, store.KindFailover, "", after, page)
		if err != nil {
			f.deps.Logger.WarnContext(ctx, "tasks of lost processes are not followed", slog.Any("error", err))
			return
		}
		for _, entry := range entries {
			after = entry.Key.ID
			if err := f.visit(ctx, entry); err != nil {
				f.deps.Logger.WarnContext(ctx, "a task is not taken over", slog.Any("error", err))
			}
		}
		if len(entries) < page {
			return
		}
	}
}

// visit goes on with a task in place of a replica that is gone.
func (f *Failover) visit(ctx context.Context, entry store.Entry) error {
	var w watched
	if json.Unmarshal(entry.Value, &w) != nil {
		return f.deps.Entries.Delete(ctx, entry.Key)
	}
	rec, err := f.deps.Tasks.Load(ctx, w.Task)
	if err != nil {
		return err
	}
	if rec == nil {
		return f.deps.Entries.Delete(ctx, entry.Key)
	}
	if err := f.EndLost(ctx, rec); err != nil {
		return err
	}
	if !f.deps.Tasks.IsAbandoned(ctx, w.By, rec) {
		return f.extend(ctx, entry, rec)
	}
	if f.deps.Now().Sub(w.At) < store.LeaseTTL && w.By != f.deps.Replica {
		return nil // another has it in hand
	}
	if err := f.deps.Tasks.StartHeartbeat(ctx); err != nil { // else others would take it over from this replica
		return err
	}
	w.By, w.At = f.deps.Replica, f.deps.Now()
	value, err := json.Marshal(w)
	if err != nil {
		return err
	}
	if _, mine, err := f.deps.Entries.Swap(ctx, entry.Key, entry.Revision, value, f.deps.Now().Add(store.RecordLife)); err != nil || !mine {
		return err
	}
	if rec, err = f.deps.Tasks.Load(ctx, rec.Key); err != nil || rec == nil { // again: it may have changed, and its changes are posted in order
		return err
	}
	return f.deps.Follow(ctx, w.Principal, rec)
}

// extend lets the entry of a task, and the webhooks of the task, live as long as its record
// does. It reads the webhooks only when the entry was extended: that is often enough, because
// each lives twice as long as that takes.
func (f *Failover) extend(ctx context.Context, entry store.Entry, rec *store.Record) error {
	extended, err := f.deps.Tasks.ExtendEntry(ctx, entry)
	if err != nil || !extended {
		return err
	}
	return f.deps.Webhooks.Extend(ctx, rec.Key, f.deps.Tasks.ExtendEntry)
}
