package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
)

// Bounds of a policy document.
const (
	MaxDocument = 64 << 10 // bytes
	maxNodes    = 256
	maxEdges    = 1024
	maxNodeID   = 128 // bytes
	maxListed   = 256 // entries of one list
	maxHopLimit = 1 << 20
)

// DocumentError says what is wrong with a policy document. It quotes names of
// members, and the ids of nodes on a cycle.
type DocumentError struct{ Reason string }

func (e *DocumentError) Error() string { return "policy document: " + e.Reason }

// Document is the part of an ACP-DAG-HITL policy that concerns translation:
// constraints that hold everywhere (AEPB, Translation Policy) and those of the
// nodes of its DAG (CPAT, Policy Integration). The zero value restricts nothing.
type Document struct {
	all   []rule
	nodes []node
}

// rule is one constraint, as a set of constraints in which only it is set.
type rule func(*Constraints)

type node struct {
	agent ect.Identity // empty: any agent that fulfils the node
	rules []rule
}

// Empty reports whether the document restricts nothing at all.
func (d Document) Empty() bool { return len(d.all) == 0 && len(d.nodes) == 0 }

// Narrow is base with everything that the document demands of us. It never
// allows what base forbids; where several nodes are ours, all of them hold.
func (d Document) Narrow(base Constraints, self ect.Identity) Constraints {
	for _, r := range d.all {
		r(&base)
	}
	for _, n := range d.nodes {
		if n.agent != "" && n.agent != self {
			continue
		}
		for _, r := range n.rules {
			r(&base)
		}
	}
	return base
}

// ParseDocument reads a policy document. A value that cannot be understood, a
// member that stands twice and a constraint in our name space that no draft
// knows are errors, since to ignore them would be to allow what the author
// forbade. Constraints of other name spaces are their modules' business. Its
// error is a *[DocumentError].
func ParseDocument(data []byte) (Document, error) {
	if len(data) > MaxDocument {
		return Document{}, &DocumentError{Reason: fmt.Sprintf("longer than %d bytes", MaxDocument)}
	}
	top, err := members(data, "the document")
	if err != nil {
		return Document{}, err
	}
	var d Document
	if raw, ok := find(top, "constraints"); ok {
		if d.all, err = constraints(raw, false); err != nil {
			return Document{}, err
		}
	}
	raw, ok := find(top, "dag")
	if !ok {
		return d, nil
	}
	delegation, err := members(raw, "dag")
	if err != nil {
		return Document{}, err
	}
	list, _ := find(delegation, "nodes")
	var ids []string
	if d.nodes, ids, err = nodes(list); err != nil {
		return Document{}, err
	}
	if raw, ok := find(delegation, "edges"); ok {
		err = edges(raw, ids)
	}
	return d, err
}

// nodes reads dag.nodes: those with constraints, and the ids of all that have one.
func nodes(raw json.RawMessage) (out []node, ids []string, err error) {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil || len(list) == 0 || len(list) > maxNodes {
		return nil, nil, &DocumentError{Reason: fmt.Sprintf("dag.nodes is an array of 1 to %d nodes", maxNodes)}
	}
	for _, raw := range list {
		fields, err := members(raw, "a node")
		if err != nil {
			return nil, nil, err
		}
		if raw, named := find(fields, "id"); named {
			id, ok := unquote(raw)
			if !ok || !isNodeID(id) || slices.Contains(ids, id) {
				return nil, nil, &DocumentError{Reason: fmt.Sprintf("a node has an id that is no string of 1 to %d printable bytes, or that another node has", maxNodeID)}
			}
			ids = append(ids, id)
		}
		kind, typed := text(fields, "type")
		agent, named := text(fields, "agent")
		if !typed || !named {
			return nil, nil, &DocumentError{Reason: "a node has a type or an agent that is no string"}
		}
		raw, ok := find(fields, "constraints")
		if !ok {
			continue
		}
		rules, err := constraints(raw, kind == string(ect.ActCPATTranslate))
		if err != nil {
			return nil, nil, err
		}
		if len(rules) > 0 {
			out = append(out, node{agent: ect.Identity(agent), rules: rules})
		}
	}
	return out, ids, nil
}

