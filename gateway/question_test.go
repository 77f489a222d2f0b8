package gateway_test

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

const calling = "tools/call"

// asks is a message of an A2A client to the MCP server that plays scenes.
func (s *stage) asks(method, params string) transport.Call {
	call := s.a2a(method, params)
	call.Agent = "asker"
	return call
}

const called = `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"ask","input":{}}}]}}`

const (
	wantsName = `{"method":"elicitation/create","params":{"mode":"form","message":"who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}}`
	pending   = `{"resultType":"input_required","inputRequests":{"k":` + wantsName + `},"requestState":"s-1"}`
	complete  = `{"resultType":"complete","content":[{"type":"text","text":"hello Ada"}]}`
)

func (s *stage) requested(t *testing.T, answer transport.Answer) string {
	t.Helper()
	id, state := taskIn(t, answer.Wire().Body)
	if state != "TASK_STATE_INPUT_REQUIRED" || !strings.Contains(string(answer.Wire().Body), "who?") {
		t.Fatalf("it is asked %s", answer.Wire().Body)
	}
	return id
}

func TestTask_QuestionInMCPReply(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{calling: {{reply: result(pending)}, {reply: result(complete)}}}, func(s *stage) {
		t := s.t
		id := s.requested(t, s.ask(t, s, s.asks(invoking, called)))
		done := s.ask(t, s, s.asks(invoking, `{"message":{"messageId":"m2","taskId":"`+id+`","role":"ROLE_USER","parts":[{"data":{"name":"Ada"}}]}}`))
		if same, state := taskIn(t, done.Wire().Body); same != id || state != "TASK_STATE_COMPLETED" || !strings.Contains(string(done.Wire().Body), "hello Ada") {
			t.Errorf("the answer leads to %s", done.Wire().Body)
		}
		if last := s.asker.bodies[1]; !strings.Contains(last, `"requestState":"s-1"`) || !strings.Contains(last, `"content":{"name":"Ada"}`) {
			t.Errorf("the agent heard %s", last)
		}
	})
}

// TestQuestion_LargeRequestIsRefused: a request that would have to be kept until its
// caller answers is at most 64 KiB. A caller that waits is told so, and a task in the
// background fails with the reason.
func TestQuestion_LargeRequestIsRefused(t *testing.T) {
	t.Parallel()
	large := strings.Replace(called, `"input":{}`, `"input":{"text":"`+strings.Repeat("x", 64<<10)+`"}`, 1)
	t.Run("waiting", func(t *testing.T) {
		t.Parallel()
		play(t, map[string][]scene{calling: {{reply: result(pending)}}}, func(s *stage) {
			_, err := s.Exchange(s.t.Context(), s.asks(invoking, large))
			if p := problem.From(err); p.Code != problem.CodeTooLarge || !strings.Contains(p.Detail, "at most 65536 bytes") {
				s.t.Errorf("got %v: %+v", err, p)
			}
		})
	})
	t.Run("in the background", func(t *testing.T) {
		t.Parallel()
		play(t, map[string][]scene{calling: {{reply: result(pending), after: time.Minute / 4}}}, func(s *stage) {
			t := s.t
			id, state := taskIn(t, s.ask(t, s, s.asks(invoking, strings.Replace(large, `{"message"`, `{"configuration":{"returnImmediately":true},"message"`, 1))).Wire().Body)
			if state != "TASK_STATE_WORKING" {
				t.Fatalf("it is %s", state)
			}
			time.Sleep(time.Minute)
			now := string(s.ask(t, s, s.asks(looking, `{"id":"`+id+`"}`)).Wire().Body)
			if !strings.Contains(now, "TASK_STATE_FAILED") || !strings.Contains(now, "at most 65536 bytes") {
				t.Errorf("afterwards: %.400s", now)
			}
		})
	})
}

