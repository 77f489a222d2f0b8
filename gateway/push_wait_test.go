package gateway_test

import (
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// stepping is what an agent says of a task of three steps.
func stepping() []string {
	return []string{
		wholeTask("SUBMITTED", ""), status("WORKING", "step 1"), status("WORKING", "step 2"), status("WORKING", "step 3"), artifact("done it"), status("COMPLETED", ""),
	}
}

const (
	stepped  = "SUBMITTED WORKING WORKING WORKING COMPLETED"
	withPast = oneArt + `,"history":[{"messageId":"s1","role":"ROLE_AGENT","parts":[{"text":"step 1"}]}]`
)

// toldAll demands that the webhook heard of each step, in order, and of the artifact.
func (s *stage) toldAll(id string) {
	s.t.Helper()
	synctest.Wait()
	got, last := s.posted(), 0
	for _, want := range []string{"step 1", "step 2", "step 3", "done it", "COMPLETED"} {
		at := strings.Index(got, want)
		if at < last {
			s.t.Errorf("%s is not in its place", want)
		}
		last = at
	}
	if states := s.states(id); states != stepped {
		s.t.Errorf("posted was %s: %s", states, got)
	}
}

// TestPush_WaitingSendIsPostedFromItsBeginning: a caller who waits for one answer has
// its webhook told each change (A2A 1.0 section 4.3.3), and is answered with the task
// as the agent has it, its history included.
func TestPush_WaitingSendIsPostedFromItsBeginning(t *testing.T) {
	t.Parallel()
	for name, had := range map[string]scene{
		"with its history": {reply: result(taskOf("COMPLETED", withPast))}, "which the agent does not tell": {reply: failure("-32001")},
		"which does not come": {fail: errBroken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{streaming: {{events: stepping(), end: io.EOF}}, looking: {had}}, func(s *stage) {
				t := s.t
				answer := s.ask(t, s, s.a2a(invoking, withHook(saying, "one", "")))
				got := string(answer.Wire().Body)
				if !strings.Contains(got, "COMPLETED") || !strings.Contains(got, "done it") || strings.Contains(got, "step 1") != (name == "with its history") {
					t.Errorf("its caller is answered %s", got)
				}
				if len(answer.Losses) != 0 || len(answer.Evidence) != 2 {
					t.Errorf("with %d ECTs and the losses %v", len(answer.Evidence), answer.Losses)
				}
				s.toldAll("one")
			})
		})
	}
}

// TestPush_AnswerAtOnceLosesNoStep: what an agent says right after it has named its
// task is posted too, for a caller who does not wait (A2A 1.0, returnImmediately).
func TestPush_AnswerAtOnceLosesNoStep(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{streaming: {{events: stepping(), end: io.EOF}}}, func(s *stage) {
		t := s.t
		if _, state := taskIn(t, s.ask(t, s, s.a2a(invoking, withHook(saying, "one", `"returnImmediately":true,`))).Wire().Body); state != "TASK_STATE_SUBMITTED" {
			t.Errorf("its caller is answered %s", state)
		}
		s.toldAll("one")
	})
}

// TestPush_WaitingSendWithoutWebhook: the agent is asked as the caller asks.
func TestPush_WaitingSendWithoutWebhook(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{invoking: {{reply: wholeTask("COMPLETED", withPast)}}}, func(s *stage) {
		s.ask(s.t, s, s.a2a(invoking, saying))
		if got := s.agent.was(); got != invoking {
			s.t.Errorf("the agent heard %s", got)
		}
	})
}

// TestPush_WaitingSendToAnAgentWithoutStreams: such an agent shows no more than its answer.
func TestPush_WaitingSendToAnAgentWithoutStreams(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{invoking: {{reply: wholeTask("COMPLETED", oneArt)}}}, func(s *stage) {
		s.agent.blind = true
		s.ask(s.t, s, s.a2a(invoking, withHook(saying, "one", "")))
		synctest.Wait()
		if methods, states := s.agent.was(), s.states("one"); methods != invoking || states != "COMPLETED" {
			s.t.Errorf("the agent heard %s, posted was %s", methods, states)
		}
	})
}

