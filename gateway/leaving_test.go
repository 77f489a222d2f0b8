package gateway_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/transport"
)

// A caller who leaves before the agent has named its task is never told that it
// succeeded, and the task does not go on for nobody: as soon as it has a name it
// is canceled, and nobody waits for that name for longer than for an answer.
func TestCall_CallerLeavesBeforeTaskID(t *testing.T) {
	t.Parallel()
	working := []string{wholeTask("WORKING", "")}
	for name, c := range map[string]struct {
		method   string
		scene    scene
		blind    bool
		waits    time.Duration
		notified string // what the agent hears in the end
	}{
		"an answer":              {method: invoking, scene: scene{reply: wholeTask("WORKING", ""), after: 3 * time.Second}, blind: true, waits: 4 * time.Second, notified: "SendMessage CancelTask"},
		"a stream":               {method: streaming, scene: scene{events: working, after: 3 * time.Second}, waits: 4 * time.Second, notified: "SendStreamingMessage CancelTask"},
		"it has ended meanwhile": {method: streaming, scene: scene{events: []string{wholeTask("COMPLETED", oneArt)}, after: 3 * time.Second, end: io.EOF}, waits: 4 * time.Second, notified: "SendStreamingMessage"},
		"it says nothing":        {method: streaming, scene: scene{events: []string{}}, waits: 2 * gateway.DefaultTimeout, notified: "SendStreamingMessage"},
		"it never answers":       {method: invoking, scene: scene{reply: wholeTask("WORKING", ""), after: time.Hour}, blind: true, waits: 2 * gateway.DefaultTimeout, notified: "SendMessage"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{c.method: {c.scene}, canceling: {{reply: result(taskOf("CANCELED", ""))}}}, func(s *stage) {
				t := s.t
				s.agent.blind = c.blind
				ctx, leave := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, leave)
				answer, err := s.Exchange(ctx, s.tool(askingHi))
				if err == nil || len(answer.Wire().Body) > 0 {
					t.Errorf("a caller who left was told %s", answer.Wire().Body)
				}
				if last := claims(t, answer.Evidence[len(answer.Evidence)-1]); last.Act != ect.ActTranslateError {
					t.Errorf("the evidence says %s", last.Act)
				}
				<-time.After(c.waits)
				synctest.Wait()
				if got := s.agent.was(); got != c.notified {
					t.Errorf("the agent heard %s", got)
				}
				s.agent.mu.Lock()
				defer s.agent.mu.Unlock()
				if s.agent.open != 0 {
					t.Error("it is still heard")
				}
			})
		})
	}
}

// An agent that said in one reply that it works has no more to say there: that is no
// end to a caller who leaves just then, and the agent is told. Which of the two is
// seen first is chance, hence many callers.
func TestCall_CallerLeavesAfterWorkingReply(t *testing.T) {
	t.Parallel()
	const callers = 24
	var notified []scene
	replies := make([]scene, callers)
	for i := range replies {
		replies[i] = scene{reply: wholeTask("WORKING", "")}
		notified = append(notified, scene{reply: result(taskOf("CANCELED", ""))})
	}
	play(t, map[string][]scene{invoking: replies, canceling: notified}, func(s *stage) {
		t := s.t
		s.agent.blind = true
		for range callers {
			ctx, leave := context.WithCancel(t.Context())
			call := s.tool(askingHi)
			call.Wire.Body = []byte(strings.Replace(string(call.Wire.Body), `"_meta":{`, `"_meta":{"progressToken":1,`, 1))
			answer, err := s.Exchange(ctx, call)
			if err != nil || answer.Events() == nil {
				t.Fatalf("no stream: %s, %v", answer.Wire().Body, err)
			}
			leave()
			for err == nil {
				_, err = answer.Events().Next(ctx)
			}
			if !errors.Is(err, context.Canceled) {
				t.Errorf("whoever left hears %v", err)
			}
			if err := answer.Events().Close(); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if n := strings.Count(s.agent.was(), "CancelTask"); n != callers {
			t.Errorf("the agent was told %d times", n)
		}
	})
}

// The agent's own ECT at the end of its stream covers the whole of it, and
// becomes a parent of ours. A wrong one makes the stream a bad reply.
func TestStream_ClosingTokenOfTheAgent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		by    string // who signs it
		whole string // out_hash; empty: the stream's
		good  bool
	}{
		"the agent's":      {by: "writer", good: true},
		"another stream's": {by: "writer", whole: ect.Hash([]byte("else"))},
		"a stranger's":     {by: "stranger"},
	} {
		for _, way := range []string{"relayed", "told", "followed"} {
			t.Run(name+" "+way, func(t *testing.T) {
				t.Parallel()
				streams, method := way != "told", streaming
				scenes := map[string][]scene{}
				if way == "followed" { // the request itself is answered with one reply
					scenes[streaming], method = []scene{{reply: wholeTask("WORKING", "")}}, following
				}
				scenes[method] = []scene{{events: []string{wholeTask("WORKING", ""), artifact("done it"), status("COMPLETED", "")}, end: io.EOF}}
				play(t, scenes, func(s *stage) {
					t := s.t
					signer, id := s.writer, ect.NewID()
					if c.by == "stranger" {
						signer = ecttest.NewParty(t, s.writer.ID)
					}
					scenes[method][0].closes = func(whole string) string {
						if c.whole != "" {
							whole = c.whole
						}
						direction := s.agent.direction()
						token, err := signer.Signer(t, time.Now).Sign(ect.Claims{
							ID: id, Audience: []string{string(s.self.ID)}, Workflow: direction.Workflow, Act: "wrote", Parents: []ect.ID{direction.ID}, OutputHash: whole,
						})
						if err != nil {
							t.Error(err)
						}
						return token.Compact()
					}
					var answer transport.Answer
					var err error
					if streams {
						call := s.a2a(streaming, saying)
						if way == "followed" {
							call = s.tool(askingHi)
							call.Wire.Body = []byte(strings.Replace(string(call.Wire.Body), `"_meta":{`, `"_meta":{"progressToken":1,`, 1))
						}
						answer = s.ask(t, s, call)
						bodies, evidence := read(t, answer.Events())
						if last := bodies[len(bodies)-1]; strings.Contains(strings.ToUpper(last), "COMPLETED") != c.good || strings.Contains(last, `"error"`) == c.good {
							t.Errorf("the stream ends with %s", last)
						}
						answer.Evidence = evidence
					} else if answer, err = s.Exchange(t.Context(), s.tool(askingHi)); (err == nil) != c.good {
						t.Errorf("the caller is told %s, %v", answer.Wire().Body, err)
					}
					if bad := (*transport.BadReplyError)(nil); !streams && !c.good && !errors.As(err, &bad) {
						t.Errorf("got %v", err)
					}
					last := claims(t, answer.Evidence[len(answer.Evidence)-1])
					if got := slices.Contains(last.Parents, id); got != c.good || c.good == (last.Act == ect.ActTranslateError) {
						t.Errorf("%s has the parents %v", last.Act, last.Parents)
					}
				})
			})
		}
	}
}
