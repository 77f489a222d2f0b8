package rollback_test

import (
	"slices"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/lifecycle/rollback"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

const callerC = ect.Identity("spiffe://example.com/c")

// branchOf is the branch of a failure of agent A, who fails in exchange 9 after some others.
func branchOf(t *testing.T, tokens []workflow.Token, checkpoints ...rollback.Known) rollback.Branch {
	t.Helper()
	failed := exchange(9, "p1")[:2]
	return rollback.BranchOf(runOf(t, slices.Concat(tokens, failed)...), byID(checkpoints...), rollback.Failure{
		Actions: []ect.ID{"r9"}, Caller: agentA, By: func(s workflow.Step) ect.Identity { return s.Issuer }, At: noon.Add(time.Hour),
	})
}

// follows is exchange n of a caller after a token.
func follows(n int, caller ect.Identity, parent ect.ID) []workflow.Token {
	list := exchange(n, parent)
	list[0].Node.Issuer = caller
	return list
}

// TestAttack_WorkBuiltOnAPart: a caller whose step fails undoes what its agent did as a part of the step, and not what another caller
// built on that part alone.
func TestAttack_WorkBuiltOnAPart(t *testing.T) {
	t.Parallel()
	for caller, undone := range map[ect.Identity]bool{agentB: true, callerC: false} {
		got := branchOf(t, slices.Concat(exchange(1), follows(2, caller, "w1")), checkpointOf("c1", "r1"), checkpointOf("c2", "r2"))
		if slices.Contains(got.Roots, "c1") != undone {
			t.Errorf("the work of %s is built on w1: the branch is %+v", caller, got)
		}
	}
}

// TestAttack_ForgedRollbackResult: a member that says of another's step that it was rolled back does not have it undone by a failure of
// its own.
func TestAttack_ForgedRollbackResult(t *testing.T) {
	t.Parallel()
	forged := workflow.Token{
		Node:   dag.Node{ID: "forged", Workflow: "w", Issuer: agentA, Act: ect.ActRollbackResult, IssuedAt: 100, Parents: []ect.ID{"t1"}},
		Status: "completed", Checkpoint: "c2",
	}
	on := func(id, action ect.ID) workflow.Token {
		c := token(id, ect.ActCheckpoint, gateway, action)
		c.Reversible = true
		return c
	}
	tokens := slices.Concat(exchange(1), follows(2, callerC, "p1"), []workflow.Token{on("c1", "r1"), on("c2", "r2"), forged})
	undone := checkpointOf("c2", "r2")
	undone.Undone = true // the gateway has signed that it is
	for _, tc := range []struct {
		other rollback.Known
		roots []ect.ID
	}{{checkpointOf("c2", "r2"), nil}, {undone, []ect.ID{"c1"}}} {
		if got := branchOf(t, tokens, checkpointOf("c1", "r1"), tc.other); !slices.Equal(got.Roots, tc.roots) {
			t.Errorf("undone %t: the branch is %+v, want %v", tc.other.Undone, got, tc.roots)
		}
	}
}

// TestAttack_CriticalNodeBegunByOthers: a member that begins a critical node with a task of its own has a human look all the same when the real
// step is undone.
func TestAttack_CriticalNodeBegunByOthers(t *testing.T) {
	t.Parallel()
	decoy := token("decoy", "transfer", callerC)
	work := exchange(2, "p1")
	work[0].Node.Act = "transfer"
	run, err := workflow.New("w", slices.Concat([]workflow.Token{decoy}, exchange(1), work), []workflow.Planned{{ID: "transfer", Act: "transfer", Agents: []string{string(agentB)}}})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := rollback.Make(run, byID(checkpointOf("c1", "r1"), checkpointOf("c2", "r2")), rollback.Request{
		From: "c1", Cascade: true, At: noon, Critical: func(node string) bool { return node == "transfer" },
	})
	if err != nil || !slices.Equal(plan.Review, []ect.ID{"c2"}) || run.StepsOf("decoy")[0].Planned != "transfer" {
		t.Errorf("%v: a human looks at %v", err, plan.Review)
	}
}
