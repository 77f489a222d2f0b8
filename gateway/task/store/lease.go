package store

import (
	"context"
	"log/slog"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

const (
	// LeaseTTL is how long a replica counts as alive after its last heartbeat.
	LeaseTTL = 15 * time.Second
	// HeartbeatInterval is the time between two heartbeats.
	HeartbeatInterval = 5 * time.Second
)

// StartHeartbeat says that this replica is alive, and goes on saying it until its workers
// close. It is called before a record names this replica. Its error is a
// *[problem.RecordingError].
func (s *Store) StartHeartbeat(ctx context.Context) error {
	if err := s.heartbeat(ctx); err != nil {
		return &problem.RecordingError{Err: err}
	}
	s.heart.Do(func() {
		_ = s.deps.Workers.Serve(func(ctx context.Context) { // else all work here would soon count as lost
			worker.Every(ctx, HeartbeatInterval, func() {
				if err := s.heartbeat(ctx); err != nil {
					s.deps.Logger.WarnContext(ctx, "heartbeat failed", slog.Any("error", err))
				}
			})
		})
	})
	return nil
}

func (s *Store) heartbeat(ctx context.Context) error {
	key := replicaKey(s.deps.Replica)
	entry, _, err := s.deps.Entries.Get(ctx, key)
	if err != nil {
		return err
	}
	_, _, err = s.deps.Entries.Swap(ctx, key, entry.Revision, []byte("{}"), s.deps.Now().Add(LeaseTTL))
	return err
}

// IsAlive reports whether a replica is alive, as far as can be known: a store that does
// not answer means yes. The replica without a name is not.
func (s *Store) IsAlive(ctx context.Context, replica string) bool {
	if replica == "" || replica == s.deps.Replica {
		return replica != ""
	}
	_, alive, err := s.deps.Entries.Get(ctx, replicaKey(replica))
	return alive || err != nil
}

// IsAbandoned reports whether no replica posts the changes of a task; by is the one that
// looked after it last.
func (s *Store) IsAbandoned(ctx context.Context, by string, rec *Record) bool {
	switch taskState := rec.Task.Status.State; {
	case taskState.Terminal(): // the replica that saw the end may be posting it
		return s.deps.Now().Sub(rec.Changed) > LeaseTTL
	case stream.Settled(taskState): // it waits for its caller; whether that was posted is not known of a lost replica
		return rec.Runner == "" && !s.IsAlive(ctx, by)
	default:
		return rec.TaskID != "" && rec.Runner == "" && rec.Resume == ResumeNone && rec.Released == 0 && !s.IsAlive(ctx, rec.Follower)
	}
}

// IsOwnerLost reports whether the replica that works on a record is gone, so that it is
// not known how the work ended.
func (s *Store) IsOwnerLost(ctx context.Context, rec *Record) (bool, error) {
	if rec.Runner == "" || rec.Runner == s.deps.Replica || rec.Task.Status.State.Terminal() {
		return false, nil
	}
	_, ok, err := s.deps.Entries.Get(ctx, replicaKey(rec.Runner))
	return !ok && err == nil, err
}

// FailLost says of work whose replica is gone that it is lost: once, whichever replica
// notices first. An agent that has a task of its own can still be asked about it. The
// record is then as it stands. failed is the task before; nil: this replica changed
// nothing.
func (s *Store) FailLost(ctx context.Context, rec *Record) (failed *canonical.Task, err error) {
	gone, err := s.IsOwnerLost(ctx, rec)
	if err != nil {
		return nil, &problem.RecordingError{Err: err}
	}
	if !gone {
		return nil, nil
	}
	before := rec.Task
	if rec.Release(); rec.TaskID == "" {
		why := &canonical.Error{Message: "the gateway that worked on it was lost; whether the agent has finished is not known"}
		rec.Task.Status, rec.Task.Inputs = stream.Failed(rec.CallerNames(), why).Status, nil
		rec.Saved, rec.Resume = nil, ResumeNone
	}
	ok, err := s.Save(ctx, rec)
	if err != nil {
		return nil, err
	}
	if ok {
		return &before, nil
	}
	now, err := s.Load(ctx, rec.Key) // another replica was first
	if err != nil {
		return nil, err
	}
	if now == nil {
		return nil, NotFound()
	}
	*rec = *now
	return nil, nil
}

// ExtendEntry keeps an entry for RecordLife from now, once half of that is over. It
// reports whether it wrote.
func (s *Store) ExtendEntry(ctx context.Context, entry Entry) (bool, error) {
	if entry.Until.Sub(s.deps.Now()) > RecordLife/2 {
		return false, nil
	}
	_, ok, err := s.deps.Entries.Swap(ctx, entry.Key, entry.Revision, entry.Value, s.deps.Now().Add(RecordLife))
	return ok, err
}
