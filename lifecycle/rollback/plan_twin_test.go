package rollback_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/lifecycle/checkpoint"
	"github.com/aepb/aepb-gateway/lifecycle/rollback"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

// planTwin finds plans by their definitions: it asks about each pair of tokens and checkpoints afresh.
type planTwin struct {
	tokens []workflow.Token
	run    workflow.Run
	known  map[ect.ID]rollback.Known
	at     time.Time
	led    map[ect.ID]map[ect.ID]bool // by token: what descends from it
	near   map[ect.ID]map[ect.ID]bool // by token: nearest
}

func (w planTwin) String() string {
	var text strings.Builder
	for _, t := range w.tokens {
		fmt.Fprintln(&text, t.Node.ID, t.Node.Issuer, t.Node.Act, t.Node.Leg, t.Node.Parents)
	}
	for id, c := range w.known {
		fmt.Fprintln(&text, id, c.Parents, c.How, c.Undone, c.TTL, c.Acts)
	}
	return text.String()
}

// grow adds to a set what follows from it, until nothing does.
func grow(set map[ect.ID]bool, follows func(ect.ID) []ect.ID) map[ect.ID]bool {
	for size := -1; size != len(set); {
		size = len(set)
		for _, id := range keys(set) {
			for _, next := range follows(id) {
				set[next] = true
			}
		}
	}
	return set
}

