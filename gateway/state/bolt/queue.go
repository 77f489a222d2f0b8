package bolt

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
)

// longestWait bounds how long a writer waits for space, whatever its context says: a disk that
// hangs must not block the pipeline.
const longestWait = 5 * time.Second

// queue holds changes of the memory until the owner of the file takes all of them. A writer calls
// admit first, and waits there while the queue is full. The bound is not exact: writers that admit
// let in at the same moment, and what their writes evict from the memory, may exceed it by a change
// or two each.
type queue struct {
	maxChanges int
	maxBytes   int64
	kick       chan struct{} // tells the owner not to wait any longer

	busy atomic.Bool // full, failing or sealed: look closer

	mu      sync.Mutex
	changes []state.Change
	records int // changes of evidence, which wait elsewhere
	bytes   int64
	kicked  bool
	failed  error         // why the last commit failed; nil: it did not
	sealed  bool          // nothing is taken any more
	changed chan struct{} // closed when a writer that waits can look again; nil: no writer waits
	waits   uint64
	waited  time.Duration
}

var _ state.Journal = (*queue)(nil)

func newQueue(maxChanges int, maxBytes int64) *queue {
	return &queue{
		maxChanges: maxChanges, maxBytes: maxBytes, kick: make(chan struct{}, 1),
		changes: make([]state.Change, 0, min(maxChanges, DefaultQueue)),
	}
}

// Note queues a change. After the queue was sealed it is dropped, and kept
// tells the writer so.
func (q *queue) Note(c state.Change) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sealed {
		return
	}
	q.changes = append(q.changes, c)
	q.weigh(int64(c.Size))
}

// Evidence counts a change of evidence.
func (q *queue) Evidence(bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if bytes > 0 {
		q.records++
		q.weigh(int64(bytes))
	}
}

func (q *queue) weigh(bytes int64) {
	q.bytes += bytes
	if !q.kicked && (q.waiting() >= q.maxChanges/2 || q.bytes >= q.maxBytes/2) {
		q.kicked = true
		select {
		case q.kick <- struct{}{}:
		default:
		}
	}
	if q.full() {
		q.busy.Store(true)
	}
}

// admit waits until the queue has space for a writer. The error is a [state.UnavailableError], or
// the context's.
func (q *queue) admit(ctx context.Context) error {
	if !q.busy.Load() {
		return nil
	}
	changed, err := q.look()
	if changed == nil {
		return err
	}
	return q.wait(ctx, changed)
}

// look returns what to wait for if the queue is full, else nil and the result of admit.
func (q *queue) look() (<-chan struct{}, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.sealed:
		return nil, unavailable(ErrClosed)
	case q.failed != nil:
		return nil, unavailable(q.failed)
	case !q.full():
		return nil, nil
	}
	if q.changed == nil {
		q.changed = make(chan struct{})
	}
	return q.changed, nil
}

func (q *queue) wait(ctx context.Context, changed <-chan struct{}) (err error) {
	began := time.Now()
	defer func() { q.count(time.Since(began)) }()
	limit := time.NewTimer(longestWait)
	defer limit.Stop()
	for changed != nil {
		select {
		case <-changed:
		case <-limit.C:
			return unavailable(errQueueFull)
		case <-ctx.Done():
			return fmt.Errorf("state: waiting for the disk: %w", ctx.Err())
		}
		if changed, err = q.look(); err != nil {
			return err
		}
	}
	return nil
}

func (q *queue) count(waited time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waits++
	q.waited += waited
}

// failure tells a writer, after its write, whether the queue was open all the
// while, so that the write is noted.
func (q *queue) failure() error {
	if !q.busy.Load() {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sealed {
		return unavailable(ErrClosed)
	}
	return nil
}

// take empties the queue: its changes follow those that are left from a commit
// that failed. The slice is lent until the next take.
func (q *queue) take(left []state.Change) []state.Change {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(left) == 0 {
		left, q.changes = q.changes, left
	} else {
		left = append(left, q.changes...)
		clear(q.changes)
		q.changes = q.changes[:0]
	}
	q.records, q.bytes, q.kicked = 0, 0, false
	q.turn()
	return left
}

// settle notes how a commit ended.
func (q *queue) settle(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failed = err
	q.turn()
}

// seal ends the queue: whatever is noted from now on is dropped.
func (q *queue) seal() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sealed = true
	q.turn()
}

// turn is called, locked, whenever something changed that writers look at.
func (q *queue) turn() {
	q.busy.Store(q.sealed || q.failed != nil || q.full())
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
}

func (q *queue) waiting() int { return len(q.changes) + q.records }

func (q *queue) full() bool { return q.waiting() >= q.maxChanges || q.bytes >= q.maxBytes }

func (q *queue) failing() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.failed
}

func unavailable(cause error) *state.UnavailableError {
	return &state.UnavailableError{Err: cause, RetryAfter: retryEvery}
}
