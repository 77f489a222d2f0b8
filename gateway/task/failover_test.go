package task_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/task"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shared is a memory of several replicas. Its lock orders what a test does before what replicas
// do later: time alone orders nothing for the race detector.
type shared struct {
	*state.Memory

	mu sync.Mutex
}

// pass goes through the lock.
func (s *shared) pass() {
	s.mu.Lock()
	defer s.mu.Unlock()
}

// entries are those of a memory, which can fail.
type entries struct {
	store.Entries

	memory *shared

	list, swap error
	before     func(store.EntryKey) // each Swap; nil: nothing
}

func (e *entries) List(ctx context.Context, kind, group, after string, limit int) ([]store.Entry, error) {
	e.memory.pass()
	if e.list != nil {
		return nil, e.list
	}
	return e.Entries.List(ctx, kind, group, after, limit)
}

func (e *entries) Swap(ctx context.Context, key store.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	e.memory.pass()
	if e.swap != nil {
		return 0, false, e.swap
	}
	if e.before != nil {
		e.before(key)
	}
	return e.Entries.Swap(ctx, key, old, value, until)
}

// replica is one process that follows tasks, and what it did.
type replica struct {
	*task.Failover

	t        *testing.T
	entries  *entries
	tasks    *store.Store
	workers  *worker.Group
	log      bytes.Buffer
	followed []string // by caller and task
	posted   []string // by task and its last state
	extended int
	refuse   error // of Follow
}

func (r *replica) Post(_ context.Context, rec *store.Record, _ []canonical.Event) {
	r.posted = append(r.posted, rec.Task.ID+" "+string(rec.Task.Status.State))
}

func (r *replica) Extend(context.Context, store.EntryKey, func(context.Context, store.Entry) (bool, error)) error {
	r.extended++
	return nil
}

func newReplica(t *testing.T, name string, memory *shared) *replica {
	t.Helper()
	r := &replica{t: t, entries: &entries{Entries: memory.Entries(), memory: memory}}
	var err error
	r.workers, err = worker.NewGroup(0, 0)
	r.must(err)
	logger := slog.New(slog.NewTextHandler(&r.log, nil))
	r.tasks = store.New(store.Deps{
		Entries: r.entries, Replies: memory.Memory, Replica: name, Now: time.Now, Logger: logger,
		StatusTime: func(canonical.Binding) time.Time { return time.Time{} }, Workers: r.workers, Queues: r.workers,
	})
	r.Failover = task.NewFailover(task.FailoverDeps{
		Tasks: r.tasks, Entries: r.entries, Webhooks: r, Workers: r.workers, Replica: name, Now: time.Now, Logger: logger,
		Follow: func(_ context.Context, who store.Principal, rec *store.Record) error {
			r.followed = append(r.followed, string(who.Caller)+" "+rec.Task.ID)
			return r.refuse
		},
	})
	return r
}