func keys(set map[ect.ID]bool) (ids []ect.ID) {
	for id := range set {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// childrenOf are the tokens that name a token on record as parent.
func (w planTwin) childrenOf(id ect.ID) (ids []ect.ID) {
	for _, t := range w.tokens {
		if slices.Contains(t.Node.Parents, id) && slices.ContainsFunc(w.tokens, func(o workflow.Token) bool { return o.Node.ID == id }) {
			ids = append(ids, t.Node.ID)
		}
	}
	return ids
}

func (w planTwin) parentsOf(id ect.ID) (ids []ect.ID) {
	for _, t := range w.tokens {
		if t.Node.ID == id {
			ids = append(ids, t.Node.Parents...)
		}
	}
	return ids
}

// descends reports whether a token is below another one.
func (w planTwin) descends(id, from ect.ID) bool {
	if w.led[from] == nil {
		below := map[ect.ID]bool{}
		for _, child := range w.childrenOf(from) {
			below[child] = true
		}
		w.led[from] = grow(below, w.childrenOf)
	}
	return w.led[from][id]
}

func (w planTwin) actions(c ect.ID) (ids []ect.ID) {
	for _, parent := range w.known[c].Parents {
		if _, is := w.known[parent]; !is {
			ids = append(ids, parent)
		}
	}
	return ids
}

// ledTo reports whether an action of one checkpoint descends from an action of another one.
func (w planTwin) ledTo(from, c ect.ID) bool {
	return slices.ContainsFunc(w.actions(from), func(a ect.ID) bool {
		return slices.ContainsFunc(w.actions(c), func(b ect.ID) bool { return w.descends(b, a) })
	})
}

// targets are a checkpoint and what it groups, if there is work to undo.
func (w planTwin) targets(from ect.ID) (ids []ect.ID) {
	group := grow(map[ect.ID]bool{from: true}, func(c ect.ID) (in []ect.ID) {
		for _, parent := range w.known[c].Parents {
			if _, is := w.known[parent]; is {
				in = append(in, parent)
			}
		}
		return in
	})
	for _, id := range keys(group) {
		if !w.known[id].Undone && len(w.actions(id)) > 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// downstream reports whether a checkpoint that was not undone was made as a consequence of one of the targets.
func (w planTwin) downstream(c ect.ID, targets []ect.ID) bool {
	return !w.known[c].Undone && slices.ContainsFunc(targets, func(t ect.ID) bool { return w.ledTo(t, c) })
}

// nearest are the first steps at a token or above it.
func (w planTwin) nearest(id ect.ID) map[ect.ID]bool {
	if set, known := w.near[id]; known {
		return set
	}
	set := grow(map[ect.ID]bool{id: true}, func(id ect.ID) []ect.ID {
		if len(w.run.StepsOf(id)) > 0 {
			return nil
		}
		return w.parentsOf(id)
	})
	for _, id := range keys(set) {
		if len(w.run.StepsOf(id)) == 0 {
			delete(set, id)
		}
	}
	w.near[id] = set
	return set
}

// belongs reports whether a step is undone with a checkpoint; own: as the agent's task node, too.
func (w planTwin) belongs(s workflow.Step, c ect.ID, own bool) bool {
	return slices.ContainsFunc(w.actions(c), func(action ect.ID) bool {
		return w.nearest(action)[s.ID] || own && w.ownTask(s, c)
	})
}

// ownTask reports whether a step is the agent's own task node for an action of a checkpoint.
func (w planTwin) ownTask(s workflow.Step, c ect.ID) bool {
	return slices.ContainsFunc(w.actions(c), func(action ect.ID) bool {
		return slices.Contains(w.known[c].Acts, s.Issuer) && slices.ContainsFunc(w.tokens, func(t workflow.Token) bool {
			return t.Node.ID == s.ID && t.Node.Issuer == s.Issuer && slices.Contains(t.Node.Parents, action) && slices.Contains(w.childrenOf(action), s.ID)
		})
	})
}

func (w planTwin) how(c ect.ID) rollback.How {
	if w.at.Before(w.known[c].At.Add(w.known[c].TTL)) {
		return w.known[c].How
	}
	return rollback.Never
}

// expected is what a plan has to be, but for its order.
type expected struct {
	refusal string // the type of the error
	named   []ect.ID
	steps   []ect.ID // sorted
	stale   []ect.ID
}

func (w planTwin) expect(r rollback.Request) (e expected) {
	from, known := w.known[r.From]
	targets := w.targets(r.From)
	switch {
	case !known:
		return expected{refusal: "*rollback.UnknownError"}
	case w.how(r.From) == rollback.Never && from.How != rollback.Never, from.How == rollback.Never && !w.at.Before(from.At.Add(from.TTL)):
		return expected{refusal: "*rollback.ExpiredError"}
	case from.How == rollback.Never && slices.Equal(targets, []ect.ID{r.From}) && len(w.actions(r.From)) == len(from.Parents):
		return expected{steps: targets}
	}
	in := func(c ect.ID) bool { return slices.Contains(targets, c) || r.Cascade && w.downstream(c, targets) }
	var all []ect.ID
	for id := range w.known {
		all = append(all, id)
		if in(id) {
			e.steps = append(e.steps, id)
		}
	}
	slices.Sort(e.steps)
	var runs, free []ect.ID
	for _, s := range w.run.Steps() {
		undoes := func(c ect.ID) bool {
			return in(c) && (w.how(c) == rollback.ByAgent || w.how(c) == rollback.ByCall) && w.belongs(s, c, false)
		}
		if s.State == workflow.Running && slices.ContainsFunc(all, undoes) {
			runs = append(runs, s.ID)
		}
		depends := slices.ContainsFunc(targets, func(c ect.ID) bool {
			return slices.ContainsFunc(w.actions(c), func(action ect.ID) bool { return w.descends(s.ID, action) })
		})
		goes := slices.ContainsFunc(all, func(c ect.ID) bool { return (in(c) || w.known[c].Undone) && w.belongs(s, c, true) })
		stays := slices.ContainsFunc(all, func(c ect.ID) bool { return !in(c) && w.downstream(c, targets) && w.belongs(s, c, true) })
		if depends && (!goes || stays) && (s.State == workflow.Done || s.State == workflow.Running) {
			free = append(free, s.ID)
		}
	}
	switch {
	case len(runs) > 0:
		return expected{refusal: "*rollback.RunningError", named: runs}
	case len(free) > 0 && !r.Cascade:
		return expected{refusal: "*rollback.DependsError", named: free}
	}
	e.stale = slices.Compact(free)
	return e
}

// compare compares what came out with what was expected.
func (w planTwin) compare(r rollback.Request, plan rollback.Plan, err error) string {
	want, got := w.expect(r), expected{stale: plan.Stale}
	for _, s := range plan.Steps {
		got.steps = append(got.steps, s.Checkpoint)
	}
	slices.Sort(got.steps)
	var d rollback.Dependants
	switch err := err.(type) { //nolint:errorlint // nothing wraps them
	case *rollback.RunningError:
		d = err.Dependants
	case *rollback.DependsError:
		d = err.Dependants
	}
	for _, s := range d.Steps {
		got.named = append(got.named, s.ID)
	}
	if err != nil {
		got.refusal = fmt.Sprintf("%T", err)
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Sprintf("got  %+v\nwant %+v", got, want)
	}
	return w.promises(r, plan)
}

// promises checks in words what holds of every plan.
func (w planTwin) promises(r rollback.Request, plan rollback.Plan) string {
	targets := w.targets(r.From)
	seen, agents := map[ect.ID]bool{}, map[string]bool{}
	for _, s := range plan.Steps {
		c := w.known[s.Checkpoint]
		switch {
		case seen[s.Checkpoint]:
			return "undone twice: " + string(s.Checkpoint)
		case c.Undone:
			return "undone again: " + string(s.Checkpoint)
		case !slices.Contains(targets, s.Checkpoint) && !w.downstream(s.Checkpoint, targets):
			return "the work did not follow from what is undone: " + string(s.Checkpoint)
		case !slices.Contains(c.Parents, s.Action) || s.Agent != c.Agent || s.How != w.how(s.Checkpoint):
			return fmt.Sprintf("not as it is known: %+v", s)
		case slices.Contains(plan.Escalate, s.Checkpoint) != (s.How == rollback.Never):
			return "a human is told wrongly about " + string(s.Checkpoint)
		}
		seen[s.Checkpoint], agents[s.Agent] = true, true
	}
	if len(plan.Blast) != len(agents) || !slices.IsSorted(plan.Blast) {
		return fmt.Sprintf("the agents are %v", plan.Blast)
	}
	return w.ordered(plan)
}

// ordered checks that what was built on an action is undone before it; where no checkpoint has several actions and no
// token is its own ancestor, the order is that of the graph, backwards.
func (w planTwin) ordered(plan rollback.Plan) string {
	chosen := map[ect.ID]bool{}
	plain := w.run.Graph().Cycle() == nil
	for _, s := range plan.Steps {
		chosen[s.Checkpoint] = true
		plain = plain && len(w.actions(s.Checkpoint)) == 1
	}
	leads := map[ect.ID]map[ect.ID]bool{}
	for _, s := range plan.Steps {
		next := func(c ect.ID) (ids []ect.ID) {
			for _, id := range keys(chosen) {
				if w.ledTo(c, id) {
					ids = append(ids, id)
				}
			}
			return ids
		}
		first := map[ect.ID]bool{}
		for _, id := range next(s.Checkpoint) {
			first[id] = true
		}
		leads[s.Checkpoint] = grow(first, next)
	}
	order := w.run.Graph().Order()
	for i, a := range plan.Steps {
		for _, b := range plan.Steps[i+1:] {
			if leads[a.Checkpoint][b.Checkpoint] && !leads[b.Checkpoint][a.Checkpoint] {
				return fmt.Sprintf("%s is undone before %s, which depends on it", a.Checkpoint, b.Checkpoint)
			}
			if plain && slices.Index(order, a.Action) < slices.Index(order, b.Action) {
				return fmt.Sprintf("%s is undone before %s, which is later", a.Checkpoint, b.Checkpoint)
			}
		}
	}
	return ""
}

// randomCase is a random workflow with checkpoints.
func randomCase(t *testing.T, r *rand.Rand) planTwin {
	t.Helper()
	acts := []ect.Act{"work", "work", ect.ActTranslate, ect.ActTranslate, ect.ActTranslate, ect.ActNegotiate, ect.ActCheckpoint, ect.ActError, ect.ActRollbackRequest}
	n := 1 + r.IntN(1+r.IntN(30))
	orderly := r.IntN(4) > 0
	near := func(i int) ect.ID {
		if orderly {
			i = max(i-1-r.IntN(3), 0)
		} else {
			i = r.IntN(n)
		}
		return ect.ID(fmt.Sprint("t", i))
	}
	w := planTwin{known: map[ect.ID]rollback.Known{}, at: noon.Add(time.Hour), led: map[ect.ID]map[ect.ID]bool{}, near: map[ect.ID]map[ect.ID]bool{}}
	for i := range n {
		tok := token(ect.ID(fmt.Sprint("t", i)), acts[r.IntN(len(acts))], []ect.Identity{gateway, agentA, agentB}[r.IntN(3)])
		if tok.Node.IssuedAt += int64(i); r.IntN(12) == 0 { // the id of another one
			tok.Node.ID = near(i)
		}
		tok.Node.Leg = []dag.Leg{dag.Request, dag.Reply}[r.IntN(2)]
		for range r.IntN(3) {
			if parent := near(i); i > 0 || !orderly {
				tok.Node.Parents = append(tok.Node.Parents, parent)
			}
		}
		known := slices.ContainsFunc(w.tokens, func(o workflow.Token) bool { return o.Node.ID == tok.Node.ID && o.Node.Issuer == tok.Node.Issuer })
		if known {
			continue // an issuer uses an id once
		}
		w.tokens = append(w.tokens, tok)
		if tok.Node.Act == ect.ActCheckpoint || r.IntN(3) == 0 {
			c := randomHeld(r, near, i)
			w.known[c.ID] = c
		}
	}
	w.run = runOf(t, w.tokens...)
	return w
}

// randomHeld is a checkpoint about a random token, or a group of random ones.
func randomHeld(r *rand.Rand, near func(int) ect.ID, i int) rollback.Known {
	c := rollback.Known{
		Checkpoint: checkpoint.Checkpoint{ID: ect.ID(fmt.Sprint("c", i)), At: noon, TTL: 24 * time.Hour},
		Agent:      []string{"a", "b", "c"}[r.IntN(3)], Acts: [][]ect.Identity{nil, {agentB}, {agentA, agentB}}[r.IntN(3)],
		How: []rollback.How{rollback.ByAgent, rollback.ByCall, rollback.ByCall, rollback.ByCall, rollback.Nothing, rollback.Never}[r.IntN(6)], Undone: r.IntN(6) == 0,
	}
	if r.IntN(8) == 0 {
		c.TTL = time.Minute
	}
	c.Parents = []ect.ID{near(i + 1)}
	for r.IntN(5) == 0 {
		c.Parents = append(c.Parents, near(i))
	}
	if r.IntN(5) == 0 {
		c.Parents = c.Parents[1:]
		for range 1 + r.IntN(3) {
			c.Parents = append(c.Parents, ect.ID(fmt.Sprint("c", max(0, i+2-r.IntN(8)))))
		}
	}
	return c
}

// TestMake_Twin plans in random workflows, and compares with the twin.
func TestMake_Twin(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(22, 26))
	seen := map[string]int{}
	for range steps(t) {
		w := randomCase(t, random)
		ids := []ect.ID{"c0"}
		for id := range w.known {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		r := rollback.Request{From: ids[random.IntN(len(ids))], Cascade: random.IntN(2) == 0, At: w.at}
		plan, err := rollback.Make(w.run, w.known, r)
		if problem := w.compare(r, plan, err); problem != "" {
			t.Fatalf("%s\n%+v\n%s", problem, r, w)
		}
		seen[fmt.Sprintf("%T", err)]++
		seen[fmt.Sprint("steps ", min(len(plan.Steps), 3))]++
		for what, is := range map[string]bool{"stale": len(plan.Stale) > 0, "human": len(plan.Escalate) > 0, "circle": err == nil && w.run.Graph().Cycle() != nil} {
			if is {
				seen[what]++
			}
		}
	}
	for _, kind := range []string{
		"<nil>", "*rollback.UnknownError", "*rollback.ExpiredError", "*rollback.RunningError", "*rollback.DependsError",
		"steps 0", "steps 1", "steps 2", "steps 3", "stale", "human", "circle",
	} {
		if seen[kind] < 50 {
			t.Errorf("only %d cases of %s", seen[kind], kind)
		}
	}
	t.Log(seen)
}
