package workflow

import (
	"cmp"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
)

// restored is the status of a rollback result whose checkpoint was restored as a whole (ATD,
// Basic Rollback).
const restored = "completed"

// facts are what the tokens that belong to a step say about it. They only ever grow.
type facts struct {
	closed, sent, failed, escalated, rolledBack, reversible, step bool

	task, tasksDiffer bool         // there is a task node; there are some of different issuers
	issuer            ect.Identity // of the task nodes, unless they differ
}

// with adds facts.
func (f facts) with(o facts) facts {
	switch {
	case !f.task:
		f.task, f.issuer, f.tasksDiffer = o.task, o.issuer, o.tasksDiffer
	case o.task && (o.tasksDiffer || o.issuer != f.issuer):
		f.tasksDiffer, f.issuer = true, ""
	}
	f.closed = f.closed || o.closed
	f.sent = f.sent || o.sent
	f.failed = f.failed || o.failed
	f.escalated = f.escalated || o.escalated
	f.rolledBack = f.rolledBack || o.rolledBack
	f.reversible = f.reversible || o.reversible
	f.step = f.step || o.step
	return f
}

// others are what a token adds to the work of others: not that it failed, is over, or can be or was undone.
func (f facts) others() facts {
	f.closed, f.failed, f.escalated, f.rolledBack, f.reversible = false, false, false, false, false
	return f
}

// taskOfAnother reports whether there is a task node that an issuer did not sign.
func (f facts) taskOfAnother(issuer ect.Identity) bool {
	return f.tasksDiffer || f.task && f.issuer != issuer
}

// place is an id of the graph, with the tokens that have it.
type place struct {
	entries  []entry
	children []int

	task, intent, request, signal, start bool // one of the tokens is such a token

	direct    facts // of the task nodes that name the id as parent
	completed bool  // it is a start that was completed, or below one
}

// entry is a token at its place.
type entry struct {
	token   *Token
	parents []int // places
	kind    Kind  // empty: it annotates
	own     facts // that it adds to a step above
	below   facts // that belong to it, if it is a step
}

// reading is what is found out about a graph. Its places are in topological order.
type reading struct {
	at         map[ect.ID]int
	places     []place
	restored   map[ect.ID]bool // checkpoints
	completion int64           // when a start was completed last: iat; 0: none was
}

// read finds out what belongs to what.
func read(g dag.Graph, tokens []Token) *reading {
	order := g.Order()
	r := &reading{at: make(map[ect.ID]int, len(order)), places: make([]place, len(order)), restored: map[ect.ID]bool{}}
	for i, id := range order {
		r.at[id] = i
	}
	r.distribute(g.Workflow(), tokens)
	r.restore()
	for i := range r.places {
		r.weigh(i)
	}
	r.gather()
	r.complete()
	return r
}

// distribute puts each token at its place.
func (r *reading) distribute(workflow string, tokens []Token) {
	for i := range tokens {
		if t := &tokens[i]; t.Node.Workflow == workflow {
			p := &r.places[r.at[t.Node.ID]]
			p.entries = append(p.entries, entry{token: t})
		}
	}
	for i := range r.places {
		p := &r.places[i]
		if len(p.entries) > 1 {
			p.entries = distinct(p.entries)
		}
		for j := range p.entries {
			r.place(i, &p.entries[j])
		}
	}
}

// distinct leaves the first token of each issuer, in the order of their times.
func distinct(entries []entry) []entry {
	seen := make(map[ect.Identity]bool, len(entries))
	entries = slices.DeleteFunc(entries, func(e entry) bool {
		again := seen[e.token.Node.Issuer]
		seen[e.token.Node.Issuer] = true
		return again
	})
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.token.Node.IssuedAt, b.token.Node.IssuedAt), cmp.Compare(a.token.Node.Issuer, b.token.Node.Issuer))
	})
	return entries
}

