package gateway_test

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// retried is a call of a client of 2026-07-28 that is asked, and its retry with more.
func (s *stage) retried(tool string) func(more string) transport.Call {
	return func(more string) transport.Call {
		call := s.canAnswer(more)
		if tool == "ask" {
			call.Agent = "asker"
			call.Wire.Body = []byte(strings.Replace(string(call.Wire.Body), `"name":"write"`, `"name":"ask"`, 1))
		}
		return call
	}
}

// outcome is what a call leads to: the body of its answer, or its error.
func (s *stage) outcome(call transport.Call) string {
	answer, err := s.Exchange(s.t.Context(), call)
	if err != nil {
		refused, ok := errors.AsType[*canonical.Error](err)
		if !ok || refused.Code != canonical.CodeBadParams {
			s.t.Errorf("%s is refused with %v", call.Wire.Body, err)
		}
		return "refused: " + err.Error()
	}
	return whole(s.t, answer)
}

// A retry that brings no answer, or values that do not fit, is asked again, and one that brings
// something else is refused with what was expected. Neither reaches the agent (MCP 2026-07-28, multi
// round-trip requests).
func TestConsent_RetryOfAModernClient(t *testing.T) {
	t.Parallel()
	legacyAsks := map[string][]scene{calling: {{events: []string{asksInside, "", result(complete)}, end: io.EOF}}, "": {{reply: "taken"}}, "notifications/cancelled": {{}}}
	for name, c := range map[string]struct {
		tool, version string
		scenes        map[string][]scene
		key, accept   string
		done          string
	}{
		"A2A agent":        {"write", "", whatWriterAsks(), "reply", `{"action":"accept","content":{"reply":"short"}}`, "done it"},
		"MCP server, 2025": {"ask", mcp.Legacy, legacyAsks, "ask", acceptsAda, "hello Ada"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, c.scenes, func(s *stage) {
				t := s.t
				if c.version != "" {
					s.asker.version = c.version
				}
				call := s.retried(c.tool)
				requested := s.outcome(call(""))
				var env struct {
					Result struct {
						RequestState  string
						InputRequests map[string]json.RawMessage
					}
				}
				if err := json.Unmarshal([]byte(requested), &env); err != nil || len(env.Result.InputRequests[c.key]) == 0 {
					t.Fatalf("it is asked %s", requested)
				}
				before := len(s.agent.bodies) + len(s.asker.bodies)
				state := `,"requestState":"` + env.Result.RequestState + `"`
				for more, want := range map[string]string{
					"":                     `"input_required"`,
					`,"inputResponses":{}`: `"input_required"`,
					`,"inputResponses":{"other":` + c.accept + `}`:                                  "refused: bad_params: there is no question",
					`,"inputResponses":{"` + c.key + `":{"action":"accept"}}`:                       `"input_required"`,
					`,"inputResponses":{"` + c.key + `":{"action":"accept","content":{"user":""}}}`: `"input_required"`,
					`,"inputResponses":{"` + c.key + `":{"content":{"name":"x","reply":"x"}}}`:      "says neither accept, decline nor cancel",
					`,"inputResponses":{"` + c.key + `":{"action":"ACCEPT","content":{}}}`:          "says neither accept, decline nor cancel",
				} {
					if got := s.outcome(call(state + more)); !strings.Contains(got, want) {
						t.Errorf("the retry with %q leads to %s, expected %s", more, got, want)
					}
				}
				if received := len(s.agent.bodies) + len(s.asker.bodies); received != before {
					t.Errorf("the agent heard %d messages more: %s %s", received-before, s.agent.bodies, s.asker.bodies)
				}
				done := make(chan string, 1)
				go func() { done <- s.outcome(call(state + `,"inputResponses":{"` + c.key + `":` + c.accept + `}`)) }()
				synctest.Wait()
				if c.version == mcp.Legacy {
					close(s.asker.resume)
				}
				if got := <-done; !strings.Contains(got, c.done) {
					t.Errorf("the answer leads to %s", got)
				}
			})
		})
	}
}

