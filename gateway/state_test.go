package gateway_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// TestRequestState_Unknown: a request state that an older MCP server cannot have made,
// and of which nothing is on record for this caller, is refused as invalid params that
// say what to do. A server of 2026-07-28 judges states itself.
func TestRequestState_Unknown(t *testing.T) {
	t.Parallel()
	const tool, prompt = `"name":"ask","arguments":{},`, `"name":"greet",`
	answers := func(state string) string { return `"inputResponses":{},"requestState":"` + state + `"` }
	for name, c := range map[string]struct{ method, params, state string }{
		"of a call, foreign":         {calling, tool, "made elsewhere"},
		"of a call, with our form":   {calling, tool, "0:0b5a3a5e-0000-4000-8000-000000000000"},
		"of a prompt, foreign":       {"prompts/get", prompt, "made elsewhere"},
		"of a prompt, with our form": {"prompts/get", prompt, "1:none"},
	} {
		for server, refused := range map[string]bool{mcp.Legacy: true, mcp.LegacyJune: true, mcp.Modern: false} {
			t.Run(name+" "+server, func(t *testing.T) {
				t.Parallel()
				era(t, server, map[string][]scene{c.method: {{reply: failure("-32602")}}}, func(s *stage) {
					s.asker.offers = `{"tools":{},"prompts":{}}`
					answer, err := s.Exchange(s.t.Context(), s.newer(c.method, c.params+answers(c.state)))
					s.judges(answer, err, refused)
				})
			})
		}
	}
	t.Run("made for another caller", func(t *testing.T) {
		t.Parallel()
		era(t, mcp.Legacy, asksInTask(), func(s *stage) {
			t := s.t
			s.asker.support = "required"
			again := s.askedWithoutTasks()
			stranger := again
			stranger.Caller.Peer = s.writer.Peer()
			answer, err := s.Exchange(t.Context(), stranger)
			s.judges(answer, err, true)
			time.AfterFunc(time.Second, func() { close(s.asker.resume) })
			if got := s.says(again); !strings.Contains(got, "hello Ada") {
				t.Errorf("its own caller is told %s", got)
			}
			answer, err = s.Exchange(t.Context(), again)
			if message, ok := errors.AsType[*canonical.Error](err); !ok || message.Code == canonical.CodeInternal || strings.Contains(err.Error(), "L20") {
				t.Errorf("once it has ended, the state is answered with %v %s", err, answer.Wire().Body)
			}
		})
	})
}

// judges holds how a call with an unknown state was answered: by the gateway, or by the
// server, which says -32602 itself.
func (s *stage) judges(answer transport.Answer, err error, refused bool) {
	s.t.Helper()
	s.asker.mu.Lock()
	received := slices.DeleteFunc(slices.Clone(s.asker.bodies), func(body string) bool { return !strings.Contains(body, `"requestState"`) })
	s.asker.mu.Unlock()
	if !refused {
		if err != nil || len(received) != 1 || !strings.Contains(string(answer.Wire().Body), `"code":-32602,"message":"no"`) {
			s.t.Errorf("the server heard %s, and its caller %v %s", received, err, answer.Wire().Body)
		}
		return
	}
	reply, ok := errors.AsType[*canonical.Error](err)
	if !ok || reply.Code != canonical.CodeBadParams || !strings.Contains(reply.Message, "make the call again without it") || len(received) != 0 {
		s.t.Errorf("it is answered with %v %s, and the server heard %s", err, answer.Wire().Body, received)
	}
}