// place notes at the place of a token what it is, and finds its parents.
func (r *reading) place(at int, e *entry) {
	for _, id := range e.token.Node.Parents {
		if parent, known := r.at[id]; known {
			e.parents = append(e.parents, parent)
			r.places[parent].children = append(r.places[parent].children, at)
		}
	}
	p := &r.places[at]
	p.task = p.task || isTask(e.token.Node.Act)
	p.intent = p.intent || e.token.Node.Act == ect.ActIntent
	p.request = p.request || e.token.isRequest()
	p.signal = p.signal || isSignal(e.token.Node.Act)
	p.start = p.start || e.token.Node.Act == ect.ActWorkflowStart
}

// restore finds the checkpoints that were rolled back.
func (r *reading) restore() {
	for i := range r.places {
		for _, e := range r.places[i].entries {
			if e.token.Node.Act == ect.ActRollbackResult && e.token.Status == restored && r.concerns(e) {
				r.restored[e.token.Checkpoint] = true
			}
		}
	}
}

// concerns reports whether a token is the business of an issuer: it signed the token, or is in its audience.
// Another member of the workflow cannot say that a step failed or is over.
func (t *Token) concerns(issuer ect.Identity) bool {
	return t.Node.Issuer == issuer || slices.Contains(t.Audience, string(issuer))
}

// concerns reports whether a parent of a token is its issuer's business.
func (r *reading) concerns(e entry) bool {
	return slices.ContainsFunc(e.parents, func(parent int) bool {
		return slices.ContainsFunc(r.places[parent].entries, func(p entry) bool { return p.token.concerns(e.token.Node.Issuer) })
	})
}

// kindOf says which kind of step a token is; empty: it annotates.
func (r *reading) kindOf(e entry) Kind {
	below := func(is func(p *place) bool) bool {
		return slices.ContainsFunc(e.parents, func(parent int) bool { return is(&r.places[parent]) })
	}
	switch {
	case isTask(e.token.Node.Act):
		return KindTask
	case e.token.Node.Act == ect.ActIntent && !below(func(p *place) bool { return p.task }):
		return KindIntent
	case e.token.isRequest() && !below(func(p *place) bool { return p.task || p.intent || p.request || p.signal }):
		return KindRequest
	default:
		return ""
	}
}

// weigh finds out what the tokens of a place are, and what they say about steps above.
func (r *reading) weigh(at int) {
	for i := range r.places[at].entries {
		e := &r.places[at].entries[i]
		e.kind = r.kindOf(*e)
		switch e.kind {
		case "":
			e.own = r.factsOf(e.token)
		case KindTask:
			e.own = facts{step: true, task: true, issuer: e.token.Node.Issuer}
			for _, parent := range e.parents {
				if above := &r.places[parent]; parent != at {
					above.direct = above.direct.with(e.own)
				}
			}
		default:
			e.own = facts{step: true}
		}
	}
}

// factsOf are the facts that a token states which annotates.
func (r *reading) factsOf(t *Token) facts {
	act := t.Node.Act
	return facts{
		closed:     t.isCompletion() || act == ect.ActWorkflowComplete,
		sent:       t.isRequest() || act == ect.ActIntent,
		failed:     act == ect.ActError && !t.mild() || act == ect.ActTranslateError,
		escalated:  act == ect.ActEscalate,
		rolledBack: act == ect.ActCheckpoint && r.restored[t.Node.ID],
		reversible: act == ect.ActCheckpoint && t.Reversible && !r.restored[t.Node.ID],
	}
}

// adds are the facts that a token adds to what is above it.
func (e *entry) adds() facts {
	below := e.below
	switch {
	case e.kind != "":
		return e.own
	case isSignal(e.token.Node.Act): // that a rollback or a decision was answered does not complete the work that it is about
		below.closed, below.sent = false, false
	}
	return e.own.with(below)
}

