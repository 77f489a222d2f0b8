package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// play runs a test on a stage of its own, in a bubble; at the end no stream to
// the agent may be open.
func play(t *testing.T, scenes map[string][]scene, test func(*stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, scenes)
		test(s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if s.agent.open != 0 {
			t.Errorf("%d streams of the agent are still open", s.agent.open)
		}
	})
}

const (
	invoking  = "SendMessage"
	streaming = "SendStreamingMessage"
	following = "SubscribeToTask"
	looking   = "GetTask"
	canceling = "CancelTask"
)

func TestStream_RelayedByteForByte(t *testing.T) {
	t.Parallel()
	events := []string{wholeTask("SUBMITTED", ""), status("WORKING", " odd   spaces "), artifact("done"), status("COMPLETED", "")}
	play(t, map[string][]scene{streaming: {{events: events, end: io.EOF}}}, func(s *stage) {
		t := s.t
		call := s.a2a(streaming, saying)
		bodies, closing := read(t, s.ask(t, s, call).Events())
		if got, want := strings.Join(bodies, "\n"), strings.ReplaceAll(strings.Join(events, "\n"), "ID", "7"); got != want {
			t.Errorf("the caller heard\n%s\nand not\n%s", got, want)
		}
		if s.agent.bodies[0] != string(call.Wire.Body) {
			t.Errorf("the agent heard %s", s.agent.bodies[0])
		}
		var hash ect.StreamHash
		for _, body := range bodies {
			hash.Add([]byte(body))
		}
		if c := claims(t, closing[0]); c.InputHash != hash.Sum() || c.OutputHash != hash.Sum() {
			t.Error("what came in is not what went out")
		}
	})
}

// What is passed on as it comes may be silent for a while, and no longer than an
// answer may take.
func TestStream_RelayedSilenceIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		after time.Duration
		last  string
	}{"a while": {20 * time.Second, "COMPLETED"}, "for ever": {2 * time.Hour, `"error"`}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenes := map[string][]scene{
				streaming: {{events: []string{wholeTask("WORKING", ""), status("COMPLETED", "")}, after: c.after, end: io.EOF}},
				canceling: {{reply: result(taskOf("CANCELED", ""))}},
			}
			play(t, scenes, func(s *stage) {
				bodies, _ := read(s.t, s.ask(s.t, s, s.a2a(streaming, saying)).Events())
				if last := bodies[len(bodies)-1]; !strings.Contains(last, c.last) {
					s.t.Errorf("the caller heard %s", last)
				}
			})
		})
	}
}

func TestStream_AgentRepliesWithoutStream(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]string{"refused": failure("-32004"), "answered": wholeTask("COMPLETED", "")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{streaming: {{reply: reply}}}, func(s *stage) {
				t := s.t
				answer := s.ask(t, s, s.a2a(streaming, saying))
				if answer.Events() != nil || string(answer.Wire().Body) != strings.ReplaceAll(reply, "ID", "7") {
					t.Errorf("the caller heard %s", answer.Wire().Body)
				}
			})
		})
	}
}

func TestStream_ForA2A03Caller(t *testing.T) {
	t.Parallel()
	scenes := map[string][]scene{
		streaming: {{events: []string{wholeTask("WORKING", ""), artifact("done it")}, end: errBroken}},
		following: {{events: []string{wholeTask("WORKING", oneArt), status("COMPLETED", "")}, end: io.EOF}},
	}
	play(t, scenes, func(s *stage) {
		t := s.t
		call := s.by(a2a.Binding, a2a.Version03, `{"jsonrpc":"2.0","id":7,"method":"message/stream","params":{"message":{"kind":"message","messageId":"m1","role":"user","parts":[{"kind":"text","text":"hi"}]}}}`)
		bodies, _ := read(t, s.ask(t, s, call).Events())
		if len(bodies) != 3 || !strings.Contains(bodies[1], `"artifact-update"`) || !strings.Contains(bodies[2], `"final":true`) {
			t.Errorf("the caller heard %s", strings.Join(bodies, "\n"))
		}
		if got := s.agent.was(); got != streaming+" "+following {
			t.Errorf("the agent was asked %s", got)
		}
	})
}