func isNodeID(id string) bool {
	return id != "" && len(id) <= maxNodeID && !strings.ContainsFunc(id, func(c rune) bool { return !unicode.IsPrint(c) })
}

// edges reads dag.edges, each an object with from and to, and refuses a graph with a cycle (ATD,
// Topological Order).
func edges(raw json.RawMessage, ids []string) error {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil || list == nil || len(list) > maxEdges {
		return &DocumentError{Reason: fmt.Sprintf("dag.edges is an array of at most %d edges", maxEdges)}
	}
	parents := map[string][]ect.ID{}
	for _, raw := range list {
		fields, err := members(raw, "an edge")
		if err != nil {
			return err
		}
		from, _ := text(fields, "from")
		to, _ := text(fields, "to")
		if !slices.Contains(ids, from) || !slices.Contains(ids, to) {
			return &DocumentError{Reason: "an edge has a from or a to that is the id of no node"}
		}
		parents[to] = append(parents[to], ect.ID(from))
	}
	vertices := make([]dag.Node, len(ids))
	for i, id := range ids {
		vertices[i] = dag.Node{ID: ect.ID(id), Parents: parents[id]}
	}
	if cycle := dag.Build("", vertices).Cycle(); cycle != nil {
		return &DocumentError{Reason: "dag.edges has a cycle, expected none: " + dag.CycleText(cycle)}
	}
	return nil
}

// constraints reads a constraints object. CPAT's names have no prefix and mean
// something in a cpat:translate node only; beside AEPB's names both hold, which
// is the stricter of the two.
func constraints(raw json.RawMessage, bare bool) ([]rule, error) {
	fields, err := members(raw, "constraints")
	if err != nil {
		return nil, err
	}
	var out []rule
	for _, f := range fields {
		name := Constraint(f.name)
		if bare && slices.Contains([]string{"allowed_source_protocols", "allowed_dest_protocols", "max_translation_hops"}, f.name) {
			name = Constraint("aepb." + f.name)
		}
		r, known, ok := ruleOf(name, f.value)
		switch {
		case known && ok:
			out = append(out, r)
		case known:
			return nil, &DocumentError{Reason: f.name + " has a value that the draft does not define"}
		case strings.HasPrefix(f.name, "aepb.") || strings.HasPrefix(f.name, "cpat."):
			return nil, &DocumentError{Reason: "a constraint of aepb. or cpat. that no draft defines: correct its name"}
		}
	}
	return out, nil
}

// ruleOf reads one constraint. known is false for a name that is none of ours,
// ok for a value that makes no sense.
func ruleOf(name Constraint, value json.RawMessage) (r rule, known, ok bool) {
	switch name {
	case ConstraintHops:
		hops, ok := integer(value)
		return func(c *Constraints) { *c = c.atMost(hops) }, true, ok
	case ConstraintSourceProtocols:
		list, ok := texts(value)
		return func(c *Constraints) {
			c.RestrictSource, c.AllowedSource = true, common(c.RestrictSource, c.AllowedSource, list)
		}, true, ok
	case ConstraintDestProtocols:
		list, ok := texts(value)
		return func(c *Constraints) {
			c.RestrictDest, c.AllowedDest = true, common(c.RestrictDest, c.AllowedDest, list)
		}, true, ok
	case ConstraintSecurity:
		word, isText := unquote(value)
		least, ok := ParseSecurity(word)
		return func(c *Constraints) { c.MinSecurity = max(c.MinSecurity, least) }, true, isText && ok
	case constraintCircuitThreshold:
		threshold, ok := ParseThreshold(string(value))
		return func(c *Constraints) { c.Circuit.Threshold = stricter(c.Circuit.Threshold, threshold) }, true, ok
	case constraintCircuitWindow:
		window, ok := parseCircuitWindow(value)
		return func(c *Constraints) { c.Circuit.Window = stricter(c.Circuit.Window, window) }, true, ok
	case constraintCascade:
		decided := map[string]Cascade{"true": CascadeAlways, "false": CascadeNever}[string(value)]
		return func(c *Constraints) {
			if c.Cascade != CascadeNever {
				c.Cascade = decided
			}
		}, true, decided != ""
	case constraintCheckpoint:
		word, isText := unquote(value)
		return func(c *Constraints) { c.Checkpoint = true }, true, isText && word == "required"
	default:
		return nil, false, false
	}
}

