package gateway_test

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// What a server of 2026-07-28 asks in place of a result, a client of an older
// revision is asked on the stream of its call; what it answers the server has with
// the call once more.

const (
	wantsAge = `{"method":"elicitation/create","params":{"mode":"form","message":"how old?","requestedSchema":{"type":"object","properties":{"age":{"type":"integer"}},"required":["age"]}}}`
	wantsLLM = `{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"say it"}}],"maxTokens":10}}`
)

func asksFor(inputs, state string) string {
	return result(`{"resultType":"input_required","inputRequests":{` + inputs + `},"requestState":"` + state + `"}`)
}

// question is one that a client hears on a stream.
type question struct {
	ID     string
	Method string
	Params json.RawMessage
}

func nextQuestion(t *testing.T, events transport.Events) (q question) {
	t.Helper()
	text := heardNext(t, events)
	if strings.Contains(text, `"notifications/message"`) {
		text = heardNext(t, events)
	}
	if json.Unmarshal([]byte(text), &q) != nil || q.ID == "" || q.Method == "" {
		t.Fatalf("asked %s", text)
	}
	return q
}

// reply answers one.
func (s *stage) reply(version string, q question, answer string) {
	s.t.Helper()
	call := s.olderIn(version, "", "")
	call.Wire.Body = []byte(`{"jsonrpc":"2.0","id":"` + q.ID + `",` + answer + `}`)
	if got := s.says(call); got != "" {
		s.t.Errorf("the answer is answered with %s", got)
	}
}

// calledAgain expects a call like the first, with these answers and this state.
func (s *stage) calledAgain(n int, inputs, state string) {
	s.t.Helper()
	calls := s.asker.received(calling)
	if len(calls) <= n {
		s.t.Fatalf("the server was asked %s", s.asker.was())
	}
	for _, want := range []string{`"name":"ask","arguments":{"a":1.50}`, `"inputResponses":{` + inputs + `}`, `"requestState":"` + state + `"`} {
		if !strings.Contains(calls[n], want) {
			s.t.Errorf("%s is not in %s", want, calls[n])
		}
	}
}

const callsAsk = `"name":"ask","arguments":{"a":1.50}`

// What is no answer to a server's form does not reach it: the call ends with what was
// expected (MCP 2025-11-25, elicitation; JSON-RPC, error responses), at once, or where values do not
// fit after the question was asked three times more.
func TestElicitation_NoAnswerForAModernServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer, says string
		again        int
	}{
		"error":         {`"error":{"code":-1,"message":"no"}`, "the client answered the question with an error: no", 0},
		"no values":     {`"result":{"action":"accept"}`, "does not fit its form", 3},
		"other values":  {`"result":{"action":"accept","content":{"town":"Rome"}}`, "does not fit its form", 3},
		"another type":  {`"result":{"action":"accept","content":{"name":7}}`, "does not fit its form", 3},
		"no action":     {`"result":{"content":{"name":"Ada"}}`, "neither accept, decline nor cancel", 0},
		"strange words": {`"result":{"action":"maybe","content":{"name":"Ada"}}`, "neither accept, decline nor cancel", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{calling: {{reply: asksFor(`"k":`+wantsName, "s-1")}}}, func(s *stage) {
				t := s.t
				events := s.ask(t, s, s.olderIn(mcp.Legacy, calling, callsAsk)).Events()
				s.reply(mcp.Legacy, nextQuestion(t, events), c.answer)
				for range c.again {
					s.reply(mcp.Legacy, nextQuestion(t, events), c.answer)
				}
				bodies, _ := read(t, events)
				if len(bodies) != 1 || !strings.Contains(bodies[0], `"error":{`) || !strings.Contains(bodies[0], c.says) {
					t.Errorf("the call ends with %s, expected an error that says %q", bodies, c.says)
				}
				if calls := s.asker.received(calling); len(calls) != 1 {
					t.Errorf("the server heard %s", calls)
				}
			})
		})
	}
}

