package descriptor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

// maxShown bounds a text of the descriptor in an error, in bytes.
const maxShown = 256

// InvalidError says what is wrong with a descriptor, and where.
type InvalidError struct {
	Where  string // such as: node "n1"; empty: the whole of it
	Reason string // what is wrong, what is expected, and what to do
}

func (e *InvalidError) Error() string {
	if e.Where == "" {
		return "workflow descriptor: " + e.Reason
	}
	return "workflow descriptor, " + e.Where + ": " + e.Reason
}

// text is a descriptor as it is written.
type text struct {
	Name        string `json:"wf_id"`
	Description string `json:"description"`
	Nodes       []Node `json:"nodes"`
	Edges       []edge `json:"edges"`
}

type edge struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Parse reads a descriptor (ATD, Optional Declarative Workflow Format). Its error is an *[InvalidError].
func Parse(raw []byte) (Descriptor, error) {
	if len(raw) > MaxText {
		return Descriptor{}, &InvalidError{Reason: fmt.Sprintf("it is too long: expected at most %d bytes", MaxText)}
	}
	var in text
	lists := json.JoinUnmarshalers(bounded[Node](workflow.MaxPlanned, "nodes"), bounded[edge](MaxEdges, "edges"))
	if err := json.Unmarshal(raw, &in, json.RejectUnknownMembers(true), json.WithUnmarshalers(lists)); err != nil {
		return Descriptor{}, unreadable(err)
	}
	if err := in.check(); err != nil {
		return Descriptor{}, err
	}
	return in.build()
}

// bounded reads a list up to so many entries: of a hostile text no more is read.
func bounded[T any](limit int, what string) *json.Unmarshalers {
	return json.UnmarshalFromFunc(func(in *jsontext.Decoder, list *[]T) error {
		if in.PeekKind() != '[' {
			return &InvalidError{Reason: what + " is not a list: expected a list of objects"}
		}
		if _, err := in.ReadToken(); err != nil {
			return err
		}
		for in.PeekKind() != ']' {
			if len(*list) == limit {
				return &InvalidError{Reason: fmt.Sprintf("it has more than %d %s: split the work into several workflows", limit, what)}
			}
			var one T
			if err := json.UnmarshalDecode(in, &one); err != nil {
				return err
			}
			*list = append(*list, one)
		}
		_, err := in.ReadToken()
		return err
	})
}

// unreadable says why a text is not the JSON of a descriptor.
func unreadable(err error) error {
	if own, ok := errors.AsType[*InvalidError](err); ok {
		return own
	}
	out := &InvalidError{}
	var pointer jsontext.Pointer
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		pointer = syntactic.JSONPointer
	} else if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		pointer = semantic.JSONPointer
	}
	if pointer != "" {
		out.Where = shown(string(pointer))
	}
	switch {
	case errors.Is(err, json.ErrUnknownName):
		out.Reason = "an unknown member: correct its name, or remove it"
	case errors.Is(err, jsontext.ErrDuplicateName):
		out.Reason = "a member that is given twice: remove one of them"
	case out.Where == "":
		out.Reason = "it is not a JSON object with wf_id, description, nodes and edges"
	default:
		out.Reason = "a value that is not JSON, or of another type than expected: see the section Plan of docs/workflows.md"
	}
	return out
}

// check judges what can be judged without the edges, and fills in what is not given.
func (in *text) check() error {
	switch {
	case !valid(in.Name, MaxName) || strings.Contains(in.Name, "/") || in.Name == "." || in.Name == "..":
		return &InvalidError{Reason: fmt.Sprintf("wf_id is the name of the workflow: expected 1 to %d bytes that can be printed, without /", MaxName)}
	case in.Description != "" && !valid(in.Description, MaxDescription):
		return &InvalidError{Reason: fmt.Sprintf("description: expected at most %d bytes that can be printed", MaxDescription)}
	case len(in.Nodes) == 0:
		return &InvalidError{Reason: fmt.Sprintf("it has no nodes: expected 1 to %d", workflow.MaxPlanned)}
	}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if !valid(n.ID, MaxName) {
			return &InvalidError{fmt.Sprintf("node %d of the list", i+1), fmt.Sprintf("id: expected 1 to %d bytes that can be printed", MaxName)}
		}
		if reason := n.complete(); reason != "" {
			return &InvalidError{"node " + shown(n.ID), reason}
		}
	}
	return nil
}

