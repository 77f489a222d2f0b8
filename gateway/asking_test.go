package gateway_test

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// soon is how long the end of an agent that has asked may take to be known.
const soon = time.Second

const refusesCall = `{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"gave up"}}`

// ends are the ways in which an agent's stream ends while its question is open:
// after the server says so.
func ends() map[string]struct {
	scene       scene
	state, says string
} {
	last := func(events ...string) []string { return append([]string{asksInside, ""}, events...) }
	return map[string]struct {
		scene       scene
		state, says string
	}{
		"with a result":            {scene{events: last(result(complete)), end: io.EOF}, "COMPLETED", "hello Ada"},
		"with an error":            {scene{events: last(refusesCall), end: io.EOF}, "FAILED", "gave up"},
		"taking its question back": {scene{events: last(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q1","reason":"late"}}`, result(complete)), end: io.EOF}, "COMPLETED", "hello Ada"},
		"broken off":               {scene{events: last(), end: errBroken}, "FAILED", "writer"},
		"too early":                {scene{events: last(), end: io.EOF}, "FAILED", "ended before its last event"},
	}
}

// within expects that something takes no longer than it may.
func within(t *testing.T, what string, do func()) {
	t.Helper()
	began := time.Now()
	if do(); time.Since(began) > soon {
		t.Errorf("%s took %v", what, time.Since(began))
	}
}

// An agent that ends while its question is open is noticed at once: whoever asks,
// listens or is posted to hears of it, and who answers too late hears that it ended.
func TestOpenQuestion_AgentEnds(t *testing.T) {
	t.Parallel()
	for name, c := range ends() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{calling: {c.scene}}, func(s *stage) {
				t := s.t
				s.asker.version = mcp.Legacy
				id := s.requested(t, s.ask(t, s, s.asks(invoking, called)))
				s.ask(t, s, s.tells(id))
				listening := s.ask(t, s, s.asks(following, `{"id":"`+id+`"}`)).Events()
				heardNext(t, listening)
				<-time.After(time.Minute)
				close(s.asker.resume)
				within(t, "to settle", func() {
					for s.stands(s, id) == "INPUT_REQUIRED" {
						<-time.After(10 * time.Millisecond)
					}
				})
				task := string(s.ask(t, s, s.asks(looking, `{"id":"`+id+`"}`)).Wire().Body)
				if got := s.stands(s, id); got != c.state || !strings.Contains(task, c.says) || strings.Contains(task, "who?") {
					t.Errorf("it ends as %s: %s", got, task)
				}
				_ = listening.Close()
				synctest.Wait()
				if got := s.posted(); strings.Count(got, "TASK_STATE_"+c.state) != 1 {
					t.Errorf("posted was %s", got)
				}
				var refused *canonical.Error
				if _, err := s.Exchange(t.Context(), s.answers(id, "Ada")); !errors.As(err, &refused) || refused.Message != "the task has ended" {
					t.Errorf("the answer is answered with %v", err)
				}
				if got := s.asker.was(); got != calling {
					t.Errorf("the server was asked %s", got)
				}
			})
		})
	}
}

// The same for an MCP client that is asked on its stream: the stream ends, and its
// late answer reaches nobody.
func TestOpenQuestion_AgentEndsForStreamingClient(t *testing.T) {
	t.Parallel()
	for name, c := range ends() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{calling: {c.scene}, "notifications/cancelled": {{}}}, func(s *stage) {
				t := s.t
				s.asker.version = mcp.Legacy
				events := s.ask(t, s, s.olderIn(mcp.LegacyJune, calling, callsAsk)).Events()
				q := nextQuestion(t, events)
				time.AfterFunc(time.Minute, func() { close(s.asker.resume) })
				<-time.After(time.Minute)
				within(t, "to hear of it", func() {
					if bodies, _ := read(t, events); !strings.Contains(bodies[len(bodies)-1], c.says) {
						t.Errorf("heard %s", bodies)
					}
				})
				s.reply(mcp.LegacyJune, q, `"result":`+acceptsAda)
				synctest.Wait()
				if got := s.asker.all(); strings.Contains(got, "Ada") {
					t.Errorf("the server heard %s", got)
				}
			})
		})
	}
}

// And for one that answers by calling again.
func TestOpenQuestion_AgentEndsForRetryingClient(t *testing.T) {
	t.Parallel()
	for name, c := range ends() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{calling: {c.scene}}, func(s *stage) {
				t := s.t
				s.asker.version = mcp.Legacy
				call := func(more string) transport.Call {
					call := s.canAnswer(more)
					call.Agent = "asker"
					call.Wire.Body = []byte(strings.Replace(string(call.Wire.Body), `"name":"write"`, `"name":"ask"`, 1))
					return call
				}
				var env struct{ Result struct{ RequestState string } }
				request := []byte(whole(t, s.ask(t, s, call(""))))
				if err := json.Unmarshal(request, &env); err != nil || env.Result.RequestState == "" {
					t.Fatalf("it is asked %s", request)
				}
				close(s.asker.resume)
				<-time.After(soon)
				var refused *canonical.Error
				_, err := s.Exchange(t.Context(), call(`,"requestState":"`+env.Result.RequestState+`","inputResponses":{"elicitation":`+acceptsAda+`}`))
				if !errors.As(err, &refused) || refused.Message != "the task has ended" {
					t.Errorf("the answer is answered with %v", err)
				}
			})
		})
	}
}

