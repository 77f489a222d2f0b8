package workflow

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
)

// Bounds of a report. What is beyond them is counted and not listed.
const (
	maxAnnotations = 1000 // tokens that are read for one step
	maxListed      = 16   // losses, errors and agents of a step; missing parents and findings of a workflow
)

// Report says how far a workflow is, for people and for programs.
type Report struct {
	Workflow    string        `json:"wid"`
	Status      string        `json:"status"`             // running, or how it ended
	Declared    Status        `json:"declared,omitempty"` // atd.terminal_status of its completion; empty: it has none
	Description string        `json:"description,omitempty"`
	Starter     ect.Identity  `json:"starter,omitempty"` // who began it; empty: no start is on record
	Started     time.Time     `json:"started,omitzero"`  // iat of the start, else of the oldest token
	Elapsed     time.Duration `json:"-"`
	ElapsedSecs int64         `json:"elapsed_s"`
	Expected    int           `json:"node_count,omitempty"` // atd.node_count of the start; 0: it does not say
	Tokens      int           `json:"tokens"`
	Steps       []StepReport  `json:"steps"`
	Descriptor  string        `json:"descriptor,omitempty"` // wf_id of the plan that the workflow follows (R27)
	Version     int           `json:"descriptor_version,omitempty"`
	Unplanned   []ect.ID      `json:"unplanned,omitempty"` // steps that begin no node of the descriptor; empty without one
	Missing     []ect.ID      `json:"missing,omitempty"`   // parents that are not on record
	Findings    []string      `json:"findings,omitempty"`
}

// StepReport is a step of a report.
type StepReport struct {
	ID         ect.ID        `json:"jti,omitempty"`
	Planned    string        `json:"node,omitempty"` // of the descriptor
	Act        ect.Act       `json:"exec_act,omitempty"`
	Kind       Kind          `json:"kind"`
	State      State         `json:"state"`
	Caller     ect.Identity  `json:"caller,omitempty"`    // who wants it done
	Agents     []string      `json:"agents,omitempty"`    // whom its requests are for
	Protocol   string        `json:"protocols,omitempty"` // of the first request: from → to
	Started    time.Time     `json:"started,omitzero"`
	Elapsed    time.Duration `json:"-"` // until it was done or failed, else until now
	Seconds    int64         `json:"elapsed_s"`
	Losses     []string      `json:"losses,omitempty"`
	Errors     []string      `json:"errors,omitempty"`
	After      []ect.ID      `json:"after,omitempty"`       // steps above it
	AfterNodes []string      `json:"after_nodes,omitempty"` // nodes of the descriptor that must be done before its node
}

// Report reads a workflow at an instant. It takes the tokens that the run was made of.
func (r Run) Report(tokens []Token, now time.Time) Report {
	byID := make(map[ect.ID][]Token, len(tokens))
	for _, t := range tokens {
		if t.Node.Workflow == r.graph.Workflow() {
			byID[t.Node.ID] = append(byID[t.Node.ID], t)
		}
	}
	out := Report{Workflow: r.graph.Workflow(), Status: string(Running), Tokens: len(tokens), Steps: []StepReport{}}
	out.boundaries(tokens)
	if status, ended := r.Terminal(); ended {
		out.Status = string(status)
	}
	end := now.Unix()
	if out.Declared != "" {
		out.Status, end = string(out.Declared), out.Started.Unix()+out.ElapsedSecs
	}
	if out.Started.IsZero() { // no tokens
		end = out.Started.Unix()
	}
	out.Elapsed = time.Duration(max(end-out.Started.Unix(), 0)) * time.Second
	out.ElapsedSecs = int64(out.Elapsed / time.Second)
	for _, s := range r.steps {
		out.Steps = append(out.Steps, r.stepReport(s, byID, now))
		if r.after != nil && s.Planned == "" {
			out.Unplanned = append(out.Unplanned, s.ID)
		}
	}
	out.Missing = cut(r.graph.Missing())
	for _, f := range dag.Check(r.graph) {
		if f.Rule != dag.RuleParent && len(out.Findings) < maxListed {
			out.Findings = append(out.Findings, f.String())
		}
	}
	return out
}

// boundaries reads the start and the completion. Of several the first counts.
func (out *Report) boundaries(tokens []Token) {
	oldest, end := int64(0), int64(0)
	for _, t := range tokens {
		if t.Node.Workflow != out.Workflow {
			continue
		}
		if oldest == 0 || t.Node.IssuedAt < oldest {
			oldest = t.Node.IssuedAt
		}
		switch t.Node.Act {
		case ect.ActWorkflowStart:
			if out.Starter == "" {
				out.Starter, out.Description, out.Expected = cmp.Or(t.Caller, t.Node.Issuer), t.Description, t.NodeCount
				out.Started = time.Unix(t.Node.IssuedAt, 0).UTC()
			}
		case ect.ActWorkflowComplete:
			if out.Declared == "" {
				out.Declared, end = Status(t.TerminalStatus), t.Node.IssuedAt
			}
		default:
		}
	}
	if out.Started.IsZero() && oldest > 0 {
		out.Started = time.Unix(oldest, 0).UTC()
	}
	out.ElapsedSecs = max(end-out.Started.Unix(), 0)
}