func TestModernServer_QuestionOnLegacyStream(t *testing.T) {
	t.Parallel()
	asks := asksFor(`"k":`+wantsName, "s-1")
	streamed := scene{events: []string{`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`, asks}, end: io.EOF}
	for name, c := range map[string]struct {
		asks             scene
		more             string // of the call
		answer, received string
	}{
		"accepted":      {scene{reply: asks}, "", `"result":` + acceptsAda, acceptsAda},
		"declined":      {scene{reply: asks}, "", `"result":{"action":"decline"}`, `{"action":"decline"}`},
		"canceled":      {scene{reply: asks}, "", `"result":{"action":"cancel"}`, `{"action":"cancel"}`},
		"with progress": {scene{reply: asks}, `,"_meta":{"progressToken":"p"}`, `"result":` + acceptsAda, acceptsAda},
		"on a stream":   {streamed, `,"_meta":{"progressToken":"p"}`, `"result":` + acceptsAda, acceptsAda},
	} {
		for _, version := range []string{mcp.Legacy, mcp.LegacyJune} {
			t.Run(name+" "+version, func(t *testing.T) {
				t.Parallel()
				play(t, map[string][]scene{calling: {c.asks, {reply: result(complete)}}}, func(s *stage) {
					t := s.t
					events := s.ask(t, s, s.olderIn(version, calling, callsAsk+c.more)).Events()
					q := nextQuestion(t, events)
					mode := strings.Contains(string(q.Params), `"mode"`)
					if q.Method != "elicitation/create" || !strings.Contains(string(q.Params), `"message":"who?"`) ||
						!strings.Contains(string(q.Params), `"required":["name"]`) || mode && version == mcp.LegacyJune {
						t.Errorf("asked %s %s", q.Method, q.Params)
					}
					s.reply(version, q, c.answer)
					if bodies, closing := read(t, events); len(bodies) != 1 || bodies[0] != `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"hello Ada"}]}}` || len(closing) != 1 {
						t.Errorf("the answer leads to %s", bodies)
					}
					s.calledAgain(1, `"k":`+c.received, "s-1")
					if first := s.asker.bodies[0]; !strings.Contains(first, `"elicitation":{`) || strings.Contains(first, "inputResponses") {
						t.Errorf("the server was asked %s", first)
					}
				})
			})
		}
	}
}

// Several questions at once are asked one by one, and answered together; and what
// the server asks then is another question.
func TestModernServer_SeveralQuestionsAnsweredTogether(t *testing.T) {
	t.Parallel()
	for _, version := range []string{mcp.Legacy, mcp.LegacyJune} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{calling: {
				{reply: asksFor(`"k":`+wantsName+`,"l":`+wantsAge, "s-1")}, {reply: asksFor(`"k":`+wantsAge, "s-2")}, {reply: result(complete)},
			}}, func(s *stage) {
				t := s.t
				events := s.ask(t, s, s.olderIn(version, calling, callsAsk)).Events()
				answers := map[string]string{
					"who?": acceptsAda, "how old?": `{"action":"accept","content":{"age":36}}`,
				}
				var request struct{ Message string }
				two := []question{nextQuestion(t, events), nextQuestion(t, events)}
				for i := range two { // the last one first
					if err := json.Unmarshal(two[1-i].Params, &request); err != nil || answers[request.Message] == "" {
						t.Fatalf("asked %s", two[1-i].Params)
					}
					s.reply(version, two[1-i], `"result":`+answers[request.Message])
				}
				again := nextQuestion(t, events)
				s.calledAgain(1, `"k":`+answers["who?"]+`,"l":`+answers["how old?"], "s-1")
				s.reply(version, two[0], `"result":{"action":"decline"}`) // it has been answered
				s.reply(version, again, `"result":`+answers["how old?"])
				if bodies, _ := read(t, events); len(bodies) != 1 || !strings.Contains(bodies[0], "hello Ada") {
					t.Errorf("the answers lead to %s", bodies)
				}
				s.calledAgain(2, `"k":`+answers["how old?"], "s-2")
				if got := s.asker.was(); got != calling+" "+calling+" "+calling {
					t.Errorf("the server was asked %s", got)
				}
			})
		})
	}
}

