package gateway_test

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

const (
	prompting    = "prompts/get"
	promptAnswer = `{"messages":[{"role":"user","content":{"type":"text","text":"greet Ada"}}]}`
)

// prompts asks the MCP server for a prompt, as a client of 2026-07-28 that can be asked.
func (s *stage) prompts(more string) transport.Call {
	call := s.retried("ask")(more)
	call.Wire.Body = []byte(strings.NewReplacer(`"tools/call"`, `"prompts/get"`, askingHi, `{"tone":"warm"}`).Replace(string(call.Wire.Body)))
	return call
}

// stateIn is the request state and the keys of the questions in a result that asks.
func stateIn(t *testing.T, body string) (state string, keys []string) {
	t.Helper()
	var env struct {
		Result struct {
			ResultType    string
			RequestState  string
			InputRequests map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(body), &env); err != nil || env.Result.ResultType != "input_required" || env.Result.RequestState == "" {
		t.Fatalf("it asks nothing: %s", body)
	}
	for key := range env.Result.InputRequests {
		keys = append(keys, key)
	}
	return env.Result.RequestState, keys
}

// TestPrompt_AsksANewerClient: a server of 2025-11-25 asks in the stream in which it
// will answer prompts/get. A client of 2026-07-28 repeats the request with its answer
// (MCP 2026-07-28, multi round-trip requests), and gets the prompt.
func TestPrompt_AsksANewerClient(t *testing.T) {
	t.Parallel()
	second := strings.NewReplacer(`"q1"`, `"q2"`, "who?", "really?").Replace(asksInside)
	scenes := map[string][]scene{
		prompting: {{events: []string{asksInside, "", second, "", result(promptAnswer)}, end: io.EOF}}, "": {{reply: "taken"}},
	}
	era(t, mcp.Legacy, scenes, func(s *stage) {
		t := s.t
		answering := func(requested, name string) string {
			state, keys := stateIn(t, requested)
			return s.outcome(s.prompts(`,"requestState":"` + state + `","inputResponses":{"` + keys[0] + `":{"action":"accept","content":{"name":"` + name + `"}}}`))
		}
		goOn := func() { time.AfterFunc(time.Second, func() { s.asker.resume <- struct{}{} }) }
		first := s.outcome(s.prompts(""))
		goOn()
		again := answering(first, "Ada")
		if !strings.Contains(again, "really?") {
			t.Fatalf("the first answer leads to %s", again)
		}
		if got := answering(first, "Eve"); !strings.HasPrefix(got, "refused") {
			t.Errorf("an answer to the first question again leads to %s", got)
		}
		goOn()
		if got := answering(again, "Bob"); !strings.Contains(got, `"text":"greet Ada"`) || !strings.Contains(got, `"resultType":"complete"`) {
			t.Errorf("the second answer leads to %s", got)
		}
		received := strings.Join(s.asker.received(""), "\n")
		if len(s.asker.received(prompting)) != 1 || !strings.Contains(received, `"content":{"name":"Ada"}`) || !strings.Contains(received, `"content":{"name":"Bob"}`) || strings.Contains(received, "Eve") {
			t.Errorf("the server was asked %d times and heard %s", len(s.asker.received(prompting)), received)
		}
	})
}

// TestPrompt_ServerRefusesTheAnswer: what the server refuses after the answer is an error of
// the repeated request.
func TestPrompt_ServerRefusesTheAnswer(t *testing.T) {
	t.Parallel()
	refusal := `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no such person"}}`
	era(t, mcp.Legacy, map[string][]scene{prompting: {{events: []string{asksInside, "", refusal}, end: io.EOF}}, "": {{reply: "taken"}}}, func(s *stage) {
		state, keys := stateIn(s.t, s.outcome(s.prompts("")))
		time.AfterFunc(time.Second, func() { close(s.asker.resume) })
		got := s.outcome(s.prompts(`,"requestState":"` + state + `","inputResponses":{"` + keys[0] + `":{"action":"decline"}}`))
		if !strings.Contains(got, "no such person") || !strings.Contains(got, "-32602") {
			s.t.Errorf("the answer leads to %s", got)
		}
	})
}

// TestPrompt_AnswersThatAreNone: an answer to the question of another request, one that
// does not fit and is asked again, and none at all reach no server; the question stays open.
func TestPrompt_AnswersThatAreNone(t *testing.T) {
	t.Parallel()
	era(t, mcp.Legacy, map[string][]scene{prompting: {{events: []string{asksInside, "", result(promptAnswer)}, end: io.EOF}}, "": {{reply: "taken"}}}, func(s *stage) {
		t := s.t
		state, keys := stateIn(t, s.outcome(s.prompts("")))
		with := func(answer string) string {
			return `,"requestState":"` + state + `","inputResponses":{` + answer + `}`
		}
		good := `"` + keys[0] + `":{"action":"accept","content":{"name":"Ada"}}`
		if got := s.outcome(s.prompts(with(`"` + keys[0] + `":{"action":"accept","content":{"name":7}}`))); !strings.Contains(got, "got number, want string") || !strings.Contains(got, `"input_required"`) {
			t.Errorf("a number leads to %s", got)
		}
		for name, call := range map[string]transport.Call{
			"another key": s.prompts(with(`"z":{"action":"accept","content":{"name":"Ada"}}`)),
			"a tool call": s.retried("ask")(with(good)),
		} {
			if got := s.outcome(call); !strings.HasPrefix(got, "refused") {
				t.Errorf("%s leads to %s", name, got)
			}
		}
		if requested, _ := stateIn(t, s.outcome(s.prompts(with("")))); requested != state {
			t.Errorf("an empty retry is asked with the state %s, before %s", requested, state)
		}
		if received := s.asker.received(""); len(received) != 0 {
			t.Errorf("the server heard %s", received)
		}
		time.AfterFunc(time.Second, func() { close(s.asker.resume) })
		if got := s.outcome(s.prompts(with(good))); !strings.Contains(got, "greet Ada") {
			t.Errorf("the good answer leads to %s", got)
		}
	})
}

// TestAttack_AnotherAnswersTheQuestionOfAPrompt: a caller that has learned the request
// state and the key of another caller's question repeats the request with an answer. It
// is refused, the server hears nothing of it, and the question stays open for its caller.
func TestAttack_AnotherAnswersTheQuestionOfAPrompt(t *testing.T) {
	t.Parallel()
	era(t, mcp.Legacy, map[string][]scene{prompting: {{events: []string{asksInside, "", result(promptAnswer)}, end: io.EOF}}, "": {{reply: "taken"}}}, func(s *stage) {
		t := s.t
		state, keys := stateIn(t, s.outcome(s.prompts("")))
		answer := s.prompts(`,"requestState":"` + state + `","inputResponses":{"` + keys[0] + `":{"action":"accept","content":{"name":"Ada"}}}`)
		theirs := answer
		theirs.Caller = identity.Caller{Peer: ect.Peer{ID: "spiffe://example.com/other"}}
		if got, err := s.Exchange(t.Context(), theirs); err == nil {
			t.Errorf("the answer of another caller leads to %s", got.Wire().Body)
		}
		if len(s.asker.received("")) != 0 || len(s.asker.received(prompting)) != 1 {
			t.Errorf("the server heard %s", s.asker.bodies)
		}
		time.AfterFunc(time.Second, func() { close(s.asker.resume) })
		if got := s.outcome(answer); !strings.Contains(got, "greet Ada") {
			t.Errorf("afterwards the caller's own leads to %s", got)
		}
	})
}

// TestPrompt_AsksAnOlderClient: a server of 2026-07-28 asks in its reply to prompts/get.
// A client of 2025-11-25 is asked in its stream, and the request is repeated for it.
func TestPrompt_AsksAnOlderClient(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{prompting: {{reply: result(pending)}, {reply: result(strings.Replace(promptAnswer, "{", `{"resultType":"complete",`, 1))}}}, func(s *stage) {
		t := s.t
		call := s.olderIn(mcp.Legacy, prompting, `"name":"ask","arguments":{"tone":"warm"}`)
		call.CanAnswer = []canonical.Mode{canonical.ModeForm}
		events := s.ask(t, s, call).Events()
		s.reply(mcp.Legacy, nextQuestion(t, events), `"result":{"action":"accept","content":{"name":"Ada"}}`)
		if bodies, _ := read(t, events); !strings.Contains(strings.Join(bodies, ""), "greet Ada") {
			t.Errorf("the answer leads to %s", bodies)
		}
		received := s.asker.received(prompting)
		if len(received) != 2 || !strings.Contains(received[1], `"requestState":"s-1"`) || !strings.Contains(received[1], `"content":{"name":"Ada"}`) || !strings.Contains(received[1], `"tone":"warm"`) {
			t.Errorf("the server heard %s", received)
		}
	})
}

