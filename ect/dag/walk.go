package dag

import (
	"context"
	"fmt"

	"github.com/aepb/aepb-gateway/ect"
)

// walker goes breadth first, so that nodes come out newest first.
type walker struct {
	find    Lookup
	limit   int                  // translations; 0: DefaultLimit
	leg     func(start Node) Leg // the leg that counts on the way from a start node
	through bool                 // every leg counts, and what does not count is passed

	asked map[place]bool // looked up, by id alone
	seen  map[place]bool // queued
	queue []step
	path  Path
}

// step is a node on the way, and the leg that counts there.
type step struct {
	node Node
	leg  Leg
}

// place is where the walk has been. The leg belongs to it: a node that does not
// count on the way from one source may count on the way from another.
type place struct {
	id  ect.ID
	who ect.Identity // the issuer, whose id it is
	leg Leg
}

func (w *walker) walk(ctx context.Context, start []Node) (Path, error) {
	if w.limit <= 0 {
		w.limit = DefaultLimit
	}
	w.asked, w.seen = make(map[place]bool), make(map[place]bool, len(start))
	for _, n := range start {
		w.enqueue(n, w.leg(n))
	}
	for len(w.queue) > 0 {
		at := w.queue[0]
		w.queue = w.queue[1:]
		more, err := w.visit(ctx, at)
		if err != nil {
			return Path{Incomplete: true}, err
		}
		if !more {
			w.path.Incomplete = true
			break
		}
	}
	return w.path, nil
}

func (w *walker) enqueue(n Node, leg Leg) {
	if at := (place{n.ID, n.Issuer, leg}); !w.seen[at] {
		w.seen[at] = true
		w.queue = append(w.queue, step{n, leg})
	}
}

// visit looks at one node and finds its parents; false: a bound was reached.
func (w *walker) visit(ctx context.Context, at step) (bool, error) {
	if at.node.Act.Translation() && (w.through || at.node.Leg == at.leg) {
		if len(w.path.Nodes) == w.limit {
			return false, nil
		}
		w.path.Nodes = append(w.path.Nodes, at.node)
	} else if !w.through {
		return true, nil
	}
	for _, id := range at.node.Parents {
		next := place{id: id, leg: at.leg}
		if w.asked[next] {
			continue
		}
		if len(w.asked) >= DefaultLimit {
			return false, nil
		}
		w.asked[next] = true
		found, err := w.find(ctx, id)
		if err != nil {
			return false, fmt.Errorf("dag: find parent: %w", err)
		}
		if len(found) == 0 {
			w.path.Incomplete = true
		}
		for _, n := range found {
			w.enqueue(n, at.leg)
		}
	}
	return true, nil
}
