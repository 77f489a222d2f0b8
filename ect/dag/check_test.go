package dag_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
)

// TestRules_ByJudgeAndCheck judges the last node of each list, by Judge against the others and by Check of all.
func TestRules_ByJudgeAndCheck(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		nodes []dag.Node
		want  []dag.Rule
	}{
		"a root":                           {nodes: []dag.Node{task("a", 1)}},
		"a parent and its child":           {nodes: []dag.Node{task("p", 1), task("a", 2, "p")}},
		"the same token again":             {nodes: []dag.Node{task("a", 1), task("a", 1)}},
		"an id of another workflow":        {nodes: []dag.Node{in("v", task("a", 1)), task("a", 2)}},
		"an id of another issuer":          {nodes: []dag.Node{of(agentB, task("a", 1)), task("a", 2)}, want: []dag.Rule{dag.RuleUnique}},
		"an id of the issuer itself":       {nodes: []dag.Node{task("a", 1), task("a", 2)}, want: []dag.Rule{dag.RuleUnique}},
		"an unknown parent":                {nodes: []dag.Node{task("a", 1, "p")}, want: []dag.Rule{dag.RuleParent}},
		"one of two parents is unknown":    {nodes: []dag.Node{task("p", 1), task("a", 1, "p", "x")}, want: []dag.Rule{dag.RuleParent}},
		"a parent 30 s younger":            {nodes: []dag.Node{task("p", 40), task("a", 10, "p")}},
		"a parent 31 s younger":            {nodes: []dag.Node{task("p", 41), task("a", 10, "p")}, want: []dag.Rule{dag.RuleTime}},
		"a younger namesake of a parent":   {nodes: []dag.Node{task("p", 1), of(agentB, task("p", 99)), task("a", 10, "p")}},
		"a parent of another workflow":     {nodes: []dag.Node{in("v", task("p", 1)), task("a", 2, "p")}, want: []dag.Rule{dag.RuleWorkflow}},
		"a parent without a workflow":      {nodes: []dag.Node{in("", task("p", 1)), task("a", 2, "p")}, want: []dag.Rule{dag.RuleWorkflow}},
		"a namesake in another workflow":   {nodes: []dag.Node{in("v", task("p", 99)), task("p", 1), task("a", 2, "p")}},
		"its own parent":                   {nodes: []dag.Node{task("a", 1, "a")}, want: []dag.Rule{dag.RuleAcyclic}},
		"a parent that names it as parent": {nodes: []dag.Node{task("p", 1, "a"), task("a", 1, "p")}, want: []dag.Rule{dag.RuleAcyclic}},
		"a cycle of three": {
			nodes: []dag.Node{task("p", 1, "q"), task("q", 1, "a"), task("a", 1, "p")},
			want:  []dag.Rule{dag.RuleAcyclic},
		},
		"several at once": {
			nodes: []dag.Node{of(agentB, task("a", 1)), in("v", task("q", 1)), task("p", 99, "a"), task("a", 2, "p", "q", "x", "a")},
			want:  []dag.Rule{dag.RuleAcyclic, dag.RuleUnique, dag.RuleTime, dag.RuleWorkflow, dag.RuleParent},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			last := tc.nodes[len(tc.nodes)-1]
			judged := dag.Judge(last, tc.nodes[:len(tc.nodes)-1])
			if got := rulesOf(judged); !slices.Equal(got, tc.want) {
				t.Errorf("Judge: got %v, want %v", judged, tc.want)
			}
			for _, f := range judged {
				if f.Rule != dag.RuleAcyclic && (f.ID != last.ID || f.Issuer != last.Issuer) {
					t.Errorf("Judge: got a finding about another token: %s", f)
				}
			}
			checked := slices.DeleteFunc(dag.Check(dag.Build("w", tc.nodes)), func(f dag.Finding) bool {
				return f.Rule != dag.RuleAcyclic && f.ID != last.ID
			})
			if !slices.Equal(rulesOf(checked), tc.want) {
				t.Errorf("Check: got %v, want %v", checked, tc.want)
			}
		})
	}
}

func rulesOf(findings []dag.Finding) (rules []dag.Rule) {
	for _, f := range findings {
		rules = append(rules, f.Rule)
	}
	return rules
}

func TestFinding_Text(t *testing.T) {
	t.Parallel()
	cycle := list("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12")
	for rule, want := range map[dag.Rule]string{
		dag.RuleUnique:   "token t of spiffe://example.com/a: the id is used by another token of the workflow, expected a new id",
		dag.RuleParent:   "token t of spiffe://example.com/a: its parent p is unknown, expected a token of the workflow: submit the parent too",
		dag.RuleTime:     "token t of spiffe://example.com/a: its parent p was issued more than 30 seconds after it: correct the issuers' clocks",
		dag.RuleWorkflow: "token t of spiffe://example.com/a: its parent p is of another workflow, expected the same wid",
		dag.RuleAcyclic:  "a cycle of parents, expected none: 1 -> 2 -> 3 -> 4 -> 5 -> 6 -> 7 -> 8 -> 9 -> 10 -> (2 more) -> 1",
		dag.RuleBounded:  "more than 10000 tokens: the rest was not checked",
	} {
		f := dag.Finding{Rule: rule, ID: "t", Issuer: agentA, Parent: "p", Cycle: cycle}
		if got := f.String(); got != want {
			t.Errorf("%s: got %q, want %q", rule, got, want)
		}
	}
	if got := dag.CycleText(list("a")); got != "a -> a" {
		t.Errorf("got %q", got)
	}
}

func TestCheck_FindingsAreBounded(t *testing.T) {
	t.Parallel()
	nodes := []dag.Node{task("loop", 1, "loop")}
	for i := range dag.MaxNodes {
		nodes = append(nodes, task(ect.ID(fmt.Sprint("t", i)), 1, "x", "y"))
	}
	findings := dag.Check(dag.Build("w", nodes))
	if len(findings) != dag.MaxFindings || !slices.Equal(rulesOf(findings[:3]), []dag.Rule{dag.RuleAcyclic, dag.RuleBounded, dag.RuleParent}) {
		t.Errorf("got %d findings, first %v", len(findings), findings[:3])
	}
}

// TestJudge_AgreesWithCheck: what Judge finds of a token is what Check finds of it in the graph.
func TestJudge_AgreesWithCheck(t *testing.T) {
	t.Parallel()
	nodes := []dag.Node{task("a", 100), task("b", 1, "a"), of(agentB, task("b", 2, "x")), in("v", task("c", 1)), task("d", 3, "b", "c")}
	var want, got []string
	for _, f := range dag.Check(dag.Build("w", nodes)) {
		want = append(want, f.String())
	}
	for i, n := range nodes {
		if n.Workflow != "w" {
			continue
		}
		for _, f := range dag.Judge(n, append(slices.Clone(nodes[:i]), nodes[i+1:]...)) {
			// The first token with an id is at fault only when it comes after another one.
			if f.Rule != dag.RuleUnique || n.Issuer == agentB {
				got = append(got, f.String())
			}
		}
	}
	slices.SortFunc(want, strings.Compare)
	slices.SortFunc(got, strings.Compare)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-Check +Judge):\n%s", diff)
	}
}
