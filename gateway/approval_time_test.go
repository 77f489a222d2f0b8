package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// timed is a bed in the time of its test, with a rule about the tool add.
func timed(t *testing.T, rule hitl.Config, edits ...func(*gateway.Deps)) *fixture {
	t.Helper()
	rule.Tool = "add"
	b := newFixture(t, gateway.Settings{Approvals: approvalRules(t, rule)}, policy.Rules{Open: true}, edits...)
	b.clock = time.Now
	if err := b.TakeOver(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// park has a caller that knows tasks call the tool, and returns its task.
func (b *fixture) park(t *testing.T) string {
	t.Helper()
	answer, err := b.Exchange(t.Context(), b.call(addBody))
	if err != nil {
		t.Fatal(err)
	}
	task := a2aTask(t, answer)
	if task.Status.State != "TASK_STATE_AUTH_REQUIRED" {
		t.Fatalf("the task is %s", task.Status.State)
	}
	return task.ID
}

func (b *fixture) taskState(t *testing.T, id string) (state string, why []byte) {
	t.Helper()
	answer, err := b.Exchange(t.Context(), b.call(`{"jsonrpc":"2.0","id":8,"method":"GetTask","params":{"id":"`+id+`"}}`))
	if err != nil {
		t.Fatal(err)
	}
	task := a2aTask(t, answer)
	return task.Status.State, task.Status.Message
}

// TestApproval_AtItsEnd: what becomes of a call about which no human decides is what the rule says: it is denied, or
// operators are told once more and it waits as long again, or it is sent.
func TestApproval_AtItsEnd(t *testing.T) {
	t.Parallel()
	const wait, soon = 10 * time.Minute, 20 * time.Second
	for name, c := range map[string]struct {
		rule   hitl.Config
		states []string // after each wait
		sent   int
		posts  int // to operators
	}{
		"denied":   {hitl.Config{}, []string{"TASK_STATE_REJECTED"}, 0, 1},
		"raised":   {hitl.Config{Unreachable: hitl.Escalate}, []string{"TASK_STATE_AUTH_REQUIRED", "TASK_STATE_REJECTED"}, 0, 2},
		"continue": {hitl.Config{Unreachable: hitl.Continue, AllowOverride: true}, []string{"TASK_STATE_COMPLETED"}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				posted := 0
				c.rule.Wait = wait
				b := timed(t, c.rule, func(d *gateway.Deps) {
					d.Escalate = func(_ context.Context, e breakers.Event) {
						if e.State == "approval" {
							posted++
						}
					}
				})
				id := b.park(t)
				time.Sleep(wait - soon)
				if state, _ := b.taskState(t, id); state != "TASK_STATE_AUTH_REQUIRED" {
					t.Errorf("before the end: %s", state)
				}
				time.Sleep(2 * soon)
				for i, want := range c.states {
					if i > 0 {
						time.Sleep(wait)
					}
					if state, why := b.taskState(t, id); state != want || want == "TASK_STATE_REJECTED" && !bytes.Contains(why, []byte("no human decided in time")) {
						t.Errorf("after %d waits: %s (%s), expected %s", i+1, state, why, want)
					}
				}
				if len(b.agent.bodies) != c.sent || posted != c.posts {
					t.Errorf("sent %d times, operators were told %d times, expected %d and %d", len(b.agent.bodies), posted, c.sent, c.posts)
				}
				if waiting, _ := b.Parts().Approvals.Usage(); waiting != 0 {
					t.Errorf("%d approvals wait", waiting)
				}
				tokens := b.tokensOf(t, b.onlyApproval(t).Origin.Workflow)
				want := map[bool]ect.Act{true: ect.ActApprovalGranted, false: ect.ActApprovalDenied}[c.sent == 1]
				if !containsAct(tokens, want) {
					t.Errorf("the tokens are %v, expected %s", acts(tokens), want)
				}
			})
		})
	}
}

func containsAct(tokens []ect.Claims, act ect.Act) bool {
	for _, c := range tokens {
		if c.Act == act {
			return true
		}
	}
	return false
}

func (b *fixture) onlyApproval(t *testing.T) hitl.Approval {
	t.Helper()
	page, err := b.Parts().Approvals.List(t.Context(), approval.Query{})
	if err != nil || len(page.Approvals) != 1 {
		t.Fatalf("%d approvals, %v", len(page.Approvals), err)
	}
	return page.Approvals[0]
}

// TestApproval_Canceled: a caller that cancels its task takes the call back, and no approver can grant it any more.
func TestApproval_Canceled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := timed(t, hitl.Config{})
		id := b.park(t)
		view := b.waiting(t, hitl.Pending)
		if _, err := b.Exchange(t.Context(), b.call(`{"jsonrpc":"2.0","id":9,"method":"CancelTask","params":{"id":"`+id+`"}}`)); err != nil {
			t.Fatal(err)
		}
		if a := b.onlyApproval(t); a.State != hitl.Canceled {
			t.Errorf("the approval is %s", a.State)
		}
		_, err := b.Parts().Approvals.Decide(t.Context(), view.ID, approval.Decision{Grant: true, Approver: boss, Roles: []string{"approver"}, Shown: view.Shown})
		if _, ok := errors.AsType[*hitl.StateError](err); !ok {
			t.Errorf("granted after that: %v", err)
		}
		time.Sleep(time.Minute)
		if state, _ := b.taskState(t, id); state != "TASK_STATE_CANCELED" || len(b.agent.bodies) != 0 {
			t.Errorf("the task is %s, the call was sent %d times", state, len(b.agent.bodies))
		}
	})
}

