package gateway_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestReusedTaskID_InOneReply: an agent that answers a message with a task that goes on
// under the id of one that has ended is at fault. The one that has ended stays as its
// caller knows it, and nothing under the id is canceled.
func TestReusedTaskID_InOneReply(t *testing.T) {
	t.Parallel()
	message03 := `{"jsonrpc":"2.0","id":7,"method":"message/send","params":{"message":{"kind":"message","messageId":"m1","role":"user","parts":[{"kind":"text","text":"hi"}]}}}`
	again := map[string]func(*stage) transport.Call{
		"1.0": func(s *stage) transport.Call { return s.a2a(invoking, saying) },
		"0.3": func(s *stage) transport.Call { return s.by(a2a.Binding, a2a.Version03, message03) },
	}
	for name, call := range again {
		for _, begun := range []string{"COMPLETED", "WORKING"} { // ended with its first reply, or later
			for _, state := range []string{"WORKING", "INPUT_REQUIRED"} {
				t.Run(name+" "+begun+" "+state, func(t *testing.T) {
					t.Parallel()
					play(t, map[string][]scene{
						invoking: {{reply: wholeTask(begun, "")}, {reply: wholeTask(state, "")}},
						looking:  {{reply: result(taskOf("COMPLETED", oneArt))}},
					}, func(s *stage) {
						t := s.t
						s.ask(t, s, s.a2a(invoking, saying))
						s.ask(t, s, s.a2a(looking, `{"id":"t1"}`))
						_, err := s.Exchange(t.Context(), call(s))
						if bad, ok := errors.AsType[*transport.BadReplyError](err); !ok || !strings.Contains(bad.Reason, "has ended") {
							t.Errorf("the answer is %v, want a bad reply of the agent", err)
						}
						synctest.Wait()
						if got := string(s.ask(t, s, s.a2a(looking, `{"id":"t1"}`)).Wire().Body); !strings.Contains(got, "TASK_STATE_COMPLETED") {
							t.Errorf("the task that has ended is told as %s", got)
						}
						if got := s.agent.was(); strings.Contains(got, canceling) {
							t.Errorf("the agent was asked %s", got)
						}
					})
				})
			}
		}
	}
}

// TestMessageToCanceledTask_IsNoFailureOfTheGateway: its caller cancels a task while a
// message to it waits for the agent, which then asks once more.
func TestMessageToCanceledTask_IsNoFailureOfTheGateway(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{
		streaming: {
			{events: []string{wholeTask("INPUT_REQUIRED", "")}},
			{events: []string{wholeTask("INPUT_REQUIRED", "")}, after: 3 * time.Second},
		},
		canceling: {{reply: result(taskOf("CANCELED", ""))}},
	}, func(s *stage) {
		t := s.t
		s.ask(t, s, s.tool(askingHi))
		var err error
		var work sync.WaitGroup
		work.Go(func() {
			_, err = s.Exchange(t.Context(), s.tool(`{"message":"more","task_id":"t1","context_id":"c1"}`))
		})
		<-time.After(time.Second)
		s.ask(t, s, s.a2a(canceling, `{"id":"t1"}`))
		work.Wait()
		if canceled, ok := errors.AsType[*problem.CanceledError](err); !ok || canceled == nil || problem.Native(err).Code == canonical.CodeInternal {
			t.Errorf("the message is answered with %v, want that it was canceled", err)
		}
		synctest.Wait()
		if got := s.agent.was(); strings.Count(got, canceling) != 1 {
			t.Errorf("the agent was asked %s", got)
		}
	})
}
