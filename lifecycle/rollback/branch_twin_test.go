package rollback_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/lifecycle/rollback"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

// branchTwin finds branches by their definition, with the questions of planTwin.
type branchTwin struct {
	planTwin

	actions []ect.ID
	caller  ect.Identity
	parts   map[ect.ID]bool
	doers   map[ect.ID][]ect.Identity // of parts
	went    map[ect.ID]int            // what is known of goes: 1 yes, 2 no
	all     []ect.ID                  // ids
}

func (w branchTwin) ids() (ids []ect.ID) {
	if w.all != nil {
		return w.all
	}
	for _, t := range w.tokens {
		if !slices.Contains(ids, t.Node.ID) {
			ids = append(ids, t.Node.ID)
		}
	}
	return ids
}

// every reports whether all steps with an id are as is says, and there is one.
func (w branchTwin) every(id ect.ID, is func(workflow.Step) bool) bool {
	list := w.run.StepsOf(id)
	return len(list) > 0 && !slices.ContainsFunc(list, func(s workflow.Step) bool { return !is(s) })
}

func (w branchTwin) some(id ect.ID, is func(workflow.Step) bool) bool {
	return slices.ContainsFunc(w.run.StepsOf(id), is)
}

// failed reports whether an id is that of a step that failed.
func (w branchTwin) failed(id ect.ID) bool {
	return slices.ContainsFunc(w.actions, func(action ect.ID) bool { return w.nearest(action)[id] })
}

func (w branchTwin) above(id ect.ID) bool {
	return slices.ContainsFunc(w.ids(), func(other ect.ID) bool { return w.failed(other) && (other == id || w.descends(other, id)) })
}

// checkpointsOf are the checkpoints of a step in one of some ways.
func (w branchTwin) checkpointsOf(id ect.ID, hows ...rollback.How) (found []ect.ID) {
	for c := range w.known {
		of := slices.ContainsFunc(w.planTwin.actions(c), func(action ect.ID) bool { return w.nearest(action)[id] })
		if of && !w.known[c].Undone && slices.Contains(hows, w.how(c)) {
			found = append(found, c)
		}
	}
	return found
}

// findParts finds the steps that agents did as a part of the work of others, and what the same agents did after these alone.
func (w *branchTwin) findParts() {
	w.parts, w.doers = map[ect.ID]bool{}, map[ect.ID][]ect.Identity{}
	own := func(s workflow.Step) bool {
		for c := range w.known {
			if w.ownTask(s, c) {
				return true
			}
		}
		return false
	}
	for _, id := range w.ids() {
		if w.parts[id] = w.every(id, own); w.parts[id] {
			for _, s := range w.run.StepsOf(id) {
				w.doers[id] = append(w.doers[id], s.Issuer)
			}
		}
	}
	for again := true; again; {
		again = false
		for _, id := range w.ids() {
			parents := slices.DeleteFunc(w.parentsOf(id), func(parent ect.ID) bool { return !slices.Contains(w.ids(), parent) })
			others := func(parent ect.ID) bool {
				return !w.parts[parent] || w.some(id, func(s workflow.Step) bool { return !slices.Contains(w.doers[parent], s.Issuer) })
			}
			if w.every(id, own) || len(parents) == 0 || slices.ContainsFunc(parents, others) {
				continue
			}
			did := slices.Clone(w.doers[id])
			for _, parent := range parents {
				did = append(did, w.doers[parent]...)
			}
			slices.Sort(did)
			if did = slices.Compact(did); !w.parts[id] || len(did) > len(w.doers[id]) {
				w.parts[id], w.doers[id], again = true, did, true
			}
		}
	}
}

// shares reports whether a checkpoint holds the work of a step and of another one.
func (w branchTwin) shares(id ect.ID) bool {
	for _, c := range w.checkpointsOf(id, rollback.Never, rollback.Nothing, rollback.ByAgent, rollback.ByCall) {
		if len(w.known[c].Parents) > 1 {
			return true
		}
		for _, action := range w.planTwin.actions(c) {
			for other := range w.nearest(action) {
				if other != id {
					return true
				}
			}
		}
	}
	return false
}

// candidate reports whether a step is above a failure, of the same caller, and ended, and has checkpoints for itself.
func (w branchTwin) candidate(id ect.ID) bool {
	return w.above(id) && !w.shares(id) && w.every(id, func(s workflow.Step) bool {
		return s.Issuer == w.caller && (s.State != workflow.Running || w.failed(id))
	})
}

// goes reports whether a step is in the branch.
func (w branchTwin) goes(id ect.ID) bool {
	if w.went[id] == 0 {
		w.went[id] = 2
		if w.candidate(id) && len(w.checkpointsOf(id, rollback.Never)) == 0 && w.alone(id) {
			w.went[id] = 1
		}
	}
	return w.went[id] == 1
}

// alone reports whether nothing that stays was built on a step.
func (w branchTwin) alone(id ect.ID) bool {
	for _, below := range w.ids() {
		if len(w.run.StepsOf(below)) == 0 || !w.descends(below, id) {
			continue
		}
		part := w.parts[below] && !w.shares(below) && !w.some(below, func(s workflow.Step) bool { return s.State == workflow.Running }) && len(w.checkpointsOf(below, rollback.Never)) == 0
		undo := len(w.checkpointsOf(below, rollback.Never, rollback.ByAgent, rollback.ByCall)) > 0
		over := w.every(below, func(s workflow.Step) bool {
			return !undo && (w.failed(below) || s.State == workflow.RolledBack || s.State == workflow.Failed || s.State == workflow.Escalated)
		})
		if !part && !over && !w.goes(below) {
			return false
		}
	}
	return true
}

