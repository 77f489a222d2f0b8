package workflow

import (
	"slices"

	"github.com/aepb/aepb-gateway/ect"
)

// State is the state of a step (ATD, Node States).
type State string

// The six states, and Unknown for a token that is not on record.
const (
	Pending    State = "pending"
	Running    State = "running"
	Done       State = "done"
	Failed     State = "failed"
	RolledBack State = "rolled_back"
	Escalated  State = "escalated"
	Unknown    State = "unknown"
)

// Kind says what a step stands for.
type Kind string

// The kinds of steps (R26, R28).
const (
	KindTask    Kind = "task"    // work of an agent
	KindIntent  Kind = "intent"  // what a caller without a token wants
	KindRequest Kind = "request" // the request of a caller without a token, where there is no intent
	KindPlanned Kind = "planned" // a node of the descriptor that has not begun
)

// Step is a step of a workflow with its state.
type Step struct {
	ID         ect.ID       // of its token; empty: it has not begun
	Issuer     ect.Identity // of its token, or the agent of the descriptor's node
	Act        ect.Act
	Kind       Kind
	State      State
	Planned    string // id of the descriptor's node; empty: it is not in the descriptor
	Sent       bool   // a request or an intent belongs to it: its work was given to the gateway
	Reversible bool   // a checkpoint that can be rolled back belongs to it, and was not
	Last       bool   // no further step follows from it

	audience []string
	given    []string // of a task: the audience of the requests for it
	work     Work     // of an intent
}

// Planned is a node of a descriptor.
type Planned struct {
	ID     string
	Act    ect.Act  // empty: any
	Agents []string // what tokens call its agent, first its identity; empty: any agent
	After  []string // ids of the nodes that must be done before
}

// begins reports whether a step is the one that was planned. The act of a request or an intent is the gateway's: these
// are known by what they want, and where that is not known by their agent alone.
func (p Planned) begins(s Step) bool {
	byAgent := len(p.Agents) == 0 || slices.ContainsFunc(p.Agents, func(agent string) bool {
		return s.Kind == KindTask && agent == string(s.Issuer) || agent == s.work.Agent || slices.Contains(s.audience, agent) || slices.Contains(s.given, agent)
	})
	switch {
	case s.Kind == KindTask:
		return byAgent && (p.Act == "" || p.Act == s.Act)
	case s.work.Name == "":
		return byAgent && len(p.Agents) > 0
	default:
		return byAgent && (p.Act == "" || string(p.Act) == s.work.Name)
	}
}

// Prospect is a step that is about to begin.
type Prospect struct {
	Task   ect.ID   // of the caller's own token; empty: it has none
	Acts   []string // what it may begin a node by: the act of that token, and the tool or skill that it calls
	Agents []string // what tokens call its agent
}

// Fits reports whether a step that is about to begin can be the one that was planned.
func (p Planned) Fits(x Prospect) bool {
	byAgent := len(p.Agents) == 0 || slices.ContainsFunc(p.Agents, func(agent string) bool { return slices.Contains(x.Agents, agent) })
	return byAgent && (p.Act == "" || slices.Contains(x.Acts, string(p.Act)))
}

// HasTurn reports whether a node has not begun, but perhaps with a task itself, and all nodes before it are done.
func (r Run) HasTurn(p Planned, task ect.ID) bool {
	done := map[string]bool{}
	for _, s := range r.steps {
		if s.Planned == p.ID && s.Kind != KindPlanned && (task == "" || s.ID != task) {
			return false
		}
		done[s.Planned] = done[s.Planned] || s.State == Done
	}
	return !slices.ContainsFunc(p.After, func(id string) bool { return !done[id] })
}

// match finds the node that a step begins: of several that are open the first whose predecessors have all begun, else
// the first. Below 0: none.
func match(open []Planned, s Step, begun map[string]bool) int {
	found := -1
	for i, p := range open {
		if !p.begins(s) {
			continue
		}
		if !slices.ContainsFunc(p.After, func(id string) bool { return !begun[id] }) {
			return i
		}
		if found < 0 {
			found = i
		}
	}
	return found
}