func TestCall_RetriedOnEmptyInputRequests(t *testing.T) {
	t.Parallel()
	again := scene{reply: result(`{"resultType":"input_required","inputRequests":{},"requestState":"s-1"}`)}
	t.Run("once", func(t *testing.T) {
		t.Parallel()
		play(t, map[string][]scene{calling: {again, {reply: result(complete)}}}, func(s *stage) {
			if answer := s.ask(s.t, s, s.asks(invoking, called)); !strings.Contains(string(answer.Wire().Body), "hello Ada") {
				s.t.Errorf("it leads to %s", answer.Wire().Body)
			}
		})
	})
	t.Run("for ever", func(t *testing.T) {
		t.Parallel()
		play(t, map[string][]scene{calling: {again}}, func(s *stage) {
			var bad *transport.BadReplyError
			if _, err := s.Exchange(s.t.Context(), s.asks(invoking, called)); !errors.As(err, &bad) || len(s.asker.bodies) > 10 {
				s.t.Errorf("after %d calls: %v", len(s.asker.bodies), err)
			}
		})
	})
}

// TestQuestion_StateOfEarlierQuestionIsRefused: an MCP client is asked twice by an agent with
// several skills, which its answers do not name. The state of the first question
// does not answer the second.
func TestQuestion_StateOfEarlierQuestionIsRefused(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{
		streaming: {
			{events: []string{wholeTask("WORKING", ""), status("INPUT_REQUIRED", "how long?")}, end: io.EOF},
			{events: []string{status("INPUT_REQUIRED", "and how?")}, end: io.EOF},
			{events: []string{artifact("done it"), status("COMPLETED", "")}, end: io.EOF},
		},
	}, func(s *stage) {
		t := s.t
		s.agent.skills = []canonical.Capability{{ID: "paint", Profile: canonical.ProfileMessage}}
		state := func(answer transport.Answer) string {
			var env struct {
				Result struct{ RequestState string }
			}
			if err := json.Unmarshal(answer.Wire().Body, &env); err != nil || env.Result.RequestState == "" {
				t.Fatalf("it is asked %s", answer.Wire().Body)
			}
			return env.Result.RequestState
		}
		answering := func(state string) transport.Call {
			return s.canAnswer(`,"inputResponses":{"reply":{"action":"accept","content":{"reply":"so"}}},"requestState":"` + state + `"`)
		}
		first := state(s.ask(t, s, s.canAnswer("")))
		second := state(s.ask(t, s, answering(first)))
		if _, err := s.Exchange(t.Context(), answering(first)); err == nil || first == second {
			t.Errorf("%q answers the question of %q", first, second)
		}
		if done := s.ask(t, s, answering(second)); !strings.Contains(string(done.Wire().Body), "done it") {
			t.Errorf("the answer leads to %s", done.Wire().Body)
		}
	})
}

func TestTask_QuestionInMCPStream(t *testing.T) {
	t.Parallel()
	for _, method := range []string{invoking, streaming} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{
				calling: {{events: []string{`{"jsonrpc":"2.0","id":3,` + wantsName[1:], "", `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"hello Ada"}]}}`}, end: errBroken}},
				"":      {{}},
			}, func(s *stage) {
				t := s.t
				s.asker.version = mcp.Legacy
				answer := s.ask(t, s, s.asks(method, called))
				if answer.Events() != nil {
					bodies, _ := read(t, answer.Events())
					last := []byte(strings.Replace(bodies[len(bodies)-1], `"taskId"`, `"id"`, 1))
					var env struct {
						Result struct{ StatusUpdate json.RawMessage }
					}
					if err := json.Unmarshal(last, &env); err != nil {
						t.Fatal(err)
					}
					answer = transporttest.Answer(translators.Wire{Body: []byte(`{"result":` + string(env.Result.StatusUpdate) + `}`)})
				}
				id := s.requested(t, answer)
				received := make(chan transport.Answer, 1)
				go func() {
					received <- s.ask(t, s, s.asks(invoking, `{"message":{"messageId":"m2","taskId":"`+id+`","role":"ROLE_USER","parts":[{"data":{"name":"Ada"}}]}}`))
				}()
				synctest.Wait()
				close(s.asker.resume)
				if done := <-received; !strings.Contains(string(done.Wire().Body), "hello Ada") || !strings.Contains(string(done.Wire().Body), "COMPLETED") {
					t.Errorf("the answer leads to %s", done.Wire().Body)
				}
				if last := s.asker.last(); !strings.Contains(last, `"id":3`) || !strings.Contains(last, `"content":{"name":"Ada"}`) {
					t.Errorf("the agent heard %s", last)
				}
			})
		})
	}
}

