package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted is a store of which one step is scripted.
type scripted struct {
	Entries
	get    func() error // before it is read which replica is alive
	swap   func()       // before a write
	answer func(context.Context) (Entry, bool, error)
}

func (a *scripted) Get(ctx context.Context, key EntryKey) (Entry, bool, error) {
	if a.get != nil && key.Kind == KindReplica {
		return Entry{}, false, a.get()
	}
	return a.Entries.Get(ctx, key)
}

func (a *scripted) Swap(ctx context.Context, key EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	if a.swap != nil {
		first := a.swap
		a.swap = nil
		first()
	}
	return a.Entries.Swap(ctx, key, old, value, until)
}

func (a *scripted) Await(ctx context.Context, key EntryKey, after uint64) (Entry, bool, error) {
	if a.answer != nil {
		return a.answer(ctx)
	}
	return a.Entries.Await(ctx, key, after)
}

// newMemory is the state of one process.
func newMemory(t *testing.T) *state.Memory {
	t.Helper()
	memory, err := state.New(state.Config{}, state.Deps{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return memory
}

// newReplica makes a replica and its store, which closes with the test.
func newReplica(t *testing.T, name string, entries Entries) *Store {
	t.Helper()
	workers, err := worker.NewGroup(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(workers.Close)
	return New(Deps{
		Entries: entries, Replies: newMemory(t), Replica: name, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		StatusTime: func(canonical.Binding) time.Time { return time.Time{} }, Workers: workers, Queues: workers,
	})
}

// stored is a replica named "here" that has saved one record.
func stored(t *testing.T, rec Record) (*Store, *scripted, *Record) {
	t.Helper()
	entries := &scripted{Entries: newMemory(t).Entries()}
	s := newReplica(t, "here", entries)
	rec.Form, rec.Key = RecordForm, EntryKey{Kind: KindTask, Group: "g", ID: "t"}
	rec.Task.ID = "t"
	if ok, err := s.Save(t.Context(), &rec); !ok || err != nil {
		t.Fatalf("the record is not saved: %v, %v", ok, err)
	}
	return s, entries, &rec
}

// TestFailLost_SettlesWhatIsKnown: of the work of a lost replica, an agent's own task can
// be asked about, and its question is asked again; all other work has failed.
func TestFailLost_SettlesWhatIsKnown(t *testing.T) {
	t.Parallel()
	asking := canonical.Task{Status: canonical.Status{State: canonical.StateInputRequired}, Inputs: []canonical.Input{{Key: "k"}}}
	working := canonical.Task{Status: canonical.Status{State: canonical.StateWorking}}
	done := canonical.Task{Status: canonical.Status{State: canonical.StateCompleted}}
	for name, c := range map[string]struct {
		rec   Record
		state canonical.State
		round int
		left  bool // no replica works on it any more
	}{
		"work":                      {Record{Ownership: Ownership{Runner: "gone"}, AsTold: AsTold{Task: working}}, canonical.StateFailed, 0, true},
		"a question":                {Record{Ownership: Ownership{Runner: "gone"}, OpenInput: OpenInput{Resume: ResumeStream, Round: 2}, AsTold: AsTold{Task: asking}}, canonical.StateFailed, 3, true},
		"an agent's task":           {Record{Ownership: Ownership{Runner: "gone", Follower: "gone"}, AgentSide: AgentSide{TaskID: "u"}, AsTold: AsTold{Task: working}}, canonical.StateWorking, 0, true},
		"an agent's task that asks": {Record{Ownership: Ownership{Runner: "gone", Follower: "gone"}, AgentSide: AgentSide{TaskID: "u"}, OpenInput: OpenInput{Resume: ResumeStream, Round: 2}, AsTold: AsTold{Task: asking}}, canonical.StateWorking, 3, true},
		"a question for its caller": {Record{Ownership: Ownership{Runner: "gone"}, AgentSide: AgentSide{TaskID: "u"}, OpenInput: OpenInput{Resume: ResumeTask, Round: 2}, AsTold: AsTold{Task: asking}}, canonical.StateInputRequired, 2, true},
		"what has ended":            {Record{Ownership: Ownership{Runner: "gone"}, AsTold: AsTold{Task: done}}, canonical.StateCompleted, 0, false},
		"our own":                   {Record{Ownership: Ownership{Runner: "here"}, AsTold: AsTold{Task: working}}, canonical.StateWorking, 0, false},
		"of no replica":             {Record{AgentSide: AgentSide{TaskID: "u"}, Ownership: Ownership{Follower: "gone"}, AsTold: AsTold{Task: working}}, canonical.StateWorking, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, rec := stored(t, c.rec)
			before := rec.Revision
			if err := failLost(t, s, rec); err != nil {
				t.Fatal(err)
			}
			saved, err := s.Load(t.Context(), rec.Key)
			if err != nil || saved.Revision != rec.Revision || (rec.Revision != before) != c.left {
				t.Fatalf("it is at %d on record, at %d here, and was at %d: %v", saved.Revision, rec.Revision, before, err)
			}
			for who, r := range map[string]*Record{"here": rec, "on record": saved} {
				open := r.Resume == ResumeStream || r.Task.Status.State != canonical.StateInputRequired && len(r.Task.Inputs) > 0
				if r.Task.Status.State != c.state || r.Round != c.round || c.left && (r.Runner != "" || r.Follower != "" || open) {
					t.Errorf("%s it is %+v", who, r)
				}
			}
		})
	}
}

// TestFailLost_AnotherReplicaWasFirst: of several replicas that notice, one settles the
// work, and the others see the result.
func TestFailLost_AnotherReplicaWasFirst(t *testing.T) {
	t.Parallel()
	working := Record{Ownership: Ownership{Runner: "gone"}, AsTold: AsTold{Task: canonical.Task{Status: canonical.Status{State: canonical.StateWorking}}}}
	s, entries, rec := stored(t, working)
	first := *rec
	first.Runner, first.Task.Status.State = "", canonical.StateCanceled
	entries.swap = func() {
		if ok, err := s.Save(t.Context(), &first); !ok || err != nil {
			t.Errorf("the other is not kept: %v, %v", ok, err)
		}
	}
	if err := failLost(t, s, rec); err != nil || rec.Task.Status.State != canonical.StateCanceled || rec.Revision != first.Revision {
		t.Errorf("it is %+v, %v", rec, err)
	}

	s, entries, rec = stored(t, working)
	entries.swap = func() { _ = entries.Delete(t.Context(), rec.Key) }
	var refused *canonical.Error
	if err := failLost(t, s, rec); !errors.As(err, &refused) || refused.Code != canonical.CodeTaskNotFound {
		t.Errorf("without its record: %v", err)
	}

	s, entries, rec = stored(t, working)
	entries.get = func() error { return &state.UnavailableError{} }
	var away *problem.RecordingError
	if err := failLost(t, s, rec); !errors.As(err, &away) || rec.Runner != "gone" {
		t.Errorf("while the state is away: %v, %+v", err, rec)
	}
}

// TestWait_ChangeAtTheEnd: a change that comes with the end of the wait is returned, and
// the end of the record is not taken for the end of the wait.
func TestWait_ChangeAtTheEnd(t *testing.T) {
	t.Parallel()
	const limit = HeartbeatInterval
	working := Record{AsTold: AsTold{Task: canonical.Task{Status: canonical.Status{State: canonical.StateWorking}}}}
	for name, c := range map[string]struct {
		limit  time.Duration
		leaves bool // the caller leaves at the same moment
		answer func(ctx context.Context, changed Entry) (Entry, bool, error)
		want   canonical.State // empty: there is no change
		err    error
	}{
		"a change":                        {limit, false, func(_ context.Context, e Entry) (Entry, bool, error) { return e, true, nil }, canonical.StateCompleted, nil},
		"a change, and the caller leaves": {limit, true, func(_ context.Context, e Entry) (Entry, bool, error) { return e, true, nil }, canonical.StateCompleted, nil},
		"nothing": {limit, false, func(ctx context.Context, _ Entry) (Entry, bool, error) {
			return Entry{}, false, ctx.Err()
		}, "", nil},
		"nothing, and the caller leaves": {limit, true, func(ctx context.Context, _ Entry) (Entry, bool, error) {
			return Entry{}, false, ctx.Err()
		}, "", context.Canceled},
		"nothing yet": {2 * limit, false, func(ctx context.Context, _ Entry) (Entry, bool, error) {
			return Entry{}, false, ctx.Err()
		}, canonical.StateWorking, nil},
		"the record ends": {limit, false, func(context.Context, Entry) (Entry, bool, error) { return Entry{}, false, nil }, "", &canonical.Error{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, entries, rec := stored(t, working)
				later := *rec
				later.Task.Status.State = canonical.StateCompleted
				value, err := json.Marshal(later)
				if err != nil {
					t.Fatal(err)
				}
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				entries.answer = func(within context.Context) (Entry, bool, error) {
					<-within.Done()
					if c.leaves {
						leave()
					}
					return c.answer(within, Entry{Key: rec.Key, Revision: rec.Revision + 1, Value: value})
				}
				began := time.Now()
				next, err := s.Wait(ctx, rec, c.limit)
				if took := time.Since(began); took != limit {
					t.Errorf("it took %v", took)
				}
				if _, refused := errors.AsType[*canonical.Error](c.err); refused && !errors.As(err, new(*canonical.Error)) || !refused && !errors.Is(err, c.err) {
					t.Errorf("%v, not %v", err, c.err)
				}
				if next == nil && c.want != "" || next != nil && next.Task.Status.State != c.want {
					t.Errorf("it has become %+v", next)
				}
			})
		})
	}
}

