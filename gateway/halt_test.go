package gateway_test

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

const (
	slowTool  = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"write","arguments":{"message":"hi"}}}`
	cancelled = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`
)

// halts counts what is written of requests that may be stopped from elsewhere.
type halts struct {
	store.Entries
	written atomic.Int64
}

func (h *halts) Swap(ctx context.Context, key store.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	if key.Kind == "halt" {
		h.written.Add(1)
	}
	return h.Entries.Swap(ctx, key, old, value, until)
}

// A request of a session ends when any replica is told to stop it, early or late,
// in streams and out of them; nothing is left of that.
func TestCancelRequest_AtAnyReplica(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		runs   time.Duration // before it is stopped
		within time.Duration // it has ended
		stream bool
	}{
		"that has only begun": {20 * time.Millisecond, 250 * time.Millisecond, false},
		"that takes long":     {10 * time.Second, 50 * time.Millisecond, false},
		"that is a stream":    {10 * time.Second, 50 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{
				streaming: {{events: []string{wholeTask("WORKING", "")}}}, canceling: {{reply: result(taskOf("CANCELED", ""))}},
				calling: {{reply: `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"done it"}]}}`, after: time.Minute / 2}}, "notifications/cancelled": {{}},
			}, func(s *stage) {
				t := s.t
				s.asker.version = mcp.Legacy
				in := func(body string) transport.Call {
					call := s.legacy(body)
					if call.Agent = "asker"; c.stream {
						call.Agent = "writer"
					}
					return call
				}
				other := s.replica(t)
				defer func() { _ = other.Close() }()
				ended := make(chan time.Time, 1)
				go func() {
					answer, err := s.Exchange(t.Context(), in(slowTool))
					received := ""
					if answer.Events() != nil {
						bodies, _ := read(t, answer.Events())
						received = strings.Join(bodies, "\n")
					}
					if ended <- time.Now(); err == nil && strings.Contains(received+string(answer.Wire().Body), "done it") {
						t.Errorf("it was not stopped: %s %s", received, answer.Wire().Body)
					}
				}()
				<-time.After(c.runs)
				stopped := time.Now()
				s.ask(t, other, in(strings.Replace(cancelled, "7", "8", 1)))
				s.ask(t, other, in(cancelled))
				if took := (<-ended).Sub(stopped); took > c.within {
					t.Errorf("it ended after %s", took)
				}
				synctest.Wait()
				agent, notice := s.asker, `"method":"notifications/cancelled","params":{"requestId":7`
				if c.stream {
					agent, notice = s.agent, canceling
				}
				if last := agent.last(); !strings.Contains(last, notice) {
					t.Errorf("the agent heard %s", last)
				}
				<-time.After(3 * time.Second)
				if left, err := s.memory.Entries().List(t.Context(), "halt", "session", "", 9); err != nil || len(left) != 0 {
					t.Errorf("left are %v, %v", left, err)
				}
			})
		})
	}
}

// What is answered soon, or outside sessions, costs no write.
func TestCancelRequest_ShortRequestCostsNoWrite(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{streaming: {{events: []string{wholeTask("COMPLETED", oneArt)}, after: 200 * time.Millisecond, end: io.EOF}}}, func(s *stage) {
		t := s.t
		stored := &halts{Entries: s.memory.Entries()}
		s.view = stored
		g := s.replica(t)
		defer func() { _ = g.Close() }()
		s.ask(t, g, s.legacy(slowTool))
		<-time.After(time.Second)
		s.ask(t, g, s.by(mcp.Binding, mcp.Legacy, slowTool))
		synctest.Wait()
		if n := stored.written.Load(); n != 0 {
			t.Errorf("it costs %d writes", n)
		}
	})
}
