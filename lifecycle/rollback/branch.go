package rollback

import (
	"maps"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

// Branch is the part of a workflow that a failure takes with it, as the package documentation says.
type Branch struct {
	Roots []ect.ID // checkpoints to roll back to with a cascade, the last one first: nothing of one is below another
	Stuck []ect.ID // checkpoints where the branch ends because they cannot be undone: a human decides
}

// Failure is an action that failed.
type Failure struct {
	Actions []ect.ID                         // the tokens of what failed
	Caller  ect.Identity                     // whose action failed: nothing else is undone
	By      func(workflow.Step) ect.Identity // who made a step, or wanted it; empty: it is not known
	At      time.Time                        // a checkpoint that has ended by then cannot be undone
}

// BranchOf finds the branch of a failure, in time that is linear in tokens, parents and checkpoints, but for sorting.
func BranchOf(run workflow.Run, checkpoints map[ect.ID]Known, f Failure) Branch {
	b := brancher{
		planner: newPlanner(run, checkpoints), failure: f, failed: map[ect.ID]bool{}, part: map[ect.ID]bool{}, doers: map[ect.ID]map[ect.Identity]bool{}, holds: map[ect.ID][]ect.ID{},
		shared: map[ect.ID]bool{}, free: map[ect.ID]bool{}, in: map[ect.ID]bool{},
	}
	b.attach()
	var first []ect.ID
	for _, id := range f.Actions {
		walk([]ect.ID{id}, func(at ect.ID) []ect.ID {
			if len(run.StepsOf(at)) > 0 {
				b.failed[at] = true
				first = append(first, at)
				return nil
			}
			return b.graph.Parents(at)
		})
	}
	above := walk(first, b.graph.Parents)
	var out Branch
	for _, id := range slices.Backward(b.order) {
		b.free[id] = !slices.ContainsFunc(b.graph.Children(id), func(child ect.ID) bool { return !b.free[child] })
		if len(run.StepsOf(id)) == 0 {
			continue
		}
		if above[id] && b.free[id] && b.mayGo(id) {
			stuck := b.ofHow(id, func(how How) bool { return how == Never })
			out.Stuck = append(out.Stuck, stuck...)
			b.in[id] = len(stuck) == 0
		}
		b.free[id] = b.free[id] && (b.in[id] || b.goesAlong(id) || b.isOver(id))
	}
	out.Roots = b.roots()
	return out
}

// brancher finds a branch.
type brancher struct {
	*planner

	failure Failure
	failed  map[ect.ID]bool                  // steps that failed
	part    map[ect.ID]bool                  // tokens that are a part of the work of a step above them, and are not built on it
	doers   map[ect.ID]map[ect.Identity]bool // of a part: the agents that did it, and may have given others more of it
	holds   map[ect.ID][]ect.ID              // of a step: the checkpoints that hold its work and are not undone
	shared  map[ect.ID]bool                  // steps with a checkpoint of several actions, or that holds the work of others or groups their checkpoints
	free    map[ect.ID]bool                  // tokens at and below which nothing stays that is built on them
	in      map[ect.ID]bool                  // steps of the branch
}

// attach finds which checkpoints hold the work of a step, and which steps agents gave others as a part of their own.
func (b *brancher) attach() {
	for _, id := range b.ids {
		if b.known[id].Undone {
			continue
		}
		steps := b.nearest([]ect.ID{id})
		for step := range steps {
			b.holds[step] = append(b.holds[step], id)
			b.shared[step] = b.shared[step] || len(steps) > 1 || len(b.known[id].Parents) > 1
		}
	}
	own := b.own(b.ids)
	for _, id := range b.order {
		steps := b.run.StepsOf(id)
		if len(steps) > 0 && !slices.ContainsFunc(steps, func(s workflow.Step) bool { return !own[author{s.ID, s.Issuer}] }) {
			b.part[id], b.doers[id] = true, map[ect.Identity]bool{}
			for _, s := range steps {
				b.doers[id][s.Issuer] = true
			}
			continue
		}
		b.inherit(id, steps)
	}
}

// inherit makes a token a part whose parents are all parts. A step is one only if those who did each of these made it: what another
// caller built on a part is its own work.
func (b *brancher) inherit(id ect.ID, steps []workflow.Step) {
	parents := b.graph.Parents(id)
	outside := func(parent ect.ID) bool {
		return !b.part[parent] || slices.ContainsFunc(steps, func(s workflow.Step) bool { return !b.doers[parent][b.failure.By(s)] })
	}
	if len(parents) == 0 || slices.ContainsFunc(parents, outside) {
		return
	}
	b.part[id], b.doers[id] = true, map[ect.Identity]bool{}
	for _, parent := range parents {
		maps.Copy(b.doers[id], b.doers[parent])
	}
}

// mayGo reports whether a step above a failure is of the same caller, does not run any more, and has checkpoints for itself.
func (b *brancher) mayGo(id ect.ID) bool {
	return !b.shared[id] && !slices.ContainsFunc(b.run.StepsOf(id), func(s workflow.Step) bool {
		return b.failure.Caller == "" || b.failure.By(s) != b.failure.Caller || s.State == workflow.Running && !b.failed[id]
	})
}

// goesAlong reports whether a step is a part of the work of one above it, does not run any more, and can be undone.
func (b *brancher) goesAlong(id ect.ID) bool {
	runs := slices.ContainsFunc(b.run.StepsOf(id), func(s workflow.Step) bool { return s.State == workflow.Running })
	return b.part[id] && !b.shared[id] && !runs && len(b.ofHow(id, func(how How) bool { return how == Never })) == 0
}

// isOver reports whether nothing is left of a step outside the branch: it was undone or failed, and there is nothing to undo. That it
// was undone is known by its checkpoints: its state is also what other members say.
func (b *brancher) isOver(id ect.ID) bool {
	undo := len(b.ofHow(id, func(how How) bool { return how != Nothing })) > 0
	return !slices.ContainsFunc(b.run.StepsOf(id), func(s workflow.Step) bool {
		ended := b.failed[id] || s.State == workflow.RolledBack || s.State == workflow.Failed || s.State == workflow.Escalated
		return undo || !ended
	})
}

// ofHow are the checkpoints of a step that are undone in one of some ways.
func (b *brancher) ofHow(id ect.ID, is func(How) bool) (found []ect.ID) {
	for _, c := range b.holds[id] {
		if is(b.step(c, b.failure.At).How) {
			found = append(found, c)
		}
	}
	return found
}

// roots are the checkpoints of the first steps of the branch that can be undone.
func (b *brancher) roots() (roots []ect.ID) {
	covered := map[ect.ID]bool{} // tokens below such a step
	for _, id := range b.order {
		found := b.ofHow(id, How.sends)
		covered[id] = slices.ContainsFunc(b.graph.Parents(id), func(parent ect.ID) bool { return covered[parent] })
		if b.in[id] && len(found) > 0 && !covered[id] {
			roots = append(roots, found...)
		}
		covered[id] = covered[id] || b.in[id] && len(found) > 0
	}
	slices.Reverse(roots)
	return roots
}
