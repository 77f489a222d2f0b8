package workflow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
)

// MaxPlanned bounds the nodes of a descriptor.
const MaxPlanned = 256

// TooLargeError refuses a workflow whose states would be those of a part of it.
type TooLargeError struct {
	What  string // "tokens" or "planned nodes"
	Limit int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("workflow: more than %d %s: its states are not known, split the work into several workflows", e.Limit, e.What)
}

// Run is one run of a workflow: its graph, its steps, and their states as of the tokens that it was
// made of. It is immutable and safe for concurrent use.
type Run struct {
	graph dag.Graph
	steps []Step
	at    map[ect.ID]int      // the first step with an id; further ones follow it
	after map[string][]string // by node of the descriptor: the nodes before it; nil: there is no descriptor

	planned []Planned
}

// New reads a workflow from its tokens, in any order, and from the nodes of its descriptor, if there
// is one. Tokens of other workflows are left out. Of tokens with one id and one issuer the first counts.
// Its error is a *TooLargeError: more than dag.MaxNodes tokens, or MaxPlanned nodes.
func New(workflow string, tokens []Token, planned []Planned) (Run, error) {
	if len(planned) > MaxPlanned {
		return Run{}, &TooLargeError{"planned nodes", MaxPlanned}
	}
	nodes := make([]dag.Node, len(tokens))
	for i, t := range tokens {
		nodes[i] = t.Node
	}
	run := Run{graph: dag.Build(workflow, nodes), at: make(map[ect.ID]int, len(tokens))}
	if run.graph.Incomplete() {
		return Run{}, &TooLargeError{"tokens", dag.MaxNodes}
	}
	run.steps = read(run.graph, tokens).steps()
	run.planned = slices.Clone(planned)
	open, begun := slices.Clone(planned), map[string]bool{}
	if len(planned) > 0 {
		run.after = make(map[string][]string, len(planned))
	}
	for _, p := range planned {
		run.after[p.ID] = p.After
	}
	for i := range run.steps {
		s := &run.steps[i]
		if i == 0 || run.steps[i-1].ID != s.ID {
			run.at[s.ID] = i
		}
		if at := match(open, *s, begun); at >= 0 {
			s.Planned = open[at].ID
			begun[s.Planned] = true
			open = slices.Delete(open, at, at+1)
		}
	}
	for _, p := range open {
		agent := ect.Identity("")
		if len(p.Agents) > 0 {
			agent = ect.Identity(p.Agents[0])
		}
		run.steps = append(run.steps, Step{Issuer: agent, Act: p.Act, Kind: KindPlanned, State: Pending, Planned: p.ID, Last: true})
	}
	return run, nil
}

// Graph is the graph of the run's tokens.
func (r Run) Graph() dag.Graph { return r.graph }

// Steps returns the steps in topological order, and after them the nodes of the descriptor that have
// not begun.
func (r Run) Steps() []Step { return slices.Clone(r.steps) }

// Does reports whether a step begins one of some nodes of the descriptor, or no node and is like one of these: a member that begins a
// node before with work of its own does not have the node stand for that alone.
func (r Run) Does(s Step, some func(node string) bool) bool {
	if s.Planned != "" {
		return some(s.Planned)
	}
	return slices.ContainsFunc(r.planned, func(p Planned) bool { return some(p.ID) && p.begins(s) })
}

// StepsOf returns the steps whose tokens have an id: none, one, or as many as issuers used it.
func (r Run) StepsOf(id ect.ID) []Step { return slices.Clone(r.stepsOf(id)) }

func (r Run) stepsOf(id ect.ID) []Step {
	from, known := r.at[id]
	if !known {
		return nil
	}
	to := from + 1
	for to < len(r.steps) && r.steps[to].ID == id {
		to++
	}
	return r.steps[from:to]
}

// Status is how a workflow ended (ATD, Workflow Boundary ECTs).
type Status string