func TestCall_FollowedToItsEnd(t *testing.T) {
	t.Parallel()
	begun := scene{events: []string{wholeTask("WORKING", "")}, end: errBroken}
	for name, c := range map[string]struct {
		scenes    map[string][]scene
		requested string
	}{
		"one stream": {map[string][]scene{streaming: {{events: []string{wholeTask("WORKING", ""), artifact("done it"), status("COMPLETED", "")}, end: io.EOF}}}, streaming},
		"a broken stream": {map[string][]scene{
			streaming: {begun}, following: {{events: []string{wholeTask("WORKING", ""), artifact("done it"), status("COMPLETED", "")}, end: io.EOF}},
		}, streaming + " " + following},
		"no subscription": {map[string][]scene{
			streaming: {begun}, following: {{reply: failure("-32004")}}, looking: {{reply: result(taskOf("WORKING", ""))}, {fail: errBroken}, {reply: failure("-32603")}, {reply: result(taskOf("COMPLETED", oneArt))}},
		}, streaming + " " + following + " GetTask GetTask GetTask GetTask"},
		"subscriptions that lead nowhere": {map[string][]scene{
			streaming: {begun}, following: {{events: []string{wholeTask("WORKING", "")}, end: io.EOF}}, looking: {{reply: result(taskOf("COMPLETED", oneArt))}},
		}, streaming + " " + following + " GetTask"},
		"a stream that falls silent": {map[string][]scene{
			streaming: {{events: []string{wholeTask("WORKING", oneArt)}, end: io.EOF}}, following: {{events: []string{status("COMPLETED", "")}, end: io.EOF}},
		}, streaming + " " + following},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, c.scenes, func(s *stage) {
				t := s.t
				answer := s.ask(t, s, s.tool(askingHi))
				if got := structured(t, answer); got.State != "completed" || !strings.Contains(string(answer.Wire().Body), "done it") {
					t.Errorf("the caller heard %s", answer.Wire().Body)
				}
				if got := s.agent.was(); got != c.requested {
					t.Errorf("the agent was asked %s", got)
				}
			})
		})
	}
}

func TestStream_WithoutFinalStateIsAnError(t *testing.T) {
	t.Parallel()
	nothing := scene{events: []string{}, end: io.EOF}
	t.Run("a call", func(t *testing.T) {
		t.Parallel()
		play(t, map[string][]scene{streaming: {nothing}}, func(s *stage) {
			t := s.t
			answer, err := s.Exchange(t.Context(), s.tool(askingHi))
			var bad *transport.BadReplyError
			if !errors.As(err, &bad) || len(answer.Evidence) == 0 || claims(t, answer.Evidence[len(answer.Evidence)-1]).Act != ect.ActTranslateError {
				t.Errorf("the caller got %v and %d ECTs", err, len(answer.Evidence))
			}
		})
	})
	t.Run("a relay", func(t *testing.T) {
		t.Parallel()
		play(t, map[string][]scene{streaming: {{events: []string{wholeTask("WORKING", "")}, end: io.EOF}}, canceling: {{reply: result(taskOf("CANCELED", ""))}}}, func(s *stage) {
			t := s.t
			bodies, evidence := read(t, s.ask(t, s, s.a2a(streaming, saying)).Events())
			if last := bodies[len(bodies)-1]; !strings.Contains(last, `"error"`) || claims(t, evidence[0]).Act != ect.ActTranslateError {
				t.Errorf("the caller heard %s", last)
			}
		})
	})
}

func TestCall_UnsuccessfulTaskIsReported(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{"FAILED": "failed", "REJECTED": "rejected", "CANCELED": "canceled"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{streaming: {{events: []string{wholeTask("WORKING", ""), status(state, "why")}, end: io.EOF}}}, func(s *stage) {
				t := s.t
				answer := s.ask(t, s, s.tool(askingHi))
				if got := structured(t, answer); got.State != want || !strings.Contains(string(answer.Wire().Body), `"isError":true`) {
					t.Errorf("the caller heard %s", answer.Wire().Body)
				}
			})
		})
	}
}

func TestQuestion_CallerWithoutElicitation(t *testing.T) {
	t.Parallel()
	scenes := map[string][]scene{streaming: {
		{events: []string{wholeTask("INPUT_REQUIRED", ""), status("INPUT_REQUIRED", "how long?")}, end: io.EOF},
		{events: []string{status("WORKING", ""), artifact("done it"), status("COMPLETED", "")}, end: io.EOF},
	}}
	play(t, scenes, func(s *stage) {
		t := s.t
		request := structured(t, s.ask(t, s, s.tool(askingHi)))
		if request.State != "input-required" || request.TaskID != "t1" {
			t.Fatalf("the caller is asked %+v", request)
		}
		foreign := s.tool(`{"message":"short","task_id":"t1"}`)
		foreign.Caller = identity.Caller{Peer: ecttest.NewParty(t, "spiffe://example.com/stranger").Peer()}
		var missing *canonical.Error
		if _, err := s.Exchange(t.Context(), foreign); !errors.As(err, &missing) || missing.Code != canonical.CodeTaskNotFound {
			t.Errorf("a stranger goes on with it: %v", err)
		}
		done := s.ask(t, s, s.tool(`{"message":"short","task_id":"t1"}`))
		if got := structured(t, done); got.State != "completed" || got.TaskID != "t1" || !strings.Contains(s.agent.bodies[1], `"taskId":"t1"`) {
			t.Errorf("the answer leads to %s", done.Wire().Body)
		}
		if _, err := s.Exchange(t.Context(), s.tool(`{"message":"more","task_id":"t1"}`)); !errors.As(err, &missing) || missing.Code != canonical.CodeUnsupportedOp {
			t.Errorf("it has ended, but: %v", err)
		}
	})
}

