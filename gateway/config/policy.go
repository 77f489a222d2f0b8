package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// Approval is a rule that says which calls humans approve before they are sent (R23). Where several rules match,
// all of them hold.
type Approval struct {
	ID            string            `yaml:"id"`             // Name of the rule, 1 to 128 bytes. Default: approval-N, N being its place in the list.
	Agent         string            `yaml:"agent"`          // Names of agents, with * for any characters and ? for one.
	Tool          string            `yaml:"tool"`           // Names of tools as the agent has them, with * and ?.
	Caller        string            `yaml:"caller"`         // SPIFFE ID of callers, or a prefix ending in /*.
	Operation     string            `yaml:"operation"`      // Operation of the message, such as invoke.
	Argument      *ApprovalArgument `yaml:"argument"`       // Condition on one argument of the call. A message whose arguments cannot be told fulfils it.
	Loss          string            `yaml:"loss"`           // Code of what the translation loses, such as L17, with * and ?.
	Severity      string            `yaml:"severity"`       // Severity of an error of a workflow, such as critical: the workflow is held after one. Such a rule has no condition on calls.
	Action        string            `yaml:"action"`         // With severity: pause or stop. Default: pause.
	Role          string            `yaml:"role"`           // Role of those who decide: approver or operator, or one of them and the name of an operator, such as operator:oncall. Default: approver.
	Approvers     int               `yaml:"approvers"`      // Number of approvers that have to agree, 1 to 5. Default: 1.
	Wait          Duration          `yaml:"wait"`           // Time for the decision, and then for the call to be sent: 1s to 24h. Default: 15m.
	Unreachable   string            `yaml:"unreachable"`    // What becomes of the call without a decision: deny, escalate (operators are told once more, and it waits as long again), or continue (it is sent). Default: deny.
	AllowOverride bool              `yaml:"allow_override"` // true: unreachable may be continue. Default: false.
}

// ApprovalArgument is a condition on one argument of a call.
type ApprovalArgument struct {
	Pointer string `yaml:"pointer"` // JSON pointer into the arguments, such as /path.
	Op      string `yaml:"op"`      // Comparison: eq, ne, contains or matches (with * and ?) of text; lt, le, gt or ge of numbers.
	Value   string `yaml:"value"`   // What the argument is compared with.
}

// ApprovalRules are those of the section that say which calls humans approve. Its error is a
// *[hitl.RuleError], or several.
func (p Policy) ApprovalRules() (hitl.Rules, error) {
	list := make([]hitl.Config, len(p.Approvals))
	for i, a := range p.Approvals {
		list[i] = hitl.Config{
			ID: a.ID, Agent: a.Agent, Tool: a.Tool, Caller: a.Caller, Operation: a.Operation, Loss: a.Loss, Severity: a.Severity, Action: a.Action, Role: a.Role, Approvers: a.Approvers,
			Wait: time.Duration(a.Wait), Unreachable: hitl.Unreachable(a.Unreachable), AllowOverride: a.AllowOverride,
		}
		if arg := a.Argument; arg != nil {
			list[i].Argument = &hitl.Argument{Pointer: arg.Pointer, Op: arg.Op, Value: arg.Value}
		}
	}
	return hitl.ParseRules(list)
}

// checkApprovals finds rules that cannot be followed, and roles of operators that are not listed.
func (p Policy) checkApprovals(operators Admin, say func(path, reason string)) {
	rules, err := p.ApprovalRules()
	for _, one := range each(err) {
		path, reason := "$.policy.approvals", one.Error()
		if rule, ok := errors.AsType[*hitl.RuleError](one); ok && rule.Index >= 0 {
			path, reason = fmt.Sprintf("$.policy.approvals[%d]", rule.Index), rule.Reason
			if rule.Field != "" {
				path += "." + rule.Field
			}
		}
		say(path, reason)
	}
	if missing := operators.Unlisted(rules); len(missing) > 0 {
		say("$.policy.approvals", "no operator of admin.operators has the name "+strings.Join(missing, " or "))
	}
}

// Unlisted are the operators that rules name and that are not listed.
func (a Admin) Unlisted(rules hitl.Rules) (names []string) {
	for _, name := range rules.Names() {
		if _, listed := a.Operators[name]; !listed {
			names = append(names, name)
		}
	}
	return names
}

// each are the errors that were joined.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// checkCircuit finds what no circuit breaker can follow (ATD, Circuit Breaker Policy Configuration).
func (p Policy) checkCircuit(say func(path, reason string)) {
	if _, ok := policy.ParseThreshold(p.CircuitThreshold); p.CircuitThreshold != "" && !ok {
		say("$.policy.circuit_threshold", "a rate above 0 and at most 1 with up to three decimals, such as 0.5")
	}
	window := time.Duration(p.CircuitWindow)
	if window != 0 && (window < time.Second || window > policy.MaxCircuitWindow || window%time.Second != 0) {
		say("$.policy.circuit_window", "whole seconds between 1s and 1h")
	}
	if u, err := url.Parse(p.EscalationURL); p.EscalationURL != "" && (err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil) {
		say("$.policy.escalation_url", "a URL that begins with https:// and has no user")
	}
	if p.CircuitSamples < 0 || p.CircuitSamples > policy.MaxCircuitSamples {
		say("$.policy.circuit_samples", "must be between 1 and 10000")
	}
}

// Bounds of policy.checkpoint_ttl, and its default.
const (
	leastCheckpointTTL   = time.Minute
	mostCheckpointTTL    = 30 * 24 * time.Hour
	defaultCheckpointTTL = 24 * time.Hour
)

// CheckpointLifetime is CheckpointTTL or its default: how long a checkpoint is kept, in whole seconds. A rollback may
// take half as long (ATD, Rollback Timeout and Escalation).
func (p Policy) CheckpointLifetime() time.Duration {
	return cmp.Or(time.Duration(p.CheckpointTTL), defaultCheckpointTTL)
}

func (p Policy) checkCheckpoints(say func(path, reason string)) {
	ttl := time.Duration(p.CheckpointTTL)
	if ttl != 0 && (ttl < leastCheckpointTTL || ttl > mostCheckpointTTL || ttl%time.Second != 0) {
		say("$.policy.checkpoint_ttl", "whole seconds between 1m and 720h")
	}
}
