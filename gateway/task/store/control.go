package store

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/worker"
)

const (
	maxAnswers    = 256             // that wait for one execution
	receiveRetry  = time.Second     // between two attempts while the store is away
	cancelPending = 2 * time.Second // how long a cancellation waits for a request that may have just begun, at another replica
)

// ControlMessage is what other requests want of the replica that works on a task: all
// that they ever wanted, so that no two of them overwrite each other.
type ControlMessage struct {
	Cancel    bool             `json:",omitempty"`
	Answers   []AnswerForRound `json:",omitempty"`
	Questions []string         `json:",omitempty"` // of a session, to which there is an answer: a second one is dropped
}

// answers reports whether the message has an answer to the same question of the same
// round.
func (m *ControlMessage) answers(to AnswerForRound) bool {
	return to.Round != 0 && slices.ContainsFunc(m.Answers, func(a AnswerForRound) bool { return a.Round == to.Round && a.Key == to.Key })
}

// ControlQueue is where one execution reads control messages. Each execution has its own,
// named in the record, so that it reads nothing that was meant for another.
type ControlQueue struct {
	canceled  context.Context //nolint:containedctx // a signal, not a lifetime
	disrupted context.Context //nolint:containedctx // a signal, not a lifetime
	answers   chan []AnswerForRound
	end       context.CancelFunc
	lose      context.CancelFunc
	ended     chan struct{} // closed when the queue has given back its share
}

// Canceled ends when a control message cancels the work.
func (q *ControlQueue) Canceled() context.Context { return q.canceled }

// Disrupted ends when the store was away for so long that messages may have been lost.
func (q *ControlQueue) Disrupted() context.Context { return q.disrupted }

// Answers are the answers, as they come.
func (q *ControlQueue) Answers() <-chan []AnswerForRound { return q.answers }

// Close ends the reading. A nil queue is closed.
func (q *ControlQueue) Close() {
	if q != nil {
		q.end()
	}
}

// Wait waits until a closed queue has given back its share. A nil queue has no share.
func (q *ControlQueue) Wait() {
	if q != nil {
		<-q.ended
	}
}

// OpenQueue begins to read control messages, until the queue is closed. Its error is a
// *quota.ExceededError or worker.ErrBusy: then no message could cancel the work, so it
// must not begin.
func (s *Store) OpenQueue(key EntryKey) (*ControlQueue, error) {
	grant, err := s.deps.Queues.Reserve(key.OwnerOf(), 0)
	if err != nil {
		return nil, err
	}
	q := &ControlQueue{answers: make(chan []AnswerForRound), ended: make(chan struct{})}
	var cancel context.CancelFunc
	q.canceled, cancel = context.WithCancel(context.Background())
	q.disrupted, q.lose = context.WithCancel(context.Background())
	life, end := context.WithCancel(context.Background())
	q.end = end
	started := s.deps.Queues.GoGranted(grant, func(ctx context.Context) {
		defer close(q.ended)
		defer grant.Release()
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(life, stop)()
		defer func() { _ = s.deps.Entries.Delete(context.WithoutCancel(ctx), key) }()
		s.readInto(ctx, q, key, cancel)
	})
	if started != nil {
		cancel()
		end()
		return nil, started
	}
	return q, nil
}

// readInto passes on what comes in, until the work is canceled or ctx ends.
func (s *Store) readInto(ctx context.Context, q *ControlQueue, key EntryKey, cancel context.CancelFunc) {
	taken, awaySince := 0, time.Time{}
	for seen := uint64(0); ctx.Err() == nil; {
		message, next, err := s.receive(ctx, key, seen)
		seen = next
		switch {
		case err != nil:
			if awaySince.IsZero() {
				awaySince = time.Now()
			}
			if time.Since(awaySince) >= transport.AnswerRetryWindow {
				q.lose()
			}
			worker.Pause(ctx, receiveRetry)
			if _, _, err := s.deps.Entries.Get(ctx, key); err == nil {
				awaySince = time.Time{}
			}
			continue
		case message.Cancel:
			cancel()
			return
		}
		taken = min(taken, len(message.Answers)) // the entry may have expired, and be a new one
		if awaySince = (time.Time{}); len(message.Answers) == taken {
			continue
		}
		select {
		case q.answers <- message.Answers[taken:]:
			taken = s.forget(ctx, key, len(message.Answers))
		case <-ctx.Done():
		}
	}
}