// complete fills in what a node does not say, and returns what is wrong with it.
func (n *Node) complete() (wrong string) {
	n.Act = cmp.Or(n.Act, ect.Act(n.Label))
	n.Severity = cmp.Or(n.Severity, workflow.SeverityError)
	const printed = "expected 1 to 128 bytes that can be printed"
	switch {
	case !valid(n.Label, MaxName):
		return "label: " + printed
	case !valid(string(n.Act), MaxName):
		return "act: " + printed
	case n.Act.Namespaced():
		return "act " + shown(string(n.Act)) + " annotates work and begins none: expected the exec_act of a task, or the name of a tool or skill"
	case n.Agent != "" && !valid(n.Agent, MaxName):
		return "agent: expected a name of the directory or a SPIFFE id, " + printed
	case !slices.Contains([]Priority{"", PriorityCritical, PriorityHigh, PriorityNormal, PriorityLow}, n.Hints.Priority):
		return "priority " + shown(string(n.Hints.Priority)) + ": expected critical, high, normal or low"
	case n.Hints.Timeout < 0 || n.Hints.Timeout > MaxTimeout:
		return fmt.Sprintf("timeout_s: expected 0 to %d seconds", MaxTimeout)
	}
	return n.gate()
}

// gate fills in the role of who approves, and returns what is wrong with it.
func (n *Node) gate() (wrong string) {
	if !n.Gated && n.Role != "" {
		return "it has a required_role and no gate: add hitl_required: true, or remove required_role"
	}
	if !n.Gated {
		return ""
	}
	n.Role = cmp.Or(n.Role, "approver")
	name, byName := strings.CutPrefix(n.Role, "operator:")
	if n.Role == "approver" || n.Role == "operator" || byName && valid(name, MaxName) {
		return ""
	}
	return "required_role " + shown(n.Role) + ": expected approver, operator, or operator:NAME"
}

// build connects the nodes, and puts them in waves.
func (in *text) build() (Descriptor, error) {
	number, vertices := make(map[string]int, len(in.Nodes)), make([]dag.Node, len(in.Nodes))
	for i, n := range in.Nodes {
		if _, twice := number[n.ID]; twice {
			return Descriptor{}, &InvalidError{"node " + shown(n.ID), "two nodes have this id: give one of them another"}
		}
		number[n.ID] = i
		vertices[i] = dag.Node{ID: ect.ID(n.ID), IssuedAt: int64(i)}
	}
	for _, e := range in.Edges {
		from, known := number[e.From]
		to, knownTo := number[e.To]
		where := "edge from " + shown(e.From) + " to " + shown(e.To)
		switch {
		case !known || !knownTo:
			return Descriptor{}, &InvalidError{where, "one of them is not the id of a node: correct it, or add the node"}
		case from == to:
			return Descriptor{}, &InvalidError{where, "a node cannot wait for itself: remove the edge"}
		case slices.Contains(vertices[to].Parents, ect.ID(e.From)):
			return Descriptor{}, &InvalidError{where, "it is given twice: remove one of them"}
		}
		vertices[to].Parents = append(vertices[to].Parents, ect.ID(e.From))
	}
	graph := dag.Build("", vertices)
	if cycle := graph.Cycle(); cycle != nil {
		return Descriptor{}, &InvalidError{Reason: "its edges have a cycle (ATD, Topological Order), expected none: " + dag.CycleText(cycle)}
	}
	d := Descriptor{name: in.Name, description: in.Description, at: make(map[string]int, len(in.Nodes))}
	wave := make([]int, len(in.Nodes))
	for _, id := range graph.Order() {
		at := number[string(id)]
		for _, parent := range graph.Parents(id) {
			wave[at] = max(wave[at], wave[number[string(parent)]]+1)
			in.Nodes[at].After = append(in.Nodes[at].After, string(parent))
		}
		slices.SortFunc(in.Nodes[at].After, func(a, b string) int { return number[a] - number[b] })
	}
	d.waves = make([][]Node, slices.Max(wave)+1)
	for i, n := range in.Nodes {
		d.waves[wave[i]] = append(d.waves[wave[i]], n)
	}
	d.order = slices.Concat(d.waves...)
	for i, n := range d.order {
		d.at[n.ID] = i
	}
	return d, nil
}

// valid reports whether a text has 1 to limit bytes, all of which can be printed.
func valid(text string, limit int) bool {
	return text != "" && len(text) <= limit && utf8.ValidString(text) && !strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) })
}

// shown is a text in quotation marks, without characters that cannot be printed.
func shown(text string) string { return strconv.QuoteToGraphic(text[:min(len(text), maxShown)]) }
