package gateway_test

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// Answers that do not fit the form of a question leave it open: the person hears why, and the agent
// hears nothing of it (MCP, elicitation; A2A 1.0 section 6.3, input required).

// asksOnAStream begins the call of a client that is asked on its stream by an A2A agent.
func (s *stage) asksOnAStream() (first question, next func() question, end func() []string) {
	s.t.Helper()
	events := s.ask(s.t, s, s.legacy(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"write","arguments":`+askingHi+`}}`)).Events()
	next = func() question { return nextQuestion(s.t, events) }
	return next(), next, func() []string {
		bodies, _ := read(s.t, events)
		return bodies
	}
}

// fills answers the question of a call to that agent.
func (s *stage) fills(q question, answer string) {
	s.t.Helper()
	if got := s.says(s.legacy(`{"jsonrpc":"2.0","id":"` + q.ID + `",` + answer + `}`)); got != "" {
		s.t.Errorf("the answer is answered with %s", got)
	}
}

const (
	fillsShort  = `"result":{"action":"accept","content":{"reply":"short"}}`
	fillsNobody = `"result":{"action":"accept","content":{"town":"secret-9"}}`
)

func TestMisfit_IsAskedAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wrong       int
		last        string
		agentHears  string
		callerHears string
	}{
		"then it fits":     {1, fillsShort, `"short"`, "done it"},
		"three times":      {3, fillsShort, `"short"`, "done it"},
		"then declined":    {2, `"result":{"action":"decline"}`, `"declined"`, "done it"},
		"then canceled":    {2, `"result":{"action":"cancel"}`, canceling, `"isError":true`},
		"then an error":    {1, `"error":{"code":-1,"message":"no"}`, canceling, "with an error: no"},
		"the fourth time":  {3, fillsNobody, canceling, "wants a text"},
		"then no answer":   {1, "", canceling, "not answered within"},
		"then of no words": {1, `"result":{"content":{"reply":"short"}}`, canceling, "neither accept, decline nor cancel"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenes := whatWriterAsks()
			scenes[canceling] = []scene{{reply: result(taskOf("CANCELED", ""))}}
			play(t, scenes, func(s *stage) {
				t := s.t
				q, next, end := s.asksOnAStream()
				for range c.wrong {
					s.fills(q, fillsNobody)
					q = next()
					if text := string(q.Params); !strings.Contains(text, "wants a text that is not empty") || !strings.Contains(text, "how long?") || strings.Contains(text, "secret-9") {
						t.Errorf("asked again is %s", text)
					}
					if n := len(s.agent.bodies); n != 1 {
						t.Errorf("the agent heard %s", s.agent.bodies)
					}
				}
				if c.last != "" {
					s.fills(q, c.last)
				}
				bodies := end()
				<-time.After(time.Second)
				if last := bodies[len(bodies)-1]; !strings.Contains(last, c.callerHears) || !strings.Contains(s.agent.last(), c.agentHears) {
					t.Errorf("it ends with %s; the agent heard %s", last, s.agent.last())
				}
			})
		})
	}
}

// A server's form with several faults: each property is named, and no value.
func TestMisfit_NamesProperties(t *testing.T) {
	t.Parallel()
	const wants = `{"method":"elicitation/create","params":{"mode":"form","message":"who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},"size":{"type":"string","enum":["s","l"]}},"required":["name"]}}}`
	play(t, map[string][]scene{calling: {{reply: asksFor(`"k":`+wants, "s-1")}, {reply: result(complete)}}}, func(s *stage) {
		t := s.t
		events := s.ask(t, s, s.olderIn(mcp.Legacy, calling, callsAsk)).Events()
		s.reply(mcp.Legacy, nextQuestion(t, events), `"result":{"action":"accept","content":{"age":"secret-9","size":"secret-8"}}`)
		again := nextQuestion(t, events)
		text := string(again.Params)
		for _, want := range []string{"name", "/age", "/size", "who?"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s is not in %s", want, text)
			}
		}
		if strings.Contains(text, "secret") || len(s.asker.received(calling)) != 1 {
			t.Errorf("asked again is %s; the server heard %s", text, s.asker.bodies)
		}
		s.reply(mcp.Legacy, again, `"result":`+acceptsAda)
		if bodies, _ := read(t, events); len(bodies) != 1 || !strings.Contains(bodies[0], "hello Ada") {
			t.Errorf("it leads to %s", bodies)
		}
		s.calledAgain(1, `"k":`+acceptsAda, "s-1")
	})
}

// To ask again does not prolong the time for answers, an answer to the question as it was asked first
// counts for nothing by then, and nobody else answers it.
func TestMisfit_OldAnswersAndStrangers(t *testing.T) {
	t.Parallel()
	scenes := whatWriterAsks()
	scenes[canceling] = []scene{{reply: result(taskOf("CANCELED", ""))}}
	play(t, scenes, func(s *stage) {
		t := s.t
		began := time.Now()
		first, next, end := s.asksOnAStream()
		<-time.After(gateway.DefaultAnswerWait - time.Minute)
		s.fills(first, fillsNobody)
		again := next()
		s.fills(first, fillsShort)
		theirs := s.legacy(`{"jsonrpc":"2.0","id":"` + again.ID + `",` + fillsShort + `}`)
		theirs.Caller, theirs.Session = identity.Caller{Peer: ect.Peer{ID: "spiffe://example.com/other"}}, "another"
		_, _ = s.Exchange(t.Context(), theirs)
		synctest.Wait()
		if n := len(s.agent.bodies); n != 1 {
			t.Errorf("the agent heard %s", s.agent.bodies)
		}
		bodies := end()
		if lasted := time.Since(began); lasted > gateway.DefaultAnswerWait+time.Second || !strings.Contains(bodies[len(bodies)-1], "not answered within") {
			t.Errorf("after %v it ends with %s", lasted, bodies)
		}
	})
}

// A client that asks for what comes of its task is asked on that stream, and asked again there: the
// replica that holds the agent's stream is another than that which asks.
func TestMisfit_OfATaskIsAskedAgain(t *testing.T) {
	t.Parallel()
	asks := scene{reply: newStands("input_required", `,"inputRequests":{"k":`+wantsName+`}`)}
	scenes := askingTask()
	scenes[tasksGet] = []scene{{reply: newStands("working", "")}, asks, {reply: newStands("completed", `,"result":`+complete)}}
	era(t, mcp.Modern, scenes, func(s *stage) {
		t := s.t
		s.says(s.older(calling, wantsTask))
		s.until(s.older, `"status":"input_required"`)
		events := s.ask(t, s, s.olderIn(mcp.Legacy, tasksResult, `"taskId":"u1"`)).Events()
		s.reply(mcp.Legacy, nextQuestion(t, events), `"result":{"action":"accept","content":{"name":7}}`)
		again := nextQuestion(t, events)
		if text := string(again.Params); !strings.Contains(text, "/name") || !strings.Contains(text, "who?") || len(s.asker.received(tasksUpdate)) != 0 {
			t.Errorf("asked again is %s; the server heard %s", text, s.asker.bodies)
		}
		s.reply(mcp.Legacy, again, `"result":`+acceptsAda)
		if bodies, _ := read(t, events); len(bodies) != 1 || !strings.Contains(bodies[0], "hello Ada") {
			t.Errorf("it leads to %s", bodies)
		}
	})
}

// A caller of A2A hears the same as an error; the task waits on, and the server hears nothing.
func TestMisfit_OfAnA2ACaller(t *testing.T) {
	t.Parallel()
	for _, version := range []string{mcp.Modern, mcp.Legacy} {
		scenes := map[string][]scene{calling: {{reply: result(pending)}, {reply: result(complete)}}}
		if version == mcp.Legacy { // it asks on its stream, which waits
			scenes = map[string][]scene{calling: {{events: []string{asksInside, "", result(complete)}, end: io.EOF}}, "": {{reply: "taken"}}}
		}
		play(t, scenes, func(s *stage) {
			t := s.t
			s.asker.version = version
			id := s.requested(t, s.ask(t, s, s.asks(invoking, called)))
			for _, part := range []string{`{"data":{"name":7,"age":"secret-9"}}`, `{"data":{"town":"secret-9"}}`, `{"data":{"elicitation":{"action":"accept","content":{"town":"secret-9"}}}}`} {
				for range 5 {
					if got := s.outcome(s.names(id, part)); !strings.HasPrefix(got, "refused") || !strings.Contains(got, "name") || strings.Contains(got, "secret") {
						t.Errorf("%s leads to %s", part, got)
					}
				}
			}
			if got := s.stands(s, id); got != "INPUT_REQUIRED" || len(s.asker.bodies) != 1 {
				t.Errorf("the task is %s; the server heard %s", got, s.asker.bodies)
			}
			done := make(chan string, 1)
			go func() { done <- s.outcome(s.names(id, `{"data":{"name":"Ada"}}`)) }()
			synctest.Wait()
			if version == mcp.Legacy {
				close(s.asker.resume)
			}
			if got := <-done; !strings.Contains(got, "COMPLETED") {
				t.Errorf("the answer leads to %s", got)
			}
		})
	}
}

// A client that answers by calling again (MCP 2026-07-28) is asked again with the reason, as often as
// one that is asked on its stream; then the error says it, and the question stays open.
func TestMisfit_OfARetryIsAskedAgain(t *testing.T) {
	t.Parallel()
	legacyAsks := map[string][]scene{calling: {{events: []string{asksInside, "", result(complete)}, end: io.EOF}}, "": {{reply: "taken"}}}
	for name, c := range map[string]struct {
		tool, version string
		scenes        map[string][]scene
		key, wrong    string
		accept        string
		why, asks     string
		done          string
	}{
		"A2A agent": {
			"write", "", whatWriterAsks(), "reply", `{"action":"accept","content":{"town":"secret-9"}}`, `{"action":"accept","content":{"reply":"short"}}`,
			"wants a text that is not empty", "how long?", "done it",
		},
		"MCP server, 2025": {
			"ask", mcp.Legacy, legacyAsks, "ask", `{"action":"accept","content":{"name":7,"age":"secret-9"}}`, acceptsAda,
			"/name", "who?", "hello Ada",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, c.scenes, func(s *stage) {
				t := s.t
				if c.version != "" {
					s.asker.version = c.version
				}
				call := s.retried(c.tool)
				answered := func(question, answer string) transport.Call {
					var env struct{ Result struct{ RequestState string } }
					if err := json.Unmarshal([]byte(question), &env); err != nil || env.Result.RequestState == "" {
						t.Fatalf("it is asked %s", question)
					}
					return call(`,"requestState":"` + env.Result.RequestState + `","inputResponses":{"` + c.key + `":` + answer + `}`)
				}
				question := s.outcome(call(""))
				before := len(s.agent.bodies) + len(s.asker.bodies)
				for range 3 {
					question = s.outcome(answered(question, c.wrong))
					if !strings.Contains(question, `"input_required"`) || !strings.Contains(question, c.why) || !strings.Contains(question, c.asks) || strings.Contains(question, "secret") {
						t.Errorf("asked again is %s", question)
					}
				}
				if got := s.outcome(answered(question, c.wrong)); !strings.HasPrefix(got, "refused") || !strings.Contains(got, c.why) {
					t.Errorf("the fourth time leads to %s", got)
				}
				if after := len(s.agent.bodies) + len(s.asker.bodies); after != before {
					t.Errorf("the agent heard %s %s", s.agent.bodies, s.asker.bodies)
				}
				done := make(chan string, 1)
				go func() { done <- s.outcome(answered(question, c.accept)) }()
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

// How often a question was asked again is kept while its question is, and no longer.
func TestMisfit_CountsAnewInTheNextRound(t *testing.T) {
	t.Parallel()
	scenes := whatWriterAsks()
	scenes[streaming] = append([]scene{scenes[streaming][0], scenes[streaming][0]}, scenes[streaming][1])
	play(t, scenes, func(s *stage) {
		t := s.t
		call := s.retried("write")
		question := s.outcome(call(""))
		for round := range 2 {
			var env struct{ Result struct{ RequestState string } }
			if err := json.Unmarshal([]byte(question), &env); err != nil {
				t.Fatalf("it is asked %s", question)
			}
			state := `,"requestState":"` + env.Result.RequestState + `","inputResponses":{"reply":`
			for n := range 4 {
				got := s.outcome(call(state + `{"action":"accept","content":{}}}`))
				if again := strings.Contains(got, `"input_required"`); again != (n < 3) {
					t.Errorf("round %d, misfit %d: %s", round, n, got)
				}
			}
			question = s.outcome(call(state + `{"action":"accept","content":{"reply":"short"}}}`))
		}
		if !strings.Contains(question, "done it") {
			t.Errorf("it ends with %s", question)
		}
	})
}