// TestPush_WaitingSendThatTakesTooLong: its caller is told so; the webhook is told how
// the task ends all the same.
func TestPush_WaitingSendThatTakesTooLong(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{
		streaming: {{events: []string{wholeTask("WORKING", "")}}},
		following: {{events: []string{wholeTask("WORKING", ""), artifact("done it"), status("COMPLETED", "")}, end: io.EOF, after: 30 * time.Second}},
	}, func(s *stage) {
		t := s.t
		if _, err := s.Exchange(t.Context(), s.a2a(invoking, withHook(saying, "one", ""))); err == nil || !strings.Contains(err.Error(), "did not answer within") {
			t.Errorf("its caller is told %v", err)
		}
		<-time.After(2 * time.Minute)
		if got := s.states("one"); got != "WORKING COMPLETED" || slices.Contains(s.agent.requested, canceling) {
			t.Errorf("posted was %s; the agent heard %s", got, s.agent.was())
		}
	})
}

// TestPush_WaitingCall: of a call of an MCP server are posted its beginning, if it
// lasts, its progress, and its end, which may be an error of the server.
func TestPush_WaitingCall(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		plays scene
		want  string
	}{
		"progress": {scene{events: []string{stepOf(1), "", result(complete)}, after: time.Second}, "WORKING WORKING COMPLETED"},
		"silent":   {scene{reply: result(complete), after: time.Second}, "WORKING COMPLETED"},
		"at once":  {scene{reply: result(complete)}, "COMPLETED"},
		"error":    {scene{reply: failure("-32603"), after: time.Second}, "WORKING FAILED"},
		"broken":   {scene{events: []string{stepOf(1)}, end: errBroken}, "WORKING WORKING FAILED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{calling: {tt.plays}}, func(s *stage) {
				t := s.t
				resumed := time.AfterFunc(3*time.Second, func() {
					select {
					case s.asker.resume <- struct{}{}:
					default:
					}
				})
				defer resumed.Stop()
				answer, err := s.Exchange(t.Context(), s.asks(invoking, withHook(called, "one", "")))
				failed := err != nil || strings.Contains(string(answer.Wire().Body), `"error"`)
				if failed != strings.HasSuffix(tt.want, "FAILED") {
					t.Errorf("its caller is answered %s, %v", answer.Wire().Body, err)
				}
				synctest.Wait()
				if got := s.states("one"); got != tt.want || strings.HasPrefix(tt.want, "WORKING WORKING") != strings.Contains(s.posted(), "step 1") {
					t.Errorf("posted was %s: %s", got, s.posted())
				}
			})
		})
	}
}

// TestPush_ConfigurationStaysHere: where changes are posted to, and with which credentials, is
// between the caller and the gateway. No agent is sent it, and since nothing of it is lost no
// loss is declared in the evidence of the request (R2).
func TestPush_ConfigurationStaysHere(t *testing.T) {
	t.Parallel()
	for name, streams := range map[string]bool{"to an agent with streams": true, "to one without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{
				invoking: {{reply: wholeTask("COMPLETED", oneArt)}}, streaming: {{events: stepping(), end: io.EOF}}, looking: {{reply: result(taskOf("COMPLETED", withPast))}},
			}, func(s *stage) {
				t := s.t
				s.agent.blind = !streams
				params := strings.Replace(withHook(saying, "one", ""), `"id":"one"`, `"id":"one","token":"a-secret"`, 1)
				s.ask(t, s, s.a2a(invoking, params))
				synctest.Wait()
				if s.states("one") == "" {
					t.Error("nothing was posted")
				}
				for i, body := range s.agent.bodies {
					dropped := string(claims(t, s.agent.evidence[i][0]).Ext[ect.ExtWarnings])
					if strings.Contains(body, "hook.example") || strings.Contains(body, "a-secret") || dropped != "[]" {
						t.Errorf("the agent was sent %s, with the losses %s", body, dropped)
					}
				}
			})
		})
	}
}
