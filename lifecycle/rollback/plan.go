package rollback

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/lifecycle/checkpoint"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

// MaxSteps bounds the steps of a plan, so that its journal stays a record and does not become a database.
const MaxSteps = 500

// How says how the work behind a checkpoint is undone (R22).
type How string

// The ways.
const (
	ByAgent How = "agent"        // the agent rolls back itself, when it is asked to
	ByCall  How = "compensation" // a call of the same agent undoes it
	Nothing How = "nothing"      // the agent said that its action failed: there is nothing to undo
	Never   How = "irreversible" // there is no way: a human is told
)

// sends reports whether undoing the work means to send the agent something.
func (h How) sends() bool { return h == ByAgent || h == ByCall }

// Known is a checkpoint that can be rolled back to, with what is known of it.
type Known struct {
	checkpoint.Checkpoint

	Agent  string         // directory name of the agent whose work it is; shown, and recorded as the agent of atd.cascaded
	Acts   []ect.Identity // may sign the agent's own task node for the action; may be empty
	How    How
	Undone bool // a rollback to it was completed before
}

// Request is what is asked for.
type Request struct {
	From    ect.ID    // the checkpoint
	Cascade bool      // what depends on it is undone as well (ATD, Basic Rollback)
	At      time.Time // when it was accepted
	// Patience is how long a call may take. Work whose checkpoint is older does not run any more, whatever its tokens say: the
	// process that waited for its answer has ended. Zero: there is no such time.
	Patience time.Duration
	// Retention is how long all tokens are on record at least. Of an older checkpoint some may be missing. Zero: none ever is.
	Retention time.Duration
	// Critical says which nodes of the workflow's descriptor are critical. Nil: none is.
	Critical func(node string) bool
}

// Plan says which checkpoints are undone, and in which order.
type Plan struct {
	From     ect.ID
	Cascade  bool
	Steps    []Step    // in the order in which they are undone: each before what it depends on
	Blast    []string  // the agents of Steps, sorted, each once (ATD, Blast Radius)
	Escalate []ect.ID  // checkpoints of Steps that a human has to deal with: How is Never
	Review   []ect.ID  // checkpoints of critical steps that a cascade reaches: a human looks first (ATD, Interaction with HITL, 3)
	Stale    []ect.ID  // with Cascade: tokens of steps that used what is undone and have nothing to undo themselves, parents first
	At       time.Time // when the request was accepted
	By       time.Time // when the time for the rollback is over (ATD, Rollback Timeout and Escalation)
}

// Step is a checkpoint that is undone.
type Step struct {
	Checkpoint ect.ID `json:"checkpoint"`
	Action     ect.ID `json:"action"` // the first one, if the checkpoint names several
	Agent      string `json:"agent"`
	How        How    `json:"how"`
}

// Make plans a rollback to a checkpoint, as the package documentation says. checkpoints has those of the run's
// workflow, by their ids. It takes time and memory that are linear in tokens, parents and checkpoints, but for sorting.
//
// Its error is an [*UnknownError], an [*ExpiredError], a [*ForgottenError], a [*RunningError], a [*DependsError] or a [*TooManyError].
func Make(run workflow.Run, checkpoints map[ect.ID]Known, r Request) (Plan, error) {
	if err := possible(run, checkpoints, r); err != nil {
		return Plan{}, err
	}
	from := checkpoints[r.From]
	plan := Plan{From: r.From, Cascade: r.Cascade, At: r.At, By: r.At.Add(from.Within())}
	p := newPlanner(run, checkpoints)
	targets := p.targets(r.From)
	if from.How == Never && len(targets) == 1 && len(p.groups[r.From]) == 0 {
		return plan.with([]Step{p.step(r.From, r.At)}), nil // nothing else is undone: a human decides
	}
	below := p.below(targets)
	chosen := set(targets)
	if r.Cascade {
		for _, id := range p.downstream(below) {
			chosen[id] = true
		}
	}
	var steps []Step
	for _, id := range p.sorted(chosen) {
		steps = append(steps, p.step(id, r.At))
	}
	if running := p.running(steps, r); len(running) > 0 {
		return Plan{}, &RunningError{dependants(running)}
	}
	free := p.free(below, chosen)
	if !r.Cascade && len(free) > 0 {
		return Plan{}, &DependsError{dependants(free)}
	}
	if len(steps) > MaxSteps {
		return Plan{}, &TooManyError{len(steps)}
	}
	for _, s := range free {
		plan.Stale = append(plan.Stale, s.ID)
	}
	plan.Stale = slices.Compact(plan.Stale) // steps of one id stand together
	plan.Review = p.critical(steps, targets, r.Critical)
	return plan.with(steps), nil
}

