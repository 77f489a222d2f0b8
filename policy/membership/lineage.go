package membership

import (
	"context"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
)

// Signal is what a token about earlier work (a rollback request) says of itself.
type Signal struct {
	Workflow string
	Sender   ect.Identity // who issued it
	Parents  []ect.ID     // what it is about
	Agent    ect.Identity // whom it is for: of several tokens with one id, that agent's counts
}

// IsParty reports whether a signal's sender is party to everything that the signal
// is about: each parent is on record in the workflow, and it or one of its
// ancestors names the sender in a token that the sender did not issue, or is the
// root that the sender issued (ATD, Rollback Authorization; ruling R14).
func (r *Register) IsParty(ctx context.Context, s Signal) (bool, error) {
	if len(s.Parents) == 0 || s.Workflow == "" {
		return false, nil
	}
	known, complete, err := r.ancestors(ctx, s)
	if err != nil || !complete {
		return false, err
	}
	nodes := make([]dag.Node, 0, len(known))
	for id, rec := range known {
		nodes = append(nodes, dag.Node{ID: id, Workflow: s.Workflow, Parents: rec.Parents})
	}
	lineage := dag.Build(s.Workflow, nodes)
	for _, parent := range s.Parents {
		if !slices.ContainsFunc(append(lineage.Ancestors(parent), parent), func(id ect.ID) bool { return r.admits(known[id], s.Sender) }) {
			return false, nil
		}
	}
	return true, nil
}

// admits reports whether a token makes the sender party to what follows from it: the token names the
// sender, or is the root that the sender issued, which only its issuer can sign.
func (r *Register) admits(rec ect.Record, sender ect.Identity) bool {
	if rec.Issuer == sender {
		return len(rec.Parents) == 0
	}
	return r.Names(rec, sender)
}

// ancestors are the tokens of the workflow among the parents and their ancestors. complete is
// false if a parent is not on record in the workflow, or if there are more than dag.MaxLookups: a
// lineage that is longer makes no identity a party.
func (r *Register) ancestors(ctx context.Context, s Signal) (known map[ect.ID]ect.Record, complete bool, err error) {
	known = map[ect.ID]ect.Record{}
	get := func(ctx context.Context, refs []ect.Ref) ([][]ect.Record, error) {
		return r.deps.Store.Get(ctx, refs...)
	}
	complete, err = dag.Walk(ctx, refsIn(s.Workflow, s.Parents), get, func(ref ect.Ref, records []ect.Record) ([]ect.Ref, bool) {
		rec, ok := r.matching(records, s)
		if ok {
			known[ref.ID] = rec
		}
		return refsIn(s.Workflow, rec.Parents), true
	})
	if err != nil || !complete {
		return nil, false, err
	}
	for _, parent := range s.Parents {
		if _, ok := known[parent]; !ok {
			return nil, false, nil
		}
	}
	return known, true, nil
}

// refsIn are references to tokens of a workflow.
func refsIn(workflow string, ids []ect.ID) []ect.Ref {
	refs := make([]ect.Ref, len(ids))
	for i, id := range ids {
		refs[i] = ect.Ref{ID: id, Workflow: workflow}
	}
	return refs
}

// matching is the token that an id means in a workflow: ours, else the agent's, else
// the only one. A token of another workflow with the same id does not matter.
func (r *Register) matching(records []ect.Record, s Signal) (ect.Record, bool) {
	records = slices.DeleteFunc(slices.Clone(records), func(rec ect.Record) bool { return rec.Workflow != s.Workflow })
	for _, issuer := range []ect.Identity{r.deps.Self, s.Agent} {
		for _, rec := range records {
			if issuer != "" && rec.Issuer == issuer {
				return rec, true
			}
		}
	}
	if len(records) != 1 {
		return ect.Record{}, false
	}
	return records[0], true
}

// Gate finds the token that a decision is about, and checks that the decision is
// bound to it: it is on record in the decision's workflow, the decision repeats
// its inp_hash, and its decider neither issued it nor asked for the work behind it:
// it is no caller on the lineage (ruling R23). false: it is not.
func (r *Register) Gate(ctx context.Context, decision ect.Verified, agent ect.Identity) (gate ect.Record, ok bool, err error) {
	claims := decision.Claims()
	if len(claims.Parents) != 1 || claims.Workflow == "" {
		return ect.Record{}, false, nil
	}
	found, err := r.deps.Store.Get(ctx, refsIn(claims.Workflow, claims.Parents)...)
	if err != nil {
		return ect.Record{}, false, err
	}
	gate, ok = r.matching(found[0], Signal{Workflow: claims.Workflow, Agent: agent})
	if !ok || gate.Issuer == claims.Issuer {
		return ect.Record{}, false, nil
	}
	gated, _, err := ect.ParseUnverified(gate.Compact) // verified when it was recorded
	if err != nil {
		return ect.Record{}, false, err
	}
	if gated.InputHash != claims.InputHash {
		return ect.Record{}, false, nil
	}
	standing, err := r.deps.Store.Standing(ctx, claims.Workflow, claims.Issuer)
	if err != nil || standing.Root {
		return ect.Record{}, false, err
	}
	known, complete, err := r.ancestors(ctx, Signal{Workflow: claims.Workflow, Parents: claims.Parents, Agent: agent})
	if err != nil || !complete {
		return ect.Record{}, false, err
	}
	for _, rec := range known {
		if rec.Issuer != r.deps.Self {
			continue
		}
		if own, _, err := ect.ParseUnverified(rec.Compact); err != nil || callerOf(own.Ext) == claims.Issuer {
			return ect.Record{}, false, nil //nolint:nilerr // a token that cannot be read binds nothing
		}
	}
	return gate, true, nil
}
