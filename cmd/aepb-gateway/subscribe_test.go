package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
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

// TestSubscribeToTask_Waiting: a subscription to a task that waits for its caller is a
// stream with the task in it (A2A 1.0 section 11.7), whatever the agent speaks.
func TestSubscribeToTask_Waiting(t *testing.T) {
	t.Parallel()
	tr := everybody(t)
	for _, to := range tr.hired(t, []string{"a2a@1.0", "a2a@0.3", "mcp@2026-07-28"}) {
		for _, from := range tr.sides() {
			if from.binding != a2a.Binding || from == to || from.form == a2a.FormGRPC {
				continue
			}
			t.Run(from.name+" to "+to.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patienceOfPlays)
				defer cancel()
				c := tr.caller(t, from, to, player)
				h := c.ask(ctx, c.request(canonical.OpInvoke, c.invoke(doAsk)), false, nil)
				if h.task() == nil || h.state() != canonical.StateInputRequired {
					t.Fatalf("no task waits: %s", h.otherwise())
				}
				id := h.task().ID
				h = c.about(ctx, canonical.OpTaskSubscribe, id)
				if h.events != 1 || h.task() == nil || h.task().ID != id || h.state() != canonical.StateInputRequired {
					t.Errorf("%d events in a stream, %s, want one with the task", h.events, h.otherwise())
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

// TestSubscribeToTask_SameEvents: who subscribes while work goes on is told the same
// events in the same order as the stream that began it (A2A 1.0 section 3.5.2), also
// over another binding.
func TestSubscribeToTask_SameEvents(t *testing.T) {
	t.Parallel()
	tr := everybody(t)
	var callers []side
	for _, s := range tr.sides() {
		if s.binding == a2a.Binding {
			callers = append(callers, s)
		}
	}
	for _, to := range tr.hired(t, []string{"mcp@2026-07-28", "mcp@2025-11-25", "ainp+websocket"}) {
		for i, from := range callers {
			also := callers[(i+1)%len(callers)]
			t.Run(from.name+" and "+also.name+" to "+to.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patienceOfPlays)
				defer cancel()
				first, second := tr.caller(t, from, to, player), tr.caller(t, also, to, player)
				name := string(ect.NewID())
				ids := make(chan string, 1)
				first.eachEvent = func(h *hearing) {
					if h.task() != nil && strings.Contains(h.noticed(), "step 1") && len(ids) == 0 {
						ids <- h.task().ID
					}
				}
				m := first.request(canonical.OpInvoke, first.invoke(doCountUp+" "+name))
				m.Preferences.Stream = true
				began := make(chan *hearing, 1)
				go func() { began <- first.ask(ctx, m, true, nil) }()
				var id string
				select {
				case id = <-ids:
				case h := <-began:
					t.Fatalf("the first stream ended: %s", h.otherwise())
				}
				second.began = func() { first.agents.finish(name) } // and not before
				got, want := second.about(ctx, canonical.OpTaskSubscribe, id).story(), (<-began).story()
				if len(got) < steps || !slices.Equal(got, want[max(0, len(want)-len(got)):]) {
					t.Errorf("the second stream told\n%s\nafter the task, where the first told\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			})
		}
	}
}

// story is the changes that a stream told, in order: how far it is, what came of it and
// how it ended.
func (h *hearing) story() []string {
	var out []string
	for _, m := range h.messages {
		e, ok := m.Body.(*canonical.Event)
		switch {
		case !ok || e.Task != nil:
		case e.Status != nil && e.Status.Message != nil:
			out = append(out, string(e.Status.State)+" "+e.Status.Message.Parts[0].Text)
		case e.Status != nil:
			out = append(out, string(e.Status.State))
		case e.Progress != nil:
			out = append(out, string(e.Progress.Value)+" "+e.Progress.Message)
		case e.Artifact != nil:
			out = append(out, string(mustMarshal(e.Artifact)))
		}
	}
	return out
}