// What an agent says while it asks is told at once, and a second question is asked
// when the first is answered.
func TestOpenQuestion_UpdatesAndSecondQuestion(t *testing.T) {
	t.Parallel()
	const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1,"message":"still here"}}`
	second := strings.NewReplacer(`"q1"`, `"q2"`, "who?", "how old?").Replace(asksInside)
	play(t, map[string][]scene{
		calling: {{events: []string{asksInside, second, progress, "", result(complete)}, end: io.EOF}}, "": {{reply: "taken"}},
	}, func(s *stage) {
		t := s.t
		s.asker.version = mcp.Legacy
		events := s.ask(t, s, s.olderIn(mcp.LegacyJune, calling, callsAsk+`,"_meta":{"progressToken":"p"}`)).Events()
		one := nextQuestion(t, events)
		if text := heardNext(t, events); !strings.Contains(text, "still here") {
			t.Errorf("heard %s", text)
		}
		s.reply(mcp.LegacyJune, one, `"result":`+acceptsAda)
		two := nextQuestion(t, events)
		if !strings.Contains(string(two.Params), "how old?") || !strings.Contains(s.asker.last(), `"id":"q1"`) {
			t.Errorf("asked %s; the server heard %s", two.Params, s.asker.last())
		}
		s.reply(mcp.LegacyJune, two, `"result":{"action":"accept","content":{"name":"Eve"}}`)
		time.AfterFunc(soon, func() { close(s.asker.resume) })
		if bodies, _ := read(t, events); len(bodies) != 1 || !strings.Contains(bodies[0], "hello Ada") {
			t.Errorf("heard %s", bodies)
		}
		if got := s.asker.received(""); len(got) != 2 || !strings.Contains(got[1], `"id":"q2"`) || !strings.Contains(got[1], "Eve") {
			t.Errorf("the server heard %s", got)
		}
	})
}

// More questions than there may be are no reason to grow: the agent answers badly.
func TestOpenQuestion_TooManyIsABadReply(t *testing.T) {
	t.Parallel()
	events := make([]string, 100)
	for i := range events {
		events[i] = asksInside
	}
	play(t, map[string][]scene{calling: {{events: events}}, "notifications/cancelled": {{}}}, func(s *stage) {
		s.asker.version = mcp.Legacy
		if bodies, _ := read(s.t, s.ask(s.t, s, s.olderIn(mcp.LegacyJune, calling, callsAsk)).Events()); !strings.Contains(bodies[len(bodies)-1], "asks too much at once") {
			s.t.Errorf("heard %s", bodies)
		}
	})
}

// An agent whose task goes on without the stream in which it asked asks again: what
// answers the question that is gone does not answer the one that is there.
func TestOpenQuestion_AskedAgainAfterStreamLoss(t *testing.T) {
	t.Parallel()
	again := strings.Replace(asksInside, `"q1"`, `"q2"`, 1)
	era(t, mcp.Legacy, map[string][]scene{
		calling:     {{reply: result(`{"task":{"status":"working",` + oldTask + `}}`)}},
		tasksGet:    {{reply: oldStands("input_required")}},
		tasksResult: {{events: []string{asksInside, ""}, end: errBroken}, {events: []string{again, "", result(oldHello)}, end: io.EOF}},
		"":          {{reply: "taken"}},
	}, func(s *stage) {
		t := s.t
		s.asker.support = "required"
		id := s.requested(t, s.ask(t, s, s.asks(invoking, called)))
		s.asker.resume <- struct{}{}
		synctest.Wait()
		if got := s.stands(s, id); got != "WORKING" {
			t.Errorf("without its stream it is %s", got)
		}
		<-time.After(3 * time.Second)
		if got := s.stands(s, id); got != "INPUT_REQUIRED" {
			t.Errorf("then it is %s", got)
		}
		time.AfterFunc(soon, func() { close(s.asker.resume) })
		if done := s.ask(t, s, s.answers(id, "Eve")); !strings.Contains(string(done.Wire().Body), "hello Ada") {
			t.Errorf("the answer leads to %s", done.Wire().Body)
		}
		if got := s.asker.received(""); len(got) != 1 || !strings.Contains(got[0], `"id":"q2"`) || !strings.Contains(got[0], "Eve") {
			t.Errorf("the server heard %s", got)
		}
	})
}
