package gateway_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// slowOperations are what a caller of MCP can ask of a server, each with params and a result of both
// styles.
var slowOperations = map[string]struct{ method, params, result string }{
	"tool":       {calling, `"name":"ask","arguments":{},`, `"content":[{"type":"text","text":"slept"}]`},
	"failure":    {calling, `"name":"ask","arguments":{},`, `"content":[{"type":"text","text":"slept"}],"isError":true`},
	"prompt":     {"prompts/get", `"name":"p",`, `"messages":[{"role":"user","content":{"type":"text","text":"slept"}}]`},
	"resource":   {"resources/read", `"uri":"file:///a",`, `"contents":[{"uri":"file:///a","text":"slept"}]`},
	"completion": {"completion/complete", `"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"s"},`, `"completion":{"values":["slept"]}`},
}

// slowDelays are how long an agent takes for its reply.
var slowDelays = []time.Duration{
	0, 200 * time.Millisecond, 260 * time.Millisecond, time.Second, 20 * time.Second, 61 * time.Second, 299 * time.Second,
}

// messages is every message that a caller is answered with, and how many of them are the reply.
func (s *stage) messages(call transport.Call) (all []string, replies int) {
	answer, err := s.Exchange(s.t.Context(), call)
	if err != nil {
		s.t.Errorf("%s: %v", call.Wire.Body, err)
		return []string{""}, 0
	}
	if answer.Events() == nil {
		return []string{string(answer.Wire().Body)}, 1
	}
	all, _ = read(s.t, answer.Events())
	for _, body := range all {
		if !strings.Contains(body, `"method"`) {
			replies++
		}
	}
	if len(all) == 0 {
		all = []string{""}
	}
	return all, replies
}

// TestSlowReply_IsTold: whatever an agent takes for its reply, its caller has the reply, once, as it
// has without the gateway: in each operation, with and without progress wanted, as JSON and in a
// stream, in each pair of revisions.
func TestSlowReply_IsTold(t *testing.T) {
	t.Parallel()
	for _, from := range mcp.Revisions() {
		for _, to := range mcp.Revisions() {
			t.Run(from+" to "+to, func(t *testing.T) {
				t.Parallel()
				for name, op := range slowOperations {
					for _, streamed := range []bool{false, true} {
						for _, token := range []string{"", `"progressToken":"p",`} {
							for _, delay := range slowDelays {
								t.Run(fmt.Sprint(name, " streamed ", streamed, " ", token, delay), func(t *testing.T) {
									slowReply(t, from, to, op.method, op.params, op.result, token, streamed, delay)
								})
							}
						}
					}
				}
			})
		}
	}
}

func slowReply(t *testing.T, from, to, method, params, text, token string, streamed bool, delay time.Duration) {
	t.Helper()
	if to == mcp.Modern {
		text = `"resultType":"complete",` + text
	}
	answer := scene{reply: result(`{` + text + `}`), after: delay}
	if streamed {
		answer = scene{events: []string{answer.reply}, after: delay, end: io.EOF}
	}
	play(t, map[string][]scene{method: {answer}, "notifications/cancelled": {{}}}, func(s *stage) {
		t := s.t
		s.asker.version, s.asker.offers = to, `{"prompts":{},"resources":{},"completions":{}}`
		call := s.asksFor(from, method, params+`"_meta":{`+token+`}`)
		if from == mcp.Modern {
			call = s.asksFor(from, method, params)
			call.Wire.Body = []byte(strings.Replace(string(call.Wire.Body), `"_meta":{`, `"_meta":{`+token, 1))
		} else {
			call.Wire.Body = []byte(strings.Replace(string(call.Wire.Body), `,}`, `}`, 1))
			call.Session, call.Detached = "session", true
		}
		call.Agent = "asker"
		all, replies := s.messages(call)
		if last := all[len(all)-1]; replies != 1 || !strings.Contains(last, "slept") || strings.Contains(last, `"error"`) {
			t.Errorf("told is %s", all)
		}
		if got := s.asker.was(); got != method {
			t.Errorf("the agent was asked %s", got)
		}
	})
}

