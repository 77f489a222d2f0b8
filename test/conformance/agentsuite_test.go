package conformance

import "testing"

// TestSuite_OverA2A runs the suite against an A2A agent that stands behind the
// MCP door and has a skill for every tool that A2A has words for.
func TestSuite_OverA2A(t *testing.T) {
	t.Parallel()
	tools := prepare(t)
	front := tools.front(t, "everything", "a2a-v1", serveAgent(t))
	for set, least := range map[string]int{"2025-11-25": 30, "2026-07-28": 37} {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			tools.judge(t, set, "a2a "+set, least, front+"/agents/everything/mcp")
		})
	}
}
