package dag

import (
	"fmt"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
)

// Rule is one of the rules for the graph of a workflow (ECT draft, "DAG Validation").
type Rule string

// The rules.
const (
	RuleUnique   Rule = "unique"   // an id is used once in a workflow
	RuleParent   Rule = "parent"   // every parent is known
	RuleTime     Rule = "time"     // a parent is issued at most Tolerance seconds after its child
	RuleWorkflow Rule = "workflow" // a parent is of its child's workflow
	RuleAcyclic  Rule = "acyclic"  // no token is among its own ancestors
	RuleBounded  Rule = "bounded"  // a graph has at most MaxNodes tokens
)

const (
	// Tolerance is how much later than its child a parent may be issued, in seconds, since
	// the clocks of issuers differ (ECT draft, "DAG Validation").
	Tolerance = 30
	// MaxFindings bounds what a check reports.
	MaxFindings = 1000

	maxShown = 10 // ids of a cycle in a text
)

// Reason is the rule as a refusal names it.
func (r Rule) Reason() ect.Reason {
	switch r {
	case RuleUnique:
		return ect.ReasonGraphDuplicate
	case RuleParent:
		return ect.ReasonGraphParent
	case RuleTime:
		return ect.ReasonGraphTime
	case RuleWorkflow:
		return ect.ReasonGraphWorkflow
	case RuleAcyclic:
		return ect.ReasonGraphCycle
	default:
		return ect.ReasonGraphLimit
	}
}

// Finding is one violation of a rule.
type Finding struct {
	Rule   Rule
	ID     ect.ID       // of the token; of RuleAcyclic: of one on the cycle; of RuleBounded: empty
	Issuer ect.Identity // of the token; of RuleAcyclic and RuleBounded: empty
	Parent ect.ID       // that breaks the rule; of RuleUnique, RuleAcyclic and RuleBounded: empty
	Cycle  []ect.ID     // of RuleAcyclic: each the parent of the next
}

func (f Finding) String() string {
	switch f.Rule {
	case RuleUnique:
		return fmt.Sprintf("token %s of %s: the id is used by another token of the workflow, expected a new id", f.ID, f.Issuer)
	case RuleParent:
		return fmt.Sprintf("token %s of %s: its parent %s is unknown, expected a token of the workflow: submit the parent too", f.ID, f.Issuer, f.Parent)
	case RuleTime:
		return fmt.Sprintf("token %s of %s: its parent %s was issued more than %d seconds after it: correct the issuers' clocks", f.ID, f.Issuer, f.Parent, Tolerance)
	case RuleWorkflow:
		return fmt.Sprintf("token %s of %s: its parent %s is of another workflow, expected the same wid", f.ID, f.Issuer, f.Parent)
	case RuleAcyclic:
		return "a cycle of parents, expected none: " + CycleText(f.Cycle)
	case RuleBounded:
		return fmt.Sprintf("more than %d tokens: the rest was not checked", MaxNodes)
	default:
		return string(f.Rule)
	}
}

// CycleText shows a cycle as a -> b -> a, each the parent of the next. A long one is cut.
func CycleText(cycle []ect.ID) string {
	var text strings.Builder
	for i, id := range cycle {
		if i == maxShown {
			fmt.Fprintf(&text, "(%d more) -> ", len(cycle)-maxShown)
			break
		}
		text.WriteString(string(id) + " -> ")
	}
	if len(cycle) > 0 {
		text.WriteString(string(cycle[0]))
	}
	return text.String()
}

// Check judges a graph by the rules, and reports at most MaxFindings violations: one cycle, that
// the graph is too large, and then the others in the order of the tokens' times. Of several tokens
// with one id each but the first is reported.
func Check(g Graph) []Finding {
	findings := g.judgeWhole()
	for at := range g.vertices {
		for i := range g.nodesOf(at) {
			findings = append(findings, g.judge(at, i, i > 0)...)
			if len(findings) > MaxFindings {
				return findings[:MaxFindings]
			}
		}
	}
	return findings
}

// Judge judges one token by the rules. known are the tokens that were looked up: those with its id
// and those with the id of one of its parents, of any workflow; the token itself may be among them.
// A cycle is found only among these tokens: a longer one would need a token that was recorded before
// its parents.
func Judge(n Node, known []Node) []Finding {
	g := Build(n.Workflow, append([]Node{n}, known...))
	at := g.at[n.ID]
	nodes := g.nodesOf(at)
	for i := range nodes {
		if nodes[i].Issuer == n.Issuer && compare(nodes[i], n) == 0 {
			return append(g.judgeWhole(), g.judge(at, i, len(nodes) > 1)...)
		}
	}
	return nil // never: the node is in the graph
}

// judge judges one of the nodes of a vertex by the rules that concern its id and its parents.
func (g Graph) judge(at, i int, again bool) (findings []Finding) {
	n := g.nodesOf(at)[i]
	if again {
		findings = append(findings, Finding{Rule: RuleUnique, ID: n.ID, Issuer: n.Issuer})
	}
	for _, id := range n.Parents {
		f := Finding{ID: n.ID, Issuer: n.Issuer, Parent: id}
		switch parent, known := g.at[id]; {
		case !known && g.elsewhere[id]:
			f.Rule = RuleWorkflow
		case !known:
			f.Rule = RuleParent
		case g.nodesOf(parent)[0].IssuedAt-Tolerance > n.IssuedAt: // the first with the id: a later use of it changes nothing
			f.Rule = RuleTime
		default:
			continue
		}
		findings = append(findings, f)
	}
	return findings
}

// judgeWhole judges the graph by the rules that concern no single parent.
func (g Graph) judgeWhole() (findings []Finding) {
	if cycle := g.Cycle(); cycle != nil {
		findings = append(findings, Finding{Rule: RuleAcyclic, ID: cycle[0], Cycle: cycle})
	}
	if g.incomplete {
		findings = append(findings, Finding{Rule: RuleBounded})
	}
	return findings
}