// stepReport reads what belongs to a step: the tokens that are reached from it through annotations alone.
func (r Run) stepReport(s Step, byID map[ect.ID][]Token, now time.Time) StepReport {
	out := StepReport{ID: s.ID, Planned: s.Planned, Act: s.Act, Kind: s.Kind, State: s.State, Caller: s.Issuer, AfterNodes: r.after[s.Planned]}
	if s.ID == "" {
		out.Caller = ""
		if s.Issuer != "" {
			out.Agents = []string{string(s.Issuer)}
		}
		return out
	}
	for _, t := range byID[s.ID] {
		if t.Node.Issuer != s.Issuer {
			continue
		}
		out.Started = time.Unix(t.Node.IssuedAt, 0).UTC()
		if s.Kind != KindTask {
			out.Caller = cmp.Or(t.Caller, s.Issuer)
		}
		out.add(t)
	}
	until := now.Unix()
	ended := false
	undoing := r.undoing(s.ID, byID)
	r.below(s.ID, func(id ect.ID) {
		for _, t := range byID[id] {
			if undoing[id] {
				t.Audience = nil
			}
			if len(r.stepsOf(id)) == 0 {
				out.add(t)
			}
			if s.State != Running && t.ends() && (!ended || t.Node.IssuedAt < until) {
				until, ended = t.Node.IssuedAt, true
			}
		}
	})
	slices.Sort(out.Losses) // the order of tokens of one second says nothing
	slices.Sort(out.Errors)
	out.After = cut(r.above(s.ID))
	out.Elapsed = time.Duration(max(until-out.Started.Unix(), 0)) * time.Second
	out.Seconds = int64(out.Elapsed / time.Second)
	return out
}

// ends reports whether a token below a step says that it is not running any more.
func (t Token) ends() bool {
	switch t.Node.Act {
	case ect.ActError, ect.ActTranslateError, ect.ActWorkflowComplete:
		return true
	default:
		return t.isCompletion() || isTask(t.Node.Act)
	}
}

// undoing are the tokens below a step that came of a rollback. They are for the agents of all steps that it undid.
func (r Run) undoing(id ect.ID, byID map[ect.ID][]Token) map[ect.ID]bool {
	var requests []ect.ID
	r.below(id, func(id ect.ID) {
		if slices.ContainsFunc(byID[id], func(t Token) bool { return t.Node.Act == ect.ActRollbackRequest }) {
			requests = append(requests, id)
		}
	})
	found := map[ect.ID]bool{}
	r.walk(requests, r.graph.Children, func(id ect.ID) { found[id] = true })
	return found
}

// below visits what is reached from an id through annotations alone, up to the next steps.
func (r Run) below(id ect.ID, visit func(ect.ID)) {
	r.walk([]ect.ID{id}, r.graph.Children, visit)
}

// above are the steps from which a step is reached through annotations alone.
func (r Run) above(id ect.ID) (found []ect.ID) {
	r.walk([]ect.ID{id}, r.graph.Parents, func(id ect.ID) {
		if len(r.stepsOf(id)) > 0 {
			found = append(found, id)
		}
	})
	return found
}

// walk visits what next leads to from some ids, and goes on behind annotations; at most maxAnnotations ids.
func (r Run) walk(from []ect.ID, next func(ect.ID) []ect.ID, visit func(ect.ID)) {
	seen := map[ect.ID]bool{}
	var queue []ect.ID
	for _, id := range from {
		seen[id] = true
		queue = append(queue, next(id)...)
	}
	for ; len(queue) > 0 && len(seen) < maxAnnotations; queue = queue[1:] {
		at := queue[0]
		if seen[at] {
			continue
		}
		seen[at] = true
		visit(at)
		if len(r.stepsOf(at)) == 0 {
			queue = append(queue, next(at)...)
		}
	}
}

// request adds what the request of a step says.
func (out *StepReport) request(t Token) {
	for _, who := range t.Audience {
		if ect.Identity(who) != t.Node.Issuer && !slices.Contains(out.Agents, who) && len(out.Agents) < maxListed {
			out.Agents = append(out.Agents, who)
		}
	}
	if out.Protocol == "" && t.Protocols.From != "" {
		out.Protocol = t.Protocols.From + " → " + t.Protocols.To
	}
}

// add adds what a token of a step says: whom it asks, what was lost, and the error that it reports.
func (out *StepReport) add(t Token) {
	if t.isRequest() {
		out.request(t)
	}
	for _, loss := range t.Losses {
		if !slices.Contains(out.Losses, loss) && len(out.Losses) < maxListed {
			out.Losses = append(out.Losses, loss)
		}
	}
	var text string
	switch t.Node.Act {
	case ect.ActError:
		text = fmt.Sprintf("%s, %s", cmp.Or(t.Severity, "unknown severity"), cmp.Or(t.ErrorType, string(ErrorUnknown)))
	case ect.ActTranslateError:
		text = t.Error
	default:
		return
	}
	if t.Description != "" {
		text += ": " + t.Description
	}
	if !slices.Contains(out.Errors, text) && len(out.Errors) < maxListed {
		out.Errors = append(out.Errors, text)
	}
}

// cut is a list of at most maxListed ids.
func cut(ids []ect.ID) []ect.ID { return ids[:min(len(ids), maxListed)] }
