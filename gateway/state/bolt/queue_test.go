package bolt

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// fullQueue is a queue of two that holds two changes.
func fullQueue(t *testing.T) *queue {
	t.Helper()
	q := newQueue(2, 1<<20)
	m, err := state.New(state.Config{}, state.Deps{Journal: q})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []ect.ID{"1", "2"} {
		if err := q.admit(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.Remember(t.Context(), string(id), "w", id)
	}
	return q
}

// A full queue holds writers until it is taken, and measures it.
func TestQueue_FullBlocksWriters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := fullQueue(t)
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				if err := q.admit(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := len(q.take(nil)); got != 2 {
			t.Errorf("%d changes", got)
		}
		group.Wait()
		var s Stats
		if q.fill(&s); s.Waits != 3 || s.Waited != 3*time.Second || s.Queued != 0 || s.QueuedBytes != 0 {
			t.Errorf("stats %+v", s)
		}
		if err := q.admit(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestQueue_GivesUpWaiting(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		then  func(q *queue, cancel context.CancelFunc)
		want  error
		waits time.Duration
	}{
		"the disk hangs":      {func(*queue, context.CancelFunc) {}, errQueueFull, longestWait},
		"the caller is gone":  {func(_ *queue, cancel context.CancelFunc) { cancel() }, context.Canceled, time.Second},
		"a commit fails":      {func(q *queue, _ context.CancelFunc) { q.settle(boom) }, boom, time.Second},
		"the store is closed": {func(q *queue, _ context.CancelFunc) { q.seal() }, ErrClosed, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := fullQueue(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				timer := time.AfterFunc(time.Second, func() { tc.then(q, cancel) })
				defer timer.Stop()
				began := time.Now()
				if err := q.admit(ctx); !errors.Is(err, tc.want) {
					t.Errorf("got %v, want %v", err, tc.want)
				}
				if waited := time.Since(began); waited != tc.waits {
					t.Errorf("waited %v, want %v", waited, tc.waits)
				}
			})
		})
	}
}

// What a failed commit left goes before what came since.
func TestQueue_FailedCommitKeepsOrder(t *testing.T) {
	t.Parallel()
	q := newQueue(10, 1<<20)
	for serial := range uint64(3) {
		q.Note(state.Change{Serial: serial})
	}
	left := q.take(nil)
	q.settle(errors.New("boom"))
	q.Note(state.Change{Serial: 3})
	left = q.take(left)
	if len(left) != 4 {
		t.Fatalf("%d changes", len(left))
	}
	for i, c := range left {
		if c.Serial != uint64(i) {
			t.Errorf("place %d holds %d", i, c.Serial)
		}
	}
	q.settle(nil)
	if err := q.admit(t.Context()); err != nil {
		t.Error(err)
	}
}
