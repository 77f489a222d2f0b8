package stories

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestTaskUnchanged_IsConfigured: an MCP server whose task only ever works is not asked
// any more after limits.task_unchanged, and its caller's stream ends with words that
// say so, and with no last state.
func TestTaskUnchanged_IsConfigured(t *testing.T) {
	t.Parallel()
	tr := gatewaytest.NewSimulator(t, gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Limits: config.Limits{TaskUnchanged: config.Duration(300 * time.Millisecond)}}}))
	for _, to := range tr.Hired(t, []string{"mcp@2026-07-28"}) {
		for _, from := range tr.Sides() {
			if from.Binding != a2a.Binding {
				continue
			}
			t.Run(from.Name+" to "+to.Name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), gatewaytest.PatienceOfPlays)
				defer cancel()
				c := tr.Caller(t, from, to, gatewaytest.Player)
				m := c.Request(canonical.OpInvoke, c.Invoke(gatewaytest.DoWork))
				m.Preferences.Stream = true
				h := c.Ask(ctx, m, true, nil)
				if e := h.Refusal(); e == nil || !strings.Contains(e.Message, "has not changed for 300ms") || h.State() != canonical.StateWorking {
					t.Errorf("the stream ended with %v in the state %q", e, h.State())
				}
			})
		}
	}
}