// TestApproval_RulesChanged: a grant under other rules than those in force releases nothing; without a rule any more it
// does.
func TestApproval_RulesChanged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rules []hitl.Config
		state string
		sent  int
	}{
		"two approvers now": {[]hitl.Config{{Tool: "add", Approvers: 2}}, "TASK_STATE_REJECTED", 0},
		"no rule now":       {nil, "TASK_STATE_COMPLETED", 1},
		"the same rules":    {[]hitl.Config{{Tool: "add"}}, "TASK_STATE_COMPLETED", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := timed(t, hitl.Config{})
				id := b.park(t)
				b.Apply(gateway.Settings{Approvals: approvalRules(t, c.rules...)})
				b.decide(t, true)
				time.Sleep(time.Minute)
				if state, why := b.taskState(t, id); state != c.state || len(b.agent.bodies) != c.sent {
					t.Errorf("the task is %s (%s), the call was sent %d times", state, why, len(b.agent.bodies))
				}
			})
		})
	}
}

// TestApproval_FourEyes: a rule that wants two approvers releases the call after the second one.
func TestApproval_FourEyes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := timed(t, hitl.Config{Approvers: 2})
		id := b.park(t)
		if a := b.decide(t, true); a.State != hitl.Pending {
			t.Fatalf("after one: %s", a.State)
		}
		time.Sleep(time.Minute)
		if state, _ := b.taskState(t, id); state != "TASK_STATE_AUTH_REQUIRED" || len(b.agent.bodies) != 0 {
			t.Fatalf("after one: %s, sent %d times", state, len(b.agent.bodies))
		}
		view := b.waiting(t, hitl.Pending)
		second := hitl.Approver{ID: "spiffe://example.com/second", Name: "second"}
		if _, err := b.Parts().Approvals.Decide(t.Context(), view.ID, approval.Decision{Grant: true, Approver: second, Roles: []string{"approver"}, Shown: view.Shown}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if state, _ := b.taskState(t, id); state != "TASK_STATE_COMPLETED" || len(b.agent.bodies) != 1 {
			t.Errorf("after two: %s, sent %d times", state, len(b.agent.bodies))
		}
	})
}

// TestApproval_RepeatedWithItsToken: a message with a token that waits can be sent again, octet for octet: it is told
// that it waits, then gets the result, and then the same result.
func TestApproval_RepeatedWithItsToken(t *testing.T) {
	t.Parallel()
	b := gated(t)
	t.Cleanup(func() { _ = b.Close() })
	call := b.callTool("1", `{"a":1,"b":2}`)
	call.Evidence = []string{b.source(t, string(call.Wire.Body), nil)}
	for range 2 {
		_, err := b.Exchange(t.Context(), call)
		if waits, ok := errors.AsType[*problem.ApprovalError](err); !ok || waits.State != "pending" {
			t.Fatalf("%v", err)
		}
	}
	a := b.decide(t, true)
	if a.Origin.Gated != claims(t, call.Evidence[0]).ID {
		t.Errorf("gated is %s, expected the caller's own token", a.Origin.Gated)
	}
	first, err := b.Exchange(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.Exchange(t.Context(), call)
	if err != nil || !bytes.Equal(first.Wire().Body, again.Wire().Body) || len(b.agent.bodies) != 1 {
		t.Errorf("once more: %v, sent %d times", err, len(b.agent.bodies))
	}
}

// TestApproval_ByArgumentsAndLosses: rules match arguments by their values, and calls by what their translation loses.
func TestApproval_ByArgumentsAndLosses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rule  hitl.Config
		body  string
		waits bool
	}{
		"small":           {hitl.Config{Tool: "add", Argument: &hitl.Argument{Pointer: "/b", Op: "gt", Value: "100"}}, addBody, false},
		"large":           {hitl.Config{Tool: "add", Argument: &hitl.Argument{Pointer: "/b", Op: "gt", Value: "1.5"}}, addBody, true},
		"a loss":          {hitl.Config{Loss: "L01"}, addBody, true},
		"another loss":    {hitl.Config{Loss: "L02"}, addBody, false},
		"another tool":    {hitl.Config{Tool: "echo"}, addBody, false},
		"another agent":   {hitl.Config{Agent: "files"}, addBody, false},
		"its caller":      {hitl.Config{Caller: "spiffe://example.com/client"}, addBody, true},
		"another caller":  {hitl.Config{Caller: "spiffe://example.com/other"}, addBody, false},
		"every tool of a": {hitl.Config{Tool: "a*"}, addBody, true},
	} {
		b := newFixture(t, gateway.Settings{Approvals: approvalRules(t, c.rule)}, policy.Rules{Open: true})
		answer, err := b.Exchange(t.Context(), b.call(c.body))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if waits := a2aTask(t, answer).Status.State == "TASK_STATE_AUTH_REQUIRED"; waits != c.waits || (len(b.agent.bodies) == 0) != c.waits {
			t.Errorf("%s: it waits %v, expected %v", name, waits, c.waits)
		}
		_ = b.Close()
	}
}
