package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	waits "github.com/aepb/aepb-gateway/gateway/schedule"
	"github.com/aepb/aepb-gateway/lifecycle/schedule"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/consensus"
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

// Consensus says which agents decide together (draft Agent Consensus).
type Consensus struct {
	Groups map[string]Group `yaml:"groups"` // Groups of agents that decide together, by name: 1 to 63 of a-z 0-9 - _ . and a letter or digit first.
}

// Group is a group of agents that decide together.
type Group struct {
	Members    []Voter        `yaml:"members"`    // Agents that vote, 1 to 500. Required.
	Proposers  map[string]int `yaml:"proposers"`  // SPIFFE IDs of callers that may propose, each with its authority, 0 to 3: of competing proposals the one with more goes first. Required.
	Mechanisms []string       `yaml:"mechanisms"` // How the group may decide: majority, weighted, leader and optimistic. Default: majority.
	Leader     string         `yaml:"leader"`     // SPIFFE ID of who decides under leader. Default: the members in turns, an hour each.
	Threshold  int            `yaml:"threshold"`  // Under weighted, the percentage of the total weight that the approving weight must exceed, 1 to 99. Default: 50.
	MaxFaulty  int            `yaml:"max_faulty"` // Number f of members that may be faulty: at least 2f+1 votes are needed. Default: 0.
	Deadlock   string         `yaml:"deadlock"`   // What breaks a deadlock: escalate (a human decides), oldest (the oldest proposal goes first) or random (a draw says which does). Default: escalate.
	Longest    Duration       `yaml:"longest"`    // Longest time of a round, 1s to 168h. Default: 24h.
}

// Voter is a member of a group.
type Voter struct {
	ID     string `yaml:"id"`     // SPIFFE ID of the agent. Required.
	Weight int64  `yaml:"weight"` // Weight of its vote under weighted, 1 to 1000000. Default: 1.
}

const mostRound = 7 * 24 * time.Hour

// isGroupName: a name stands in a path, as those of agents do.
func isGroupName(name string) bool {
	plain := strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
	return plain && name != "" && len(name) <= 63 && !strings.ContainsAny(name[:1], "-_.")
}

// List are the groups in the words of package consensus, in the order of their names.
func (c Consensus) List() []consensus.Group {
	var out []consensus.Group
	for _, name := range slices.Sorted(maps.Keys(c.Groups)) {
		g := c.Groups[name]
		group := consensus.Group{
			Name: name, Proposers: map[ect.Identity]int{}, Leader: ect.Identity(g.Leader), Threshold: g.Threshold, MaxFaulty: g.MaxFaulty,
			Deadlock: consensus.Strategy(g.Deadlock), Longest: time.Duration(g.Longest), Mechanisms: []consensus.Mechanism{consensus.Majority},
		}
		if len(g.Mechanisms) > 0 {
			group.Mechanisms = nil
		}
		for _, m := range g.Mechanisms {
			group.Mechanisms = append(group.Mechanisms, consensus.Mechanism(m))
		}
		for _, m := range g.Members {
			group.Members = append(group.Members, consensus.Member{ID: ect.Identity(m.ID), Weight: cmp.Or(m.Weight, 1)})
		}
		for id, authority := range g.Proposers {
			group.Proposers[ect.Identity(id)] = authority
		}
		out = append(out, group)
	}
	return out
}

// check finds groups that cannot decide.
func (c Consensus) check(say func(path, reason string)) {
	for _, g := range c.List() {
		path := "$.consensus.groups.'" + g.Name + "'"
		if !isGroupName(g.Name) {
			say("$.consensus.groups", "the name of a group is 1 to 63 of a-z 0-9 - _ . and starts with a letter or digit: "+strconv.Quote(g.Name)+" is none")
			continue
		}
		if err := g.Check(); err != nil {
			say(path, err.Error())
		}
		if g.Longest != 0 && (g.Longest < time.Second || g.Longest > mostRound) {
			say(path+".longest", "must be between 1s and 168h")
		}
		ids := slices.Collect(maps.Keys(g.Proposers))
		for _, m := range g.Members {
			ids = append(ids, m.ID)
		}
		if g.Leader != "" {
			ids = append(ids, g.Leader)
		}
		for _, id := range ids {
			if (policy.Rules{Callers: []string{string(id)}}).Validate() != nil || strings.ContainsAny(string(id), "*#") {
				say(path, "members, proposers and the leader are SPIFFE ids such as spiffe://example.com/agent: "+strconv.Quote(string(id))+" is none")
			}
		}
	}
}