// narrowed is a request's constraints with those that its source ECTs carry
// under AEPB's names: the sender of a message may ask for less than the
// operator allows, never for more.
func narrowed(r Request) (Constraints, error) {
	c := r.Constraints
	for _, v := range r.Evidence {
		ext := v.Claims().Ext
		for _, name := range [...]Constraint{ConstraintHops, ConstraintSourceProtocols, ConstraintDestProtocols, ConstraintSecurity} {
			value, there := ext[string(name)]
			if !there {
				continue
			}
			apply, _, ok := ruleOf(name, value)
			if !ok {
				return c, &Denied{Constraint: name}
			}
			apply(&c)
		}
	}
	return c, nil
}

// common is what both lists allow; the first counts only if it restricts.
func common(restricts bool, list, by []string) []string {
	if !restricts {
		return by
	}
	return slices.DeleteFunc(slices.Clone(list), func(id string) bool { return !slices.Contains(by, id) })
}

type member struct {
	name  string
	value json.RawMessage
}

// members reads an object in which no name stands twice.
func members(data []byte, what string) ([]member, error) {
	fail := func(reason string) error { return &DocumentError{Reason: what + " " + reason} }
	in := json.NewDecoder(bytes.NewReader(data))
	if open, err := in.Token(); err != nil || open != json.Delim('{') {
		return nil, fail("is no JSON object")
	}
	var out []member
	seen := map[string]bool{}
	for in.More() {
		token, err := in.Token()
		name, isText := token.(string)
		if err != nil || !isText {
			return nil, fail("is no JSON object")
		}
		var value json.RawMessage
		if err := in.Decode(&value); err != nil {
			return nil, fail("is no JSON object")
		}
		if seen[name] {
			return nil, fail("names one member twice")
		}
		seen[name] = true
		out = append(out, member{name, value})
	}
	if _, err := in.Token(); err != nil || len(bytes.TrimSpace(data[in.InputOffset():])) > 0 {
		return nil, fail("is no JSON object")
	}
	return out, nil
}

func find(list []member, name string) (json.RawMessage, bool) {
	i := slices.IndexFunc(list, func(m member) bool { return m.name == name })
	if i < 0 {
		return nil, false
	}
	return list[i].value, true
}

// text reads a string member; one that is missing is empty.
func text(list []member, name string) (value string, ok bool) {
	raw, there := find(list, name)
	if !there {
		return "", true
	}
	return unquote(raw)
}

func unquote(raw json.RawMessage) (string, bool) {
	var value *string
	err := json.Unmarshal(raw, &value)
	if err != nil || value == nil {
		return "", false
	}
	return *value, true
}

// integer reads a whole number that can be a number of hops.
func integer(raw json.RawMessage) (int, bool) {
	var value *int
	err := json.Unmarshal(raw, &value)
	if err != nil || value == nil || *value < 0 || *value > maxHopLimit {
		return 0, false
	}
	return *value, true
}

func texts(raw json.RawMessage) ([]string, bool) {
	var list []*string
	err := json.Unmarshal(raw, &list)
	if err != nil || list == nil || len(list) > maxListed {
		return nil, false
	}
	out := make([]string, len(list))
	for i, value := range list {
		if value == nil {
			return nil, false
		}
		out[i] = *value
	}
	return out, true
}
