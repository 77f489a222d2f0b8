package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/gateway/idempotency"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// maxSwaps bounds how often one write is tried because other writers were first.
const maxSwaps = 8

// Deps are what a Store uses. All fields are required.
type Deps struct {
	Entries Entries
	Replies idempotency.Store // of tasks that ended with their first reply
	Replica string            // names this process among the replicas
	Now     func() time.Time
	Logger  *slog.Logger
	// StatusTime is the time of a task's status where the protocol of the caller has
	// one and the agent gave none; zero: that protocol has none.
	StatusTime func(canonical.Binding) time.Time
	Workers    *worker.Group // runs the heartbeat, and writes the index of artifacts
	Queues     *worker.Group // reads control messages
}

// Store keeps the records of tasks. It is safe for concurrent use.
type Store struct {
	deps   Deps
	heart  sync.Once // starts the heartbeat, once a record needs it
	recent recentIndex
	index  artifactIndex
}

// New makes a Store.
func New(deps Deps) *Store { return &Store{deps: deps} }

// Knows reports whether a caller's task at an agent is on record. Its errors are those of
// Load.
func (s *Store) Knows(ctx context.Context, owner, agent, task string) (bool, error) {
	rec, err := s.Load(ctx, TaskKey(owner, agent, task))
	return rec != nil, err
}

// Load finds a record of a caller; nil: the caller has no task of that name. Its error
// is a *[problem.RecordingError] or [ErrUnreadable].
func (s *Store) Load(ctx context.Context, key EntryKey) (*Record, error) {
	if key.ID == "" || strings.ContainsRune(key.ID, 0) || len(key.ID) > MaxTaskID {
		return nil, nil
	}
	entry, ok, err := s.deps.Entries.Get(ctx, key)
	if err != nil {
		return nil, &problem.RecordingError{Err: err}
	}
	if !ok {
		return s.LoadEnded(ctx, key), nil
	}
	return read(entry)
}

func read(entry Entry) (*Record, error) {
	rec := &Record{}
	if err := json.Unmarshal(entry.Value, rec); err != nil || rec.Form != RecordForm {
		return nil, ErrUnreadable
	}
	rec.Key, rec.Revision = entry.Key, entry.Revision
	return rec, nil
}

// Save writes a record, so that every replica knows it; false: another writer has changed
// it since rec was read.
func (s *Store) Save(ctx context.Context, rec *Record) (bool, error) {
	rec.Changed, rec.Ended = s.deps.Now(), rec.Task.Status.State.Terminal()
	if rec.Task.Status.At.IsZero() && rec.Source != rec.Binding {
		rec.Task.Status.At = s.deps.StatusTime(rec.Source)
	}
	return s.Extend(ctx, rec)
}

// Extend writes a record as it is, so that it is kept for RecordLife from now. The task
// keeps its place in lists.
func (s *Store) Extend(ctx context.Context, rec *Record) (bool, error) {
	value, err := EncodeJSON(rec)
	if err != nil {
		return false, ErrUnreadable
	}
	revision, ok, err := s.deps.Entries.Swap(ctx, rec.Key, rec.Revision, value, s.deps.Now().Add(rec.life()))
	if err != nil {
		return false, &problem.RecordingError{Err: err}
	}
	if ok {
		rec.Revision = revision
	}
	return ok, nil
}

// EncodeJSON is the JSON of a stored value. It escapes no HTML.
func EncodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return b.Bytes(), err
}

// Wait waits for the next change of a record, at most for limit and at most for the time
// between two heartbeats. It returns nil if limit is over without a change, and rec itself
// if that time is: then the caller looks whether the record's replica is alive. Its error
// is CodeTaskNotFound if the record is gone.
func (s *Store) Wait(ctx context.Context, rec *Record, limit time.Duration) (*Record, error) {
	within, cancel := context.WithTimeout(ctx, min(limit, HeartbeatInterval))
	defer cancel()
	entry, ok, err := s.deps.Entries.Await(within, rec.Key, rec.Revision)
	switch {
	case ok && err == nil: // even if the wait ended meanwhile
		return read(entry)
	case err == nil:
		return nil, NotFound()
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case within.Err() != nil && limit <= HeartbeatInterval:
		return nil, nil
	case within.Err() != nil:
		return rec, nil
	}
	return nil, err
}

// NotFound: the caller has no task of that name.
func NotFound() *canonical.Error {
	return &canonical.Error{Code: canonical.CodeTaskNotFound, Message: "no such task"}
}

// IsFull reports whether there was no space for what was to be written.
func IsFull(err error) bool {
	_, full := errors.AsType[*state.FullError](err)
	return full
}
