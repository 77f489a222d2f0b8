package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// agentSides are the sides of agents that tests of single operations use: every form
// of A2A, and one of every other way to keep tasks.
var agentSides = []string{
	"a2a@1.0", "a2a@1.0+http+json", "a2a@1.0+grpc", "a2a@0.3", "a2a@0.3+http+json",
	"mcp@2026-07-28", "mcp@2025-11-25", "mcp@2025-03-26", "slim@a2a-1.0+slimrpc", "uacp", "ainp",
}

// hired are those of the sides whose agents the gateway lists now.
func (tr *troupe) hired(t *testing.T, names []string) []side {
	t.Helper()
	var out []side
	for _, s := range tr.sides() {
		if slices.Contains(names, s.name) && tr.hires(t, s) {
			out = append(out, s)
		}
	}
	if len(out) != len(names) {
		t.Fatalf("%d of the sides %q have agents", len(out), names)
	}
	return out
}

// TestSubscribeToTask_Ended: a subscription to a task that has ended is an
// UnsupportedOperationError, in every binding, before agents of every protocol (A2A
// 1.0 section 3.1.6). Where caller and agent speak the same version in the same form,
// the agent's own answer is relayed as it is.
func TestSubscribeToTask_Ended(t *testing.T) {
	t.Parallel()
	tr := everybody(t)
	for _, to := range tr.hired(t, agentSides) {
		for _, from := range tr.sides() {
			if from.binding != a2a.Binding || from == to {
				continue
			}
			t.Run(from.name+" to "+to.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patienceOfPlays)
				defer cancel()
				c := tr.caller(t, from, to, player)
				name, h := c.works(ctx, doWork)
				c.agents.finish(name)
				if h.task() == nil {
					t.Fatalf("no task was begun: %s", h.otherwise())
				}
				id := h.task().ID
				if h = c.until(ctx, id); h.state() != canonical.StateCompleted {
					t.Fatalf("the task did not end: %s", h.otherwise())
				}
				h = c.about(ctx, canonical.OpTaskSubscribe, id)
				if h.state() != "" || h.refused() != string(canonical.CodeUnsupportedOp) {
					t.Errorf("got a task that is %q and the error %q, want no task and %q", h.state(), h.refused(), canonical.CodeUnsupportedOp)
				}
			})
		}
	}
}

// TestStream_AsksAtOnce: a stream of work that asks before it says anything else begins
// with the task, and then says what is asked (A2A 1.0 section 3.1.2).
func TestStream_AsksAtOnce(t *testing.T) {
	t.Parallel()
	tr := everybody(t)
	for _, to := range tr.hired(t, []string{"a2a@1.0", "mcp@2026-07-28", "mcp@2025-11-25", "uacp", "ainp+websocket"}) {
		for _, from := range tr.sides() {
			if from.binding != a2a.Binding || from == to {
				continue
			}
			t.Run(from.name+" to "+to.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patienceOfPlays)
				defer cancel()
				c := tr.caller(t, from, to, player)
				m := c.request(canonical.OpInvoke, c.invoke(doAsk))
				m.Preferences.Stream = true
				h := c.ask(ctx, m, true, nil)
				if len(h.messages) == 0 {
					t.Fatalf("nothing was told: %s", h.otherwise())
				}
				if begins, ok := h.messages[0].Body.(*canonical.Event); !ok || begins.Task == nil {
					t.Errorf("the stream begins with %s, want a task", mustMarshal(h.messages[0].Body))
				}
				if h.state() != canonical.StateInputRequired || !strings.Contains(h.noticed(), "what is your name?") {
					t.Errorf("the stream ends with the state %q and %q, want a question", h.state(), h.noticed())
				}
			})
		}
	}
}
