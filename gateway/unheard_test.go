package gateway_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

const (
	logLine    = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"halfway"}}`
	logDropped = "L12 dropped /body/log"
)

// asksTool is a message of an A2A client to the MCP server that plays scenes.
func (s *stage) asksTool(method, configuration string) transport.Call {
	call := s.a2a(method, `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"ask","input":{}}}]}`+configuration+`}`)
	call.Agent = "asker"
	return call
}

// ofTask asks about a task at that server.
func (s *stage) ofTask(method, id string) transport.Call {
	call := s.a2a(method, `{"id":"`+id+`"}`)
	call.Agent = "asker"
	return call
}

// warns reports whether one of the tokens declares a loss.
func warns(t *testing.T, tokens []string, loss string) bool {
	t.Helper()
	return slices.ContainsFunc(tokens, func(token string) bool {
		list, _ := claims(t, token).Ext.Strings(ect.ExtWarnings)
		return slices.Contains(list, loss)
	})
}

// TestLogMessages_AfterTheAnswer: an A2A caller who does not wait for a tool, or leaves
// its stream, gets no log messages of it. The ECTs of what it reads later, and of what is
// posted to it, declare that (AEPB, Gateway Requirements, item 4; loss L12).
func TestLogMessages_AfterTheAnswer(t *testing.T) {
	t.Parallel()
	const now = `,"configuration":{"returnImmediately":true,"taskPushNotificationConfig":{"url":"https://hook.example/"}}`
	for name, begin := range map[string]func(*stage) string{
		"not waited for": func(s *stage) string {
			id, _ := taskIn(s.t, s.ask(s.t, s, s.asksTool(invoking, now)).Wire().Body)
			return id
		},
		"a stream that is left": func(s *stage) string {
			events := s.ask(s.t, s, s.asksTool(streaming, now)).Events()
			id, _ := taskIn(s.t, []byte(heardNext(s.t, events)))
			if err := events.Close(); err != nil {
				s.t.Error(err)
			}
			return id
		},
		"a stream that is read": func(s *stage) string {
			events := s.ask(s.t, s, s.asksTool(streaming, now)).Events()
			id, _ := taskIn(s.t, []byte(heardNext(s.t, events)))
			go readOn(s.t.Context(), events)
			return id
		},
	} {
		for _, logs := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				says := []string{"", result(complete)}
				if logs {
					says = []string{"", logLine, result(complete)}
				}
				play(t, map[string][]scene{calling: {{events: says}}}, func(s *stage) {
					t := s.t
					id := begin(s)
					if answer := s.ask(t, s, s.ofTask(looking, id)); warns(t, answer.Evidence, logDropped) {
						t.Error("nothing was logged yet, and it is declared")
					}
					watched := s.ask(t, s, s.ofTask(following, id)).Events()
					s.asker.resume <- struct{}{}
					synctest.Wait()
					answer := s.ask(t, s, s.ofTask(looking, id))
					if got := warns(t, answer.Evidence, logDropped); got != logs {
						t.Errorf("it is declared when the task is read: %v, want %v", got, logs)
					}
					if _, closing := read(t, watched); warns(t, closing, logDropped) != logs {
						t.Errorf("it is declared at the end of another stream: %v, want %v", !logs, logs)
					}
					<-time.After(time.Second)
					s.posts.mu.Lock()
					defer s.posts.mu.Unlock()
					if n := len(s.posts.proofs); n == 0 || warns(t, s.posts.proofs[n-1], logDropped) != logs {
						t.Errorf("of %d posts the last one declares it: %v, want %v", n, !logs, logs)
					}
				})
			})
		}
	}
}

// TestLogMessages_DuringAQuestion: what a tool logs while its question is open is
// declared in the answer to who asks how the task stands.
func TestLogMessages_DuringAQuestion(t *testing.T) {
	t.Parallel()
	era(t, mcp.Legacy, map[string][]scene{
		calling:                   {{events: []string{asksInside, "", logLine, "", result(oldHello)}}},
		"notifications/cancelled": {{}},
	}, func(s *stage) {
		t := s.t
		id, _ := taskIn(t, s.ask(t, s, s.asksTool(invoking, `,"configuration":{"returnImmediately":true}`)).Wire().Body)
		<-time.After(time.Second)
		s.asker.resume <- struct{}{}
		synctest.Wait()
		answer := s.ask(t, s, s.ofTask(looking, id))
		if _, state := taskIn(t, answer.Wire().Body); state != "TASK_STATE_INPUT_REQUIRED" || !warns(t, answer.Evidence, logDropped) {
			t.Errorf("it is declared in none of the ECTs of %s", answer.Wire().Body)
		}
		s.ask(t, s, s.ofTask(canceling, id))
	})
}
