package gateway

import (
	"context"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/policy"
)

// A message can name the ECT that it came of by its jti alone (AEPB, Task
// Invocation with Parent Reference): its sender signs none, or the frame had no
// room for it. Beside an ECT the name says nothing new, and must not say anything
// else: it is that token's own or one of its parents', or the same of an ancestor
// that came along, since a message that is relayed octet by octet keeps its name.

// claimParameter is what a refusal names.
const claimParameter = "parent_jti"

// descend finds the token that a message without an ECT names. It becomes the
// parent of ours, and the message belongs to its workflow (R3, R4), if it is on
// record here and its caller may go on with it: he made it, it was made for him, or
// it testifies to a message of his that brought none. That is narrower than R14: to
// share a workflow is not enough, for anybody can mint a token that says so. Any
// other is not found, whether it exists or not (R1, R2); and whoever shows nothing
// of himself has none.
func (g *Gateway) descend(ctx context.Context, x *exchange) error {
	id, who := ect.ID(x.call.Parent), x.call.Caller
	if id == "" {
		return nil
	}
	if !id.Valid() {
		return errReference
	}
	records, err := g.named(ctx, id)
	if err != nil {
		return recording(err)
	}
	records = slices.DeleteFunc(records, func(r ect.Record) bool { return who.Anonymous || !g.names(r, who.ID) })
	if len(records) != 1 {
		return &ect.InvalidError{Reason: ect.ReasonUnknownParent, Claim: claimParameter}
	}
	x.evidence.named = &records[0]
	return g.way(ctx, x, []dag.Node{dag.NodeOfRecord(records[0])}, nil)
}

// errReference: what is no UUID names no token.
var errReference = &ect.MalformedError{Reason: "the parent reference is no UUID"}

// agree holds the name beside an ECT to what that says, in verified tokens alone.
func (x *exchange) agree() error {
	id := ect.ID(x.call.Parent)
	means := func(v ect.Verified) bool { return v.ID() == id || slices.Contains(v.Parents(), id) }
	switch {
	case id == "", slices.ContainsFunc(x.evidence.sources, means), slices.ContainsFunc(x.evidence.parents, means):
		return nil
	case !id.Valid():
		return errReference
	default:
		return &ect.InvalidError{Reason: ect.ReasonConflictingParents, Claim: claimParameter}
	}
}

// way walks the translation path (R1) from the tokens that a message came with;
// nodes are those that need not be looked up. From a token that it only names the
// path begins there if its sender, or a gateway before it, made that of this very
// message; else what he did in between is no translation, and there is none.
func (g *Gateway) way(ctx context.Context, x *exchange, start, nodes []dag.Node) error {
	find := func(ctx context.Context, ids []ect.ID) ([][]dag.Node, error) { return g.nodes(ctx, ids, nodes) }
	limit := x.settings.Constraints.WalkLimit()
	var err error
	if n := x.evidence.named; n == nil || n.Issuer == x.call.Caller.ID || slices.Contains(x.settings.Gateways, x.call.Caller.ID) {
		if x.evidence.path, err = dag.LegPath(ctx, dag.Request, start, find, limit); err != nil {
			return err
		}
	}
	if x.settings.Constraints.HopScope == policy.ScopeAncestry {
		x.evidence.ancestry, err = dag.Ancestry(ctx, start, find, limit)
	}
	return err
}

// nodes finds what each id means: the tokens that came along, or else those on record.
func (g *Gateway) nodes(ctx context.Context, ids []ect.ID, along []dag.Node) ([][]dag.Node, error) {
	found := make([][]dag.Node, len(ids))
	var missing []ect.ID
	var at []int
	for i, id := range ids {
		for n := range along { // maxSignatures at most
			if along[n].ID == id {
				found[i] = append(found[i], along[n])
			}
		}
		if found[i] == nil {
			missing, at = append(missing, id), append(at, i)
		}
	}
	if len(missing) == 0 {
		return found, nil
	}
	records, err := g.Evidence.Get(ctx, missing...)
	if err != nil {
		return nil, err
	}
	for n, i := range at {
		for _, record := range g.ours(records[n]) {
			found[i] = append(found[i], dag.NodeOfRecord(record))
		}
	}
	return found, nil
}

// origins are the tokens that a message came of, as far as it says so: those that
// came with it, else the one that it names; and their workflow. None: it says nothing.
func (e evidence) origins() (workflow string, ids []ect.ID) {
	for _, v := range e.sources {
		ids = append(ids, v.ID())
	}
	switch {
	case len(ids) > 0:
		return e.sources[0].Workflow(), ids
	case e.named != nil:
		return e.named.Workflow, []ect.ID{e.named.ID}
	default:
		return "", nil
	}
}
