package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway"
	waits "github.com/aepb/aepb-gateway/gateway/schedule"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/lifecycle/schedule"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// TestAttack_QuestionWithoutAnAnswer: work whose agent asks in its open stream has no place while it waits for its caller, whether the agent
// asks at once or when the work is in the background. So a caller that never answers blocks no other.
func TestAttack_QuestionWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		call  string
		after time.Duration
	}{"at once": {called, 0}, "a promised task": {calledLater, 0}, "in the background": {calledLater, time.Second}} {
		t.Run(name, func(t *testing.T) {
			era(t, mcp.Legacy, map[string][]scene{calling: {{events: []string{asksInside}, after: tc.after}, {reply: result(oldHello)}}, "": {{reply: "taken"}}}, func(s *stage) {
				t := s.t
				s.Apply(gateway.Settings{Schedule: waits.Rules{Agents: map[string]schedule.Config{"asker": {Places: 1}}}})
				s.ask(t, s, s.asks(invoking, tc.call))
				<-time.After(2 * tc.after)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute/2)
				defer cancel()
				began := time.Now()
				if _, err := s.Exchange(ctx, s.asks(invoking, strings.Replace(called, "m1", "m3", 1))); err != nil || time.Since(began) > 0 {
					t.Errorf("another call: %v after %s", err, time.Since(began))
				}
			})
		})
	}
}

// TestAttack_QueueFilledByLowClasses: callers of a low class that fill the queue together do not have a critical call refused: the last
// one of them gives way.
func TestAttack_QueueFilledByLowClasses(t *testing.T) {
	inQueue(t, 1, func(t *testing.T, b *queue) {
		t.Helper()
		b.fill(t, 1)
		refused := 0
		for i := range 64 {
			b.send(t.Context(), b.by(fmt.Sprint("low/", i/16), 1), func(_ transport.Answer, err error, _ time.Duration) {
				if full, ok := errors.AsType[*schedule.FullError](err); ok && !full.Own {
					refused++
				}
			})
		}
		b.send(t.Context(), b.by("critical/1", 9), func(_ transport.Answer, err error, took time.Duration) {
			if err != nil || took > 2*serviceTime {
				t.Errorf("a critical call: %v after %s", err, took)
			}
		})
		b.wait(t)
		if got := strings.Join(b.order, ""); got != "09"+strings.Repeat("1", 63) || refused != 1 {
			t.Errorf("the agent got %s, and %d calls gave way", got, refused)
		}
	})
}

// TestAttack_WorkflowForEachCall: a caller that makes a workflow for each of its calls, with a start or without, goes before no other caller.
func TestAttack_WorkflowForEachCall(t *testing.T) {
	t.Parallel()
	for name, started := range map[string]bool{"with starts": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			inQueue(t, 2, func(t *testing.T, b *queue) {
				t.Helper()
				b.Apply(gateway.Settings{Schedule: waits.Rules{Agents: map[string]schedule.Config{"calculator": {Places: 2}}}})
				b.fill(t, 2)
				done := func(_ transport.Answer, err error, _ time.Duration) {
					if err != nil {
						t.Error(err)
					}
				}
				for range 6 {
					call := b.call(summing(1))
					if started {
						_, start := b.begin(t)
						call.Parent = string(start.ID)
					} else {
						call.Evidence = []string{b.hinting(t, summing(1), "")}
					}
					b.send(t.Context(), call, done)
				}
				for range 2 {
					b.send(t.Context(), b.by("other", 2), done)
				}
				b.wait(t)
				slices.Sort(b.order[2:4])
				slices.Sort(b.order[4:6])
				if got := strings.Join(b.order, ""); got != "00"+"12"+"12"+"1111" {
					t.Errorf("the order is %s: expected one call of each caller at a time", got)
				}
			})
		})
	}
}

// TestPlaces_AgentCallsItself: an agent with one place that calls itself through the gateway does not wait for its own work.
func TestPlaces_AgentCallsItself(t *testing.T) {
	inQueue(t, 1, func(t *testing.T, b *queue) {
		t.Helper()
		inner := b.agent.called
		b.agent.called = func(name string, args json.RawMessage) (string, error) {
			if strings.Contains(string(args), `"a":1`) {
				call := b.call(summing(2))
				call.Caller.Peer = b.server.Peer()
				if _, err := b.Exchange(t.Context(), call); err != nil {
					t.Errorf("the nested call: %v", err)
				}
			}
			return inner(name, args)
		}
		b.send(t.Context(), b.by("other", 1), func(_ transport.Answer, err error, took time.Duration) {
			if err != nil || took != 2*serviceTime {
				t.Errorf("%v after %s", err, took)
			}
		})
		b.wait(t)
	})
}

// TestPlaces_RollbackNeedsNone: the calls of a rollback are made while others have all places of the agent.
func TestPlaces_RollbackNeedsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := cascading(t)
		b.does(t, "create_booking", `{"guest":"Ada"}`)
		b.Apply(gateway.Settings{Constraints: policy.Constraints{Cascade: policy.CascadeAlways}, Schedule: waits.Rules{Agents: map[string]schedule.Config{"calculator": {Places: 1}}}})
		hold := make(chan struct{})
		b.hotel.hold = map[string]chan struct{}{"send_mail": hold}
		var others sync.WaitGroup
		b.hotel.fail = func(tool string) error { // the mail gets the place that the failed payment gives back
			if tool == "pay" {
				call := b.call(`{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{"message":{"messageId":"m8","role":"ROLE_USER","parts":[{"data":{"skill":"send_mail","input":{}}}]}}}`)
				others.Go(func() { _, _ = b.Exchange(t.Context(), call) })
				<-time.After(time.Second)
			}
			return nil
		}
		b.does(t, "pay", `{"amount":100}`)
		<-time.After(3 * time.Second)
		if n := b.hotel.count("cancel_booking"); n != 1 {
			t.Errorf("the agent was asked %d times to undo", n)
		}
		close(hold)
		others.Wait()
	})
}