// Priority gives calls a class in which they wait for their agent (ATD, Priority Levels; R30).
type Priority struct {
	Callers []string `yaml:"callers"` // SPIFFE IDs of callers, or prefixes ending in /*. Default: all callers, also those without an identity.
	Agents  []string `yaml:"agents"`  // Names of agents. Default: all agents.
	Class   string   `yaml:"class"`   // Highest class of these calls: critical, high, normal or low. A caller can lower it for a call. Required.
}

// Bounds of what an operator says of calls that wait.
const (
	mostConcurrency  = 10_000
	leastLongestWait = time.Second
	mostLongestWait  = time.Hour
	maxPriorities    = 256
)

// Schedule is how calls wait for agents, in the words of package schedule.
func (p Policy) Schedule(agents map[string]Agent) waits.Rules {
	var out waits.Rules
	for name, a := range agents {
		if a.Concurrency == nil {
			continue
		}
		if out.Agents == nil {
			out.Agents = map[string]schedule.Config{}
		}
		out.Agents[name] = schedule.Config{Places: *a.Concurrency, Longest: time.Duration(a.LongestWait)}
	}
	for _, one := range p.Priorities {
		class, _ := schedule.ParseClass(one.Class) // Parse has judged it
		priority := waits.Priority{Agents: one.Agents, Class: class}
		for _, caller := range one.Callers {
			priority.Callers = append(priority.Callers, ect.Identity(caller))
		}
		out.Priorities = append(out.Priorities, priority)
	}
	return out
}

// checkPlaces finds bounds of calls at once that cannot be followed.
func (a Agent) checkPlaces(path string, say func(path, reason string)) {
	if n := a.Concurrency; n != nil && (*n < 1 || *n > mostConcurrency) {
		say(path+".concurrency", "must be between 1 and 10000; leave it out for no limit")
	}
	switch longest := time.Duration(a.LongestWait); {
	case longest != 0 && a.Concurrency == nil:
		say(path+".longest_wait", "no call waits for an agent without concurrency: set concurrency too, or leave longest_wait out")
	case longest != 0 && (longest < leastLongestWait || longest > mostLongestWait):
		say(path+".longest_wait", "must be between 1s and 1h")
	}
}

// checkPriorities finds classes, callers and agents that do not exist.
func (p Policy) checkPriorities(agents map[string]Agent, say func(path, reason string)) {
	if len(p.Priorities) > maxPriorities {
		say("$.policy.priorities", "too many: expected at most "+strconv.Itoa(maxPriorities))
		return
	}
	for i, one := range p.Priorities {
		path := "$.policy.priorities[" + strconv.Itoa(i) + "]"
		if _, ok := schedule.ParseClass(one.Class); !ok {
			say(path+".class", strconv.Quote(one.Class)+" is no class: expected "+strings.Join(schedule.Classes(), ", "))
		}
		for n, caller := range one.Callers {
			at := path + ".callers[" + strconv.Itoa(n) + "]"
			if err := (policy.Rules{Callers: []string{caller}}).Validate(); err != nil {
				say(at, err.Error())
			} else if policy.Operation(caller) != "" {
				say(at, "a class is for all operations of a caller: expected no # in "+strconv.Quote(caller))
			}
		}
		for n, agent := range one.Agents {
			if _, listed := agents[agent]; !listed {
				say(path+".agents["+strconv.Itoa(n)+"]", "there is no agent "+strconv.Quote(agent)+" in agents")
			}
		}
	}
}