// TestResource_AsksANewerClient: resources/read may ask as prompts/get may.
func TestResource_AsksANewerClient(t *testing.T) {
	t.Parallel()
	contents := `{"contents":[{"uri":"shop://secret","text":"the secret"}]}`
	era(t, mcp.Legacy, map[string][]scene{"resources/read": {{events: []string{asksInside, "", result(contents)}, end: io.EOF}}, "": {{reply: "taken"}}}, func(s *stage) {
		read := func(more string) transport.Call {
			call := s.prompts(more)
			call.Wire.Body = []byte(strings.NewReplacer(`"prompts/get"`, `"resources/read"`, `"name":"ask","arguments":{"tone":"warm"}`, `"uri":"shop://secret"`).Replace(string(call.Wire.Body)))
			return call
		}
		state, keys := stateIn(s.t, s.outcome(read("")))
		answer := `,"requestState":"` + state + `","inputResponses":{"` + keys[0] + `":{"action":"accept","content":{"name":"Ada"}}}`
		if got := s.outcome(s.prompts(answer)); !strings.HasPrefix(got, "refused") {
			s.t.Errorf("the answer with another method leads to %s", got)
		}
		time.AfterFunc(time.Second, func() { close(s.asker.resume) })
		if got := s.outcome(read(answer)); !strings.Contains(got, "the secret") {
			s.t.Errorf("the answer leads to %s", got)
		}
	})
}
