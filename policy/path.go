package policy

import "github.com/aepb/aepb-gateway/ect/dag"

// pathAllowed judges hops and loops (R1; AEPB, Multi-Hop Translation and
// Security Considerations). What cannot be counted is refused: a limit that
// lets the unknown pass is none.
func pathAllowed(r Request) error {
	if r.Path.Hops()+1 > r.Constraints.maxHops() { // what was not walked would be more
		return &Denied{Constraint: ConstraintHops}
	}
	counted, err := countedPath(r)
	if err != nil {
		return err
	}
	if counted.Hops()+1 > r.Constraints.maxHops() {
		return &Denied{Constraint: ConstraintHops}
	}
	if r.Path.Visits(r.Self) {
		return &Denied{Constraint: ConstraintLoop}
	}
	return nil
}

// countedPath is the path whose hops count. The ancestry holds the path, so an
// ancestry with fewer translations was not walked to its end.
func countedPath(r Request) (dag.Path, error) {
	if r.Path.Incomplete || r.Self == "" {
		return dag.Path{}, &Denied{Constraint: ConstraintLineage}
	}
	switch r.Constraints.HopScope {
	case "", ScopePath:
		return r.Path, nil
	case ScopeAncestry:
		if r.Ancestry.Hops()+1 > r.Constraints.maxHops() {
			return dag.Path{}, &Denied{Constraint: ConstraintHops}
		}
		if r.Ancestry.Incomplete || r.Ancestry.Hops() < r.Path.Hops() {
			return dag.Path{}, &Denied{Constraint: ConstraintLineage}
		}
		return r.Ancestry, nil
	default: // the counting rule is unknown: refuse
		return dag.Path{}, &Denied{Constraint: ConstraintHops}
	}
}
