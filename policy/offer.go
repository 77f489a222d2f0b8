package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/aepb/aepb-gateway/ect"
)

// Bounds of what rules say of tools.
const (
	MaxTools    = 256 // patterns of Rules.Tools, and names of Rules.Names
	maxToolName = 256 // bytes of a pattern or a name
	maxStars    = 8   // of a pattern
)

// Offer is what of an agent's tools and skills a caller may invoke, and under which names. The caller sees
// those alone: what is not offered does not exist for it. The zero Offer is all, under the agent's own
// names. It is immutable.
type Offer struct {
	lists []toolList // each has to allow
	names *Names     // nil: the agent's own
}

// toolList is patterns of names, and the rule that they stand in.
type toolList struct {
	rule     string
	patterns []string
}

// The rules that may withhold a tool.
const (
	RuleCallers = "callers"
	RuleTools   = "tools"
)

// OfferOf is what rules offer to a caller whom they let call the agent.
func OfferOf(caller ect.Identity, rules Rules) Offer {
	var o Offer
	if rules.Also != nil {
		o = OfferOf(caller, *rules.Also)
	}
	if len(rules.Tools) > 0 {
		o.lists = append(o.lists, toolList{RuleTools, rules.Tools})
	}
	if patterns, limited := toolsOf(caller, rules); limited {
		o.lists = append(o.lists, toolList{RuleCallers, patterns})
	}
	if rules.Names != nil {
		o.names = rules.Names
	}
	return o
}

// Names are names under which tools are offered. They are immutable.
type Names struct {
	shown map[string]string // by the agent's own
	own   map[string]string // by the shown
	key   string
}

// NewNames are the names by which an operator has tools of an agent shown, by the agent's own; nil for none.
func NewNames(shown map[string]string) *Names {
	if len(shown) == 0 {
		return nil
	}
	n := &Names{shown: maps.Clone(shown), own: make(map[string]string, len(shown)), key: fmt.Sprintf("%q", shown)}
	for _, own := range slices.Sorted(maps.Keys(shown)) {
		n.own[shown[own]] = own
	}
	return n
}

// All are the shown names by the agent's own.
func (n *Names) All() map[string]string {
	if n == nil {
		return nil
	}
	return maps.Clone(n.shown)
}

// toolsOf are the patterns of tools in the entries for a caller; false: one of them allows all. Who may describe
// the agent, and invoke none of its tools, sees all of it. Beside a tool that it may invoke, it sees that one: else
// what it sees is what it may call.
func toolsOf(caller ect.Identity, rules Rules) (patterns []string, limited bool) {
	if rules.Open {
		return nil, false
	}
	describes := false
	for _, p := range rules.all() {
		switch {
		case !p.matches(caller):
		case p.tool != "":
			patterns = append(patterns, p.tool)
		case p.operation == "" || p.operation == invoke:
			return nil, false
		case p.operation == describe:
			describes = true
		}
	}
	return patterns, !describes || len(patterns) > 0
}

// Whole reports whether all is offered, under the agent's own names.
func (o Offer) Whole() bool { return len(o.lists) == 0 && o.names == nil }

// Key is the same for offers that are.
func (o Offer) Key() string {
	var b strings.Builder
	for _, list := range o.lists {
		b.WriteString(strings.Join(list.patterns, "\x00") + "\x01")
	}
	if o.names != nil {
		b.WriteString(o.names.key)
	}
	return b.String()
}

// Withheld is the rule that does not offer a tool, by the agent's own name; empty: it is offered. It depends on the
// name alone: whether there is such a tool cannot be learned from it.
func (o Offer) Withheld(own string) (rule string) {
	for _, list := range o.lists {
		if !slices.ContainsFunc(list.patterns, func(pattern string) bool { return toolMatches(pattern, own) }) {
			return list.rule
		}
	}
	return ""
}

// Shown is the name under which a tool is offered. False: it is not, or another has its name.
func (o Offer) Shown(own string) (name string, offered bool) {
	if o.Withheld(own) != "" {
		return "", false
	}
	if o.names == nil {
		return own, true
	}
	if shown, renamed := o.names.shown[own]; renamed {
		return shown, true
	}
	return own, o.Own(own) == own
}

// Own is the agent's own name of a tool that is shown under a name.
func (o Offer) Own(name string) string {
	if o.names != nil {
		if own, renamed := o.names.own[name]; renamed {
			return own
		}
	}
	return name
}

// Called is the agent's own name of a tool that a caller calls by a name. False: none is shown under it.
func (o Offer) Called(name string) (own string, offered bool) {
	own = o.Own(name)
	shown, offered := o.Shown(own)
	return own, offered && shown == name
}

// NotOfferedError: a rule does not offer what was called. The caller is answered as if it did not exist.
type NotOfferedError struct {
	Rule    string // RuleCallers or RuleTools
	Refusal error  // of what does not exist
}

func (e *NotOfferedError) Error() string { return e.Refusal.Error() }

// Unwrap is what the caller is answered.
func (e *NotOfferedError) Unwrap() error { return e.Refusal }

// checkTools reports patterns and names that cannot be meant; nil stands for those that can.
func (r Rules) checkTools() (errs []error) {
	names := r.Names.All()
	if len(r.Tools) > MaxTools || len(names) > MaxTools {
		errs = append(errs, fmt.Errorf("policy: more than %d tools: use patterns with *", MaxTools))
	}
	for _, pattern := range r.Tools {
		errs = append(errs, checkTool(pattern))
	}
	taken := map[string]string{}
	for own, shown := range names {
		switch other, twice := taken[shown]; {
		case own == "" || len(own) > maxToolName || strings.Trim(shown, nameCharacters) != "" || shown == "" || len(shown) > maxShown:
			errs = append(errs, fmt.Errorf("policy: tool %q cannot be named %q: expected 1 to %d of A-Z a-z 0-9 . _ -", own, shown, maxShown))
		case twice:
			errs = append(errs, fmt.Errorf("policy: %q and %q would both be named %q", min(own, other), max(own, other), shown))
		}
		taken[shown] = own
	}
	return errs
}

// Names that every protocol allows (MCP 2025-11-25, Tools, Tool Names).
const (
	nameCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."
	maxShown       = 128
)

func checkTool(pattern string) error {
	if pattern == "" || len(pattern) > maxToolName || strings.Count(pattern, "*") > maxStars || strings.ContainsFunc(pattern, unicode.IsControl) {
		return fmt.Errorf("policy: tool %q: expected a name of up to %d bytes, with * for any characters, at most %d of them", pattern, maxToolName, maxStars)
	}
	return nil
}

// toolMatches compares a name with a pattern, in which * stands for any characters.
func toolMatches(pattern, name string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, first)
	for ok {
		var part string
		if part, rest, wild = strings.Cut(rest, "*"); !wild {
			return strings.HasSuffix(name, part)
		}
		_, name, ok = strings.Cut(name, part)
	}
	return false
}
