package gateway_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/task/store"
)

// stepOf is what an MCP server says on the way.
func stepOf(n int) string {
	number := strconv.Itoa(n)
	return `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":ID,"progress":` + number + `,"message":"step ` + number + `"}}`
}

// TestSubscriber_AtAnotherReplica: who subscribes at another replica is told all
// progress from then on (A2A 1.0 section 3.5.2), each step soon after it was made, also
// if nothing follows for long.
func TestSubscriber_AtAnotherReplica(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{"tools/call": {{
		events: []string{stepOf(1), "", stepOf(2), stepOf(3), "", result(`{"resultType":"complete","content":[{"type":"text","text":"did it"}]}`)},
	}}}, func(s *stage) {
		t := s.t
		other := s.replica(t)
		call := func(method, params string) (body []byte, next func() string) {
			c := s.a2a(method, params)
			c.Agent = "asker"
			if method != following {
				return s.ask(t, s.limiting, c).Wire().Body, nil
			}
			events := s.ask(t, other, c).Events()
			return nil, func() string {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				event, err := events.Next(ctx)
				if err != nil {
					t.Fatalf("the stream ended: %v", err)
				}
				return string(event.Wire.Body)
			}
		}
		body, _ := call(invoking, strings.Replace(addingLater, `"skill":"add"`, `"skill":"ask"`, 1))
		id, _ := taskIn(t, body)
		_, next := call(following, `{"id":"`+id+`"}`)
		if first := next(); !strings.Contains(first, `"task"`) {
			t.Errorf("the stream begins with %s", first)
		}
		synctest.Wait()
		began := time.Now()
		s.asker.resume <- struct{}{}
		for _, want := range []string{"step 2", "step 3"} {
			if got := next(); !strings.Contains(got, want) || !strings.Contains(got, "TASK_STATE_WORKING") {
				t.Errorf("heard %s, want %s", got, want)
			}
		}
		if took := time.Since(began); took > 300*time.Millisecond {
			t.Errorf("that took %v", took)
		}
		<-time.After(10 * time.Second)
		s.asker.resume <- struct{}{}
		for _, want := range []string{"did it", "TASK_STATE_COMPLETED"} {
			if got := next(); !strings.Contains(got, want) {
				t.Errorf("heard %s, want %s", got, want)
			}
		}
		_ = other.Close()
	})
}

// TestSubscriber_OfALostReplica: who has subscribed at another replica than the one that
// works on the task, and is killed, is told that it is lost soon after that is known.
func TestSubscriber_OfALostReplica(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{"tools/call": {{events: []string{stepOf(1), "", result(`{"resultType":"complete","content":[]}`)}}}}, func(s *stage) {
		t := s.t
		view := &entries{Entries: s.memory.Entries()}
		s.view = view
		killed := s.replica(t)
		s.view = nil
		call := s.a2a(invoking, strings.Replace(addingLater, `"skill":"add"`, `"skill":"ask"`, 1))
		call.Agent = "asker"
		id, _ := taskIn(t, s.ask(t, killed, call).Wire().Body)
		<-time.After(store.HeartbeatInterval - time.Second)
		died := time.Now().Add(2 * time.Second) // after one more heartbeat
		time.AfterFunc(2*time.Second, func() {
			view.broken.Store(true)
			_ = killed.Close()
		})
		subscribe := s.a2a(following, `{"id":"`+id+`"}`)
		subscribe.Agent = "asker"
		bodies, _ := read(t, s.ask(t, s, subscribe).Events())
		if last := bodies[len(bodies)-1]; !strings.Contains(last, "TASK_STATE_FAILED") || !strings.Contains(last, "was lost") {
			t.Errorf("the stream ends with %s", last)
		}
		if took := time.Since(died); took > store.LeaseTTL+store.HeartbeatInterval {
			t.Errorf("that took %v", took)
		}
	})
}