// TestWait_RecordExpiresMeanwhile: a record that is kept exactly as long as the wait.
func TestWait_RecordExpiresMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, entries, rec := stored(t, Record{AsTold: AsTold{Task: canonical.Task{Status: canonical.Status{State: canonical.StateWorking}}}})
		value, err := json.Marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		if rec.Revision, _, err = entries.Entries.Swap(t.Context(), rec.Key, rec.Revision, value, time.Now().Add(HeartbeatInterval)); err != nil {
			t.Fatal(err)
		}
		next, err := s.Wait(t.Context(), rec, HeartbeatInterval)
		if err != nil && !errors.As(err, new(*canonical.Error)) || next != nil {
			t.Errorf("at its end it is %+v, %v", next, err)
		}
		<-time.After(time.Nanosecond)
		if next, err := s.Wait(t.Context(), rec, HeartbeatInterval); next != nil || !errors.As(err, new(*canonical.Error)) {
			t.Errorf("then it is %+v, %v", next, err)
		}
	})
}

// failLost is FailLost for a test that looks at the record alone.
func failLost(t *testing.T, s *Store, rec *Record) error {
	t.Helper()
	_, err := s.FailLost(t.Context(), rec)
	return err
}

// TestHeartbeat_BusyReplicaIsAlive: a replica that has as much to do as it may when it
// starts its heartbeat goes on with it: its work does not count as lost.
func TestHeartbeat_BusyReplicaIsAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		entries := newMemory(t).Entries()
		busy, other := newReplica(t, "busy", entries), newReplica(t, "other", entries)
		for busy.deps.Workers.Go(func(ctx context.Context) { <-ctx.Done() }) == nil {
			continue
		}
		if err := busy.StartHeartbeat(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-time.After(10 * LeaseTTL)
		if gone, err := other.IsOwnerLost(t.Context(), &Record{Ownership: Ownership{Runner: "busy"}}); gone || err != nil {
			t.Errorf("another replica takes it for lost: %v, %v", gone, err)
		}
	})
}

