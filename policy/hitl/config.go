package hitl

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/policy"
)

// Bounds of rules.
const (
	MaxRules     = 256
	MaxApprovers = 5

	maxID       = 128 // bytes; of names of operators, too
	maxPattern  = 256 // bytes
	maxValue    = 1 << 10
	minWait     = time.Second
	maxWait     = 24 * time.Hour
	defaultWait = 15 * time.Minute
	maxPower    = 1_000_000_000 // largest exponent of a number in a rule
)

var (
	severities       = []string{"info", "warning", "error", "critical"}
	errorTypes       = []string{"action_failed", "timeout", "constraint_violation", "resource_exhausted", "upstream_cascade", "unknown"}
	textOperators    = []operator{opEqual, opNotEqual, opContains, opMatches}
	numericOperators = []operator{opLess, opLessEqual, opGreater, opGreaterEqual, opEqual}
)

func tooManyRules() string { return fmt.Sprintf("there are too many: expected at most %d", MaxRules) }

// Config is a rule as an operator writes it. A field that is left out is no condition, or takes its default.
type Config struct {
	ID            string        `yaml:"id"`             // Name of the rule, 1 to 128 bytes. Default: approval-N, N being its place in the list.
	Agent         string        `yaml:"agent"`          // Agents by name; * is any run of characters, ? is one.
	Tool          string        `yaml:"tool"`           // Tools by name, with * and ?.
	Caller        string        `yaml:"caller"`         // SPIFFE ID of callers, or a path prefix that ends in /*.
	Operation     string        `yaml:"operation"`      // Operation, such as invoke.
	Argument      *Argument     `yaml:"argument"`       // Condition on one argument of the call.
	Loss          string        `yaml:"loss"`           // Code of a loss of the translation, such as L17, with * and ?.
	Severity      string        `yaml:"severity"`       // Severity of an error of a workflow, such as critical, in place of all conditions on calls.
	Action        string        `yaml:"action"`         // With severity: pause or stop the workflow. Default: pause.
	Role          string        `yaml:"role"`           // Role that decides: approver or operator, or one of them and the name of an operator, such as operator:oncall. Default: approver.
	Approvers     int           `yaml:"approvers"`      // Number of approvers that have to agree, 1 to 5. Default: 1.
	Wait          time.Duration `yaml:"wait"`           // Time for the decision, 1s to 24h. Default: 15m.
	Unreachable   Unreachable   `yaml:"unreachable"`    // Without a decision in that time: deny, escalate (tell operators and wait as long again), continue (send the call; needs allow_override). Default: deny.
	AllowOverride bool          `yaml:"allow_override"` // Allow unreachable: continue. Default: false.
}

// Argument is a condition on one argument.
type Argument struct {
	Pointer string `yaml:"pointer"` // JSON pointer into the arguments, such as /path.
	Op      string `yaml:"op"`      // Comparison: eq, ne, contains and matches (with * and ?) for texts; lt, le, gt and ge for numbers.
	Value   string `yaml:"value"`   // What the argument is compared with.
}

// RuleError says what is wrong with a rule.
type RuleError struct {
	Index  int    // of the rule, from 0; -1: all rules
	Rule   string // its id; empty: it has none
	Field  string // empty: the rule as a whole
	Reason string
}

func (e *RuleError) Error() string {
	text := "approval rules"
	if e.Index >= 0 {
		text = "approval rule " + strconv.Itoa(e.Index+1)
	}
	if e.Rule != "" {
		text += " (" + e.Rule + ")"
	}
	if e.Field != "" {
		text += ": " + e.Field
	}
	return text + ": " + e.Reason
}

// ParseRules reads rules of the configuration. Its errors are *[RuleError], joined: the first of each rule.
func ParseRules(configs []Config) (Rules, error) {
	var errs []error
	var list []Rule
	for i, c := range configs[:min(len(configs), MaxRules+1)] {
		c.ID = cmp.Or(c.ID, "approval-"+strconv.Itoa(i+1))
		rule, err := c.rule()
		if err != nil {
			err.Index = i
			errs = append(errs, err)
			continue
		}
		list = append(list, rule)
	}
	if len(errs) > 0 {
		return Rules{}, errors.Join(errs...)
	}
	return newRules(list)
}

func (c Config) rule() (Rule, *RuleError) {
	b := builder{id: c.ID, action: RequireApproval}
	glob := func(in input, field, pattern string) {
		if pattern != "" {
			b.add(field, condition{in: in, op: opMatches, value: pattern})
		}
	}
	glob(inputAgent, "agent", c.Agent)
	glob(inputTool, "tool", c.Tool)
	if c.Caller != "" {
		b.check("caller", isCaller(c.Caller), "expected a SPIFFE ID, or a path prefix of some that ends in /*")
		b.add("caller", condition{in: inputCaller, op: opMatches, value: c.Caller})
	}
	if c.Operation != "" {
		b.add("operation", condition{in: inputOperation, op: opEqual, value: c.Operation})
	}
	if a := c.Argument; a != nil {
		b.check("argument", slices.Contains(append(textOperators, numericOperators...), operator(a.Op)),
			"expected an op of eq, ne, lt, le, gt, ge, contains or matches")
		b.add("argument", condition{in: inputArgument, pointer: a.Pointer, op: operator(a.Op), value: a.Value})
	}
	glob(inputLoss, "loss", c.Loss)
	if c.Severity != "" {
		b.check("severity", len(b.conditions) == 0, "expected no condition on calls in a rule about errors")
		b.add("severity", condition{in: inputSeverity, op: opEqual, value: c.Severity})
		b.action = cmp.Or(Action(c.Action), PauseAction)
	}
	b.check("action", b.action == PauseAction || b.action == StopAction || c.Severity == "" && c.Action == "", "expected pause or stop, with severity")
	return b.rule(requirements{
		Role: c.Role, Approvers: cmp.Or(c.Approvers, 1), Wait: cmp.Or(c.Wait, defaultWait), Unreachable: c.Unreachable, AllowOverride: c.AllowOverride,
	})
}

