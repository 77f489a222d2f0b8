package gateway_test

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// An agent may ask its caller to go somewhere (elicitation, mode url). What a caller
// whose revision has no such question is asked is a form with nothing to fill in.
const wantsVisit = `"method":"elicitation/create","params":{"mode":"url","message":"log in","url":"https://id.example/x","elicitationId":"e1"}`

const (
	plainForm = `"message":"log in\n\nhttps://id.example/x","requestedSchema":{"type":"object","properties":{}}`
	asVisit   = `"mode":"url","url":"https://id.example/x","elicitationId":"e1"`
)

// visiting is an agent of a revision that asks so, and what it hears then.
func visiting(version string) (scenes map[string][]scene, answered func(*stage) string) {
	if version == mcp.Modern {
		return map[string][]scene{calling: {{reply: asksFor(`"k":{`+wantsVisit+`}`, "s-1")}, {reply: result(complete)}}}, func(s *stage) string {
			var again struct {
				Params struct{ InputResponses map[string]json.RawMessage }
			}
			if err := json.Unmarshal([]byte(s.asker.last()), &again); err != nil {
				s.t.Error(err)
			}
			return string(again.Params.InputResponses["k"])
		}
	}
	asks := []string{`{"jsonrpc":"2.0","id":"q1",` + wantsVisit + `}`, "", result(complete)}
	return map[string][]scene{calling: {{events: asks, end: io.EOF}}, "": {{reply: "taken"}}, "notifications/cancelled": {{}}}, func(s *stage) string {
		var reply struct {
			ID     string
			Result json.RawMessage
		}
		if err := json.Unmarshal([]byte(s.asker.last()), &reply); err != nil || reply.ID != "q1" {
			s.t.Errorf("%v: the agent heard %s", err, s.asker.last())
		}
		return string(reply.Result)
	}
}

// onVisit plays that to a caller, which answers what it is asked.
func onVisit(t *testing.T, version string, answer func(s *stage) (done func() transport.Answer), agentHears string) {
	t.Helper()
	scenes, answered := visiting(version)
	play(t, scenes, func(s *stage) {
		s.asker.version = version
		done := answer(s)
		if done == nil {
			return
		}
		outcome := make(chan string, 1)
		go func() { outcome <- whole(s.t, done()) }()
		synctest.Wait()
		if got := answered(s); got != agentHears {
			s.t.Errorf("the agent heard %s, not %s", got, agentHears)
		}
		close(s.asker.resume)
		if got := <-outcome; !strings.Contains(got, "hello Ada") {
			s.t.Errorf("the answer leads to %s", got)
		}
	})
}

