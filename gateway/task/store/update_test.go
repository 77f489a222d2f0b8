package store

import (
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

func working() AsTold {
	return AsTold{Task: canonical.Task{Status: canonical.Status{State: canonical.StateWorking}}}
}

// TestUpdate_LosesNoChange: each of several writers reads what the others wrote, however
// their writes meet.
func TestUpdate_LosesNoChange(t *testing.T) {
	t.Parallel()
	entries := newMemory(t).Entries()
	s, key := newReplica(t, "here", entries), EntryKey{Kind: "count", Group: "g", ID: "n"}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 25 {
				for { // a conflict after maxSwaps attempts is told, and changes nothing
					_, err := s.Update(t.Context(), key, func(e Entry) ([]byte, time.Time, error) {
						n, _ := strconv.Atoi(string(e.Value))
						return []byte(strconv.Itoa(n + 1)), time.Now().Add(time.Hour), nil
					})
					if err == nil {
						break
					}
					if _, conflict := errors.AsType[*problem.ConflictError](err); !conflict {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	if entry, _, err := entries.Get(t.Context(), key); err != nil || string(entry.Value) != "100" {
		t.Errorf("100 increments make %s: %v", entry.Value, err)
	}
}

// TestUpdate_NoValueWritesNothing: change may leave the entry as it is, or refuse.
func TestUpdate_NoValueWritesNothing(t *testing.T) {
	t.Parallel()
	entries := newMemory(t).Entries()
	s, key, refused := newReplica(t, "here", entries), EntryKey{Kind: "count", Group: "g", ID: "n"}, errors.New("refused")
	for _, want := range []error{nil, refused} {
		if _, err := s.Update(t.Context(), key, func(Entry) ([]byte, time.Time, error) { return nil, time.Time{}, want }); !errors.Is(err, want) {
			t.Errorf("the error is %v, expected %v", err, want)
		}
	}
	if _, ok, err := entries.Get(t.Context(), key); ok || err != nil {
		t.Errorf("an entry was written: %v, %v", ok, err)
	}
}

// TestSaveMerged_EndIsFinal: a record that another replica has ended is not written over;
// what others wrote about other things stays.
func TestSaveMerged_EndIsFinal(t *testing.T) {
	t.Parallel()
	s, _, rec := stored(t, Record{AsTold: working()})
	other := *rec
	other.Pushes = true
	if ok, err := s.Save(t.Context(), &other); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := s.SaveMerged(t.Context(), rec); err != nil || !rec.Pushes || rec.Revision <= other.Revision {
		t.Errorf("merged is %+v: %v", rec, err)
	}
	other = *rec
	other.Task.Status.State = canonical.StateCanceled
	if ok, err := s.Save(t.Context(), &other); !ok || err != nil {
		t.Fatal(ok, err)
	}
	err := s.SaveMerged(t.Context(), rec)
	if state, ok := EndedAs(err); !ok || state != canonical.StateCanceled {
		t.Errorf("the error is %v, expected one that EndedAs knows", err)
	}
	if _, canceled := errors.AsType[*problem.CanceledError](err); !canceled {
		t.Errorf("a native endpoint is told %v, expected a CanceledError", err)
	}
}

// TestSaveIfCurrent_NewerRound: the result of an answer is not written over a newer
// question or an end.
func TestSaveIfCurrent_NewerRound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Record)
		saved  bool
	}{
		"another replica follows": {func(r *Record) { r.Follower = "other" }, true},
		"it asks again":           {func(r *Record) { r.Resume = ResumeTask }, false},
		"a newer round":           {func(r *Record) { r.Round++ }, false},
		"it has ended":            {func(r *Record) { r.Task.Status.State = canonical.StateFailed }, false},
	} {
		s, _, rec := stored(t, Record{AsTold: working(), OpenInput: OpenInput{Round: 2}})
		other := *rec
		c.change(&other)
		if ok, err := s.Save(t.Context(), &other); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if ok, err := s.SaveIfCurrent(t.Context(), rec, 2); ok != c.saved || err != nil || ok && rec.Follower != "other" {
			t.Errorf("%s: saved is %v, %v, expected %v", name, ok, err, c.saved)
		}
	}
}

// TestFollow_OneReplicaFollows: of two replicas that would follow a task, one does while
// it is alive.
func TestFollow_OneReplicaFollows(t *testing.T) {
	t.Parallel()
	s, entries, rec := stored(t, Record{AsTold: working(), AgentSide: AgentSide{TaskID: "u"}})
	other, stale := newReplica(t, "other", entries), *rec
	if mine, err := other.Follow(t.Context(), rec); !mine || err != nil {
		t.Fatalf("the first does not follow: %v", err)
	}
	if mine, err := s.Follow(t.Context(), &stale); mine || err != nil {
		t.Errorf("the second follows too: %v", err)
	}
	if err := entries.Delete(t.Context(), replicaKey("other")); err != nil {
		t.Fatal(err)
	}
	if mine, err := s.Follow(t.Context(), &stale); !mine || err != nil {
		t.Errorf("the task of a lost replica is not followed: %v", err)
	}
}
