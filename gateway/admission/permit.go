package admission

import (
	"cmp"
	"context"
	"errors"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/destination"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/spelling"
)

// permit is step 5: it asks policy. The permit judges the operation later, when the message is
// decoded.
func (m *admitting) permit(context.Context) error {
	m.LeavesEvidence = true
	if m.Input == "" {
		m.Input = ect.Hash(m.Call.Wire.HashInput())
	}
	rules := m.To.Agent.Rules
	rules.RequireECT = rules.RequireECT || m.rules.RequireECT
	if m.Call.Agent == "" {
		rules.Open = true // translating for a caller reaches no agent
	}
	dest := ""
	switch {
	case m.To.Via != nil: // what was asked for, whatever the peer takes the message in
		dest = string(translators.ParseSide(string(m.To.Via.To)).Binding)
	case m.To.Codec != nil:
		dest = string(m.To.Codec.Info().Binding)
	}
	permit, err := policy.Evaluate(policy.Request{
		Caller: m.Call.Caller.ID, Anonymous: m.Call.Caller.Anonymous, Native: m.Call.EntryPoint.Native(),
		Agent: m.To.Agent.Name, Rules: rules, Gateways: m.rules.Gateways,
		SourceLevel: m.levelOf(m.Call.Caller), DestLevel: m.To.Agent.AssuranceLevel,
		Source: string(m.Source.Info().Binding), Dest: dest,
		Evidence: m.Evidence.Sources, Path: m.Evidence.Path, Ancestry: m.Evidence.Ancestry, Self: m.Self, Constraints: m.rules.Constraints,
	})
	if !m.mayKnow(err) { // nor how long the agent will be there, and what follows it
		m.To.Agent.Lifecycle = directory.Lifecycle{}
	}
	if m.To.Unreachable != nil && m.mayKnow(err) {
		return m.To.Unreachable
	}
	if m.Call.Agent != "" && m.To.Agent.Name == "" {
		return m.unknownAgent()
	}
	CountDenied(m.Metrics, err)
	m.Permit = permit
	if err != nil || m.Call.Agent == "" {
		return err
	}
	return m.Call.Caller.Permits(cmp.Or(m.To.Agent.Name, m.Call.Agent), "")
}

// perform judges the operation of a message: by the rules of the agent, then by the scopes of the caller's
// access token.
func perform(m *admitting, op canonical.Op) error {
	if err := m.Permit.Perform(string(op)); err != nil || m.Call.Agent == "" {
		return err
	}
	return m.Call.Caller.Permits(cmp.Or(m.To.Agent.Name, m.Call.Agent), string(op))
}

// levelOf is what the directory knows of a caller's declared level.
func (s *Service) levelOf(caller identity.Caller) ect.Level {
	if caller.Anonymous {
		return 0
	}
	agent, _ := s.Directory.Find(string(caller.ID))
	return agent.AssuranceLevel
}

// CountDenied counts a refusal by a constraint of policy; another error is not counted.
func CountDenied(metrics Metrics, err error) {
	if denied, ok := errors.AsType[*policy.Denied](err); ok {
		metrics.Denied(denied.Constraint)
	}
	if _, ok := errors.AsType[*policy.LevelError](err); ok {
		metrics.Denied(policy.ConstraintLevel)
	}
}

// unknownAgent returns the error for an agent that is not listed: at a translate endpoint no path
// (R8).
func (m *admitting) unknownAgent() error {
	if !m.Call.EntryPoint.Native() {
		return &problem.NoPathError{From: string(m.Call.Wire.Binding), To: string(m.Call.To), Detail: "unknown_agent", Suggestion: m.suggestion(m.Call.Agent)}
	}
	return &problem.UnknownAgentError{Agent: m.Call.Agent, Suggestion: m.suggestion(m.Call.Agent)}
}

// suggestion names an agent with a similar name, if the caller may call that agent.
func (m *admitting) suggestion(name string) string {
	var names []string
	for _, agent := range m.Directory.List() {
		if destination.MayCall(m.Call.Caller, agent.Rules) == nil {
			names = append(names, agent.Name)
		}
	}
	return spelling.DidYouMean(name, names)
}

// mayKnow reports whether a refusal may tell about the agent. A caller that policy refuses learns
// nothing about a listed agent; a document that is not allowed is not a listed agent.
func (m *admitting) mayKnow(refusal error) bool {
	return !errors.Is(refusal, ect.ErrRequired) && (m.To.Agent.Name == "" || !errors.As(refusal, new(*policy.Forbidden)))
}
