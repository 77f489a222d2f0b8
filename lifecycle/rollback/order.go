package rollback

import "github.com/aepb/aepb-gateway/ect"

// sorted puts checkpoints in the order in which they are undone: each before those on whose actions its own depend, else
// the last one in the graph's order first. Those that depend on each other in a circle have no such order.
func (p *planner) sorted(chosen map[ect.ID]bool) []ect.ID {
	s := sorter{planner: p, chosen: chosen, at: map[ect.ID]bool{}, below: map[ect.ID]bool{}, undone: map[ect.ID]bool{}}
	for i := range p.order {
		s.visit(p.order[len(p.order)-1-i])
	}
	for _, id := range p.ids { // their actions are not in the graph
		s.undo(id)
	}
	return s.out
}

// sorter is a depth-first walk that puts out a checkpoint after everything that was built on it. Each token has two
// places: the one of its checkpoints, and the one below it. A checkpoint of several actions is above the places below
// all of them, so that no order of the tokens alone can be used.
type sorter struct {
	*planner

	chosen            map[ect.ID]bool
	at, below, undone map[ect.ID]bool // visited
	out               []ect.ID
}

// visit puts out the checkpoints of a token, and of what is below it.
func (s *sorter) visit(token ect.ID) {
	if s.at[token] {
		return
	}
	s.at[token] = true
	for _, id := range s.planner.at[token] {
		s.undo(id)
	}
	s.descend(token)
}

// descend puts out the checkpoints of what is below a token.
func (s *sorter) descend(token ect.ID) {
	if s.below[token] {
		return
	}
	s.below[token] = true
	children := s.graph.Children(token)
	for i := range children {
		s.visit(children[len(children)-1-i])
	}
}

// undo puts out a checkpoint.
func (s *sorter) undo(id ect.ID) {
	if s.undone[id] {
		return
	}
	s.undone[id] = true
	for _, action := range s.actions(id) {
		s.descend(action)
	}
	if s.chosen[id] {
		s.out = append(s.out, id)
	}
}