// A question that is canceled ends the work of an agent that hears answers as words of
// the user, in every revision: it hears none.
func TestConsent_CancelIsNoWordOfTheUser(t *testing.T) {
	t.Parallel()
	scenes := whatWriterAsks()
	scenes[canceling] = []scene{{reply: result(taskOf("CANCELED", ""))}}
	play(t, scenes, func(s *stage) {
		t := s.t
		call := s.retried("write")
		var env struct{ Result struct{ RequestState string } }
		if err := json.Unmarshal([]byte(s.outcome(call(""))), &env); err != nil {
			t.Fatal(err)
		}
		got := s.outcome(call(`,"requestState":"` + env.Result.RequestState + `","inputResponses":{"reply":{"action":"cancel"}}`))
		if !strings.Contains(got, "cancel") || !strings.Contains(got, `"isError":true`) {
			t.Errorf("the call ends with %s", got)
		}
		if last := s.agent.last(); !strings.Contains(last, canceling) || strings.Contains(strings.Join(s.agent.bodies, ""), "cancelled") {
			t.Errorf("the agent heard %s", s.agent.bodies)
		}
	})
}

// What an A2A caller answers to a server's form, and what the server hears (A2A 1.0
// section 6.3, input required; MCP, elicitation). A question that was not answered
// stays open.
func TestConsent_A2ACallerAnswersAForm(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ part, hears string }{
		"values":             {`{"data":{"name":"Ada"}}`, acceptsAda},
		"text":               {`{"text":"Ada"}`, acceptsAda},
		"action decline":     {`{"data":{"action":"decline"}}`, `{"action":"decline"}`},
		"action cancel":      {`{"data":{"action":"cancel"}}`, `{"action":"cancel"}`},
		"word decline":       {`{"text":"decline"}`, `{"action":"decline"}`},
		"action, content":    {`{"data":{"action":"accept","content":{"name":"Ada"}}}`, acceptsAda},
		"action, no key":     {`{"data":{"elicitation":{"action":"decline"}}}`, `{"action":"decline"}`},
		"content, no action": {`{"data":{"elicitation":{"key":"k","content":{"name":"Ada"}}}}`, acceptsAda},
		"action maybe":       {`{"data":{"elicitation":{"key":"k","action":"maybe"}}}`, ""},
		"bare action maybe":  {`{"data":{"action":"maybe"}}`, ""},
		"action no text":     {`{"data":{"elicitation":{"key":"k","action":["decline"],"content":{"name":"Ada"}}}}`, ""},
		"action empty":       {`{"data":{"elicitation":{"key":"k","action":"","content":{"name":"Ada"}}}}`, ""},
		"key no text":        {`{"data":{"elicitation":{"key":7,"action":"accept","content":{"name":"Ada"}}}}`, ""},
		"picture":            {`{"url":"https://example.com/ada.png"}`, ""},
		"no content":         {`{"data":{"elicitation":{"key":"k","action":"accept"}}}`, ""},
		"no action":          {`{"data":{"elicitation":{"key":"k"}}}`, ""},
		"another key":        {`{"data":{"elicitation":{"key":"j","action":"accept","content":{"name":"Ada"}}}}`, ""},
		"another type":       {`{"data":{"name":7}}`, ""},
		"other values":       {`{"data":{"town":"Rome"}}`, ""},
		"no text":            {`{"text":" "}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{calling: {{reply: result(pending)}, {reply: result(complete)}}}, func(s *stage) {
				t := s.t
				id := s.requested(t, s.ask(t, s, s.asks(invoking, called)))
				answering := func(part string) transport.Call {
					return s.asks(invoking, `{"message":{"messageId":"m2","taskId":"`+id+`","role":"ROLE_USER","parts":[`+part+`]}}`)
				}
				got := s.outcome(answering(c.part))
				if c.hears != "" {
					if last := s.asker.last(); !strings.Contains(got, "COMPLETED") || !strings.Contains(last, `"inputResponses":{"k":`+c.hears+`}`) {
						t.Errorf("it leads to %s; the server heard %s", got, last)
					}
					return
				}
				if !strings.HasPrefix(got, "refused") || len(s.asker.bodies) != 1 {
					t.Errorf("it leads to %s; the server heard %s", got, s.asker.bodies)
				}
				if got := s.outcome(answering(`{"data":{"name":"Ada"}}`)); !strings.Contains(got, "COMPLETED") {
					t.Errorf("afterwards the question is answered with %s", got)
				}
			})
		})
	}
}

// An answer of another caller reaches no agent, and leaves the question open.
func TestConsent_AnotherCaller(t *testing.T) {
	t.Parallel()
	stranger := identity.Caller{Peer: ect.Peer{ID: "spiffe://example.com/other"}}
	play(t, map[string][]scene{calling: {{reply: result(pending)}, {reply: result(complete)}}}, func(s *stage) {
		t := s.t
		id := s.requested(t, s.ask(t, s, s.asks(invoking, called)))
		answer := s.asks(invoking, `{"message":{"messageId":"m2","taskId":"`+id+`","role":"ROLE_USER","parts":[{"data":{"name":"Ada"}}]}}`)
		theirs := answer
		theirs.Caller = stranger
		_, err := s.Exchange(t.Context(), theirs)
		if refused, ok := errors.AsType[*canonical.Error](err); !ok || refused.Code != canonical.CodeTaskNotFound || len(s.asker.bodies) != 1 {
			t.Errorf("an answer of another caller: %v; the server heard %s", err, s.asker.bodies)
		}
		if got := s.outcome(answer); !strings.Contains(got, "COMPLETED") {
			t.Errorf("afterwards the caller's own leads to %s", got)
		}
	})
	play(t, whatWriterAsks(), func(s *stage) {
		t := s.t
		call := s.retried("write")
		var env struct{ Result struct{ RequestState string } }
		if err := json.Unmarshal([]byte(s.outcome(call(""))), &env); err != nil {
			t.Fatal(err)
		}
		answer := call(`,"requestState":"` + env.Result.RequestState + `","inputResponses":{"reply":{"action":"accept","content":{"reply":"short"}}}`)
		theirs := answer
		theirs.Caller = stranger
		if got := s.outcome(theirs); !strings.HasPrefix(got, "refused") || len(s.agent.bodies) != 1 {
			t.Errorf("an answer of another caller leads to %s; the agent heard %s", got, s.agent.bodies)
		}
		if got := s.outcome(answer); !strings.Contains(got, "done it") {
			t.Errorf("afterwards the caller's own leads to %s", got)
		}
	})
}

// The answer to a request for a model's words is such words: no action stands for them
// (MCP, sampling).
func TestConsent_SamplingWantsAResult(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"action":"accept"}`, `{"action":"accept","content":{"text":"it"}}`, `{}`, `{"role":"assistant","content":{"type":"text","text":"it"}}`} {
		play(t, map[string][]scene{calling: {{reply: asksFor(`"k":`+wantsLLM, "s-1")}}}, func(s *stage) {
			t := s.t
			call := s.olderIn(mcp.Legacy, calling, callsAsk)
			call.CanAnswer = []canonical.Mode{canonical.ModeSampling}
			events := s.ask(t, s, call).Events()
			s.reply(mcp.Legacy, nextQuestion(t, events), `"result":`+text)
			if bodies, _ := read(t, events); len(bodies) != 1 || !strings.Contains(bodies[0], `"error"`) || len(s.asker.received(calling)) != 1 {
				t.Errorf("%s leads to %s; the server heard %s", text, bodies, s.asker.bodies)
			}
		})
	}
}

