package gateway_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

const (
	marked   = `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`
	answered = `{"resultType":"complete","content":[{"type":"text","text":"done it"}]}`
)

// marking is a call of the asker's tool.
func (s *stage) marking(version, args string, h http.Header) transport.Call {
	meta := ""
	if version == mcp.Modern {
		meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	}
	call := s.by(mcp.Binding, version, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"ask","arguments":`+args+meta+`}}`)
	call.Agent, call.Wire.Header = "asker", h
	return call
}

// What the header of a call repeats of its arguments is judged before anybody
// hears of the call, and said rightly to the agent.
func TestParamHeaders_CheckedAgainstArguments(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{"tools/call": {{reply: result(answered)}}}, func(s *stage) {
		t := s.t
		s.asker.typed = marked
		for name, h := range map[string]http.Header{"missing": {}, "another": {"Mcp-Param-Region": {"us"}}} {
			answer, err := s.Exchange(t.Context(), s.marking(mcp.Modern, `{"region":"eu"}`, h))
			message, ok := errors.AsType[*canonical.Error](err)
			if !ok || message.Code != canonical.CodeHeaderMismatch || len(answer.Evidence) == 0 {
				t.Errorf("%s: got %v with %d ECTs", name, err, len(answer.Evidence))
			}
		}
		if got := s.asker.was(); got != "" {
			t.Errorf("the agent heard %s", got)
		}
		s.ask(t, s, s.marking(mcp.Modern, `{"region":"eu"}`, http.Header{"Mcp-Param-Region": {"eu"}, "Mcp-Param-Smuggled": {"x"}}))
		s.ask(t, s, s.marking(mcp.Legacy, `{"region":"eu"}`, nil))
		for i, h := range s.asker.headers {
			if h.Get("Mcp-Param-Region") != "eu" || h.Get("Mcp-Param-Smuggled") != "" {
				t.Errorf("call %d: the agent is told %v", i, h)
			}
		}
		if len(s.asker.headers) != 2 {
			t.Errorf("the agent heard %s", s.asker.was())
		}
	})
}

// An agent that misses something is asked anew what it wants.
func TestParamHeaders_SchemaReloadedOnMismatch(t *testing.T) {
	t.Parallel()
	scenes := map[string][]scene{"tools/call": {{reply: failure("-32020")}, {reply: result(answered)}}}
	play(t, scenes, func(s *stage) {
		t := s.t
		notified := func() int {
			if got := string(s.ask(t, s, s.marking(mcp.Modern, `{}`, nil)).Wire().Body); strings.Contains(got, "done it") != (len(s.asker.headers) > 1) {
				t.Errorf("the caller heard %s", got)
			}
			return s.asker.notified
		}
		if first, second, third := notified(), notified(), notified(); first != 1 || second != 2 || third != 2 {
			t.Errorf("it was asked %d, %d and %d times", first, second, third)
		}
	})
}