func TestQuestion_FailedAnswerCanBeRetried(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{streaming: {
		{events: []string{wholeTask("INPUT_REQUIRED", "")}, end: io.EOF},
		{fail: errBroken},
		{events: []string{status("COMPLETED", "")}, end: io.EOF},
	}}, func(s *stage) {
		t := s.t
		s.ask(t, s, s.tool(askingHi))
		again := s.tool(`{"message":"short","task_id":"t1"}`)
		if _, err := s.Exchange(t.Context(), again); err == nil {
			t.Error("nobody was there, and it succeeded")
		}
		if got := structured(t, s.ask(t, s, again)); got.State != "completed" {
			t.Errorf("then it leads to %+v", got)
		}
	})
}

func TestCall_TimeoutDoesNotCancelTheTask(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{
		streaming: {{events: []string{wholeTask("WORKING", "")}}}, canceling: {{reply: result(taskOf("CANCELED", ""))}},
		looking: {{reply: result(taskOf("COMPLETED", oneArt))}},
	}, func(s *stage) {
		t := s.t
		began := time.Now()
		got := structured(t, s.ask(t, s, s.tool(askingHi)))
		if got.State != "working" || got.TaskID != "t1" || time.Since(began) != gateway.DefaultTimeout {
			t.Errorf("after %v: %+v", time.Since(began), got)
		}
		synctest.Wait()
		if got := s.agent.was(); got != streaming {
			t.Errorf("the agent was asked %s", got)
		}
	})
}

func TestCall_CanceledContextCancelsTheTask(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{
		streaming: {{events: []string{wholeTask("WORKING", "")}}}, canceling: {{reply: result(taskOf("CANCELED", ""))}},
	}, func(s *stage) {
		t := s.t
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := s.Exchange(ctx, s.tool(askingHi)); err == nil {
			t.Error("it succeeded")
		}
		synctest.Wait()
		if got := s.agent.was(); got != streaming+" "+canceling {
			t.Errorf("the agent was asked %s", got)
		}
	})
}

func TestSubscriber_ClosedStreamDoesNotCancelTheTask(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{
		streaming: {{events: []string{wholeTask("WORKING", "")}}}, following: {{events: []string{wholeTask("WORKING", "")}}},
		looking: {{reply: result(taskOf("WORKING", ""))}},
	}, func(s *stage) {
		t := s.t
		first := s.ask(t, s, s.a2a(streaming, saying)).Events()
		if _, err := first.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		other := s.replica(t)
		for _, g := range []transport.Handler{s, other} {
			events := s.ask(t, g, s.a2a(following, `{"id":"t1"}`)).Events()
			if event, err := events.Next(t.Context()); err != nil || !strings.Contains(string(event.Wire.Body), "WORKING") {
				t.Fatalf("%s, %v", event.Wire.Body, err)
			}
			_ = events.Close()
			s.ask(t, g, s.a2a(looking, `{"id":"t1"}`))
		}
		s.agent.scenes[following] = []scene{{events: []string{wholeTask("WORKING", "")}, end: io.EOF}}
		bodies, _ := read(t, s.ask(t, s, s.a2a(following, `{"id":"t1"}`)).Events())
		if last := bodies[len(bodies)-1]; !strings.Contains(last, `"error"`) {
			t.Errorf("a subscription that broke off ended with %s", last)
		}
		_ = first.Close() // its caller has left, but the work goes on here
		synctest.Wait()
		if strings.Contains(s.agent.was(), canceling) {
			t.Errorf("the agent was asked %s", s.agent.was())
		}
		_ = other.Close()
	})
}

func TestStream_CloseEndsPendingNext(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{streaming: {{events: []string{wholeTask("WORKING", "")}}}}, func(s *stage) {
		t := s.t
		events := s.ask(t, s, s.a2a(streaming, saying)).Events()
		if _, err := events.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := events.Next(t.Context())
			ended <- err
		}()
		synctest.Wait()
		if err := events.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err == nil {
			t.Error("the stream went on")
		}
	})
}

