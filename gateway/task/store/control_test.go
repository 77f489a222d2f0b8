package store

import (
	"errors"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

func answer(n int) ControlMessage {
	return ControlMessage{Answers: []AnswerForRound{{Answer: canonical.Answer{Key: strconv.Itoa(n)}}}}
}

// TestQueue_LongCallIsAnswered: finding F9. Answers that were taken make room for more,
// however many a call needs; each arrives once, in order.
func TestQueue_LongCallIsAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		entries := newMemory(t).Entries()
		s, key := newReplica(t, "here", entries), EntryKey{Kind: KindControl, Group: "g", ID: "q"}
		q, err := s.OpenQueue(key)
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		const calls = 3 * maxAnswers
		for n := range calls {
			if err := s.Send(t.Context(), key, answer(n)); err != nil {
				t.Fatalf("answer %d is refused: %v", n, err)
			}
			got := <-q.Answers()
			if len(got) != 1 || got[0].Key != strconv.Itoa(n) {
				t.Fatalf("answer %d arrives as %+v", n, got)
			}
		}
	})
}

// TestQueue_IsBounded: answers that are not taken are refused beyond a number, and do not
// keep out a cancellation.
func TestQueue_IsBounded(t *testing.T) {
	t.Parallel()
	entries := newMemory(t).Entries()
	s, key := newReplica(t, "here", entries), EntryKey{Kind: KindControl, Group: "g", ID: "q"}
	for n := range maxAnswers {
		if err := s.Send(t.Context(), key, answer(n)); err != nil {
			t.Fatalf("answer %d: %v", n, err)
		}
	}
	if _, refused := errors.AsType[*problem.ConflictError](s.Send(t.Context(), key, answer(maxAnswers))); !refused {
		t.Error("an answer more than the queue holds is taken")
	}
	if err := s.Send(t.Context(), key, ControlMessage{Cancel: true}); err != nil {
		t.Errorf("a full queue keeps out a cancellation: %v", err)
	}
}

// TestQueue_CancelFromAnotherReplica: a control message of another replica ends the work,
// and the queue's entry is deleted with it.
func TestQueue_CancelFromAnotherReplica(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		entries := newMemory(t).Entries()
		here, other := newReplica(t, "here", entries), newReplica(t, "other", entries)
		key := EntryKey{Kind: KindControl, Group: "g", ID: "q"}
		q, err := here.OpenQueue(key)
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		if err := other.Send(t.Context(), key, ControlMessage{Cancel: true}); err != nil {
			t.Fatal(err)
		}
		<-q.Canceled().Done()
		synctest.Wait()
		if _, ok, err := entries.Get(t.Context(), key); ok || err != nil {
			t.Errorf("the entry is still there: %v, %v", ok, err)
		}
	})
}

// TestSend_SecondAnswerIsRefused: finding F7. Of two answers to one question, the second is
// refused, so that its caller does not take the other's for its own; an answer to the next
// question is not.
func TestSend_SecondAnswerIsRefused(t *testing.T) {
	t.Parallel()
	entries := newMemory(t).Entries()
	s, key := newReplica(t, "here", entries), EntryKey{Kind: KindControl, Group: "g", ID: "q"}
	inRound := func(name string, round int) ControlMessage {
		return ControlMessage{Answers: []AnswerForRound{{Answer: canonical.Answer{Key: name}, Round: round}}}
	}
	for _, c := range []struct {
		name  string
		send  ControlMessage
		taken bool
	}{
		{"the first", inRound("name", 1), true},
		{"a second", inRound("name", 1), false},
		{"to another question", inRound("town", 1), true},
		{"to the next round", inRound("name", 2), true},
		{"a cancellation", ControlMessage{Cancel: true}, true},
	} {
		err := s.Send(t.Context(), key, c.send)
		if _, refused := errors.AsType[*problem.ConflictError](err); refused == c.taken || err != nil && !refused {
			t.Errorf("%s: %v, expected it to be taken: %v", c.name, err, c.taken)
		}
	}
}
