package store

import (
	"context"
	"errors"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// endedError: the record says that the task has ended.
type endedError struct{ state canonical.State }

// EndedAs reports whether an error says that the task has ended on record, and how.
func EndedAs(err error) (canonical.State, bool) {
	ended, ok := errors.AsType[*endedError](err)
	if !ok {
		return "", false
	}
	return ended.state, true
}

// Error says so.
func (*endedError) Error() string { return "the task has ended on record" }

// Unwrap is the error in the words of a native endpoint.
func (e *endedError) Unwrap() error {
	if e.state == canonical.StateCanceled {
		return &problem.CanceledError{}
	}
	return ErrEnded
}

// ErrEnded: a task that has ended takes nothing more.
var ErrEnded = &problem.TaskStateError{Reason: "the task has ended"}

// Known is what [Store.Load] returned; its caller is told of a task that is not there.
func Known(rec *Record, err error) (*Record, error) {
	if err == nil && rec == nil {
		err = &canonical.Error{Code: canonical.CodeTaskNotFound, Message: "no such task"}
	}
	return rec, err
}

// Conflict: other requests changed the task each time that it was to be saved.
func Conflict() error {
	return &problem.ConflictError{Reason: "the task was changed by another request: read it and try again"}
}

// Update changes one entry by compare-and-swap. change gets the entry as it stands
// (Revision 0: there is none) and returns what to write and until when; no value: the
// entry stays as it is. It is called again when another writer was first, at most
// maxSwaps times in all. Errors: those of change, a *[problem.RecordingError] of the
// store, or a *[problem.ConflictError].
func (s *Store) Update(ctx context.Context, key EntryKey, change func(Entry) (value []byte, until time.Time, err error)) (Entry, error) {
	for range maxSwaps {
		entry, _, err := s.deps.Entries.Get(ctx, key)
		if err != nil {
			return Entry{}, &problem.RecordingError{Err: err}
		}
		value, until, err := change(entry)
		if err != nil || value == nil {
			return entry, err
		}
		_, ok, err := s.deps.Entries.Swap(ctx, key, entry.Revision, value, until)
		if err != nil {
			return entry, &problem.RecordingError{Err: err}
		}
		if ok {
			return entry, nil
		}
	}
	return Entry{}, &problem.ConflictError{Reason: "too many requests change the same thing at once: try again"}
}

// UpdateRecord saves rec. When another writer was first, merge brings rec up to date with
// the record as it stands (nil: it is gone) and says whether rec is to be saved again.
// saved is false if merge said no. Errors: those of Save and merge, or Conflict.
func (s *Store) UpdateRecord(ctx context.Context, rec *Record, merge func(now *Record) (again bool, err error)) (saved bool, err error) {
	for range maxSwaps {
		if saved, err = s.Save(ctx, rec); err != nil || saved {
			return saved, err
		}
		now, err := s.Load(ctx, rec.Key)
		if err != nil {
			return false, err
		}
		if again, err := merge(now); err != nil || !again {
			return false, err
		}
	}
	return false, Conflict()
}

// SaveMerged saves what this replica knows over what others have written meanwhile: they
// write about other things, unless they have ended the work. Then its error is an
// one that [EndedAs] knows.
func (s *Store) SaveMerged(ctx context.Context, rec *Record) error {
	_, err := s.UpdateRecord(ctx, rec, func(now *Record) (bool, error) {
		if now == nil || now.IsReply() {
			rec.Revision = 0
			return true, nil
		}
		if rec.Pushes = rec.Pushes || now.Pushes; now.Task.Status.State.Terminal() {
			return false, &endedError{now.Task.Status.State}
		}
		if rec.Round == now.Round {
			rec.Again = now.Again
		}
		rec.Revision = now.Revision
		return true, nil
	})
	return err
}

// SaveIfCurrent saves rec over what others have written since the question of a round was
// answered; false: the work was ended, or asks again, so another request has newer news.
func (s *Store) SaveIfCurrent(ctx context.Context, rec *Record, round int) (bool, error) {
	return s.UpdateRecord(ctx, rec, func(now *Record) (bool, error) {
		if now == nil || now.Task.Status.State.Terminal() || now.Resume != ResumeNone || now.Round != round {
			return false, nil
		}
		rec.Revision, rec.Pushes, rec.Follower = now.Revision, rec.Pushes || now.Pushes, now.Follower
		return true, nil
	})
}

// CanRetry reports whether a record that could not be saved may be saved later.
func CanRetry(err error) bool {
	_, away := errors.AsType[*problem.RecordingError](err)
	_, conflict := errors.AsType[*problem.ConflictError](err)
	return away || conflict
}

// SaveUntilDone tries to save the last state that this replica knows for as long as a
// record lives, and calls saved then. It runs in a worker.
func (s *Store) SaveUntilDone(ctx context.Context, rec Record, saved func(context.Context, *Record)) {
	end := s.deps.Now().Add(RecordLife)
	for wait := firstRetry; s.deps.Now().Before(end) && worker.Pause(ctx, wait); wait = min(2*wait, HeartbeatInterval) {
		err := s.saveLast(ctx, &rec)
		if err == nil {
			saved(ctx, &rec)
		}
		if !CanRetry(err) || IsFull(err) && rec.Revision == 0 {
			return // where nothing is on record, nothing says that the work goes on
		}
	}
}

// firstRetry is how long SaveUntilDone waits before its first attempt.
const firstRetry = 250 * time.Millisecond

// saveLast saves the last state that this replica knows. A state that is not the end is
// not the last any more if the record does not say that the work goes on here, or has
// another round.
func (s *Store) saveLast(ctx context.Context, rec *Record) error {
	now, err := s.Load(ctx, rec.Key)
	switch {
	case err != nil || now == nil || rec.Task.Status.State.Terminal():
		return s.SaveMerged(ctx, rec)
	case now.Task.Status.State.Terminal(), now.Runner != s.deps.Replica && now.Follower != s.deps.Replica, now.Round > rec.Round:
		return &endedError{now.Task.Status.State}
	}
	rec.Revision, rec.Pushes = now.Revision, rec.Pushes || now.Pushes
	ok, err := s.Save(ctx, rec)
	if err == nil && !ok {
		err = Conflict()
	}
	return err
}

// MarkPushed writes in a record that changes of the task are posted, and changes nothing
// else in it. If others have written the record meanwhile, rec is what they wrote, unless
// they ended the task: then rec keeps its revision, so that the execution that has rec
// does not write over the end.
func (s *Store) MarkPushed(ctx context.Context, rec *Record) error {
	stored := *rec
	if stored.Pushes = true; !rec.Pushes {
		_, err := s.UpdateRecord(ctx, &stored, func(now *Record) (bool, error) {
			if now == nil {
				return false, NotFound()
			}
			stored = *now
			stored.Pushes = true
			return !now.Pushes, nil
		})
		if err != nil {
			return err
		}
	}
	if rec.Pushes = true; stored.Task.Status.State.Terminal() == rec.Task.Status.State.Terminal() {
		*rec = stored
	}
	return nil
}

// Follow says on record that this replica follows an agent's own task; false: another
// replica does, or the task does not have to be followed. Of many that would at once, one
// does.
func (s *Store) Follow(ctx context.Context, rec *Record) (bool, error) {
	if err := s.StartHeartbeat(ctx); err != nil {
		return false, err
	}
	rec.Follower, rec.Released = s.deps.Replica, 0
	return s.UpdateRecord(ctx, rec, func(now *Record) (bool, error) {
		if now == nil || now.Runner != "" || stream.Settled(now.Task.Status.State) || s.IsAlive(ctx, now.Follower) {
			return false, nil
		}
		*rec = *now
		rec.Follower, rec.Released = s.deps.Replica, 0
		return true, nil
	})
}
