package dag

import (
	"context"
	"fmt"

	"github.com/aepb/aepb-gateway/ect"
)

// walker goes breadth first, so that nodes come out newest first.
type walker struct {
	find      Lookup
	limit     int                  // translations; 0: DefaultLimit
	direction func(start Node) Leg // the leg that counts on the way from a start node
	through   bool                 // every leg counts, and what does not count is passed

	visited map[place]bool     // are parents, by id alone
	known   map[ect.Ref][]Node // was looked up
	seen    map[place]bool     // on this level or an earlier one
	level   []step             // the nodes that are as far from the start
	path    Path
}

// step is a node on the way, and the leg that counts there.
type step struct {
	node      Node
	direction Leg
}

// place is where the walk has been. The leg belongs to it: a node that does not
// count on the way from one source may count on the way from another.
type place struct {
	id        ect.ID
	workflow  string
	who       ect.Identity // the issuer, whose id it is
	direction Leg
}

func (p place) ref() ect.Ref { return ect.Ref{ID: p.id, Workflow: p.workflow} }

func (w *walker) walk(ctx context.Context, start []Node) (Path, error) {
	if w.limit <= 0 {
		w.limit = DefaultLimit
	}
	w.visited, w.seen, w.known = make(map[place]bool), make(map[place]bool, len(start)), make(map[ect.Ref][]Node)
	for _, n := range start {
		w.reach(n, w.direction(n))
	}
	for len(w.level) > 0 {
		parents, whole := w.visit()
		found, err := w.lookUp(ctx, parents)
		if err != nil {
			return Path{Incomplete: true}, err
		}
		if !whole || !found {
			w.path.Incomplete = true
			break
		}
		for _, p := range parents {
			missing := true
			for _, n := range w.known[p.ref()] {
				if n.Workflow == p.workflow {
					missing = false
					w.reach(n, p.direction)
				}
			}
			if missing {
				w.path.Incomplete = true
			}
		}
	}
	return w.path, nil
}

func (w *walker) reach(n Node, direction Leg) {
	if at := (place{n.ID, n.Workflow, n.Issuer, direction}); !w.seen[at] {
		w.seen[at] = true
		w.level = append(w.level, step{n, direction})
	}
}

// visit looks at the nodes of a level, and says which parents come next; false: there
// were more translations than the limit, and the walk is over.
func (w *walker) visit() (parents []place, ok bool) {
	level := w.level
	w.level = nil
	for _, at := range level {
		if at.node.Act.Translation() && (w.through || at.node.Leg == at.direction) {
			if len(w.path.Nodes) == w.limit {
				return nil, false
			}
			w.path.Nodes = append(w.path.Nodes, at.node)
		} else if !w.through {
			continue
		}
		for _, id := range at.node.Parents {
			if next := (place{id: id, workflow: at.node.Workflow, direction: at.direction}); !w.visited[next] {
				w.visited[next] = true
				parents = append(parents, next)
			}
		}
	}
	return parents, true
}

// lookUp finds what is not known of the parents, all at once; false: they are too many.
func (w *walker) lookUp(ctx context.Context, parents []place) (bool, error) {
	var refs []ect.Ref
	for _, p := range parents {
		if _, known := w.known[p.ref()]; !known {
			w.known[p.ref()] = nil
			refs = append(refs, p.ref())
		}
	}
	if len(w.known) > MaxLookups {
		return false, nil
	}
	if len(refs) == 0 {
		return true, nil
	}
	found, err := w.find(ctx, refs)
	if err != nil {
		return false, fmt.Errorf("dag: find parents: %w", err)
	}
	for i, ref := range refs {
		w.known[ref] = found[i]
	}
	return true, nil
}
