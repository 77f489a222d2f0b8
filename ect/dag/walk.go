package dag

import (
	"context"
	"fmt"

	"github.com/aepb/aepb-gateway/ect"
)

// Walk looks up what can be reached, level by level, each key once and all keys of a level
// at a time. visit is called with each key and what was found for it, and returns the keys that follow;
// false ends the walk. Walk reports whether it came to an end: more than MaxLookups keys, or a visit, may
// have ended it before. Its error is that of find.
func Walk[K comparable, T any](ctx context.Context, start []K, find func(context.Context, []K) ([][]T, error), visit func(K, []T) ([]K, bool)) (complete bool, err error) {
	seen := map[K]bool{}
	for level := start; ; {
		var keys []K
		for _, key := range level {
			if !seen[key] {
				seen[key] = true
				keys = append(keys, key)
			}
		}
		if len(seen) > MaxLookups || len(keys) == 0 {
			return len(keys) == 0, nil
		}
		found, err := find(ctx, keys)
		if err != nil {
			return false, fmt.Errorf("dag: find parents: %w", err)
		}
		level = nil
		for i, key := range keys {
			next, ok := visit(key, found[i])
			if !ok {
				return false, nil
			}
			level = append(level, next...)
		}
	}
}

// walker follows translations. Its walk is breadth first, so that nodes come out newest first.
type walker struct {
	find      Lookup
	limit     int                  // translations; 0: DefaultLimit
	direction func(start Node) Leg // the leg that counts on the way from a start node
	through   bool                 // every leg counts, and what does not count is passed

	seen map[visited]bool
	path Path
}

// place is a parent on the way. The leg belongs to it: a node that does not
// count on the way from one source may count on the way from another.
type place struct {
	ref       ect.Ref
	direction Leg
}

// visited is a place with the issuer, whose id it is.
type visited struct {
	place

	issuer ect.Identity
}

func (w *walker) walk(ctx context.Context, start []Node) (Path, error) {
	if w.limit <= 0 {
		w.limit = DefaultLimit
	}
	first, ok := w.visit(start, w.direction)
	if ok {
		var err error
		if ok, err = Walk(ctx, first, w.lookUp, w.follow); err != nil {
			return Path{Incomplete: true}, err
		}
	}
	w.path.Incomplete = w.path.Incomplete || !ok
	return w.path, nil
}

func (w *walker) lookUp(ctx context.Context, parents []place) ([][]Node, error) {
	refs := make([]ect.Ref, len(parents))
	for i, p := range parents {
		refs[i] = p.ref
	}
	return w.find(ctx, refs)
}

// follow goes on from those of the nodes that are in the workflow of the token that names them.
func (w *walker) follow(at place, found []Node) ([]place, bool) {
	var here []Node
	for _, n := range found {
		if n.Workflow == at.ref.Workflow {
			here = append(here, n)
		}
	}
	w.path.Incomplete = w.path.Incomplete || len(here) == 0
	return w.visit(here, func(Node) Leg { return at.direction })
}

// visit looks at nodes, and says which parents come next; false: there were more translations than the
// limit, and the walk is over.
func (w *walker) visit(nodes []Node, direction func(Node) Leg) (parents []place, ok bool) {
	for _, n := range nodes {
		at := place{ect.Ref{ID: n.ID, Workflow: n.Workflow}, direction(n)}
		counts := n.Act.Translation() && (w.through || n.Leg == at.direction)
		if !counts && !w.through || w.seen[visited{at, n.Issuer}] {
			continue
		}
		if w.seen == nil { // few messages come with a translation
			w.seen = map[visited]bool{}
		}
		w.seen[visited{at, n.Issuer}] = true
		if counts {
			if len(w.path.Nodes) == w.limit {
				return nil, false
			}
			w.path.Nodes = append(w.path.Nodes, n)
		}
		for _, id := range n.Parents {
			parents = append(parents, place{ect.Ref{ID: id, Workflow: n.Workflow}, at.direction})
		}
	}
	return parents, true
}