func TestTask_ProgressOfATool(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{calling: {{events: []string{
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":ID,"progress":1,"total":2,"message":"half"}}`, result(complete),
	}, end: io.EOF}}}, func(s *stage) {
		bodies, _ := read(s.t, s.ask(s.t, s, s.asks(streaming, called)).Events())
		if all := strings.Join(bodies, "\n"); len(bodies) != 4 || !strings.Contains(bodies[1], "half") || !strings.Contains(bodies[2], "hello Ada") {
			s.t.Errorf("the caller heard %s", all)
		}
	})
}

// canAnswer is a call of an MCP client that can fill in forms.
func (s *stage) canAnswer(more string) transport.Call {
	return s.by(mcp.Binding, mcp.Modern, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"write","arguments":`+askingHi+more+
		`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"C","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}}}`)
}

func whatWriterAsks() map[string][]scene {
	return map[string][]scene{streaming: {
		{events: []string{wholeTask("WORKING", ""), status("INPUT_REQUIRED", "how long?")}, end: io.EOF},
		{events: []string{status("WORKING", ""), artifact("done it"), status("COMPLETED", "")}, end: io.EOF},
	}}
}

func TestCall_QuestionOfATaskInAReply(t *testing.T) {
	t.Parallel()
	play(t, whatWriterAsks(), func(s *stage) {
		t := s.t
		request := s.ask(t, s, s.canAnswer(""))
		var env struct {
			Result struct{ RequestState, ResultType string }
		}
		if err := json.Unmarshal(request.Wire().Body, &env); err != nil || env.Result.ResultType != "input_required" || !strings.Contains(string(request.Wire().Body), "how long?") {
			t.Fatalf("the caller is asked %s", request.Wire().Body)
		}
		answering := `,"requestState":"` + env.Result.RequestState + `","inputResponses":{"reply":{"action":"accept","content":{"reply":"short"}}}`
		var refused *canonical.Error
		other := s.canAnswer(answering)
		other.Wire.Body = []byte(strings.Replace(string(other.Wire.Body), askingHi, `{"message":"else"}`, 1))
		if _, err := s.Exchange(t.Context(), other); !errors.As(err, &refused) || refused.Code != canonical.CodeBadParams {
			t.Errorf("another call with that state: %v", err)
		}
		if done := s.ask(t, s, s.canAnswer(answering)); !strings.Contains(string(done.Wire().Body), "done it") {
			t.Errorf("the answer leads to %s", done.Wire().Body)
		}
		if last := s.agent.bodies[1]; !strings.Contains(last, `"short"`) || !strings.Contains(last, `"taskId":"t1"`) {
			t.Errorf("the agent heard %s", last)
		}
		if _, err := s.Exchange(t.Context(), s.canAnswer(answering)); !errors.As(err, &refused) {
			t.Errorf("the state again: %v", err)
		}
	})
}

// legacy is a message of an MCP client of 2025-11-25 in its session.
func (s *stage) legacy(body string) transport.Call {
	call := s.by(mcp.Binding, mcp.Legacy, body)
	call.Session, call.CanAnswer, call.Detached = "session", []canonical.Mode{canonical.ModeForm}, true
	return call
}

func TestCall_QuestionOfATaskInAStream(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ answer, agentHears, callerHears string }{
		"accepted":      {`"result":{"action":"accept","content":{"reply":"short"}}`, `"short"`, "done it"},
		"declined":      {`"result":{"action":"decline"}`, `"declined"`, "done it"},
		"canceled":      {`"result":{"action":"cancel"}`, canceling, `"isError":true`}, // as TestConsent_CancelIsNoWordOfTheUser
		"refused":       {`"error":{"code":-1,"message":"no"}`, canceling, "answered the question with an error: no"},
		"no action":     {`"result":{"content":{"reply":"short"}}`, canceling, "neither accept, decline nor cancel"},
		"not answered":  {"", canceling, "not answered within"},
		"request ended": {"stop", canceling, `"error"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenes := whatWriterAsks()
			scenes[canceling] = []scene{{reply: result(taskOf("CANCELED", ""))}}
			play(t, scenes, func(s *stage) {
				t := s.t
				answer := s.ask(t, s, s.legacy(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"write","arguments":`+askingHi+`}}`))
				event, err := answer.Events().Next(t.Context())
				var question struct {
					ID     json.RawMessage
					Method string
				}
				if err != nil || json.Unmarshal(event.Wire.Body, &question) != nil || question.Method != "elicitation/create" {
					t.Fatalf("the caller is asked %s, %v", event.Wire.Body, err)
				}
				received := make(chan []string, 1)
				go func() {
					bodies, _ := read(t, answer.Events())
					received <- bodies
				}()
				synctest.Wait()
				switch c.answer {
				case "":
				case "stop":
					s.ask(t, s, s.legacy(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`))
				default:
					s.ask(t, s, s.legacy(`{"jsonrpc":"2.0","id":`+string(question.ID)+`,`+c.answer+`}`))
				}
				bodies := <-received
				if last := bodies[len(bodies)-1]; !strings.Contains(last, c.callerHears) {
					t.Errorf("the caller heard %s", last)
				}
				<-time.After(time.Second)
				if last := s.agent.last(); !strings.Contains(last, c.agentHears) {
					t.Errorf("the agent heard %s", last)
				}
			})
		})
	}
}

// TestQuestion_AnswerWhileStoreIsUnavailable: one that could not be delivered is not used
// up, and a caller whose answers have been undeliverable for long is told so.
func TestQuestion_AnswerWhileStoreIsUnavailable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail        func(*entries) *atomic.Bool
		lasts       time.Duration
		callerHears string
	}{
		"between two steps": {func(e *entries) *atomic.Bool { return &e.broken }, time.Second, "done it"},
		"for a moment":      {func(e *entries) *atomic.Bool { return &e.away }, 10 * time.Second, "done it"},
		"for good":          {func(e *entries) *atomic.Bool { return &e.away }, time.Minute, "could not be delivered"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenes := whatWriterAsks()
			scenes[canceling] = []scene{{reply: result(taskOf("CANCELED", ""))}}
			play(t, scenes, func(s *stage) {
				t := s.t
				answer := s.ask(t, s, s.legacy(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"write","arguments":`+askingHi+`}}`))
				event, err := answer.Events().Next(t.Context())
				var question struct{ ID json.RawMessage }
				if err != nil || json.Unmarshal(event.Wire.Body, &question) != nil {
					t.Fatalf("the caller is asked %s, %v", event.Wire.Body, err)
				}
				received := make(chan []string, 1)
				go func() {
					bodies, _ := read(t, answer.Events())
					received <- bodies
				}()
				synctest.Wait()
				reply := s.legacy(`{"jsonrpc":"2.0","id":` + string(question.ID) + `,"result":{"action":"accept","content":{"reply":"short"}}}`)
				failing := c.fail(&s.entries)
				failing.Store(true)
				var recording *problem.RecordingError
				if _, err := s.Exchange(t.Context(), reply); !errors.As(err, &recording) {
					t.Errorf("the answer is taken: %v", err)
				}
				<-time.After(c.lasts)
				failing.Store(false)
				s.ask(t, s, reply)
				bodies := <-received
				if last := bodies[len(bodies)-1]; !strings.Contains(last, c.callerHears) {
					t.Errorf("the caller heard %s", last)
				}
				if last := s.agent.last(); c.callerHears == "done it" && !strings.Contains(last, `"short"`) {
					t.Errorf("the agent heard %s", last)
				}
			})
		})
	}
}

func TestCancel_LegacyServerGetsCancelledNotification(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{
		calling: {{events: []string{`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`, ""}}}, "notifications/cancelled": {{}},
	}, func(s *stage) {
		t := s.t
		s.asker.version = mcp.Legacy
		begun := s.ask(t, s, s.asks(invoking, strings.Replace(called, `{"message"`, `{"configuration":{"returnImmediately":true},"message"`, 1)))
		id, _ := taskIn(t, begun.Wire().Body)
		if _, state := taskIn(t, s.ask(t, s, s.asks(canceling, `{"id":"`+id+`"}`)).Wire().Body); state != "TASK_STATE_CANCELED" {
			t.Errorf("canceling it gives %s", state)
		}
		synctest.Wait()
		var first struct{ ID string }
		if err := json.Unmarshal([]byte(s.asker.bodies[0]), &first); err != nil || !strings.Contains(s.asker.last(), `"requestId":"`+first.ID+`"`) {
			t.Errorf("the agent heard %s", s.asker.last())
		}
	})
}
