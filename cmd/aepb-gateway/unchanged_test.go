package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestTaskUnchanged_IsConfigured: an MCP server whose task only ever works is not asked
// any more after limits.task_unchanged, and its caller's stream ends with words that
// say so, and with no last state.
func TestTaskUnchanged_IsConfigured(t *testing.T) {
	t.Parallel()
	tr := newTroupe(t, newBed(t, plan{config: config.Config{Limits: config.Limits{TaskUnchanged: config.Duration(300 * time.Millisecond)}}}))
	for _, to := range tr.hired(t, []string{"mcp@2026-07-28"}) {
		for _, from := range tr.sides() {
			if from.binding != a2a.Binding {
				continue
			}
			t.Run(from.name+" to "+to.name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), patienceOfPlays)
				defer cancel()
				c := tr.caller(t, from, to, player)
				m := c.request(canonical.OpInvoke, c.invoke(doWork))
				m.Preferences.Stream = true
				h := c.ask(ctx, m, true, nil)
				if e := h.refusal(); e == nil || !strings.Contains(e.Message, "has not changed for 300ms") || h.state() != canonical.StateWorking {
					t.Errorf("the stream ended with %v in the state %q", e, h.state())
				}
			})
		}
	}
}
