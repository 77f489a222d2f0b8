package gateway_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// TestUndeclared_IsMissingACapability: what a server of 2025-11-25 asks in the middle of
// a request goes to no client of 2026-07-28 that has not declared it: its request fails
// with the capability that it needs, and a call is canceled at the server (2026-07-28,
// MissingRequiredClientCapabilityError; a task would need a capability too).
func TestUndeclared_IsMissingACapability(t *testing.T) {
	t.Parallel()
	const form, url, sampling, roots = `{"elicitation":{"form":{}}}`, `{"elicitation":{"url":{}}}`, `{"sampling":{}}`, `{"roots":{}}`
	ask := func(method, params string) string {
		return `{"jsonrpc":"2.0","id":"q1","method":"` + method + `","params":` + params + `}`
	}
	asks := map[string]string{
		form:     asksInside,
		url:      ask("elicitation/create", `{"mode":"url","elicitationId":"e","message":"go","url":"https://x.example/"}`),
		sampling: ask("sampling/createMessage", `{"messages":[],"maxTokens":5}`),
		roots:    ask("roots/list", `{}`),
	}
	for needs, ask := range asks {
		for _, has := range []string{"{}", form, url, sampling, roots} {
			for _, method := range []string{calling, "prompts/get"} {
				t.Run(method+" "+needs+" "+has, func(t *testing.T) {
					t.Parallel()
					era(t, mcp.Legacy, map[string][]scene{
						method: {{events: []string{ask, "", result(complete)}}}, "notifications/cancelled": {{}},
					}, func(s *stage) {
						call := s.by(mcp.Binding, mcp.Modern, `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":{"name":"ask","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
							`"io.modelcontextprotocol/clientInfo":{"name":"C","version":"1"},"io.modelcontextprotocol/clientCapabilities":`+has+`}}}`)
						call.Agent = "asker"
						got := s.hears(call)
						if has == needs {
							if !strings.Contains(got, `"resultType":"input_required"`) {
								s.t.Errorf("the client hears %s", got)
							}
							close(s.asker.resume)
							return
						}
						if !strings.Contains(got, `"error":{"code":-32021,`) || !strings.Contains(got, `"data":{"requiredCapabilities":`+needs+`}`) {
							s.t.Errorf("the client hears %s", got)
						}
						synctest.Wait()
						if last := s.asker.last(); method == calling && !strings.Contains(last, "notifications/cancelled") {
							s.t.Errorf("the server hears %s", last)
						}
					})
				})
			}
		}
	}
}

// hears is the last that a client of MCP hears of a call, be it an answer or an error.
func (s *stage) hears(call transport.Call) string {
	s.t.Helper()
	answer, err := s.Exchange(s.t.Context(), call)
	refused, _ := errors.AsType[*canonical.Error](err)
	switch {
	case err == nil:
		return whole(s.t, answer)
	case refused == nil || refused.Native == nil:
		return err.Error()
	default:
		return `"error":{"code":` + strconv.FormatInt(refused.Native.Code, 10) + `,"data":` + string(refused.Native.Data) + `}`
	}
}