func (r *replica) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func newMemory(t *testing.T) *shared {
	t.Helper()
	memory, err := state.New(state.Config{}, state.Deps{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return &shared{Memory: memory}
}

// save puts a task on record that goes on at its agent, as edited.
func (r *replica) save(edit func(*store.Record)) *store.Record {
	r.t.Helper()
	rec := &store.Record{Key: store.TaskKey("alice", "painter", "t"), Changed: time.Now()}
	rec.Form, rec.Task.ID, rec.Task.Status.State = store.RecordForm, "t", canonical.StateWorking
	rec.TaskID, rec.Pushes = "agent's", true
	if edit != nil {
		edit(rec)
	}
	if ok, err := r.tasks.Save(r.t.Context(), rec); !ok || err != nil {
		r.t.Fatalf("not saved: %v", err)
	}
	return rec
}

func (r *replica) enroll(rec *store.Record) {
	r.t.Helper()
	r.Enroll(r.t.Context(), store.Principal{Caller: "alice"}, rec)
}

// watching reports whether there is an entry for a task.
func (r *replica) watching(rec *store.Record) bool {
	r.t.Helper()
	_, ok, err := r.entries.Get(r.t.Context(), store.FailoverKey(rec.Key))
	r.must(err)
	return ok
}

// after lets time pass, and a moment more.
func (r *replica) after(d time.Duration) {
	r.entries.memory.pass()
	time.Sleep(d + time.Millisecond)
	synctest.Wait()
}

// TestVisit_WhoFollows: which tasks another replica follows once it looks at them, after the
// first has gone, and those that it does not.
func TestVisit_WhoFollows(t *testing.T) {
	t.Parallel()
	const gone, alive, ended = "lost", "alive", "it has ended, and the time of a lease is over"
	follower := func(name string) func(*store.Record) {
		return func(rec *store.Record) { rec.Follower = name }
	}
	for name, c := range map[string]struct {
		edit   func(*store.Record)
		follow bool
		posted string
	}{
		"its follower is lost":          {follower(gone), true, ""},
		"it has no follower":            {follower(""), true, ""},
		"its follower is alive":         {follower(alive), false, ""},
		"it waits for its caller":       {func(rec *store.Record) { rec.Task.Status.State = canonical.StateInputRequired }, true, ""},
		"it was released":               {func(rec *store.Record) { rec.Released = time.Second }, false, ""},
		"it waits, with the agent's":    {func(rec *store.Record) { rec.Resume = store.ResumeTask }, false, ""},
		"its work is lost":              {func(rec *store.Record) { rec.Runner, rec.TaskID = gone, "" }, false, "t failed"},
		"its work is here":              {func(rec *store.Record) { rec.Runner = alive }, false, ""},
		"its work is lost, and goes on": {func(rec *store.Record) { rec.Runner, rec.Follower = gone, gone }, true, "t working"},
		"it has ended just now":         {func(rec *store.Record) { rec.Task.Status.State = canonical.StateCompleted }, false, ""},
		ended:                           {func(rec *store.Record) { rec.Task.Status.State = canonical.StateCompleted }, true, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			memory := newMemory(t)
			first, second, other := newReplica(t, gone, memory), newReplica(t, "second", memory), newReplica(t, alive, memory)
			defer second.workers.Close()
			defer other.workers.Close()
			other.must(other.tasks.StartHeartbeat(t.Context()))
			first.must(first.tasks.StartHeartbeat(t.Context()))
			first.workers.Close()
			time.Sleep(store.LeaseTTL + time.Second)
			rec := second.save(c.edit)
			value := `{"Caller":"alice","Version":"","Form":"","Task":{"Kind":"task","Group":"alice\u0000painter","ID":"t"},"By":"lost"}`
			_, _, err := second.entries.Swap(t.Context(), store.FailoverKey(rec.Key), 0, []byte(value), time.Now().Add(store.RecordLife))
			second.must(err)
			second.must(second.Begin())
			second.after(store.HeartbeatInterval)
			if name == ended {
				second.after(store.LeaseTTL)
			}
			if follows := len(second.followed) == 1 && second.followed[0] == "alice t"; follows != c.follow || len(second.followed) > 1 {
				t.Errorf("%s: followed are %q", name, second.followed)
			}
			if got := strings.Join(second.posted, ", "); got != c.posted {
				t.Errorf("%s: posted is %q, expected %q", name, got, c.posted)
			}
			if !second.watching(rec) {
				t.Errorf("%s: no replica would follow it any more", name)
			}
		})
	}
}

// TestEnroll_FollowedWhenLost: what a replica has enrolled is followed by another one, and no
// sooner than its heartbeat is over; of two that look, one follows it.
func TestEnroll_FollowedWhenLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := newMemory(t)
		first, second, third := newReplica(t, "first", memory), newReplica(t, "second", memory), newReplica(t, "third", memory)
		defer second.workers.Close()
		defer third.workers.Close()
		rec := first.save(func(rec *store.Record) { rec.Follower = "first" })
		first.enroll(rec)
		second.must(errors.Join(second.Begin(), third.Begin()))
		second.after(time.Minute)
		if n := len(second.followed) + len(third.followed); n != 0 {
			t.Errorf("followed %d times while the first is alive", n)
		}
		first.workers.Close()
		second.after(store.LeaseTTL + store.HeartbeatInterval)
		if n := len(second.followed) + len(third.followed); n != 1 {
			t.Errorf("followed %d times", n)
		}
		// The one that has it in hand looks at it again as long as the record names no replica; the other leaves it.
		hand, other := second, third
		if len(third.followed) > 0 {
			hand, other = third, second
		}
		hand.after(2 * store.HeartbeatInterval)
		if len(hand.followed) < 2 || len(other.followed) != 0 {
			t.Errorf("in hand of one: it followed %d times, and the other %d", len(hand.followed), len(other.followed))
		}
		if hand.tasks.IsAlive(t.Context(), "first") || !other.tasks.IsAlive(t.Context(), nameOf(hand, second)) {
			t.Error("the one that follows does not say that it is alive")
		}
	})
}

func nameOf(r, second *replica) string {
	if r == second {
		return "second"
	}
	return "third"
}

// TestEnroll_StoreFull: where there is no room, the task is followed here alone, and that is
// logged.
func TestEnroll_StoreFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "first", newMemory(t))
		defer r.workers.Close()
		rec := r.save(nil)
		r.entries.swap = &state.FullError{}
		r.enroll(rec)
		if r.watching(rec) || !strings.Contains(r.log.String(), "followed by this process alone") {
			t.Errorf("watched: %t; %s", r.watching(rec), r.log.String())
		}
	})
}