func TestURLElicitation_OnAStream(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		agent, caller string
		can           canonical.Mode
		hears, says   string
		agentHears    string
	}{
		"accepted":           {mcp.Modern, mcp.Legacy, canonical.ModeURL, asVisit, `"result":{"action":"accept"}`, `{"action":"accept"}`},
		"declined":           {mcp.Modern, mcp.Legacy, canonical.ModeURL, asVisit, `"result":{"action":"decline"}`, `{"action":"decline"}`},
		"canceled":           {mcp.Modern, mcp.Legacy, canonical.ModeURL, asVisit, `"result":{"action":"cancel"}`, `{"action":"cancel"}`},
		"as a form":          {mcp.Modern, mcp.LegacyJune, canonical.ModeForm, plainForm, `"result":{"action":"accept","content":{}}`, `{"action":"accept"}`},
		"as a form, older":   {mcp.Legacy, mcp.LegacyJune, canonical.ModeForm, plainForm, `"result":{"action":"accept","content":{}}`, `{"action":"accept"}`},
		"as a form, refused": {mcp.Legacy, mcp.LegacyJune, canonical.ModeForm, plainForm, `"result":{"action":"decline"}`, `{"action":"decline"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onVisit(t, c.agent, func(s *stage) func() transport.Answer {
				call := s.olderIn(c.caller, calling, callsAsk)
				call.CanAnswer = []canonical.Mode{c.can}
				events := s.ask(s.t, s, call).Events()
				q := nextQuestion(s.t, events)
				if !strings.Contains(string(q.Params), c.hears) || (c.caller == mcp.LegacyJune) == strings.Contains(string(q.Params), `"mode"`) {
					s.t.Errorf("asked %s", q.Params)
				}
				return func() transport.Answer {
					s.reply(c.caller, q, c.says)
					return transporttest.Stream(events)
				}
			}, c.agentHears)
		})
	}
}

func TestURLElicitation_InAReply(t *testing.T) {
	t.Parallel()
	onVisit(t, mcp.Legacy, func(s *stage) func() transport.Answer {
		call := func(more string) transport.Call {
			call := s.canAnswer(more)
			call.Agent = "asker"
			call.Wire.Body = []byte(strings.NewReplacer(`"name":"write"`, `"name":"ask"`, `{"form":{}}`, `{"url":{}}`).Replace(string(call.Wire.Body)))
			return call
		}
		requested := whole(s.t, s.ask(s.t, s, call("")))
		var env struct {
			Result struct {
				RequestState  string
				InputRequests map[string]json.RawMessage
			}
		}
		if err := json.Unmarshal([]byte(requested), &env); err != nil || len(env.Result.InputRequests) != 1 || !strings.Contains(requested, asVisit) {
			s.t.Fatalf("asked %s", requested)
		}
		key := ""
		for one := range env.Result.InputRequests {
			key = one
		}
		return func() transport.Answer {
			return s.ask(s.t, s, call(`,"requestState":"`+env.Result.RequestState+`","inputResponses":{"`+key+`":{"action":"accept"}}`))
		}
	}, `{"action":"accept"}`)
}

func TestURLElicitation_ByATask(t *testing.T) {
	t.Parallel()
	for _, version := range []string{mcp.Modern, mcp.Legacy} {
		for says, hears := range map[string]string{
			`{"text":"done"}`:               `{"action":"accept"}`,
			`{"text":"accept"}`:             `{"action":"accept"}`,
			`{"data":{"action":"decline"}}`: `{"action":"decline"}`,
			`{"data":{"elicitation":{"key":"KEY","action":"decline"}}}`: `{"action":"decline"}`,
		} {
			t.Run(version+" "+hears, func(t *testing.T) {
				t.Parallel()
				onVisit(t, version, func(s *stage) func() transport.Answer {
					requested := string(s.ask(s.t, s, s.asks(invoking, called)).Wire().Body)
					id, state := taskIn(s.t, []byte(requested))
					_, key, found := strings.Cut(requested, `{"elicitation":{"key":"`)
					key, _, _ = strings.Cut(key, `"`)
					if !found || state != "TASK_STATE_INPUT_REQUIRED" || !strings.Contains(requested, `"mode":"url","url":"https://id.example/x"`) || !strings.Contains(requested, `{"text":"log in"}`) {
						s.t.Fatalf("asked %s", requested)
					}
					return func() transport.Answer {
						return s.ask(s.t, s, s.asks(invoking, `{"message":{"messageId":"m2","taskId":"`+id+`","role":"ROLE_USER","parts":[`+strings.Replace(says, "KEY", key, 1)+`]}}`))
					}
				}, hears)
			})
		}
	}
}

// A client of 2025-03-26 can be asked nothing.
func TestURLElicitation_ClientWithoutElicitation(t *testing.T) {
	t.Parallel()
	for _, version := range []string{mcp.Modern, mcp.Legacy} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			onVisit(t, version, func(s *stage) func() transport.Answer {
				call := s.olderIn(mcp.LegacyMarch, calling, callsAsk)
				call.CanAnswer = nil
				if got := whole(s.t, s.ask(s.t, s, call)); strings.Contains(got, "id.example") || strings.Contains(got, "elicitation") || !strings.Contains(got, `"id":7`) {
					s.t.Errorf("heard %s", got)
				}
				close(s.asker.resume)
				return nil
			}, "")
		})
	}
}
