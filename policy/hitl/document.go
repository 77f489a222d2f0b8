package hitl

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/policy"
)

// ParseDocumentRules reads the member rules of a policy document (ATD, HITL Escalation on Error); a document
// without it has no rules. [policy.ParseDocument] reads the rest. Its error is a *[RuleError].
func ParseDocumentRules(document []byte) (Rules, error) {
	fail := func(reason string) (Rules, error) { return Rules{}, &RuleError{Index: -1, Reason: reason} }
	if len(document) > policy.MaxDocument {
		return fail("the document is too long: expected at most " + strconv.Itoa(policy.MaxDocument) + " bytes")
	}
	r := jsonReader{data: document}
	top, reason := r.members(0)
	if reason == "" && !r.ended() {
		reason = "expected a JSON object alone"
	}
	if reason != "" {
		return fail("the document: " + reason)
	}
	raw, ok := top["rules"]
	if !ok {
		for name := range top {
			if strings.EqualFold(name, "rules") {
				return fail("a member of the document differs from rules in its case alone: expected rules")
			}
		}
		return Rules{}, nil
	}
	list, failure := documentRules(raw)
	if failure != nil {
		return Rules{}, failure
	}
	return newRules(list)
}

func documentRules(raw []byte) (list []Rule, failure *RuleError) {
	r := jsonReader{data: raw}
	ok := r.array(1, func(i int) bool {
		if i == MaxRules {
			failure = &RuleError{Index: -1, Reason: tooManyRules()}
			return false
		}
		members, reason := r.members(2)
		if reason != "" {
			failure = &RuleError{Index: i, Reason: reason}
			return false
		}
		rule, err := documentRule(members)
		if err != nil {
			err.Index = i
			failure = err
			return false
		}
		list = append(list, rule)
		return true
	})
	if failure == nil && !ok {
		failure = &RuleError{Index: -1, Reason: "rules is no array: expected one of rules"}
	}
	return list, failure
}

// members reads an object whose names are exact and stand once; reason says what is wrong.
func (r *jsonReader) members(depth int) (members map[string][]byte, reason string) {
	members = map[string][]byte{}
	ok := r.object(depth, func(quoted []byte) bool {
		name := unquote(quoted)
		if _, twice := members[name]; twice {
			reason = "a member stands twice: expected each once"
			return false
		}
		raw, ok := r.raw(depth + 1)
		members[name] = raw
		return ok
	})
	if !ok && reason == "" {
		reason = "expected a JSON object"
	}
	return members, reason
}

var (
	ruleMembers = []string{
		"id", "trigger", "required_role", "action", "allow_override", "override_action", "unreachable_human", "wait_s", "approvers",
	}
	triggerMembers = []string{"kind", "op", "value", "input_ref"}
)

// documentRule reads one rule of a document.
func documentRule(members map[string][]byte) (Rule, *RuleError) {
	d := document{members: members}
	d.id = d.text("id", "")
	d.known(members, "", ruleMembers)
	d.action = Action(d.text("action", ""))
	d.check("action", slices.Contains([]Action{RequireApproval, EscalateAction, PauseAction, StopAction}, d.action),
		"expected require_approval, escalate, pause or stop")
	ofError := d.trigger(members["trigger"])
	d.check("action", ofError || d.action.level() == LevelApproval,
		"a call is held for an approval: expected require_approval or escalate, or a trigger on atd.severity")
	q := requirements{
		Role:          d.text("required_role", string(policy.RoleApprover)),
		Approvers:     d.number("approvers", 1, MaxApprovers),
		Wait:          time.Duration(d.number("wait_s", int(defaultWait/time.Second), int(maxWait/time.Second))) * time.Second,
		Unreachable:   Unreachable(d.text("unreachable_human", string(DenyCall))),
		AllowOverride: d.truth("allow_override"),
		Override:      d.text("override_action", "continue"),
	}
	d.check("override_action", q.Override == "continue", "expected continue")
	d.check("override_action", members["override_action"] == nil || q.AllowOverride, "it needs allow_override: true")
	if !q.AllowOverride {
		q.Override = ""
	}
	return d.rule(q)
}

// document builds a rule of a document.
type document struct {
	builder

	members map[string][]byte
}

// known refuses members that no rule has.
func (d *document) known(members map[string][]byte, field string, names []string) {
	for name := range members {
		d.check(field, slices.Contains(names, name), "an unknown member: expected "+strings.Join(names, ", "))
	}
}

// text reads a string; without an alternative it is required.
func (d *document) text(name, alternative string) string {
	raw, ok := d.members[name]
	if !ok {
		d.check(name, alternative != "", "it is missing: expected a string")
		return alternative
	}
	if raw[0] != '"' {
		d.check(name, false, "expected a string")
		return alternative
	}
	text := unquote(raw)
	d.check(name, text != "" || name == "value", "it is empty: expected a text")
	return text
}

// number reads a whole number from 1 to limit.
func (d *document) number(name string, alternative, limit int) int {
	raw, ok := d.members[name]
	if !ok {
		return alternative
	}
	n, err := strconv.Atoi(string(raw))
	d.check(name, err == nil && n >= 1 && n <= limit, "expected a whole number from 1 to "+strconv.Itoa(limit))
	return n
}

func (d *document) truth(name string) bool {
	text := string(d.members[name])
	d.check(name, text == "" || text == "true" || text == "false", "expected true or false")
	return text == "true"
}

// trigger reads the condition of a rule, and reports whether it is one on errors.
func (d *document) trigger(raw []byte) (ofError bool) {
	r := jsonReader{data: raw}
	members, reason := r.members(3)
	d.check("trigger", reason == "", "expected an object of "+strings.Join(triggerMembers, ", ")+", each once")
	d.known(members, "trigger", triggerMembers)
	t := document{builder{id: d.id, err: d.err}, members}
	c := condition{op: operator(t.text("op", ""))}
	kind, ref := t.text("kind", ""), t.text("input_ref", "")
	name, pointer, below := strings.Cut(ref, "/")
	in, known := inputOf(name)
	t.check("input_ref", known && below == (in == inputArgument),
		"expected "+strings.Join(inputNames[:], ", ")+"; args is followed by a JSON pointer, such as args/path")
	c.in = in
	if below {
		c.pointer = "/" + pointer
	}
	switch kind {
	case "keyword_match":
		t.check("op", slices.Contains(textOperators, c.op), "expected eq, ne, contains or matches")
		c.value = t.text("value", "")
	case "threshold":
		c.isNumber = true
		t.check("op", slices.Contains(numericOperators, c.op), "expected lt, le, gt, ge or eq")
		t.check("input_ref", c.in == inputArgument, "a threshold is for a number: expected args and a JSON pointer, such as args/amount")
		c.value = string(members["value"])
		_, isNumber := parseDecimal(c.value)
		t.check("value", isNumber, "expected a number")
	default:
		t.check("kind", false, "expected keyword_match or threshold")
	}
	t.add("value", c)
	d.conditions, d.err = t.conditions, t.err
	return c.in.ofError()
}
