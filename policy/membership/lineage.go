package membership

import (
	"context"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
)

// maxAncestors bounds the tokens that are looked at for one question. A lineage
// that is longer makes no identity a party.
const maxAncestors = 256

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
	for _, parent := range s.Parents {
		if !r.reaches(known, parent, s.Sender) {
			return false, nil
		}
	}
	return true, nil
}

// ancestors are the tokens of the workflow among the parents and their ancestors,
// looked up generation by generation. complete is false if a parent is not on
// record in the workflow, or if there are too many.
func (r *Register) ancestors(ctx context.Context, s Signal) (known map[ect.ID]ect.Record, complete bool, err error) {
	known = map[ect.ID]ect.Record{}
	visited := map[ect.ID]bool{}
	for generation := slices.Clone(s.Parents); len(generation) > 0; {
		next := generation[:0:0]
		for _, id := range generation {
			if !visited[id] {
				visited[id] = true
				next = append(next, id)
			}
		}
		if len(visited) > maxAncestors {
			return nil, false, nil
		}
		if len(next) == 0 {
			break
		}
		found, err := r.deps.Store.Get(ctx, refsIn(s.Workflow, next)...)
		if err != nil {
			return nil, false, err
		}
		generation = nil
		for i, records := range found {
			if rec, ok := r.matching(records, s); ok {
				known[next[i]] = rec
				generation = append(generation, rec.Parents...)
			}
		}
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

// reaches reports whether a token, or one of its ancestors, names the sender.
func (r *Register) reaches(known map[ect.ID]ect.Record, from ect.ID, sender ect.Identity) bool {
	queue, seen := []ect.ID{from}, map[ect.ID]bool{}
	for len(queue) > 0 {
		id := queue[0]
		queue = queue[1:]
		rec, ok := known[id]
		if !ok || seen[id] {
			continue
		}
		seen[id] = true
		if rec.Issuer == sender {
			if len(rec.Parents) == 0 {
				return true // the root of this workflow, which only its issuer can sign
			}
		} else if r.Names(rec, sender) {
			return true
		}
		queue = append(queue, rec.Parents...)
	}
	return false
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