// TestSlowReply_OfATask: the same of an A2A agent, for callers who read a stream and for those who wait.
func TestSlowReply_OfATask(t *testing.T) {
	t.Parallel()
	for _, method := range []string{invoking, streaming} {
		for _, streamed := range []bool{false, true} {
			for _, delay := range slowDelays {
				t.Run(fmt.Sprint(method, streamed, delay), func(t *testing.T) {
					t.Parallel()
					answer := scene{reply: wholeTask("COMPLETED", oneArt), after: delay}
					if streamed {
						answer = scene{events: []string{answer.reply}, after: answer.after, end: io.EOF}
					}
					play(t, map[string][]scene{method: {answer}, "notifications/cancelled": {{}}}, func(s *stage) {
						t := s.t
						all, _ := s.messages(s.a2a(method, saying))
						if last := all[len(all)-1]; len(all) != 1 || !strings.Contains(last, "done it") || strings.Contains(last, `"error"`) {
							t.Errorf("told is %s", all)
						}
					})
				})
			}
		}
	}
}

// TestSlowReply_Refused: an error of the agent comes as its error, however late.
func TestSlowReply_Refused(t *testing.T) {
	t.Parallel()
	for _, version := range mcp.Revisions() {
		for _, delay := range slowDelays {
			t.Run(fmt.Sprint(version, delay), func(t *testing.T) {
				t.Parallel()
				play(t, map[string][]scene{calling: {{reply: failure("-32602"), after: delay}}, "notifications/cancelled": {{}}}, func(s *stage) {
					t := s.t
					s.asker.version = version
					call := s.asksFor(version, calling, `"name":"ask","arguments":{},`)
					if version != mcp.Modern {
						call = s.asksFor(version, calling, `"name":"ask","arguments":{},"_meta":{"progressToken":"p"}`)
					}
					call.Agent = "asker"
					answer, err := s.Exchange(t.Context(), call)
					if refusal, ok := errors.AsType[*canonical.Error](err); ok && refusal.Message == "no" {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					body := string(answer.Wire().Body)
					if answer.Events() != nil {
						all, _ := read(t, answer.Events())
						body = strings.Join(all, "\n")
					}
					if strings.Count(body, `"error"`) != 1 || !strings.Contains(body, `"code":-32602`) || !strings.Contains(body, `"message":"no"`) {
						t.Errorf("told is %s", body)
					}
				})
			})
		}
	}
}

// TestSlowReply_InOtherForms: a reply that is a text is told as an error, and one whose lines end as
// on Windows as it came, but for the carriage returns, which no event of a stream can hold.
func TestSlowReply_InOtherForms(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scene scene
		want  []string
	}{
		"text":  {scene{reply: "JSON RPC not handled: x", media: translators.MediaText, after: time.Second}, []string{`"id":8`, `"error"`, "not handled"}},
		"lines": {scene{reply: "{\r\n\"jsonrpc\":\"2.0\",\r\n\"id\":ID,\r\n\"result\":{\"content\":[]}}", after: time.Second}, []string{"{\n\"jsonrpc\":\"2.0\",\n\"id\":8,\n\"result\""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{calling: {c.scene}}, func(s *stage) {
				s.asker.version = mcp.Legacy
				call := s.inSession(calling, `"name":"ask","arguments":{},"_meta":{"progressToken":"p"}`)
				call.Wire.Body = []byte(strings.Replace(string(call.Wire.Body), `"id":7`, `"id":8`, 1))
				all, replies := s.messages(call)
				for _, want := range c.want {
					if replies != 1 || !strings.Contains(all[0], want) {
						s.t.Errorf("told is %q", all)
					}
				}
			})
		})
	}
}