// critical are the checkpoints of critical steps that a cascade reaches.
func (p *planner) critical(steps []Step, targets []ect.ID, is func(node string) bool) (found []ect.ID) {
	if is == nil {
		return nil
	}
	for _, s := range steps {
		if slices.Contains(targets, s.Checkpoint) || !s.How.sends() {
			continue
		}
		for id := range p.nearest([]ect.ID{s.Checkpoint}) {
			if slices.ContainsFunc(p.run.StepsOf(id), func(s workflow.Step) bool { return p.run.Does(s, is) }) {
				found = append(found, s.Checkpoint)
				break
			}
		}
	}
	return found
}

// possible reports whether a checkpoint can be rolled back to as far as itself and the record are concerned.
func possible(run workflow.Run, checkpoints map[ect.ID]Known, r Request) error {
	from, known := checkpoints[r.From]
	switch {
	case !known:
		return &UnknownError{r.From}
	case !r.At.Before(from.Ends()):
		return &ExpiredError{r.From, from.Ends()}
	case r.Retention > 0 && r.At.Sub(from.At) > r.Retention && len(run.Graph().Missing()) > 0:
		return &ForgottenError{r.From}
	}
	return nil
}

// with adds the steps, and what follows from them.
func (p Plan) with(steps []Step) Plan {
	p.Steps = steps
	for _, s := range steps {
		p.Blast = append(p.Blast, s.Agent)
		if s.How == Never {
			p.Escalate = append(p.Escalate, s.Checkpoint)
		}
	}
	slices.Sort(p.Blast)
	p.Blast = slices.Compact(p.Blast)
	return p
}

// planner knows the run and the checkpoints that are known.
type planner struct {
	run     workflow.Run
	graph   dag.Graph
	order   []ect.ID       // of all tokens, parents first
	place   map[ect.ID]int // in order
	known   map[ect.ID]Known
	ids     []ect.ID            // of all checkpoints, the last one first, then those that are not in the graph
	actions map[ect.ID][]ect.ID // of a checkpoint: the tokens whose work it holds, which are no known checkpoints
	groups  map[ect.ID][]ect.ID // of a checkpoint: the known checkpoints that it groups
}

func newPlanner(run workflow.Run, checkpoints map[ect.ID]Known) *planner {
	p := &planner{
		run: run, graph: run.Graph(), known: checkpoints, ids: slices.Sorted(maps.Keys(checkpoints)),
		actions: make(map[ect.ID][]ect.ID, len(checkpoints)), groups: map[ect.ID][]ect.ID{},
	}
	p.order = p.graph.Order()
	p.place = make(map[ect.ID]int, len(p.order))
	for i, id := range p.order {
		p.place[id] = i
	}
	slices.SortStableFunc(p.ids, func(a, b ect.ID) int { return cmp.Compare(p.placeOf(b), p.placeOf(a)) })
	for _, id := range p.ids {
		for _, parent := range checkpoints[id].Parents {
			if _, is := checkpoints[parent]; is {
				p.groups[id] = append(p.groups[id], parent)
			} else {
				p.actions[id] = append(p.actions[id], parent)
			}
		}
	}
	return p
}

// placeOf is the place of a token in order; -1: it is not on record.
func (p *planner) placeOf(id ect.ID) int {
	if at, known := p.place[id]; known {
		return at
	}
	return -1
}

// step is what is done about a checkpoint.
func (p *planner) step(id ect.ID, at time.Time) Step {
	c := p.known[id]
	s := Step{Checkpoint: id, Action: p.actions[id][0], Agent: c.Agent, How: c.How}
	if !at.Before(c.Ends()) {
		s.How = Never
	}
	return s
}

// targets are the checkpoints that a rollback to one is about, and that have work to undo: itself or, if it is a group,
// what it groups (ATD, Hierarchical Checkpoints).
func (p *planner) targets(from ect.ID) (targets []ect.ID) {
	walk([]ect.ID{from}, func(id ect.ID) []ect.ID {
		if !p.known[id].Undone && len(p.actions[id]) > 0 {
			targets = append(targets, id)
		}
		return p.groups[id]
	})
	return targets
}

// below are the tokens that descend from the actions of checkpoints.
func (p *planner) below(targets []ect.ID) map[ect.ID]bool {
	var first []ect.ID
	for action := range p.actionsOf(targets) {
		first = append(first, p.graph.Children(action)...)
	}
	return walk(first, p.graph.Children)
}