// TestVisit_NothingToFollow: entries that cannot be read, or whose record is gone, are deleted.
func TestVisit_NothingToFollow(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{"unreadable": "{", "record gone": `{"Task":{"Kind":"task","Group":"alice\u0000painter","ID":"gone"}}`} {
		synctest.Test(t, func(t *testing.T) {
			r := newReplica(t, "first", newMemory(t))
			defer r.workers.Close()
			key := store.FailoverKey(store.TaskKey("alice", "painter", "gone"))
			_, _, err := r.entries.Swap(t.Context(), key, 0, []byte(value), time.Now().Add(store.RecordLife))
			r.must(err)
			r.must(r.Begin())
			r.after(store.HeartbeatInterval)
			if _, ok, err := r.entries.Get(t.Context(), key); ok || err != nil || len(r.followed) > 0 {
				t.Errorf("%s: it is there: %t, %v, followed %q", name, ok, err, r.followed)
			}
		})
	}
}

// TestVisit_Extends: the entry of a task that is followed lives on, and its webhooks with it,
// which are read no more often than that takes.
func TestVisit_Extends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "first", newMemory(t))
		defer r.workers.Close()
		rec := r.save(func(rec *store.Record) { rec.Follower = "first" })
		r.enroll(rec)
		r.must(r.Begin())
		r.after(store.RecordLife/2 - store.HeartbeatInterval)
		if r.extended != 0 {
			t.Errorf("extended %d times before half of its life", r.extended)
		}
		for range 6 {
			_, err := r.tasks.Extend(t.Context(), rec) // as the record's follower does
			r.must(err)
			r.after(store.RecordLife / 2)
		}
		if !r.watching(rec) || r.extended < 4 || r.extended > 6 {
			t.Errorf("after three lives: it is watched: %t, extended %d times", r.watching(rec), r.extended)
		}
	})
}

// TestVisit_StoreAway: while the store is away nothing is followed; afterwards it goes on.
func TestVisit_StoreAway(t *testing.T) {
	t.Parallel()
	away := &state.UnavailableError{}
	for name, edit := range map[string]func(*replica, error){
		"list":            func(r *replica, err error) { r.entries.list = err },
		"swap":            func(r *replica, err error) { r.entries.swap = err },
		"follow, refused": func(r *replica, err error) { r.refuse = err },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newReplica(t, "first", newMemory(t))
			defer r.workers.Close()
			rec := r.save(nil)
			value := `{"Caller":"alice","Version":"","Form":"","Task":{"Kind":"task","Group":"alice\u0000painter","ID":"t"},"By":"lost"}`
			_, _, err := r.entries.Swap(t.Context(), store.FailoverKey(rec.Key), 0, []byte(value), time.Now().Add(store.RecordLife))
			r.must(err)
			edit(r, away)
			r.must(r.Begin())
			r.after(store.HeartbeatInterval)
			if r.log.Len() == 0 || r.refuse == nil && len(r.followed) > 0 {
				t.Errorf("%s: followed %q; %s", name, r.followed, r.log.String())
			}
			edit(r, nil)
			r.after(store.HeartbeatInterval)
			if len(r.followed) == 0 {
				t.Errorf("%s: it is not followed afterwards", name)
			}
		})
	}
}

// TestEndLost_Once: of two replicas that notice that work is lost, one posts that.
func TestEndLost_Once(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := newMemory(t)
		first, second := newReplica(t, "first", memory), newReplica(t, "second", memory)
		saved := first.save(func(rec *store.Record) { rec.Runner, rec.TaskID = "lost", "" })
		one, err := first.tasks.Load(t.Context(), saved.Key)
		first.must(err)
		other, err := second.tasks.Load(t.Context(), saved.Key)
		second.must(err)
		first.must(first.EndLost(t.Context(), one))
		second.must(second.EndLost(t.Context(), other))
		if len(first.posted) != 1 || len(second.posted) != 0 || other.Task.Status.State != canonical.StateFailed {
			t.Errorf("posted %q and %q, the second sees %s", first.posted, second.posted, other.Task.Status.State)
		}
		first.entries.swap = &state.UnavailableError{}
		if err := first.EndLost(t.Context(), saved); !errors.As(err, new(*problem.RecordingError)) {
			t.Errorf("while the store is away: %v", err)
		}
	})
}

// TestVisit_AnotherIsFirst: a task that another replica takes in the same moment is left to it.
func TestVisit_AnotherIsFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "first", newMemory(t))
		defer r.workers.Close()
		key := store.FailoverKey(r.save(nil).Key)
		value := []byte(`{"Caller":"alice","Version":"","Form":"","Task":{"Kind":"task","Group":"alice\u0000painter","ID":"t"},"By":"lost"}`)
		revision, _, err := r.entries.Swap(t.Context(), key, 0, value, time.Now().Add(store.RecordLife))
		r.must(err)
		r.entries.before = func(at store.EntryKey) {
			if at == key {
				r.entries.before = nil
				_, _, err := r.entries.Entries.Swap(t.Context(), key, revision, value, time.Now().Add(store.RecordLife))
				r.must(err)
			}
		}
		r.must(r.Begin())
		r.after(store.HeartbeatInterval)
		if r.entries.before != nil || len(r.followed) != 0 {
			t.Errorf("taken by the other: %t, followed %q", r.entries.before == nil, r.followed)
		}
	})
}
