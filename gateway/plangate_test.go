package gateway_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/transport"
	work "github.com/aepb/aepb-gateway/gateway/workflow"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// follows makes a hotel whose workflow follows a plan of these nodes and edges.
func follows(t *testing.T, settings gateway.Settings, nodes, edges string) *bookingGateway {
	t.Helper()
	settings.Operators = []policy.Operator{{Name: "boss", Roles: []policy.Role{policy.RoleApprover}}}
	b := newServed(t, settings)
	text := `{"wf_id":"trip","nodes":[` + nodes + `],"edges":[` + edges + `]}`
	if _, err := b.Parts().Descriptors.Put(t.Context(), []byte(text), "ann"); err != nil {
		t.Fatal(err)
	}
	wid, compact, err := b.Parts().Workflows.Begin(t.Context(), identity.Caller{Peer: b.caller.Peer()}, "", work.Plan{Descriptor: "trip"})
	if err != nil {
		t.Fatal(err)
	}
	b.wid, b.last = wid, claims(t, compact).ID
	return b
}

// nodesOf are the states of the nodes of the plan, and of steps that are not planned.
func (b *bookingGateway) nodesOf(t *testing.T) string {
	t.Helper()
	var out []string
	for _, s := range b.report(t, b.wid).Steps {
		out = append(out, s.Planned+":"+string(s.State))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestPlan_GateHoldsTheStep: a step that is a node with hitl_required is not sent before an approver has granted it, and is sent once then; the
// same work once more waits again (ATD, Optional Declarative Workflow Format).
func TestPlan_GateHoldsTheStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := follows(t, gateway.Settings{}, `{"id":"a","label":"create_booking"},{"id":"b","label":"rename","act":"send_mail","agent":"calculator","hitl_required":true}`, `{"from":"a","to":"b"}`)
		b.does(t, "create_booking", `{"guest":"Ada"}`)
		parent := b.last
		for n := 1; n <= 2; n++ {
			b.after(parent).does(t, "send_mail", `{"to":"Ada"}`)
			if view := b.waiting(t, hitl.Pending); b.hotel.count("send_mail") != n-1 || !slices.Equal(view.Demand.Roles, []string{"approver"}) || !slices.Equal(view.Demand.Rules, []string{"hitl_required"}) {
				t.Fatalf("before decision %d: %d mails, the demand is %+v", n, b.hotel.count("send_mail"), view.Demand)
			}
			if got := b.nodesOf(t); !strings.Contains(got, ":running") {
				t.Errorf("before decision %d: %s", n, got)
			}
			task := b.waiting(t, hitl.Pending).Task
			b.decide(t, true)
			time.Sleep(3 * time.Second)
			if _, err := b.Exchange(t.Context(), b.call(`{"jsonrpc":"2.0","id":8,"method":"GetTask","params":{"id":"`+task+`"}}`)); err != nil {
				t.Fatal(err)
			}
			if got := b.hotel.count("send_mail"); got != n {
				t.Fatalf("after decision %d: %d mails", n, got)
			}
		}
		if got := b.nodesOf(t); got != ":done a:done b:done" {
			t.Errorf("the nodes are %s", got)
		}
	})
}

// TestPlan_GateDenied: a denied step is not sent.
func TestPlan_GateDenied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := follows(t, gateway.Settings{}, `{"id":"a","label":"create_booking","hitl_required":true}`, ``)
		b.does(t, "create_booking", `{"guest":"Ada"}`)
		b.decide(t, false)
		time.Sleep(3 * time.Second)
		if len(b.hotel.booked) != 0 {
			t.Errorf("booked are %v", b.hotel.booked)
		}
	})
}

// TestPlan_GateOfTheRightNode: work that can be a node with a gate and one without needs none while it is the turn of the one without.
func TestPlan_GateOfTheRightNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := follows(t, gateway.Settings{}, `{"id":"a","label":"create_booking"},{"id":"b","label":"create_booking","hitl_required":true}`, `{"from":"a","to":"b"}`)
		b.does(t, "create_booking", `{"guest":"Ada"}`)
		if len(b.hotel.booked) != 1 {
			t.Fatalf("booked are %v", b.hotel.booked)
		}
		b.does(t, "create_booking", `{"guest":"Grace"}`)
		b.waiting(t, hitl.Pending)
		if len(b.hotel.booked) != 1 {
			t.Errorf("booked are %v", b.hotel.booked)
		}
	})
}

