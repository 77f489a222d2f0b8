package rollback

import (
	"slices"

	"github.com/aepb/aepb-gateway/ect"
)

// sorted puts checkpoints in the order in which they are undone: each before those on whose actions its own depend, else
// the last one in the graph's order first. Checkpoints that depend on each other in a circle stand together.
//
// No order of tokens alone can say this, since a checkpoint may have several actions. In the graph that is sorted here a
// token is two vertices: the place of its checkpoints, and the place below it. A checkpoint leads to the places below
// all of its actions.
func (p *planner) sorted(chosen map[ect.ID]bool) []ect.ID {
	ids := slices.DeleteFunc(slices.Clone(p.ids), func(id ect.ID) bool { return !chosen[id] })
	n := len(p.order)
	next := make([][]int, 2*n+len(ids))
	for k, id := range ids {
		for _, action := range p.actions[id] {
			if i, known := p.place[action]; known {
				next[2*i] = append(next[2*i], 2*n+k)
				next[2*n+k] = append(next[2*n+k], 2*i+1)
			}
		}
	}
	for i, id := range p.order {
		next[2*i] = append(next[2*i], 2*i+1)
		for _, child := range slices.Backward(p.graph.Children(id)) {
			next[2*i+1] = append(next[2*i+1], 2*p.place[child])
		}
	}
	s := sorter{next: next, found: make([]int, len(next)), low: make([]int, len(next)), left: make([]bool, len(next))}
	for i := range n {
		s.visit(2 * (n - 1 - i))
	}
	for k := range ids { // their actions are not on record
		s.visit(2*n + k)
	}
	out := make([]ect.ID, 0, len(ids))
	for _, v := range s.out {
		if v >= 2*n {
			out = append(out, ids[v-2*n])
		}
	}
	return out
}

// sorter puts out each vertex after all that it leads to, and circles as one (Tarjan's algorithm).
type sorter struct {
	next  [][]int
	found []int  // when a vertex was first visited, from 1; 0: not yet
	low   []int  // of a vertex on the path: the first one of it that it leads back to
	left  []bool // the vertex was put out
	count int
	path  []int
	out   []int
}

func (s *sorter) visit(v int) {
	if s.found[v] > 0 {
		return
	}
	s.count++
	s.found[v], s.low[v] = s.count, s.count
	from := len(s.path)
	s.path = append(s.path, v)
	for _, w := range s.next[v] {
		s.visit(w)
		if !s.left[w] {
			s.low[v] = min(s.low[v], s.low[w])
		}
	}
	if s.low[v] < s.found[v] {
		return
	}
	circle := s.path[from:]
	slices.Sort(circle)
	for _, w := range circle {
		s.left[w] = true
	}
	s.out, s.path = append(s.out, circle...), s.path[:from]
}