// maxNamesakes is how many tokens with one id have states from what is below them, the oldest ones. Ids are random:
// more are an attempt to have each state cost much.
const maxNamesakes = 4

// gain adds to the tokens of a place what an issuer says below it, and reports whether that was new.
func (p *place) gain(adds facts, issuer ect.Identity) (changed bool) {
	for i := range p.entries[:min(len(p.entries), maxNamesakes)] {
		above, says := &p.entries[i], adds
		if !above.token.concerns(issuer) {
			says = says.others()
		}
		if more := above.below.with(says); more != above.below {
			above.below, changed = more, true
		}
	}
	return changed
}

// gather collects the facts below each place, from the leaves up. A place is visited again only when
// there are more facts below it, so that cycles end.
func (r *reading) gather() {
	queue, queued := make([]int, 0, len(r.places)), make([]bool, len(r.places))
	add := func(at int) {
		if !queued[at] {
			queue, queued[at] = append(queue, at), true
		}
	}
	for i := range r.places {
		add(len(r.places) - 1 - i)
	}
	for next := 0; next < len(queue); next++ {
		p := &r.places[queue[next]]
		queued[queue[next]] = false
		for i := range p.entries {
			e := &p.entries[i]
			adds := e.adds()
			for _, parent := range e.parents {
				if r.places[parent].gain(adds, e.token.Node.Issuer) {
					add(parent)
				}
			}
		}
	}
}

// complete marks what is below a start that was completed.
func (r *reading) complete() {
	var queue []int
	for _, p := range r.places {
		for _, e := range p.entries {
			if e.token.Node.Act != ect.ActWorkflowComplete {
				continue
			}
			for _, start := range e.parents {
				if r.places[start].start && r.concerns(e) {
					queue = append(queue, start)
					r.completion = max(r.completion, e.token.Node.IssuedAt)
				}
			}
		}
	}
	for next := 0; next < len(queue); next++ {
		if p := &r.places[queue[next]]; !p.completed {
			p.completed = true
			queue = append(queue, p.children...)
		}
	}
}

// steps are the steps of the workflow, parents before children.
func (r *reading) steps() []Step {
	steps := make([]Step, 0, len(r.places))
	for i := range r.places {
		p := &r.places[i]
		for _, e := range p.entries {
			if e.kind != "" {
				steps = append(steps, Step{
					ID: e.token.Node.ID, Issuer: e.token.Node.Issuer, Act: e.token.Node.Act, Kind: e.kind, State: r.stateOf(p, e),
					Sent: e.below.sent, Reversible: e.below.reversible, Last: !e.below.step, audience: e.token.Audience,
					given: r.given(i, e), work: e.token.Work,
				})
			}
		}
	}
	return steps
}

// maxGiven bounds the names of agents to whom the work of a task was given.
const maxGiven = 16

// given are the audiences of the requests for a task, which the addressee of the task signs.
func (r *reading) given(at int, task entry) (names []string) {
	if task.kind != KindTask {
		return nil
	}
	for _, child := range r.places[at].children {
		for _, e := range r.places[child].entries[:min(len(r.places[child].entries), maxNamesakes)] {
			if !e.token.isRequest() || !slices.Contains(e.parents, at) || !slices.Contains(task.token.Audience, string(e.token.Node.Issuer)) {
				continue
			}
			if names = append(names, e.token.Audience...); len(names) > maxGiven {
				return names[:maxGiven]
			}
		}
	}
	return names
}

// stateOf is the state of a step (R26). Several may apply; the first counts.
func (r *reading) stateOf(p *place, e entry) State {
	switch f := e.below; {
	case f.rolledBack:
		return RolledBack
	case f.escalated:
		return Escalated
	case f.failed:
		return Failed
	case f.closed, f.taskOfAnother(e.token.Node.Issuer),
		p.completed && e.token.Node.IssuedAt <= r.completion,
		e.kind == KindTask && p.direct.task && !f.sent:
		return Done
	default:
		return Running
	}
}
