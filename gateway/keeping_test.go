package gateway_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/task/store"
)

// entries are those of the memory, while nothing is broken.
type entries struct {
	store.Entries
	broken atomic.Bool   // nothing can be kept
	away   atomic.Bool   // nor found
	shelf  chan struct{} // not nil: what is listed waits for its end
	tasks  atomic.Int64  // writes of records

	mu      sync.Mutex
	shelved map[time.Time]int // writes of what is listed, by when
}

func (e *entries) Swap(ctx context.Context, key store.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	if e.broken.Load() {
		return 0, false, &state.UnavailableError{}
	}
	if key.Kind == "shelf" && e.shelf != nil {
		<-e.shelf
	}
	switch key.Kind {
	case "task":
		e.tasks.Add(1)
	case "shelf":
		e.mu.Lock()
		if e.shelved == nil {
			e.shelved = map[time.Time]int{}
		}
		e.shelved[time.Now()]++
		e.mu.Unlock()
	}
	return e.Entries.Swap(ctx, key, old, value, until)
}

func (e *entries) Get(ctx context.Context, key store.EntryKey) (store.Entry, bool, error) {
	if e.away.Load() {
		return store.Entry{}, false, &state.UnavailableError{}
	}
	return e.Entries.Get(ctx, key)
}

// Await notices within a second that nothing can be found.
func (e *entries) Await(ctx context.Context, key store.EntryKey, after uint64) (store.Entry, bool, error) {
	for {
		if e.away.Load() {
			return store.Entry{}, false, &state.UnavailableError{}
		}
		within, cancel := context.WithTimeout(ctx, time.Second)
		entry, ok, err := e.Entries.Await(within, key, after)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return entry, ok, err
		}
	}
}

// unattended is a task that nobody waits for.
func (b *fixture) unattended(t *testing.T) string {
	t.Helper()
	answer := b.exchange(t, b.a2aCall("SendMessage", strings.Replace(adding, `{"message"`, `{"configuration":{"returnImmediately":true},"message"`, 1)))
	id, state := taskIn(t, answer.Wire().Body)
	if state != "TASK_STATE_WORKING" {
		t.Fatalf("the answer is %s", answer.Wire().Body)
	}
	return id
}

// A task that ends while nothing can be kept is on record as ended as soon as
// something can: else it would seem to go on as long as this process lives.
func TestTaskEnd_FailedWriteIsRetried(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]bool{"a result": false, "a failure": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := slow(t)
				defer func() { _ = b.Close() }()
				id, want := b.unattended(t), "TASK_STATE_COMPLETED"
				if fail {
					b.agent.fail, want = context.DeadlineExceeded, "TASK_STATE_FAILED"
				}
				b.entries.broken.Store(true)
				close(b.agent.gate)
				time.Sleep(3 * time.Second)
				if got := b.stateOf(t, id); got != "TASK_STATE_WORKING" {
					t.Errorf("while nothing can be kept it is %s", got)
				}
				b.entries.broken.Store(false)
				time.Sleep(10 * time.Second)
				if got := b.stateOf(t, id); got != want {
					t.Errorf("afterwards it is %s, want %s", got, want)
				}
			})
		})
	}
}

// The same for a task whose caller hears of it as it goes.
func TestTaskEnd_FailedWriteDuringStreamIsRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := slow(t)
		defer func() { _ = b.Close() }()
		answer := b.exchange(t, b.a2aCall("SendStreamingMessage", adding))
		first, err := answer.Events().Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		id, _ := taskIn(t, first.Wire.Body)
		b.entries.broken.Store(true)
		close(b.agent.gate)
		if bodies, _ := read(t, answer.Events()); !strings.Contains(bodies[len(bodies)-1], "TASK_STATE_COMPLETED") {
			t.Errorf("the stream ends with %s", bodies)
		}
		b.entries.broken.Store(false)
		time.Sleep(10 * time.Second)
		if got := b.stateOf(t, id); got != "TASK_STATE_COMPLETED" {
			t.Errorf("afterwards it is %s", got)
		}
	})
}

// Somebody else writes to the record, because it wants to be told of changes: the
// end is kept all the same.
func TestTaskEnd_SurvivesConcurrentWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := slow(t)
		defer func() { _ = b.Close() }()
		id := b.unattended(t)
		key := store.EntryKey{Kind: "task", Group: string(b.caller.ID) + "\x00calculator", ID: id}
		entry, found, err := b.memory.Entries().Get(t.Context(), key)
		if err != nil || !found {
			t.Fatalf("there is no record: %v", err)
		}
		value := []byte(strings.Replace(string(entry.Value), `{"Form":1`, `{"Form":1,"Pushes":true`, 1))
		if _, ok, err := b.memory.Entries().Swap(t.Context(), key, entry.Revision, value, b.now().Add(time.Hour)); err != nil || !ok {
			t.Fatal(ok, err)
		}
		close(b.agent.gate)
		synctest.Wait()
		if got := b.stateOf(t, id); got != "TASK_STATE_COMPLETED" {
			t.Errorf("afterwards it is %s", got)
		}
		if entry, _, err = b.memory.Entries().Get(t.Context(), key); err != nil || !strings.Contains(string(entry.Value), `"Pushes":true`) {
			t.Errorf("nobody is told any more: %s, %v", entry.Value, err)
		}
	})
}

// A caller does not hear of work that goes on and that it could never ask about.
func TestTask_UnstoredIsNotReturned(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{
		invoking: {{reply: wholeTask("INPUT_REQUIRED", "")}}, looking: {{reply: result(taskOf("INPUT_REQUIRED", ""))}},
	}, func(s *stage) {
		t := s.t
		call := s.a2a(invoking, `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hi"}]}}`)
		s.entries.broken.Store(true)
		var away *problem.RecordingError
		if answer, err := s.Exchange(t.Context(), call); !errors.As(err, &away) {
			t.Errorf("got %s, %v", answer.Wire().Body, err)
		}
		s.entries.broken.Store(false)
		s.ask(t, s, call)
		if _, got := taskIn(t, s.ask(t, s, s.a2a(looking, `{"id":"t1"}`)).Wire().Body); got != "TASK_STATE_INPUT_REQUIRED" {
			t.Errorf("then it is %s", got)
		}
	})
}

// What changes no state is on record now and then: a write for every word of a
// long answer would cost more than to carry it.
func TestStream_UpdatesAreNotEachWritten(t *testing.T) {
	t.Parallel()
	const words = 500
	events := []string{wholeTask("WORKING", "")}
	for range words {
		events = append(events, status("WORKING", "a word"))
	}
	events = append(events, status("COMPLETED", ""))
	play(t, map[string][]scene{streaming: {{events: events, end: io.EOF}}}, func(s *stage) {
		t := s.t
		answer := s.ask(t, s, s.a2a(streaming, `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hi"}]}}`))
		if bodies, _ := read(t, answer.Events()); len(bodies) != words+2 {
			t.Errorf("%d events", len(bodies))
		}
		if writes := s.entries.tasks.Load(); writes == 0 || writes > 10 {
			t.Errorf("the record was written %d times", writes)
		}
	})
}