// builder makes a rule; it keeps the first thing that is wrong.
type builder struct {
	id         string
	action     Action
	conditions []condition
	err        *RuleError
}

func (b *builder) check(field string, ok bool, reason string) {
	if !ok && b.err == nil {
		b.err = &RuleError{Rule: printable(b.id), Field: field, Reason: reason}
	}
}

// add adds a condition whose operator is known.
func (b *builder) add(field string, c condition) {
	c = c.compiled()
	if c.in == inputArgument {
		_, err := parsePointer(c.pointer)
		b.check(field, err == nil && utf8.ValidString(c.pointer), fmt.Sprint(err))
	}
	limit := maxValue
	if c.op == opMatches {
		limit = maxPattern
	}
	b.check(field, len(c.value) <= limit && utf8.ValidString(c.value), fmt.Sprintf("expected at most %d bytes of UTF-8", limit))
	b.check(field, c.value != "" || c.in == inputArgument && c.op != opContains && c.op != opMatches, "it is empty: expected a text")
	if c.isNumber || slices.Contains(numericOperators[:4], c.op) {
		b.check(field, c.numeric && c.number.exp >= -maxPower && c.number.exp <= maxPower,
			fmt.Sprintf("expected a number to compare with, with an exponent of at most %d", maxPower))
	}
	b.checkWords(field, c)
	b.conditions = append(b.conditions, c)
}

// checkWords refuses values that nothing is ever equal to.
func (b *builder) checkWords(field string, c condition) {
	words := c.op == opEqual || c.op == opNotEqual
	switch c.in {
	case inputSeverity:
		b.check(field, !words || slices.Contains(severities, c.value), "expected one of "+strings.Join(severities, ", "))
	case inputErrorType:
		b.check(field, !words || slices.Contains(errorTypes, c.value), "expected one of "+strings.Join(errorTypes, ", "))
	case inputCaller:
		b.check(field, !words || isCaller(c.value) && !strings.Contains(c.value, "*"), "expected a SPIFFE ID")
	case inputLoss:
		b.check(field, c.op != opNotEqual, "expected an op of eq, contains or matches")
		b.check(field, strings.Trim(c.value, "L0123456789*?") == "", "expected the code of a loss such as L17")
	default:
	}
}

// rule is the rule, if nothing was wrong.
func (b *builder) rule(q requirements) (Rule, *RuleError) {
	q.Role, q.Unreachable = cmp.Or(q.Role, string(policy.RoleApprover)), cmp.Or(q.Unreachable, DenyCall)
	role, name, named := strings.Cut(q.Role, ":")
	known := role == string(policy.RoleApprover) || role == string(policy.RoleOperator)
	b.check("id", isName(b.id), fmt.Sprintf("expected 1 to %d printable bytes", maxID))
	b.check("", len(b.conditions) > 0, "it has no condition: expected at least one of agent, tool, caller, operation, argument, loss and severity")
	b.check("role", known && (!named || isName(name)), "expected approver or operator, or one of them with a name, such as operator:oncall")
	b.check("approvers", q.Approvers >= 1 && q.Approvers <= MaxApprovers, fmt.Sprintf("expected 1 to %d", MaxApprovers))
	b.check("approvers", !named || q.Approvers == 1, "a role with a name is that of one operator: expected 1, or a role without a name")
	b.check("wait", q.Wait >= minWait && q.Wait <= maxWait, "expected 1s to 24h")
	b.check("unreachable", q.Unreachable.strictness() >= 0, "expected deny, escalate or continue")
	b.check("unreachable", q.Unreachable != Continue || q.AllowOverride, "continue needs allow_override: true")
	if b.err != nil {
		return Rule{}, b.err
	}
	slices.SortStableFunc(b.conditions, func(a, b condition) int { return cmp.Compare(a.in, b.in) })
	rule := Rule{id: b.id, conditions: b.conditions, requirements: q, action: b.action}
	rule.text = b.encode(rule)
	return rule, b.err
}

// encode is what a rule says in one form: Demand.Hash is over that.
func (b *builder) encode(rule Rule) []byte {
	var conditions [][5]string
	for _, c := range rule.conditions {
		conditions = append(conditions, [5]string{inputNames[c.in], c.pointer, strconv.FormatBool(c.isNumber), string(c.op), c.value})
	}
	text, err := json.Marshal(struct {
		ID         string
		Conditions [][5]string
		Action     Action
		Of         requirements
	}{rule.id, conditions, rule.action, rule.requirements})
	b.check("", err == nil, "it cannot be written as JSON")
	return text
}

// isCaller reports whether a text is what policy takes as callers, without an operation.
func isCaller(text string) bool {
	return policy.Rules{Callers: []string{text}}.Validate() == nil && !strings.Contains(text, "#")
}

func isName(text string) bool {
	return text != "" && len(text) <= maxID && printable(text) == text
}

// printable is a text, if an error may show it.
func printable(text string) string {
	if len(text) > maxID || !utf8.ValidString(text) || strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return ""
	}
	return text
}
