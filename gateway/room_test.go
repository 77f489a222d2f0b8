package gateway_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/task/store"
)

// crowd leaves space for so many more records of a caller's work, and more for what
// is no record of work.
func crowd(t *testing.T, e *entries, caller ect.Identity, most int) {
	t.Helper()
	const share = 64
	small, err := state.New(state.Config{MaxEntriesPerOwner: share}, state.Deps{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	e.Entries = small.Entries()
	for n := range state.KindShare(share) - most {
		key := store.EntryKey{Kind: "task", Group: string(caller) + "\x00another", ID: strconv.Itoa(n)}
		if _, ok, err := e.Entries.Swap(t.Context(), key, 0, []byte(`{"Form":1}`), time.Now().Add(24*time.Hour)); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
}

const begun = `{"configuration":{"returnImmediately":true},"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"add","input":{"a":1,"b":2}}}]}}`

// later lets time pass on the pipeline's clock too.
func (b *fixture) later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
	b.setNow(b.now().Add(d))
}

func (b *fixture) refusedForSpace(t *testing.T) {
	t.Helper()
	var away *problem.RecordingError
	var full *state.FullError
	if answer, err := b.Exchange(t.Context(), b.a2aCall("SendMessage", begun)); !errors.As(err, &away) || !errors.As(err, &full) {
		t.Errorf("one more: %s, %v", answer.Wire().Body, err)
	}
}

func TestTaskLimit_EndedTasksAreEvicted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := slow(t)
		defer func() { _ = b.Close() }()
		crowd(t, &b.entries, b.caller.ID, 3)
		end := func() {
			close(b.agent.gate)
			synctest.Wait()
			b.agent.gate = make(chan struct{})
		}
		first := b.unattended(t)
		end()
		b.later(time.Second)
		others := []string{b.unattended(t), b.unattended(t)}
		end()
		b.later(time.Second)
		others = append(others, b.unattended(t)) // at once, although they have only just ended
		if _, err := b.Exchange(t.Context(), b.a2aCall("GetTask", `{"id":"`+first+`"}`)); err == nil || !strings.Contains(err.Error(), "no such task") {
			t.Errorf("the oldest is still known: %v", err)
		}
		for i, want := range []string{"TASK_STATE_COMPLETED", "TASK_STATE_COMPLETED", "TASK_STATE_WORKING"} {
			if got := b.stateOf(t, others[i]); got != want {
				t.Errorf("task %d is %s, want %s", i+1, got, want)
			}
		}
		close(b.agent.gate)
	})
}

// Work that goes on keeps its place.
func TestTaskLimit_RunningTasksStay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := slow(t)
		defer func() { _ = b.Close() }()
		crowd(t, &b.entries, b.caller.ID, 2)
		ids := []string{b.unattended(t), b.unattended(t)}
		for range 5 {
			b.refusedForSpace(t)
			b.later(2 * time.Second)
		}
		close(b.agent.gate)
		synctest.Wait()
		for _, id := range ids {
			if got := b.stateOf(t, id); got != "TASK_STATE_COMPLETED" {
				t.Errorf("%s is %s", id, got)
			}
		}
	})
}

// An end whose record is gone, and whose place is taken, is not written again and again.
func TestTaskEnd_AbandonedWithoutRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := slow(t)
		defer func() { _ = b.Close() }()
		crowd(t, &b.entries, b.caller.ID, 1)
		key := store.EntryKey{Kind: "task", Group: string(b.caller.ID) + "\x00calculator", ID: b.unattended(t)}
		if err := b.entries.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		b.unattended(t)
		close(b.agent.gate)
		time.Sleep(5 * time.Second)
		writes := b.entries.tasks.Load()
		if time.Sleep(30 * time.Minute); b.entries.tasks.Load() != writes {
			t.Errorf("it was tried %d times more", b.entries.tasks.Load()-writes)
		}
	})
}

// Who asks about work that ended with its answer takes no place for that.
func TestTaskLimit_LookupOfEndedTakesNoPlace(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{
		invoking: {{reply: wholeTask("COMPLETED", "")}}, looking: {{reply: result(taskOf("COMPLETED", ""))}},
	}, func(s *stage) {
		t := s.t
		crowd(t, &s.entries, s.caller.ID, 1)
		taken := store.EntryKey{Kind: "task", Group: string(s.caller.ID) + "\x00writer", ID: "another"}
		if _, ok, err := s.entries.Entries.Swap(t.Context(), taken, 0, []byte(`{"Form":1}`), time.Now().Add(time.Hour)); err != nil || !ok {
			t.Fatal(ok, err)
		}
		s.ask(t, s, s.a2a(invoking, `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hi"}]}}`))
		if _, got := taskIn(t, s.ask(t, s, s.a2a(looking, `{"id":"t1"}`)).Wire().Body); got != "TASK_STATE_COMPLETED" {
			t.Errorf("it is %s", got)
		}
		if writes := s.entries.tasks.Load(); writes != 0 {
			t.Errorf("%d records were written", writes)
		}
	})
}