func TestClose_EndsStreamsWithError(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{streaming: {{events: []string{wholeTask("WORKING", "")}}}}, func(s *stage) {
		t := s.t
		received := make(chan []string, 1)
		events := s.ask(t, s, s.a2a(streaming, saying)).Events()
		go func() {
			bodies, _ := read(t, events)
			received <- bodies
		}()
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if bodies := <-received; !strings.Contains(bodies[len(bodies)-1], `"error"`) {
			t.Errorf("the stream ended with %s", bodies)
		}
	})
}

func TestPush_TaskOfAnAgent(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{
		invoking: {{reply: wholeTask("WORKING", "")}}, following: {{reply: failure("-32004")}},
		looking: {{reply: result(taskOf("WORKING", ""))}, {reply: result(taskOf("WORKING", ""))}, {reply: result(taskOf("COMPLETED", oneArt))}},
	}, func(s *stage) {
		t := s.t
		s.ask(t, s, s.a2a(invoking, saying))
		for i := range 2 {
			set := s.ask(t, s, s.a2a("CreateTaskPushNotificationConfig", fmt.Sprintf(`{"taskId":"t1","id":"p%d","url":"https://hook.example/%d"}`, i, i)))
			if !strings.Contains(string(set.Wire().Body), "hook.example") {
				t.Errorf("it is set as %s", set.Wire().Body)
			}
		}
		s.ask(t, s, s.a2a("DeleteTaskPushNotificationConfig", `{"taskId":"t1","id":"p1"}`))
		if list := s.ask(t, s, s.a2a("ListTaskPushNotificationConfigs", `{"taskId":"t1"}`)); strings.Count(string(list.Wire().Body), "hook.example") != 1 {
			t.Errorf("there are %s", list.Wire().Body)
		}
		stranger := s.a2a("GetTaskPushNotificationConfig", `{"taskId":"t1","id":"p0"}`)
		stranger.Caller = identity.Caller{Peer: ecttest.NewParty(t, "spiffe://example.com/stranger").Peer()}
		var missing *canonical.Error
		if _, err := s.Exchange(t.Context(), stranger); !errors.As(err, &missing) || missing.Code != canonical.CodeTaskNotFound {
			t.Errorf("a stranger got %v", err)
		}
		<-time.After(10 * time.Second)
		synctest.Wait()
		if strings.Count(s.agent.was(), following) != 1 {
			t.Errorf("the agent was asked %s", s.agent.was())
		}
		s.posts.mu.Lock()
		defer s.posts.mu.Unlock()
		if all := strings.Join(s.posts.taken, "\n"); len(s.posts.taken) != 2 || !strings.Contains(all, "done it") || !strings.Contains(all, "COMPLETED") {
			t.Errorf("posted was %s", all)
		}
	})
}

func TestStream_LateTaskIsRecorded(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{
		streaming: {{events: []string{wholeTask("WORKING", "")}, after: time.Second}}, looking: {{reply: result(taskOf("WORKING", ""))}},
	}, func(s *stage) {
		t := s.t
		events := s.ask(t, s, s.a2a(streaming, saying)).Events()
		if _, err := events.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.ask(t, s, s.a2a(looking, `{"id":"t1"}`))
		_ = events.Close()
		s.ask(t, s, s.a2a(looking, `{"id":"t1"}`))
	})
}

// TestReusedTaskID_IsABadReply: an agent that gives a new task the id of one that has
// ended is at fault (A2A 1.0, 3.4.2: the agent generates unique ids), and nothing under
// that id is canceled for it.
func TestReusedTaskID_IsABadReply(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(*stage) transport.Call{
		"1.0": func(s *stage) transport.Call { return s.a2a(streaming, saying) },
		"0.3": func(s *stage) transport.Call {
			return s.by(a2a.Binding, a2a.Version03, `{"jsonrpc":"2.0","id":7,"method":"message/stream","params":{"message":{"kind":"message","messageId":"m1","role":"user","parts":[{"kind":"text","text":"hi"}]}}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{
				streaming: {
					{events: []string{wholeTask("WORKING", ""), status("COMPLETED", "")}, end: io.EOF},
					{events: []string{wholeTask("WORKING", "")}},
				},
				canceling: {{reply: result(taskOf("CANCELED", ""))}},
			}, func(s *stage) {
				t := s.t
				read(t, s.ask(t, s, s.a2a(streaming, saying)).Events())
				_, err := s.Exchange(t.Context(), again(s))
				if bad, ok := errors.AsType[*transport.BadReplyError](err); !ok || !strings.Contains(bad.Reason, "has ended") {
					t.Errorf("the answer is %v, want a bad reply of the agent", err)
				}
				synctest.Wait()
				if got := s.agent.was(); got != streaming+" "+streaming {
					t.Errorf("the agent was asked %s", got)
				}
			})
		})
	}
}
