package stories

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// agentSides are the sides of agents that tests of single operations use: every form
// of A2A, and one of every other way to keep tasks.
var agentSides = []string{
	"a2a@1.0", "a2a@1.0+http+json", "a2a@1.0+grpc", "a2a@0.3", "a2a@0.3+http+json",
	"mcp@2026-07-28", "mcp@2025-11-25", "mcp@2025-03-26", "slim@a2a-1.0+slimrpc", "uacp", "ainp",
}

// TestSubscribeToTask_Ended: a subscription to a task that has ended is an
// UnsupportedOperationError, in every binding, before agents of every protocol (A2A
// 1.0 section 3.1.6). Where caller and agent speak the same version in the same form,
// the agent's own answer is relayed as it is.
func TestSubscribeToTask_Ended(t *testing.T) {
	t.Parallel()
	tr := gatewaytest.Everybody(t)
	for _, to := range tr.Hired(t, agentSides) {
		for _, from := range tr.Sides() {
			if from.Binding != a2a.Binding || from == to {
				continue
			}
			t.Run(from.Name+" to "+to.Name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), gatewaytest.PatienceOfPlays)
				defer cancel()
				c := tr.Caller(t, from, to, gatewaytest.Player)
				name, h := c.Works(ctx, gatewaytest.DoWork)
				c.Agents.Finish(name)
				if h.Task() == nil {
					t.Fatalf("no task was begun: %s", h.Otherwise())
				}
				id := h.Task().ID
				if h = c.Until(ctx, id); h.State() != canonical.StateCompleted {
					t.Fatalf("the task did not end: %s", h.Otherwise())
				}
				h = c.About(ctx, canonical.OpTaskSubscribe, id)
				if h.State() != "" || h.Refused() != string(canonical.CodeUnsupportedOp) {
					t.Errorf("got a task that is %q and the error %q, want no task and %q", h.State(), h.Refused(), canonical.CodeUnsupportedOp)
				}
			})
		}
	}
}

// TestSubscribeToTask_Waiting: a subscription to a task that waits for its caller is a
// stream with the task in it (A2A 1.0 section 11.7), whatever the agent speaks.
func TestSubscribeToTask_Waiting(t *testing.T) {
	t.Parallel()
	tr := gatewaytest.Everybody(t)
	for _, to := range tr.Hired(t, []string{"a2a@1.0", "a2a@0.3", "mcp@2026-07-28"}) {
		for _, from := range tr.Sides() {
			if from.Binding != a2a.Binding || from == to || from.Form == a2a.FormGRPC {
				continue
			}
			t.Run(from.Name+" to "+to.Name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), gatewaytest.PatienceOfPlays)
				defer cancel()
				c := tr.Caller(t, from, to, gatewaytest.Player)
				h := c.Ask(ctx, c.Request(canonical.OpInvoke, c.Invoke(gatewaytest.DoAsk)), false, nil)
				if h.Task() == nil || h.State() != canonical.StateInputRequired {
					t.Fatalf("no task waits: %s", h.Otherwise())
				}
				id := h.Task().ID
				h = c.About(ctx, canonical.OpTaskSubscribe, id)
				if h.Events != 1 || h.Task() == nil || h.Task().ID != id || h.State() != canonical.StateInputRequired {
					t.Errorf("%d events in a stream, %s, want one with the task", h.Events, h.Otherwise())
				}
			})
		}
	}
}

// TestStream_AsksAtOnce: a stream of work that asks before it says anything else begins
// with the task, and then says what is asked (A2A 1.0 section 3.1.2).
func TestStream_AsksAtOnce(t *testing.T) {
	t.Parallel()
	tr := gatewaytest.Everybody(t)
	for _, to := range tr.Hired(t, []string{"a2a@1.0", "mcp@2026-07-28", "mcp@2025-11-25", "uacp", "ainp+websocket"}) {
		for _, from := range tr.Sides() {
			if from.Binding != a2a.Binding || from == to {
				continue
			}
			t.Run(from.Name+" to "+to.Name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), gatewaytest.PatienceOfPlays)
				defer cancel()
				c := tr.Caller(t, from, to, gatewaytest.Player)
				m := c.Request(canonical.OpInvoke, c.Invoke(gatewaytest.DoAsk))
				m.Preferences.Stream = true
				h := c.Ask(ctx, m, true, nil)
				if len(h.Messages) == 0 {
					t.Fatalf("nothing was told: %s", h.Otherwise())
				}
				if begins, ok := h.Messages[0].Body.(*canonical.Event); !ok || begins.Task == nil {
					t.Errorf("the stream begins with %s, want a task", gatewaytest.MustMarshal(h.Messages[0].Body))
				}
				if h.State() != canonical.StateInputRequired || !strings.Contains(h.Noticed(), "what is your name?") {
					t.Errorf("the stream ends with the state %q and %q, want a question", h.State(), h.Noticed())
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
	tr := gatewaytest.Everybody(t)
	var callers []gatewaytest.Side
	for _, s := range tr.Sides() {
		if s.Binding == a2a.Binding {
			callers = append(callers, s)
		}
	}
	for _, to := range tr.Hired(t, []string{"mcp@2026-07-28", "mcp@2025-11-25", "ainp+websocket"}) {
		for i, from := range callers {
			also := callers[(i+1)%len(callers)]
			t.Run(from.Name+" and "+also.Name+" to "+to.Name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), gatewaytest.PatienceOfPlays)
				defer cancel()
				first, second := tr.Caller(t, from, to, gatewaytest.Player), tr.Caller(t, also, to, gatewaytest.Player)
				name := string(ect.NewID())
				ids := make(chan string, 1)
				first.EachEvent = func(h *gatewaytest.Received) {
					if h.Task() != nil && strings.Contains(h.Noticed(), "step 1") && len(ids) == 0 {
						ids <- h.Task().ID
					}
				}
				m := first.Request(canonical.OpInvoke, first.Invoke(gatewaytest.DoCountUp+" "+name))
				m.Preferences.Stream = true
				began := make(chan *gatewaytest.Received, 1)
				go func() { began <- first.Ask(ctx, m, true, nil) }()
				var id string
				select {
				case id = <-ids:
				case h := <-began:
					t.Fatalf("the first stream ended: %s", h.Otherwise())
				}
				second.Began = func() { first.Agents.Finish(name) } // and not before
				got, want := story(second.About(ctx, canonical.OpTaskSubscribe, id)), story((<-began))
				if len(got) < gatewaytest.Steps || !slices.Equal(got, want[max(0, len(want)-len(got)):]) {
					t.Errorf("the second stream told\n%s\nafter the task, where the first told\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			})
		}
	}
}

// story is the changes that a stream told, in order: how far it is, what came of it and
// how it ended.
func story(h *gatewaytest.Received) []string {
	var out []string
	for _, m := range h.Messages {
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
			out = append(out, string(gatewaytest.MustMarshal(e.Artifact)))
		}
	}
	return out
}
