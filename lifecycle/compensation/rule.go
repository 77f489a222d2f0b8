package compensation

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a rule.
const (
	MaxRule     = 16 << 10 // bytes of its text, and of the text of a template
	MaxTool     = 128      // bytes of the name of a tool
	MaxDepth    = 32       // objects and lists within each other in a template; the outermost counts
	MaxPointers = 100      // of a rule; each counts too
)

// Rule says how one tool of an agent is undone: by a call of another tool of the same agent, or of the same tool.
// It is immutable. Its JSON is what [ParseRule] reads.
type Rule struct {
	Tool      string   `json:"tool"` // 1 to [MaxTool] bytes
	Arguments Template `json:"arguments"`
	Before    *Reading `json:"before,omitempty"` // nil: nothing is read before the call
}

// Reading is a call of the same agent that reads the state before the tool is called, so that it can be written back.
type Reading struct {
	Tool      string   `json:"tool"`      // 1 to [MaxTool] bytes
	Arguments Template `json:"arguments"` // it points into the call only
}

// Uses says which values the arguments of a rule point into.
type Uses struct{ Call, Result, Before bool }

// Uses are those of the rule's Arguments; those of its Reading point into the call only.
func (r Rule) Uses() Uses {
	from := r.Arguments.sources()
	return Uses{Call: slices.Contains(from, FromCall), Result: slices.Contains(from, FromResult), Before: slices.Contains(from, FromBefore)}
}

// ParseRule reads a rule: an object with the members tool (required), arguments (an object; without it the tool is
// called with {}) and before (an object with tool and arguments). Unknown members and members that stand twice are
// refused. Its error is a *[RuleError].
func ParseRule(raw json.RawMessage) (Rule, error) {
	text, err := normal(raw)
	if err != nil {
		return Rule{}, err
	}
	p := &parser{sources: []Source{FromCall, FromResult, FromBefore}}
	var rule Rule
	members := p.members(text, "", "tool", "arguments", "before")
	rule.Tool = p.tool(members["tool"], "/tool")
	if before := members["before"]; before == nil {
		p.sources = p.sources[:2]
	} else {
		rule.Before = p.reading(before)
	}
	rule.Arguments = p.template(members["arguments"], "/arguments")
	if p.err != nil {
		return Rule{}, p.err
	}
	return rule, nil
}

// reading reads the member before of a rule.
func (p *parser) reading(raw []byte) *Reading {
	all := p.sources
	p.sources = []Source{FromCall}
	members := p.members(raw, "/before", "tool", "arguments")
	r := &Reading{Tool: p.tool(members["tool"], "/before/tool"), Arguments: p.template(members["arguments"], "/before/arguments")}
	p.sources = all
	return r
}

// members reads an object that has no other members than the known ones.
func (p *parser) members(raw []byte, at string, known ...string) map[string][]byte {
	members := map[string][]byte{}
	p.check(raw[0] == '{', at, "expected an object of "+strings.Join(known, ", "))
	children(raw, func(name string, value []byte) bool {
		p.check(raw[0] != '{' || slices.Contains(known, name), below(at, name), "an unknown member: expected "+strings.Join(known, ", "))
		members[name] = value
		return true
	})
	return members
}

// tool reads the name of a tool; nil: it is missing.
func (p *parser) tool(raw []byte, at string) string {
	name, ok := textOf(raw)
	p.check(ok && ValidTool(name), at, "expected the name of a tool: text of 1 to "+strconv.Itoa(MaxTool)+" bytes without control characters")
	return name
}

// ValidTool reports whether a text can be the name of a tool in a rule: 1 to [MaxTool] bytes of UTF-8 without control
// characters.
func ValidTool(name string) bool {
	return name != "" && len(name) <= MaxTool && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}