// actionsOf are the actions of checkpoints.
func (p *planner) actionsOf(ids []ect.ID) map[ect.ID]bool {
	actions := map[ect.ID]bool{}
	for _, id := range ids {
		for _, action := range p.actions[id] {
			actions[action] = true
		}
	}
	return actions
}

// downstream are the checkpoints that are not undone and whose action is among tokens.
func (p *planner) downstream(tokens map[ect.ID]bool) (found []ect.ID) {
	for _, id := range p.ids {
		if !p.known[id].Undone && slices.ContainsFunc(p.actions[id], func(action ect.ID) bool { return tokens[action] }) {
			found = append(found, id)
		}
	}
	return found
}

// running are the steps of the workflow that would be undone and still run. Their effect is not known yet.
func (p *planner) running(steps []Step, r Request) []workflow.Step {
	var ids []ect.ID
	for _, s := range steps {
		over := r.Patience > 0 && r.At.Sub(p.known[s.Checkpoint].At) > r.Patience
		if s.How.sends() && !over {
			ids = append(ids, s.Checkpoint)
		}
	}
	above := p.nearest(ids)
	return p.find(func(s workflow.Step) bool { return above[s.ID] && s.State == workflow.Running })
}

// free are the steps of the workflow, done or running, that are among tokens and are not undone: no chosen checkpoint
// holds their work, and none that was undone before.
func (p *planner) free(tokens, chosen map[ect.ID]bool) []workflow.Step {
	var gone, left []ect.ID
	for _, id := range p.ids {
		if chosen[id] || p.known[id].Undone {
			gone = append(gone, id)
		}
	}
	for _, id := range p.downstream(tokens) {
		if !chosen[id] {
			left = append(left, id)
		}
	}
	undone, stays, own, ownStays := p.nearest(gone), p.nearest(left), p.own(gone), p.own(left)
	return p.find(func(s workflow.Step) bool {
		who := author{s.ID, s.Issuer}
		isUndone := (undone[s.ID] || own[who]) && !stays[s.ID] && !ownStays[who]
		return tokens[s.ID] && (s.State == workflow.Done || s.State == workflow.Running) && !isUndone
	})
}

// find returns the steps of the workflow that have begun and of which something holds, in topological order.
func (p *planner) find(holds func(workflow.Step) bool) (found []workflow.Step) {
	for _, s := range p.run.Steps() {
		if s.Kind != workflow.KindPlanned && holds(s) {
			found = append(found, s)
		}
	}
	return found
}

// nearest are the ids of the steps to which the actions of checkpoints belong: the first ones at an action or above it.
func (p *planner) nearest(ids []ect.ID) map[ect.ID]bool {
	found := map[ect.ID]bool{}
	walk(slices.Collect(maps.Keys(p.actionsOf(ids))), func(id ect.ID) []ect.ID {
		if len(p.run.StepsOf(id)) > 0 {
			found[id] = true
			return nil
		}
		return p.graph.Parents(id)
	})
	return found
}

// author names the token of an issuer; others may have used its id.
type author struct {
	id     ect.ID
	issuer ect.Identity
}

// own are the agents' own task nodes for the actions of checkpoints: they name the action, which is on record, as parent.
func (p *planner) own(ids []ect.ID) map[author]bool {
	found, signs, children := map[author]bool{}, map[author]bool{}, map[ect.ID]bool{}
	for _, id := range ids {
		for _, action := range p.actions[id] {
			for _, issuer := range p.known[id].Acts {
				signs[author{action, issuer}] = p.placeOf(action) >= 0
			}
		}
	}
	for action := range p.actionsOf(ids) {
		for _, child := range p.graph.Children(action) {
			children[child] = true
		}
	}
	for child := range children {
		for _, n := range p.graph.Find(child) {
			if slices.ContainsFunc(n.Parents, func(parent ect.ID) bool { return signs[author{parent, n.Issuer}] }) {
				found[author{child, n.Issuer}] = true
			}
		}
	}
	return found
}

// walk visits what can be reached, each id once, and returns it.
func walk(from []ect.ID, next func(ect.ID) []ect.ID) map[ect.ID]bool {
	seen := set(from)
	queue := slices.Sorted(maps.Keys(seen))
	for i := 0; i < len(queue); i++ {
		for _, id := range next(queue[i]) {
			if !seen[id] {
				seen[id] = true
				queue = append(queue, id)
			}
		}
	}
	return seen
}

func set(ids []ect.ID) map[ect.ID]bool {
	s := make(map[ect.ID]bool, len(ids))
	for _, id := range ids {
		s[id] = true
	}
	return s
}
