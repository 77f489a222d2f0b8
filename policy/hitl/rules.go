package hitl

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Rule says of which calls, or of which errors, a human decides. All its conditions have to hold.
type Rule struct {
	id           string
	conditions   []condition // in the order of their inputs; at least one
	requirements requirements
	action       Action
	text         []byte // all that it says, in one form
}

// requirements are what a rule demands of a decision.
type requirements struct {
	Role          string
	Approvers     int
	Wait          time.Duration
	Unreachable   Unreachable
	AllowOverride bool
	Override      string
}

// Action is what a rule does (ATD, HITL Escalation on Error).
type Action string

// The actions. A call can only be held for an approval; pause and stop are for errors, and concern the
// workflow.
const (
	RequireApproval Action = "require_approval"
	EscalateAction  Action = "escalate"
	PauseAction     Action = "pause"
	StopAction      Action = "stop"
)

// Level is how much a workflow is held (R23).
type Level uint8

// The levels, in increasing order.
const (
	LevelPause    Level = iota + 1 // new messages wait
	LevelApproval                  // one message waits
	LevelStop                      // new messages are refused
)

// String is the level as it is written in texts.
func (l Level) String() string {
	switch l {
	case LevelPause:
		return "pause"
	case LevelApproval:
		return "approval"
	case LevelStop:
		return "stop"
	default:
		return ""
	}
}

func (a Action) level() Level {
	switch a {
	case PauseAction:
		return LevelPause
	case StopAction:
		return LevelStop
	default:
		return LevelApproval
	}
}

// Rules are rules in their order. The zero value has none.
type Rules struct {
	list     []Rule
	top      place // where the pointers of all rules lead
	pointers int
}

// newRules puts rules together. Its error is a *[RuleError].
func newRules(list []Rule) (Rules, error) {
	if len(list) > MaxRules {
		return Rules{}, &RuleError{Index: -1, Reason: tooManyRules()}
	}
	r := Rules{list: slices.Clone(list)}
	ids := map[string]bool{}
	for i := range r.list {
		rule := &r.list[i]
		if ids[rule.id] {
			return Rules{}, &RuleError{i, rule.id, "id", "another rule has it, too: expected one that no other rule has"}
		}
		ids[rule.id] = true
		rule.conditions = slices.Clone(rule.conditions)
		for j := range rule.conditions {
			if c := &rule.conditions[j]; c.in == inputArgument {
				names, err := parsePointer(c.pointer)
				if err != nil {
					return Rules{}, &RuleError{i, rule.id, "pointer", err.Error()}
				}
				c.target = r.top.add(names, &r.pointers)
			}
		}
	}
	return r, nil
}

// Join is the rules of several sources as one. Its error is a *[RuleError]: there are too many, or two have
// one id.
func Join(sources ...Rules) (Rules, error) {
	var list []Rule
	for _, r := range sources {
		list = append(list, r.list...)
	}
	return newRules(list)
}

// Empty reports whether there are no rules.
func (r Rules) Empty() bool { return len(r.list) == 0 }

// Names are the operators that roles such as operator:oncall name, sorted, each once.
func (r Rules) Names() []string {
	return r.collect(func(rule *Rule) string { _, name, _ := strings.Cut(rule.requirements.Role, ":"); return name })
}

// Operations are the operations that conditions compare with as a whole, sorted, each once.
func (r Rules) Operations() []string {
	return r.collect(func(rule *Rule) string {
		for _, c := range rule.conditions {
			if c.in == inputOperation && (c.op == opEqual || c.op == opNotEqual) {
				return c.value
			}
		}
		return ""
	})
}

