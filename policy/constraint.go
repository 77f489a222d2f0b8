package policy

import (
	"errors"
	"fmt"

	"github.com/aepb/aepb-gateway/ect"
)

// DefaultMaxHops is the number of translations that a path may hold unless a
// constraint sets another (AEPB, Multi-Hop Translation).
const DefaultMaxHops = 3

// HopScope says which translations count as hops (R1).
type HopScope string

// The scopes. Empty is ScopePath.
const (
	ScopePath     HopScope = "path"     // those on the translation path of this message
	ScopeAncestry HopScope = "ancestry" // all among the ancestors, by the draft's letter
)

// GraphRule says what becomes of a task whose token breaks a rule of its workflow's graph: its id is used, or a
// parent is unknown, younger or of another workflow, or there is a cycle (ECT draft, "DAG Validation").
type GraphRule string

// The rules. Empty is GraphWarn.
const (
	GraphOff    GraphRule = "off"    // it is not looked for
	GraphWarn   GraphRule = "warn"   // it is logged and counted
	GraphRefuse GraphRule = "refuse" // the message is refused
)

// Cascade says whether a failure of a step begins a rollback of what led to it (AEPB, Translation Failure Handling; R22).
type Cascade string

// The rules. Empty: the token of the caller says it.
const (
	CascadeAlways Cascade = "true"
	CascadeNever  Cascade = "false"
)

// Constraints are the node constraints that hold for a message (AEPB,
// Translation Policy).
type Constraints struct {
	AllowedSource  []string // binding ids; judged if RestrictSource
	AllowedDest    []string // binding ids; judged if RestrictDest
	RestrictSource bool     // false: any; true with an empty list: none
	RestrictDest   bool     // likewise
	MaxHops        int      // translations on a path, the one about to be made included; 0: DefaultMaxHops, negative: none at all
	HopScope       HopScope
	Graph          GraphRule
	MinSecurity    Security  // of every connection that carries the message
	MinLevel       ect.Level // of the ECTs that callers bring, and then they must bring one; 0: no rule
	AllowLosses    []string  // codes of losses that may happen although they change the meaning (R7)
	Circuit        Circuit   // when the breaker of an agent opens
	Cascade        Cascade
	Checkpoint     bool // a checkpoint precedes every message that begins work, in a workflow or not (R22)
}

// Validate reports what an operator cannot have meant.
func (c Constraints) Validate() error {
	var errs []error
	switch c.HopScope {
	case "", ScopePath, ScopeAncestry:
	default:
		errs = append(errs, fmt.Errorf("policy: hop scope must be %q or %q", ScopePath, ScopeAncestry))
	}
	switch c.Graph {
	case "", GraphOff, GraphWarn, GraphRefuse:
	default:
		errs = append(errs, fmt.Errorf("policy: the graph rule must be %q, %q or %q", GraphOff, GraphWarn, GraphRefuse))
	}
	if len(c.AllowedSource) > 0 && !c.RestrictSource {
		errs = append(errs, errors.New("policy: source protocols are listed and not restricted: set both or neither"))
	}
	if len(c.AllowedDest) > 0 && !c.RestrictDest {
		errs = append(errs, errors.New("policy: destination protocols are listed and not restricted: set both or neither"))
	}
	return errors.Join(errs...)
}

// WalkLimit is after how many translations a walk may stop: one more than are allowed.
func (c Constraints) WalkLimit() int { return c.maxHops() + 1 }

func (c Constraints) maxHops() int {
	if c.MaxHops == 0 {
		return DefaultMaxHops
	}
	return max(c.MaxHops, 0)
}

// atMost is the constraints with a maximum number of hops, if that is less than theirs.
func (c Constraints) atMost(hops int) Constraints {
	if c.MaxHops = min(c.maxHops(), hops); c.MaxHops == 0 {
		c.MaxHops = -1 // zero would be the default
	}
	return c
}

// Constraint names the rule that refused. The names are a closed set, and so
// fit for a metric label.
type Constraint string

// The rules. Those of the drafts have the drafts' names.
const (
	ConstraintCallers         Constraint = "callers"
	ConstraintOperation       Constraint = "operation"
	ConstraintSourceProtocols Constraint = "aepb.allowed_source_protocols"
	ConstraintDestProtocols   Constraint = "aepb.allowed_dest_protocols"
	ConstraintHops            Constraint = "aepb.max_translation_hops"
	ConstraintSecurity        Constraint = "aepb.min_protocol_security"
	ConstraintLevel           Constraint = "ect_assurance_level"
	ConstraintLoop            Constraint = "loop"
	ConstraintLineage         Constraint = "lineage" // an ancestor that cannot be resolved
)

// AllConstraints lists every rule.
func AllConstraints() []Constraint {
	return []Constraint{
		ConstraintCallers, ConstraintOperation, ConstraintSourceProtocols, ConstraintDestProtocols,
		ConstraintHops, ConstraintSecurity, ConstraintLevel, ConstraintLoop, ConstraintLineage,
	}
}
