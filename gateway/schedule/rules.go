package schedule

import (
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/lifecycle/schedule"
	"github.com/aepb/aepb-gateway/policy"
)

// Rules are what an operator decides about calls that wait.
type Rules struct {
	Agents     map[string]schedule.Config // by name; an agent that is not in it has no queue
	Priorities []Priority                 // the first that matches counts
}

// Priority gives calls a class (ATD, Priority Levels).
type Priority struct {
	Callers []ect.Identity // patterns; none: all callers, also those without an identity
	Agents  []string       // names; none: all
	Class   schedule.Class
}

// Ceiling is the highest class that a call may have: normal unless the operator says otherwise. anonymous: the caller
// has shown no identity.
func (r Rules) Ceiling(caller ect.Identity, anonymous bool, agent string) schedule.Class {
	for _, p := range r.Priorities {
		byCaller := len(p.Callers) == 0 || !anonymous && policy.Listed(p.Callers, caller)
		if byCaller && (len(p.Agents) == 0 || slices.Contains(p.Agents, agent)) {
			return p.Class
		}
	}
	return schedule.Normal
}