// forget drops the first answers, which were taken, once they fill half of the entry, so
// that a long call can go on being answered. It returns how many taken answers are left.
func (s *Store) forget(ctx context.Context, key EntryKey, taken int) int {
	if taken < maxAnswers/2 {
		return taken
	}
	_, err := s.Update(ctx, key, func(entry Entry) ([]byte, time.Time, error) {
		var all ControlMessage
		if err := json.Unmarshal(entry.Value, &all); err != nil {
			return nil, time.Time{}, ErrUnreadable
		}
		all.Answers = all.Answers[min(taken-1, len(all.Answers)):] // the last one still refuses another to the same question
		all.Questions = all.Questions[max(0, len(all.Questions)-maxAnswers):]
		value, err := json.Marshal(all)
		return value, entry.Until, err
	})
	if err != nil {
		return taken // with the next answer again
	}
	return 1
}

// receive waits for the next control message. An empty one says to go on waiting.
func (s *Store) receive(ctx context.Context, key EntryKey, seen uint64) (ControlMessage, uint64, error) {
	entry, ok, err := s.deps.Entries.Await(ctx, key, seen)
	if err == nil && !ok { // an empty entry, so that there is one to wait for
		seen, ok, err = s.deps.Entries.Swap(ctx, key, 0, []byte("{}"), s.deps.Now().Add(RecordLife))
		if err == nil && ok {
			return ControlMessage{}, seen, nil
		}
		seen = 0 // another writer was first
	}
	if err != nil {
		return ControlMessage{}, seen, err
	}
	var message ControlMessage
	if json.Unmarshal(entry.Value, &message) != nil {
		message = ControlMessage{}
	}
	return message, max(entry.Revision, seen), nil
}

// Send adds a message for the replica that works on a task. Its error is a
// *[problem.RecordingError] or a *[problem.ConflictError].
func (s *Store) Send(ctx context.Context, key EntryKey, message ControlMessage) error {
	_, err := s.Update(ctx, key, func(entry Entry) ([]byte, time.Time, error) {
		var all ControlMessage
		_ = json.Unmarshal(entry.Value, &all) // no entry is an empty one
		if slices.ContainsFunc(message.Questions, func(id string) bool { return slices.Contains(all.Questions, id) }) {
			return nil, time.Time{}, nil
		}
		switch again := slices.ContainsFunc(message.Answers, all.answers); {
		case again && len(message.Questions) > 0: // a response of a session, which has no reply
			return nil, time.Time{}, nil
		case again:
			return nil, time.Time{}, &problem.ConflictError{Reason: "the question was answered by another request: ask how the task stands"}
		}
		all.Cancel = all.Cancel || message.Cancel
		all.Answers, all.Questions = append(all.Answers, message.Answers...), append(all.Questions, message.Questions...)
		if len(all.Answers) > maxAnswers {
			return nil, time.Time{}, &problem.ConflictError{Reason: "the task has more answers than it takes: wait until it has ended"}
		}
		value, err := json.Marshal(all)
		if err != nil {
			return nil, time.Time{}, ErrUnreadable
		}
		return value, s.deps.Now().Add(RecordLife), nil
	})
	return err
}

// Cancel cancels a request of a session at whichever replica it is under way. It reports
// whether a replica has said that it is.
func (s *Store) Cancel(ctx context.Context, key EntryKey) (bool, error) {
	before, err := s.Update(ctx, key, func(entry Entry) ([]byte, time.Time, error) {
		until := entry.Until
		if entry.Revision == 0 {
			until = s.deps.Now().Add(cancelPending)
		}
		return []byte(`{"Cancel":true}`), until, nil
	})
	if _, conflict := errors.AsType[*problem.ConflictError](err); conflict {
		return false, nil // it comes and goes: it is as good as over
	}
	return before.Revision != 0 && err == nil, err
}

// WatchCancel calls cancel when another replica is told to cancel a request that is under
// way here. It returns then, or when ctx ends.
func (s *Store) WatchCancel(ctx context.Context, key EntryKey, cancel func()) {
	if ctx.Err() != nil {
		return
	}
	defer func() { _ = s.deps.Entries.Delete(context.WithoutCancel(ctx), key) }()
	for seen := uint64(0); ctx.Err() == nil; {
		message, next, err := s.receive(ctx, key, seen)
		switch seen = next; {
		case err != nil:
			worker.Pause(ctx, receiveRetry)
		case message.Cancel:
			cancel()
			return
		}
	}
}