// What only MCP asks goes to a client that said that it answers such, in its words.
func TestModernServer_SamplingReachesCapableClient(t *testing.T) {
	t.Parallel()
	const text = `{"model":"m","role":"assistant","content":{"type":"text","text":"it"}}`
	play(t, map[string][]scene{calling: {{reply: asksFor(`"k":`+wantsLLM, "s-1")}, {reply: result(complete)}}}, func(s *stage) {
		t := s.t
		call := s.olderIn(mcp.Legacy, calling, callsAsk)
		call.CanAnswer = []canonical.Mode{canonical.ModeSampling}
		events := s.ask(t, s, call).Events()
		q := nextQuestion(t, events)
		if q.Method != "sampling/createMessage" || !strings.Contains(string(q.Params), "say it") {
			t.Errorf("asked %s %s", q.Method, q.Params)
		}
		s.reply(mcp.Legacy, q, `"result":`+text)
		if bodies, _ := read(t, events); len(bodies) != 1 || !strings.Contains(bodies[0], "hello Ada") {
			t.Errorf("the answer leads to %s", bodies)
		}
		s.calledAgain(1, `"k":`+text, "s-1")
	})
}

// Whoever said that nobody can be asked is not, and the server hears that; one that
// asks all the same has answered badly. And who leaves, or stops, hears no more.
func TestModernServer_UnanswerableQuestions(t *testing.T) {
	t.Parallel()
	asks := map[string][]scene{calling: {{reply: asksFor(`"k":`+wantsName, "s-1")}, {reply: result(complete)}}}
	play(t, asks, func(s *stage) {
		call := s.olderIn(mcp.Legacy, calling, callsAsk)
		call.CanAnswer = nil
		if got := whole(s.t, s.ask(s.t, s, call)); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":7,"error":`) || strings.Contains(got, "who?") {
			s.t.Errorf("it leads to %s", got)
		}
		if got := s.asker.last(); strings.Contains(got, `"elicitation"`) {
			s.t.Errorf("the server was asked %s", got)
		}
	})
	for name, ends := range map[string]func(*stage, transport.Events){
		"leaves": func(_ *stage, events transport.Events) { _ = events.Close() },
		"stops": func(s *stage, events transport.Events) {
			stop := s.olderIn(mcp.Legacy, "", "")
			stop.Wire.Body = []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
			s.ask(s.t, s, stop)
			if bodies, _ := read(s.t, events); len(bodies) != 1 || !strings.Contains(bodies[0], `"error"`) {
				s.t.Errorf("it leads to %s", bodies)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{calling: {{reply: asksFor(`"k":`+wantsName, "s-1")}, {reply: result(complete)}}}, func(s *stage) {
				events := s.ask(s.t, s, s.olderIn(mcp.Legacy, calling, callsAsk)).Events()
				q := nextQuestion(s.t, events)
				ends(s, events)
				synctest.Wait()
				s.reply(mcp.Legacy, q, `"result":`+acceptsAda) // too late
				synctest.Wait()
				if got := s.asker.was(); got != calling {
					s.t.Errorf("the server was asked %s", got)
				}
			})
		})
	}
}

// An agent of another protocol asks for words or forms. A client of MCP that answers
// only for its model, or about its roots, is told how the task stands.
func TestAsking_ClientOfModelsAndRootsAlone(t *testing.T) {
	t.Parallel()
	for _, can := range [][]canonical.Mode{{canonical.ModeSampling}, {canonical.ModeRoots}, {canonical.ModeSampling, canonical.ModeRoots}} {
		play(t, whatWriterAsks(), func(s *stage) {
			t := s.t
			call := s.legacy(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"write","arguments":` + askingHi + `}}`)
			call.CanAnswer = can
			answer := s.ask(t, s, call)
			if answer.Events() != nil {
				t.Errorf("with %s it is asked %s", can, heardNext(t, answer.Events()))
				return
			}
			if got := structured(t, answer); got.State != "input-required" || got.TaskID != "t1" {
				t.Errorf("with %s it is told %s", can, answer.Wire().Body)
			}
		})
	}
}