// expect is the branch that has to come out, sorted.
func (w branchTwin) expect() (b rollback.Branch) {
	begins := func(id ect.ID) bool {
		return w.goes(id) && len(w.checkpointsOf(id, rollback.ByAgent, rollback.ByCall)) > 0
	}
	for _, id := range w.ids() {
		if w.candidate(id) && w.alone(id) {
			b.Stuck = append(b.Stuck, w.checkpointsOf(id, rollback.Never)...)
		}
		if begins(id) && !slices.ContainsFunc(w.ids(), func(o ect.ID) bool { return o != id && begins(o) && w.descends(id, o) }) {
			b.Roots = append(b.Roots, w.checkpointsOf(id, rollback.ByAgent, rollback.ByCall)...)
		}
	}
	return sorted(b)
}

func sorted(b rollback.Branch) rollback.Branch {
	once := func(ids []ect.ID) []ect.ID {
		ids = slices.Clone(ids)
		slices.Sort(ids)
		return slices.Compact(ids)
	}
	return rollback.Branch{Roots: once(b.Roots), Stuck: once(b.Stuck)}
}

// promises checks what a rollback to each root would undo: nothing of other callers that is no part of the work, and nothing that goes on.
func (w branchTwin) promises(b rollback.Branch) string {
	for _, root := range b.Roots {
		plan, err := rollback.Make(w.run, w.known, rollback.Request{From: root, Cascade: true, At: w.at})
		runs, running := err.(*rollback.RunningError) //nolint:errorlint // nothing wraps it
		if running && !slices.ContainsFunc(runs.Steps, func(s rollback.Dependant) bool { return !w.failed(s.ID) }) {
			continue // its error is not on record so far
		}
		if err != nil {
			return fmt.Sprintf("no rollback to %s: %v", root, err)
		}
		for _, step := range plan.Steps {
			for id := range w.nearest(step.Action) {
				if !w.goes(id) && !w.parts[id] && step.How != rollback.Nothing {
					return fmt.Sprintf("a rollback to %s undoes %s, which is not of the branch", root, id)
				}
			}
		}
	}
	return ""
}

// randomExchanges is a random workflow of calls, most of which are of one caller, with a checkpoint for each.
func randomExchanges(t *testing.T, r *rand.Rand) planTwin {
	t.Helper()
	w := planTwin{known: map[ect.ID]rollback.Known{}, at: noon.Add(time.Hour), led: map[ect.ID]map[ect.ID]bool{}, near: map[ect.ID]map[ect.ID]bool{}}
	hows := []rollback.How{rollback.ByCall, rollback.ByCall, rollback.ByAgent, rollback.ByAgent, rollback.Nothing, rollback.Never}
	for i := range 2 + r.IntN(8) {
		var parents []ect.ID
		for range r.IntN(3) {
			if i > 0 {
				parents = append(parents, ect.ID(fmt.Sprint([]string{"p", "p", "p", "w"}[r.IntN(4)], r.IntN(i))))
			}
		}
		list := exchange(i, parents...)
		if r.IntN(6) == 0 {
			list[0].Node.Issuer = agentB
		}
		switch r.IntN(12) {
		case 0: // it runs
			list = list[:2]
		case 1:
			list = append(list[:2], token(ect.ID(fmt.Sprint("e", i)), ect.ActError, gateway, list[1].Node.ID))
		case 2: // its agent has no tokens
			list = []workflow.Token{list[0], list[1], reply(list[3].Node.ID, list[1].Node.ID)}
		}
		w.tokens = append(w.tokens, list...)
		if r.IntN(5) > 0 {
			c := checkpointOf(ect.ID(fmt.Sprint("c", i)), list[1].Node.ID)
			c.How, c.Undone = hows[r.IntN(len(hows))], r.IntN(10) == 0
			w.known[c.ID] = c
		}
	}
	w.run = runOf(t, w.tokens...)
	return w
}

// TestBranch_Twin finds branches in random workflows, and compares with the twin.
func TestBranch_Twin(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(49, 56))
	seen := map[string]int{}
	for i := range steps(t) {
		w := branchTwin{caller: agentA, went: map[ect.ID]int{}}
		if w.planTwin = randomExchanges(t, random); i%2 == 0 {
			w.planTwin = randomCase(t, random)
		}
		if w.run.Graph().Cycle() != nil {
			continue
		}
		for range 1 + random.IntN(2) {
			w.actions = append(w.actions, w.tokens[random.IntN(len(w.tokens))].Node.ID)
		}
		w.all = w.ids()
		w.findParts()
		got := sorted(rollback.BranchOf(w.run, w.known, rollback.Failure{
			Actions: w.actions, At: w.at, Caller: w.caller, By: func(s workflow.Step) ect.Identity { return s.Issuer },
		}))
		want := w.expect()
		if !slices.Equal(got.Roots, want.Roots) || !slices.Equal(got.Stuck, want.Stuck) {
			t.Fatalf("got  %+v\nwant %+v\nfailed %v\n%s", got, want, w.actions, w)
		}
		if problem := w.promises(got); problem != "" {
			t.Fatalf("%s\nfailed %v\n%s", problem, w.actions, w)
		}
		seen[fmt.Sprint("roots ", min(len(got.Roots), 2))]++
		seen[fmt.Sprint("stuck ", min(len(got.Stuck), 1))]++
	}
	for _, kind := range []string{"roots 0", "roots 1", "roots 2", "stuck 0", "stuck 1"} {
		if seen[kind] < 50 {
			t.Errorf("only %d cases of %s", seen[kind], kind)
		}
	}
	t.Log(seen)
}
