package descriptor

import (
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

// MediaType is that of a descriptor (ATD, Optional Declarative Workflow Format).
const MediaType = "application/atd-workflow+json"

// Bounds of a descriptor. Its nodes are at most workflow.MaxPlanned.
const (
	MaxText        = 256 << 10 // bytes
	MaxEdges       = 4096
	MaxName        = 128               // bytes of an id, a label, an act, an agent, a role
	MaxDescription = 512               // bytes
	MaxTimeout     = 31 * 24 * 60 * 60 // seconds
)

// Descriptor is the plan of a workflow. It is immutable, and safe for concurrent use; the zero value has no nodes.
type Descriptor struct {
	name        string
	description string
	order       []Node
	waves       [][]Node
	at          map[string]int // of an id in order
}

// Node is one piece of work of a plan.
type Node struct {
	ID         string            `json:"id"`
	Label      string            `json:"label"`
	Act        ect.Act           `json:"act"`   // exec_act of the task, or name of the tool or skill, that begins the node; default: the label
	Agent      string            `json:"agent"` // directory name or identity of who does it; empty: any agent
	Reversible bool              `json:"reversible"`
	Gated      bool              `json:"hitl_required"` // the node waits for an approval
	Role       string            `json:"required_role"` // that the approver has; default: approver. Empty: the node has no gate
	Severity   workflow.Severity `json:"severity"`      // what a rollback that reaches the node counts as; default: error
	Hints      Hints             `json:"resource_hints"`
	After      []string          `json:"-"` // nodes that must be done before, in the order of the nodes of the text
}

// Hints say what a node needs (ATD, Resource Hints). They are advisory.
type Hints struct {
	Priority Priority `json:"priority,omitempty"` // empty: none is given
	Timeout  int64    `json:"timeout_s"`          // seconds; 0: none is given
}

// Priority is how urgent a node is.
type Priority string

// The four priorities.
const (
	PriorityCritical Priority = "critical"
	PriorityHigh     Priority = "high"
	PriorityNormal   Priority = "normal"
	PriorityLow      Priority = "low"
)

// Above reports whether a priority is higher than another one; each is higher than none.
func (p Priority) Above(o Priority) bool {
	order := []Priority{PriorityLow, PriorityNormal, PriorityHigh, PriorityCritical}
	return slices.Index(order, p) > slices.Index(order, o)
}

// TimeoutAfter is the timeout of a node; 0: none is given.
func (n Node) TimeoutAfter() time.Duration { return time.Duration(n.Hints.Timeout) * time.Second }

// Name is the wf_id: the name of the plan, not of one of its runs (R27).
func (d Descriptor) Name() string { return d.name }

// Description is what the author says about the plan.
func (d Descriptor) Description() string { return d.description }

// Order returns the nodes in topological order: wave after wave, and in each in the order of the text.
func (d Descriptor) Order() []Node { return slices.Clone(d.order) }

// Waves returns the nodes in waves: what must be done before a node is in earlier waves, so that the nodes of one
// wave may run at once. Each node is in the first wave that it can be in.
func (d Descriptor) Waves() [][]Node {
	out := make([][]Node, len(d.waves))
	for i, wave := range d.waves {
		out[i] = slices.Clone(wave)
	}
	return out
}

// Gated reports whether a node waits for an approval.
func (d Descriptor) Gated() bool {
	return slices.ContainsFunc(d.order, func(n Node) bool { return n.Gated })
}

// Node finds a node by its id.
func (d Descriptor) Node(id string) (Node, bool) {
	at, known := d.at[id]
	if !known {
		return Node{}, false
	}
	return d.order[at], true
}

// Planned are the nodes as the states of a run need them. names says what tokens call the agent of a node: its
// identity, or what it is called in audiences. An agent that it does not know, and each agent if it is nil, has the
// name of the descriptor. It is not called for nodes without an agent.
func (d Descriptor) Planned(names func(agent string) []string) []workflow.Planned {
	out := make([]workflow.Planned, len(d.order))
	for i, n := range d.order {
		out[i] = workflow.Planned{ID: n.ID, Act: n.Act, After: n.After}
		if n.Agent == "" {
			continue
		}
		if names != nil {
			out[i].Agents = names(n.Agent)
		}
		if len(out[i].Agents) == 0 {
			out[i].Agents = []string{n.Agent}
		}
	}
	return out
}