// TestAttack_GateIsAvoided: a caller does not come around a gate: with an act of its own choice, with the node behind the gate before its turn, or by
// sending the step twice.
func TestAttack_GateIsAvoided(t *testing.T) {
	t.Parallel()
	book := `{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"create_booking","input":{"guest":"Ada"}}}]}}}`
	for name, tc := range map[string]struct {
		nodes, edges string
		attack       func(t *testing.T, b *bookingGateway)
	}{
		"another act": {`{"id":"a","label":"create_booking","hitl_required":true}`, ``, func(t *testing.T, b *bookingGateway) {
			t.Helper()
			if _, err := b.Exchange(t.Context(), b.call(book, b.task(t, b.wid, book, b.last))); err != nil {
				t.Fatal(err)
			}
		}},
		"the act of the node, and another tool": {`{"id":"a","label":"send_task","hitl_required":true}`, ``, func(t *testing.T, b *bookingGateway) {
			t.Helper()
			if _, err := b.Exchange(t.Context(), b.call(book, b.task(t, b.wid, book, b.last))); err != nil {
				t.Fatal(err)
			}
		}},
		"before its turn": {
			`{"id":"a","label":"create_booking","hitl_required":true},{"id":"b","label":"create_booking"}`, `{"from":"a","to":"b"}`,
			func(t *testing.T, b *bookingGateway) {
				t.Helper()
				start := b.last
				b.does(t, "create_booking", `{"guest":"Ada"}`)
				b.after(start).does(t, "create_booking", `{"guest":"Grace"}`)
			},
		},
		"twice": {`{"id":"a","label":"create_booking","hitl_required":true}`, ``, func(t *testing.T, b *bookingGateway) {
			t.Helper()
			start := b.last
			for range 3 {
				b.after(start).does(t, "create_booking", `{"guest":"Ada"}`)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := follows(t, gateway.Settings{}, tc.nodes, tc.edges)
				tc.attack(t, b)
				time.Sleep(3 * time.Second)
				if b.hotel.count("create_booking") != 0 {
					t.Errorf("the agent got %q", b.hotel.calls)
				}
			})
		})
	}
}

// TestPlan_CriticalStepIsLookedAtFirst: a failure whose rollback reaches a step that the plan declares critical pauses the workflow, and nothing is undone before
// an operator lets it go on; a stop leaves it to humans (ATD, Interaction with HITL, 3).
func TestPlan_CriticalStepIsLookedAtFirst(t *testing.T) {
	t.Parallel()
	for _, lifts := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := follows(t, gateway.Settings{Constraints: policy.Constraints{Cascade: policy.CascadeAlways}},
				`{"id":"a","label":"create_booking"},{"id":"b","label":"rename_guest","severity":"critical"}`, `{"from":"a","to":"b"}`)
			b.does(t, "create_booking", `{"guest":"Ada"}`)
			b.does(t, "rename_guest", `{"id":"b1","guest":"Grace"}`)
			b.does(t, "pay", `{"amount":100}`)
			time.Sleep(time.Minute)
			if level := b.Parts().Levels.Of(b.wid); level.Mode != hitl.Paused || b.hotel.booked["b1"] != "Grace" {
				t.Fatalf("the workflow is %s, booked are %v", level.Mode, b.hotel.booked)
			}
			e := hitl.StandingEvent{Step: hitl.Lift, At: time.Now(), By: "boss", Reason: "seen", Roles: []string{"operator"}}
			if !lifts {
				e.Step = hitl.Stop
			}
			if _, err := b.Parts().Levels.Set(t.Context(), b.wid, e); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			result := b.tokensOf(t, b.wid)
			at := slices.IndexFunc(result, func(c ect.Claims) bool {
				return c.Act == ect.ActRollbackResult && c.Issuer == b.self.ID && statusOf(c) != "" && c.Ext[ect.ExtCascaded] != nil && len(c.Ext[ect.ExtCascaded]) > 2
			})
			if at < 0 {
				t.Fatalf("no result among %v", acts(result))
			}
			want := map[bool]string{true: "completed", false: "escalated"}[lifts]
			if undone := len(b.hotel.booked) == 0; undone != lifts || statusOf(result[at]) != want {
				t.Errorf("lifted %t: %s, booked are %v", lifts, statusOf(result[at]), b.hotel.booked)
			}
		})
	}
}

// TestPlan_PriorityOfTheNode: the priority of a planned node lowers the class that policy gives its caller, and never raises it (ATD, Priority Levels).
func TestPlan_PriorityOfTheNode(t *testing.T) {
	inQueue(t, 1, func(t *testing.T, b *queue) {
		t.Helper()
		next := func(priority string, n int) transport.Call {
			text := `{"wf_id":"` + priority + `","nodes":[{"id":"a","label":"add","resource_hints":{"priority":"` + priority + `"}}],"edges":[]}`
			if _, err := b.Parts().Descriptors.Put(t.Context(), []byte(text), "ann"); err != nil {
				t.Fatal(err)
			}
			_, compact, err := b.Parts().Workflows.Begin(t.Context(), identity.Caller{Peer: b.caller.Peer()}, "", work.Plan{Descriptor: priority})
			if err != nil {
				t.Fatal(err)
			}
			call := b.call(summing(n)) // of a caller whose class is high
			call.Parent = string(claims(t, compact).ID)
			return call
		}
		b.fill(t, 1)
		for _, call := range []transport.Call{next("low", 1), b.by("low/other", 2), next("critical", 3), b.by("high/other", 4), b.by("critical/other", 5)} {
			b.send(t.Context(), call, func(_ transport.Answer, err error, _ time.Duration) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		b.all.Wait()
		if got := strings.Join(b.order, ""); got != "053412" {
			t.Errorf("the order is %s, want 053412", got)
		}
	})
}
