package gateway_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

const cancelsCall = "notifications/cancelled"

// withWorkers plays with a server of 2025-11-25 that asks in each call, at a gateway where one
// caller may have so much work in the background.
func withWorkers(t *testing.T, workers int, test func(*stage)) {
	t.Helper()
	play(t, map[string][]scene{
		calling: {{events: []string{asksInside, "", result(complete)}, end: io.EOF}}, "": {{reply: "taken"}}, cancelsCall: {{}},
	}, func(s *stage) {
		if err := s.Close(); err != nil {
			s.t.Fatal(err)
		}
		s.asker.version, s.workers = mcp.Legacy, workers
		s.limiting = s.replica(s.t)
		test(s)
	})
}

// openQuestion calls a tool that asks, and returns the call that answers.
func (s *stage) openQuestion() (answering transport.Call) {
	s.t.Helper()
	call := s.retried("ask")
	state, keys := stateIn(s.t, s.outcome(call("")))
	return call(`,"requestState":"` + state + `","inputResponses":{"` + keys[0] + `":` + acceptsAda + `}`)
}

// areAnswered gives answers while their questions are open, and expects the server's results.
func (s *stage) areAnswered(answers ...transport.Call) {
	s.t.Helper()
	results := make(chan string, len(answers))
	for _, answering := range answers {
		go func() { results <- s.outcome(answering) }()
	}
	synctest.Wait()
	close(s.asker.resume)
	for range answers {
		if got := <-results; !strings.Contains(got, "hello Ada") {
			s.t.Errorf("an answer leads to %s", got)
		}
	}
}

// TestOpenQuestion_OldestIsEvicted: an MCP client of 2026-07-28 that leaves questions open, which it
// has no message to end, is asked the next one all the same: its oldest question ends, and the server
// is told to stop. The others are still answered.
func TestOpenQuestion_OldestIsEvicted(t *testing.T) {
	t.Parallel()
	withWorkers(t, 3, func(s *stage) {
		t := s.t
		var answers []transport.Call
		for range 5 {
			answers = append(answers, s.openQuestion())
		}
		synctest.Wait()
		if notices := s.asker.received(cancelsCall); len(notices) != 2 {
			t.Errorf("the server was told to stop %d times, expected 2", len(notices))
		}
		for i, answering := range answers[:2] {
			if _, err := s.Exchange(t.Context(), answering); err == nil || !strings.Contains(err.Error(), "the task has ended") {
				t.Errorf("the answer to question %d leads to %v", i+1, err)
			}
		}
		s.areAnswered(answers[2:]...)
	})
}

// TestOpenQuestion_OfAnotherCallerStays: a caller does not end the questions of another.
func TestOpenQuestion_OfAnotherCallerStays(t *testing.T) {
	t.Parallel()
	withWorkers(t, 2, func(s *stage) {
		first := s.openQuestion()
		mine := s.caller
		s.caller = ecttest.NewParty(s.t, "spiffe://example.com/another")
		for range 4 {
			s.openQuestion()
		}
		s.caller = mine
		s.areAnswered(first)
	})
}

// TestOpenQuestion_OfATaskStays: an A2A client can cancel its tasks, so that none of them is ended for it.
func TestOpenQuestion_OfATaskStays(t *testing.T) {
	t.Parallel()
	withWorkers(t, 2, func(s *stage) {
		t := s.t
		ids := []string{s.requested(t, s.ask(t, s, s.asks(invoking, called))), s.requested(t, s.ask(t, s, s.asks(invoking, called)))}
		for _, refused := range []transport.Call{s.asks(invoking, called), s.retried("ask")("")} {
			answer, err := s.Exchange(t.Context(), refused)
			if err == nil { // said on the stream that the call has begun
				err = errors.New(whole(t, answer))
			}
			if !strings.Contains(err.Error(), "this caller holds too many calls and tasks that go on in the background") {
				t.Errorf("one more call of a caller at its limit: %v", err)
			}
		}
		for _, id := range ids {
			if got := s.says(s.asks(looking, `{"id":"`+id+`"}`)); !strings.Contains(got, "INPUT_REQUIRED") {
				t.Errorf("a task that asks is now %s", got)
			}
		}
	})
}