// The gateway's own question for the arguments of a tool is answered like an agent's:
// with arguments that fit, or not at all. Text is one only if it fits.
func TestConsent_ArgumentsOfATool(t *testing.T) {
	t.Parallel()
	const (
		two    = `{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]}`
		choice = `{"type":"object","properties":{"a":{"type":"string","enum":["x","y"]}},"required":["a"]}`
		refers = `{"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},"required":["a"],"$defs":{"n":{"type":"integer"}}}` // only the server can judge
	)
	for name, c := range map[string]struct {
		schema, text string
		answer       string
		calls, ends  string
	}{
		"arguments":        {two, "add", `{"data":{"a":1,"b":2}}`, `"arguments":{"a":1,"b":2}`, "COMPLETED"},
		"one missing":      {two, "add", `{"data":{"a":1}}`, "", "refused"},
		"another type":     {two, "add", `{"data":{"a":1,"b":"2"}}`, "", "refused"},
		"text":             {two, "add", `{"text":"1 and 2"}`, "", "refused"},
		"declined":         {two, "add", `{"data":{"action":"decline"}}`, "", "CANCELED"},
		"canceled":         {two, "add", `{"text":"cancel"}`, "", "CANCELED"},
		"choice":           {choice, "z", `{"text":"y"}`, `"arguments":{"a":"y"}`, "COMPLETED"},
		"not among choice": {choice, "z", `{"text":"w"}`, "", "refused"},
		"references":       {refers, "add", `{"data":{"a":1}}`, `"arguments":{"a":1}`, "COMPLETED"},
		"text for those":   {refers, "add", `{"text":"1"}`, "", "refused"},
		"text that fits":   {choice, "x", "", `"arguments":{"a":"x"}`, "COMPLETED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{calling: {{reply: result(complete)}}}, func(s *stage) {
				t := s.t
				s.asker.typed = c.schema
				got := s.ask(t, s, s.asks(invoking, `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"`+c.text+`"}],"metadata":{"urn:aepb:translation:1":{"skill":"ask"}}}}`))
				output := string(got.Wire().Body)
				if c.answer != "" {
					id, state := taskIn(t, got.Wire().Body)
					if state != "TASK_STATE_INPUT_REQUIRED" {
						t.Fatalf("it is asked %s", got.Wire().Body)
					}
					output = s.outcome(s.asks(invoking, `{"message":{"messageId":"m2","taskId":"`+id+`","role":"ROLE_USER","parts":[`+c.answer+`]}}`))
				}
				received := strings.Join(s.asker.received(calling), "")
				if !strings.Contains(output, c.ends) || c.calls == "" && received != "" || !strings.Contains(received, c.calls) {
					t.Errorf("it leads to %s; the server heard %s", output, received)
				}
			})
		})
	}
}