func (r Rules) collect(textOf func(*Rule) string) (texts []string) {
	for i := range r.list {
		if text := textOf(&r.list[i]); text != "" {
			texts = append(texts, text)
		}
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

// Match is what the rules demand of a call; false: nothing. A condition on arguments that cannot be read
// holds.
func (r Rules) Match(f Facts) (Demand, bool) {
	args := arguments{raw: f.Args, done: f.Words}
	var matching []*Rule
	for i := range r.list {
		if rule := &r.list[i]; rule.matchesFacts(&f) && rule.matchesArguments(&r, &args) && rule.matchesLosses(f.Losses) {
			matching = append(matching, rule)
		}
	}
	return demandOf(matching), len(matching) > 0
}

// NeedsLosses reports whether a rule that names a loss may match, so that losses have to be known before
// Match. It does not read the arguments.
func (r Rules) NeedsLosses(f Facts) bool {
	return slices.ContainsFunc(r.list, func(rule Rule) bool {
		return rule.conditions[len(rule.conditions)-1].in == inputLoss && rule.matchesFacts(&f)
	})
}

// Reaction is what the rules demand after an error.
type Reaction struct {
	Demand

	Level Level // the highest of all rules that match
}

// MatchError is what the rules demand after an error (ATD, HITL Escalation on Error); false: nothing.
func (r Rules) MatchError(severity, errorType string) (Reaction, bool) {
	var matching []*Rule
	var level Level
	for i := range r.list {
		rule := &r.list[i]
		if c := &rule.conditions[0]; c.in == inputSeverity && c.holds(severity) || c.in == inputErrorType && c.holds(errorType) {
			matching = append(matching, rule)
			level = max(level, rule.action.level())
		}
	}
	return Reaction{demandOf(matching), level}, len(matching) > 0
}

// matchesFacts judges all conditions but those on arguments and losses.
func (rule *Rule) matchesFacts(f *Facts) bool {
	for i := range rule.conditions {
		c := &rule.conditions[i]
		var text string
		switch c.in {
		case inputAgent:
			text = f.Agent
		case inputTool:
			text = f.Tool
		case inputCaller:
			text = string(f.Caller)
		case inputOperation:
			text = f.Operation
		case inputArgument, inputLoss:
			return true
		default: // of an error
			return false
		}
		if !c.holds(text) {
			return false
		}
	}
	return true
}

func (rule *Rule) matchesArguments(r *Rules, args *arguments) bool {
	for i := range rule.conditions {
		if c := &rule.conditions[i]; c.in == inputArgument {
			found, readable := args.read(r)
			if readable && !c.holdsAt(found[c.target]) {
				return false
			}
		}
	}
	return true
}

func (rule *Rule) matchesLosses(losses []string) bool {
	c := &rule.conditions[len(rule.conditions)-1]
	return c.in != inputLoss || c.holdsAny(losses)
}

// arguments are those of one call, read when a rule asks for them.
type arguments struct {
	raw      json.RawMessage
	done     bool // they were read, or cannot be
	found    []finding
	readable bool
}

func (a *arguments) read(r *Rules) ([]finding, bool) {
	if !a.done {
		a.done = true
		a.found, a.readable = r.top.find(a.raw, r.pointers)
	}
	return a.found, a.readable
}

// strictness orders what may become of a call, from the strictest on.
func (u Unreachable) strictness() int {
	return slices.Index([]Unreachable{Continue, Escalate, DenyCall}, u)
}

// Gate is what the plan of a workflow demands of a step: an approver with each of the roles (ATD, Optional Declarative
// Workflow Format).
func Gate(roles []string) Demand {
	return Demand{
		Rules: []string{gateRule}, Roles: roles, Approvers: 1, Wait: gateWait, Unreachable: DenyCall, Hash: ect.Hash([]byte(gateRule + "\n" + strings.Join(roles, "\n"))),
	}
}

// And is what both demand.
func (d Demand) And(o Demand) Demand {
	if len(d.Rules) == 0 {
		return o
	}
	roles := slices.Clone(d.Roles)
	for _, role := range o.Roles {
		if !slices.Contains(roles, role) {
			roles = append(roles, role)
		}
	}
	strict := func(a, b Unreachable) int { return cmp.Compare(a.strictness(), b.strictness()) }
	return Demand{
		Rules: slices.Concat(d.Rules, o.Rules), Roles: roles, Approvers: max(d.Approvers, o.Approvers), Wait: min(d.Wait, o.Wait),
		Unreachable: slices.MaxFunc([]Unreachable{d.Unreachable, o.Unreachable}, strict), Hash: ect.Hash([]byte(d.Hash + "\n" + o.Hash)),
	}
}

// The rule of a gate: its name, and how long humans have time.
const (
	gateRule = "hitl_required"
	gateWait = 24 * time.Hour
)

// demandOf is what rules demand together.
func demandOf(matching []*Rule) (d Demand) {
	if len(matching) == 0 {
		return d
	}
	d.Unreachable, d.Wait = Continue, maxWait
	var texts []byte
	for _, rule := range matching {
		q := rule.requirements
		d.Rules = append(d.Rules, rule.id)
		if !slices.Contains(d.Roles, q.Role) {
			d.Roles = append(d.Roles, q.Role)
		}
		d.Approvers, d.Wait = max(d.Approvers, q.Approvers), min(d.Wait, q.Wait)
		d.Unreachable = slices.MaxFunc([]Unreachable{d.Unreachable, q.Unreachable}, func(a, b Unreachable) int {
			return cmp.Compare(a.strictness(), b.strictness())
		})
		texts = append(append(texts, rule.text...), '\n')
	}
	d.Hash = ect.Hash(texts)
	return d
}