// The five statuses.
const (
	StatusSuccess    Status = "success"
	StatusPartial    Status = "partial"
	StatusFailed     Status = "failed"
	StatusRolledBack Status = "rolled_back"
	StatusEscalated  Status = "escalated"
)

// Valid reports whether a status is one of the five.
func (s Status) Valid() bool {
	return slices.Contains([]Status{StatusSuccess, StatusPartial, StatusFailed, StatusRolledBack, StatusEscalated}, s)
}

// Terminal says how a workflow ended; false: it goes on. It has ended when no step runs and none is
// pending, or when one failed that cannot be rolled back. A pending step is not waited for once another one
// failed, was rolled back, or was escalated. A workflow without steps has not ended. The package
// documentation has the table of statuses.
func (r Run) Terminal() (Status, bool) {
	count, last := map[State]int{}, map[State]int{}
	irreparable := false // a step failed that cannot be rolled back
	for _, s := range r.steps {
		count[s.State]++
		if s.Last {
			last[s.State]++
		}
		irreparable = irreparable || s.State == Failed && !s.Reversible
	}
	broken := count[Failed]+count[RolledBack]+count[Escalated] > 0
	if len(r.steps) == 0 || !irreparable && (count[Running] > 0 || count[Pending] > 0 && !broken) {
		return "", false
	}
	return statusOf(count, last), true
}

// statusOf is the status of a workflow that has ended, from the number of its steps and of its last
// steps in each state.
func statusOf(count, last map[State]int) Status {
	switch ends := last[Done]; {
	case count[Escalated] > 0:
		return StatusEscalated
	case ends == sum(last) && (ends > 0 || count[Done] == sum(count)): // on a cycle no step is a last one
		return StatusSuccess
	case ends > 0:
		return StatusPartial
	case last[Failed] == 0 && count[RolledBack] > 0:
		return StatusRolledBack
	default:
		return StatusFailed
	}
}

func sum(counts map[State]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// maxShown bounds how many parents a text names.
const maxShown = 5

// Blocking is a parent that is not done.
type Blocking struct {
	ID    ect.ID
	State State // Unknown: no token of the workflow has the id
}

// NotReadyError says that a task cannot start (ATD, Topological Order).
type NotReadyError struct{ Parents []Blocking }

func (e *NotReadyError) Error() string {
	var list []string
	for i, p := range e.Parents {
		if i == maxShown {
			list = append(list, fmt.Sprintf("%d more", len(e.Parents)-maxShown))
			break
		}
		list = append(list, string(p.ID)+" is "+string(p.State))
	}
	return "a task starts when its parents are done: " + strings.Join(list, ", ")
}

// Ready reports whether a task of an issuer may start: each of its parents is done, or holds nothing back.
// These hold nothing back: a token that annotates; work that the issuer did by itself, since no request
// belongs to it; and running work that was given to the issuer, which is named in its audience. Its error is
// a *NotReadyError.
func (r Run) Ready(parents []ect.ID, issuer ect.Identity) error {
	var blocking []Blocking
	for i, id := range parents {
		state := r.blocks(id, issuer)
		if state != Done && !slices.Contains(parents[:i], id) {
			blocking = append(blocking, Blocking{id, state})
		}
	}
	if blocking == nil {
		return nil
	}
	return &NotReadyError{blocking}
}

// blocks is the state with which a parent holds a task back; Done: it does not.
func (r Run) blocks(id ect.ID, issuer ect.Identity) State {
	if len(r.graph.Find(id)) == 0 {
		return Unknown
	}
	steps := r.stepsOf(id)
	if own := slices.IndexFunc(steps, func(s Step) bool { return s.Issuer == issuer }); own >= 0 {
		steps = steps[own : own+1] // others that use the id are not meant
	}
	for _, s := range steps {
		local := s.Kind == KindTask && s.Issuer == issuer && !s.Sent
		if s.State == Done || s.State == Running && (local || slices.Contains(s.audience, string(issuer))) {
			continue
		}
		return s.State
	}
	return Done
}