// The gateway's own question is told also to a caller who attests to its messages: the
// token of the message is the parent of the answer, once.
func TestConsent_ArgumentsOfAnAttestedCall(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{calling: {{reply: result(complete)}}}, func(s *stage) {
		t := s.t
		s.asker.typed = `{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]}`
		call := s.asks(invoking, `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"add"}],"metadata":{"urn:aepb:translation:1":{"skill":"ask"}}}}`)
		token, err := s.caller.Signer(t, time.Now).Sign(ect.Claims{
			Audience: []string{string(s.self.ID)}, Workflow: string(ect.NewID()), Act: "send_task", OutputHash: ect.Hash(call.Wire.Body),
		})
		if err != nil {
			t.Fatal(err)
		}
		call.Evidence = []string{token.Compact()}
		id, state := taskIn(t, s.ask(t, s, call).Wire().Body)
		if state != "TASK_STATE_INPUT_REQUIRED" {
			t.Fatalf("the task is %s", state)
		}
		text := s.outcome(s.asks(invoking, `{"message":{"messageId":"m2","taskId":"`+id+`","role":"ROLE_USER","parts":[{"data":{"a":1,"b":2}}]}}`))
		if received := strings.Join(s.asker.received(calling), ""); !strings.Contains(text, "COMPLETED") || !strings.Contains(received, `"arguments":{"a":1,"b":2}`) {
			t.Errorf("the answer leads to %s; the server heard %s", text, received)
		}
	})
}

// A question that its caller's protocol cannot say ends the call: the server hears that,
// and no task is left that waits for an answer.
func TestConsent_QuestionThatCannotBeSaid(t *testing.T) {
	t.Parallel()
	asksModel := `{"jsonrpc":"2.0","id":"q1","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}`
	const canceledCall = "notifications/cancelled"
	play(t, map[string][]scene{calling: {{events: []string{asksModel, ""}, end: io.EOF}}, canceledCall: {{}}}, func(s *stage) {
		t := s.t
		s.asker.version = mcp.Legacy
		if _, err := s.Exchange(t.Context(), s.asks(invoking, called)); err == nil || !strings.Contains(err.Error(), "L14") {
			t.Errorf("the call leads to %v", err)
		}
		synctest.Wait()
		if len(s.asker.received(canceledCall)) != 1 {
			t.Errorf("the server heard %s", s.asker.bodies)
		}
		if list := s.says(s.asks("ListTasks", `{}`)); strings.Contains(list, "INPUT_REQUIRED") {
			t.Errorf("there are %s", list)
		}
	})
}

// A server is told that its caller answers only what this caller can be asked here
// (MCP 2026-07-28, clientCapabilities of a request).
func TestConsent_WhatACallerAnswers(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{mcp.LegacyMarch: false, mcp.Legacy: true} {
		play(t, map[string][]scene{calling: {{reply: result(complete)}}}, func(s *stage) {
			call := s.olderIn(version, calling, callsAsk)
			call.CanAnswer = []canonical.Mode{canonical.ModeSampling}
			s.ask(s.t, s, call)
			if notified := strings.Contains(s.asker.last(), `"sampling"`); notified != want {
				s.t.Errorf("of a caller of %s the server is told %s", version, s.asker.last())
			}
		})
	}
}