// TestIsAlive_StoreAway: a store that does not answer makes no replica lost, so that no
// other takes over its work.
func TestIsAlive_StoreAway(t *testing.T) {
	t.Parallel()
	s, entries, rec := stored(t, Record{Ownership: Ownership{Runner: "other"}, AsTold: working()})
	if s.IsAlive(t.Context(), "other") || s.IsAlive(t.Context(), "") || !s.IsAlive(t.Context(), "here") {
		t.Error("alive is not this replica alone, while the other has no heartbeat")
	}
	entries.get = func() error { return &state.UnavailableError{} }
	if !s.IsAlive(t.Context(), "other") || s.IsAbandoned(t.Context(), "other", rec) {
		t.Error("a replica is lost because the store is away")
	}
	if gone, err := s.IsOwnerLost(t.Context(), rec); gone || err == nil {
		t.Errorf("the owner is lost: %v, %v, expected the error of the store", gone, err)
	}
}

// counted counts what is kept under names of lists.
type counted struct {
	*state.Memory

	lists int
}

func (c *counted) Finish(ctx context.Context, key ect.ReplayKey, answer []byte, until time.Time) {
	if strings.HasPrefix(string(key.Issuer), "ended\x00") {
		c.lists++
	}
	c.Memory.Finish(ctx, key, answer, until)
}

// TestSaveEnded_ListsAreWrittenTogether: a process that is alone writes them a moment later, but reads
// what it has not written yet, and leaves nothing unwritten at its end.
func TestSaveEnded_ListsAreWrittenTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 50
		memory := newMemory(t)
		replies := &counted{Memory: memory}
		s := newReplica(t, "here", memory.Entries())
		s.deps.Replies = replies
		group := TaskKey("caller", "agent", "").Group
		save := func(first int) {
			for n := range many {
				id := fmt.Sprintf("task-%03d", first+n)
				rec := &Record{Key: TaskKey("caller", "agent", id), AsTold: AsTold{Saved: &SavedMessage{}}}
				if err := s.SaveEnded(t.Context(), rec); err != nil {
					t.Fatal(err)
				}
			}
		}
		found := func(s *Store) (n int) {
			if err := s.visitEnded(t.Context(), group, func(endedTask) { n++ }); err != nil {
				t.Error(err)
			}
			return n
		}
		save(0)
		if replies.lists != 0 {
			t.Errorf("%d lists were written at once", replies.lists)
		}
		if n := found(s); n != many || replies.lists > many/listSize+1 {
			t.Errorf("%d of %d tasks are found, in %d lists", n, many, replies.lists)
		}
		save(many)
		time.Sleep(lateRest + time.Millisecond)
		synctest.Wait()
		later := newReplica(t, "here", memory.Entries())
		later.deps.Replies = replies
		if n := found(later); n != 2*many {
			t.Errorf("after a moment %d of %d tasks are written", n, 2*many)
		}
		save(2 * many)
		s.Flush(t.Context())
		if n := found(later); n != 3*many {
			t.Errorf("at the end %d of %d tasks are written", n, 3*many)
		}
	})
}