// TestSlowReply_Canceled: a call can be canceled however long it has gone on, and with a stream that
// was begun as without; the agent is told once.
func TestSlowReply_Canceled(t *testing.T) {
	t.Parallel()
	for _, from := range mcp.Revisions() {
		for _, to := range mcp.Revisions() {
			if from == mcp.Modern || to == mcp.Modern {
				continue // where a call is canceled with its connection
			}
			for _, token := range []string{"", `"progressToken":"p"`} {
				for _, delay := range slowDelays[1:] {
					t.Run(fmt.Sprint(from, to, token, delay), func(t *testing.T) {
						t.Parallel()
						slowCanceled(t, from, to, token, delay)
					})
				}
			}
		}
	}
}

func slowCanceled(t *testing.T, from, to, token string, delay time.Duration) {
	t.Helper()
	play(t, map[string][]scene{calling: {{reply: result(complete), after: delay}}, "notifications/cancelled": {{}}}, func(s *stage) {
		t := s.t
		s.asker.version = to
		in := func(body string) transport.Call {
			call := s.by(mcp.Binding, from, body)
			call.Agent, call.Session, call.Detached = "asker", "session", true
			return call
		}
		ended := make(chan string, 1)
		go func() {
			answer, err := s.Exchange(t.Context(), in(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"ask","arguments":{},"_meta":{`+token+`}}}`))
			got := fmt.Sprint(err)
			if err == nil {
				if got = string(answer.Wire().Body); answer.Events() != nil {
					all, _ := read(t, answer.Events())
					got = strings.Join(all, "")
				}
			}
			ended <- got
		}()
		<-time.After(delay - 10*time.Millisecond)
		s.ask(t, s, in(cancelled))
		if got := <-ended; strings.Contains(got, `"result"`) {
			t.Errorf("told is %s", got)
		}
		synctest.Wait()
		if got := s.asker.was(); got != calling+" notifications/cancelled" {
			t.Errorf("the agent was asked %s", got)
		}
	})
}

// TestSlowReply_AcrossProtocols: the same between A2A and MCP, for callers who wait and for those who
// read a stream.
func TestSlowReply_AcrossProtocols(t *testing.T) {
	t.Parallel()
	for _, version := range mcp.Revisions() {
		for _, delay := range slowDelays {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprint(version, delay, stream), func(t *testing.T) {
					t.Parallel()
					text := `{"content":[{"type":"text","text":"done it"}]}`
					if version == mcp.Modern {
						text = `{"resultType":"complete",` + text[1:]
					}
					method := map[bool]string{false: invoking, true: streaming}[stream]
					play(t, map[string][]scene{calling: {{reply: result(text), after: delay}}}, func(s *stage) {
						s.asker.version = version
						all, _ := s.messages(s.asksTool(method, ""))
						if got := strings.Join(all, "\n"); !strings.Contains(got, "done it") || !strings.Contains(got, "COMPLETED") || strings.Contains(got, `"error"`) {
							s.t.Errorf("an A2A caller is told %s", got)
						}
					})
					answer := scene{reply: wholeTask("COMPLETED", oneArt), after: delay}
					blind := !stream
					if stream {
						answer = scene{events: []string{answer.reply}, after: answer.after, end: io.EOF}
					}
					play(t, map[string][]scene{method: {answer}}, func(s *stage) {
						s.agent.blind = blind
						call := s.asksFor(version, calling, `"name":"write","arguments":{"message":"hi"},"_meta":{"progressToken":"p"}`)
						if version == mcp.Modern {
							call = s.asksFor(version, calling, `"name":"write","arguments":{"message":"hi"},`)
						}
						all, replies := s.messages(call)
						if last := all[len(all)-1]; replies != 1 || !strings.Contains(last, "done it") || strings.Contains(last, `"error"`) {
							s.t.Errorf("an MCP caller is told %s", all)
						}
					})
				})
			}
		}
	}
}
