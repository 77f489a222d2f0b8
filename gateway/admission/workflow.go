package admission

import (
	"context"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// maxSearched bounds how many tokens of a workflow, the oldest first, are searched for its work.
const maxSearched = 256

// goesOn reports whether a message is the next step of a workflow that had work here when a drain
// was ordered (R16): this gateway has signed a request of that workflow before, to that audience;
// empty: to any. The caller must belong to the workflow. Zero: the drain lets no workflow go on.
func (m *admitting) goesOn(ctx context.Context, ordered time.Time, audience []string) (bool, error) {
	workflow, _ := m.Admitted.Evidence.Origins()
	if ordered.IsZero() || workflow == "" || m.Call.Caller.Anonymous {
		return false, nil
	}
	var records []ect.Record
	belongs, err := m.Members.Belongs(ctx, workflow, m.Call.Caller.ID)
	if belongs && err == nil {
		records, _, err = m.Deps.Evidence.Workflow(ctx, workflow, "", maxSearched)
	}
	if err != nil {
		return false, attest.Recording(err)
	}
	return slices.ContainsFunc(records, func(r ect.Record) bool { return m.isEarlier(r, ordered, audience) }), nil
}

// isEarlier reports whether a record is a request that this gateway had sent to an audience when a drain was ordered.
func (m *admitting) isEarlier(r ect.Record, ordered time.Time, audience []string) bool {
	if r.Issuer != m.Self || r.Act != ect.ActTranslate && r.Act != ect.ActCPATTranslate {
		return false
	}
	if len(audience) > 0 && !slices.ContainsFunc(audience, func(one string) bool { return slices.Contains(r.Audience, one) }) {
		return false
	}
	claims, _, err := ect.ParseUnverified(r.Compact) // our own token
	if err != nil || claims.IssuedAt > ordered.Unix() {
		return false
	}
	direction, found := claims.Ext.String(ect.ExtLeg)
	return !found || direction == "request"
}

// audience is how tokens name the agent that is asked.
func (m *admitting) audience() []string {
	agent := m.To.Agent
	if agent.ID != "" {
		return []string{string(agent.ID)}
	}
	names := make([]string, len(agent.Endpoints))
	for i, e := range agent.Endpoints {
		names[i] = e.Audience(agent.Name)
	}
	return names
}

// judgeWorkflow judges a message by its workflow: it refuses new work of one that humans hold. Its tokens are not used up: a message of a paused workflow can
// come again. One that was admitted before goes on.
func judgeWorkflow(ctx context.Context, m *admitting) error {
	workflow, ids := m.Admitted.Evidence.Origins()
	if len(ids) == 0 {
		return nil
	}
	refusal := m.Gate.Level(ctx, workflow, string(canonical.OpInvoke), true)
	if refusal == nil {
		return nil
	}
	if begins, err := m.beginsWork(ctx); err != nil || !begins {
		return err
	}
	if used, err := m.used(ctx); err != nil || used {
		return err
	}
	return refusal
}

// judgeTasks judges the tasks of agents that a message brings: by the rules of their workflow's graph, and
// whether their parents are done. The tokens of gateways are judged by the translation path (R1).
func (m *admitting) judgeTasks(ctx context.Context) error {
	for _, v := range m.own() {
		if v.Act().Namespaced() || len(v.Parents()) == 0 {
			continue // it annotates, or begins
		}
		if err := m.Service.judgeGraph(ctx, m, v); err != nil {
			return err
		}
		// Parents that came along are not judged: what happened before the message reached this gateway is not on
		// record here.
		parents := slices.DeleteFunc(v.Parents(), func(id ect.ID) bool {
			return slices.ContainsFunc(m.Evidence.Parents, func(p ect.Verified) bool { return p.ID() == id })
		})
		refusal := m.Gate.Ready(ctx, v.Workflow(), parents, v.Issuer())
		if refusal == nil {
			continue
		}
		begins, err := m.beginsWork(ctx)
		if err != nil {
			return err
		}
		if !begins { // what goes on with a task does not wait for its end
			continue
		}
		// The tokens are not used up: the message can come again. One that was admitted before goes on.
		if used, err := m.used(ctx); err != nil || used {
			return err
		}
		return refusal
	}
	return nil
}

// judgeErrors judges the errors that a caller brings and signed itself: each is about steps of its own workflow, and its issuer signed one of these or
// is in the audience of one (ATD, False Error Injection). Another one would have the work of others fail.
func judgeErrors(ctx context.Context, m *admitting) error {
	submitted := slices.Concat(m.Evidence.Sources, m.Evidence.Parents)
	for _, v := range submitted {
		if v.Act() != ect.ActError || v.Issuer() != m.Call.Caller.ID {
			continue
		}
		concerned, err := m.Service.concerned(ctx, v, submitted)
		if err != nil {
			return err
		}
		if !concerned {
			m.Metrics.FalseError()
			return &ect.InvalidError{Reason: ect.ReasonUnknownParent, ID: v.ID(), Claim: "par"}
		}
	}
	return nil
}

// concerned reports whether the parents of a token are in its workflow, and one of them is its issuer's business.
func (s *Service) concerned(ctx context.Context, v ect.Verified, submitted []ect.Verified) (bool, error) {
	parents := v.Parents()
	if v.Workflow() == "" || len(parents) == 0 || len(parents) > ect.MaxLookups {
		return false, nil
	}
	refs := make([]ect.Ref, len(parents))
	for i, id := range parents {
		refs[i] = ect.Ref{ID: id, Workflow: v.Workflow()}
	}
	found, err := s.Evidence.Get(ctx, refs...)
	if err != nil {
		return false, attest.Recording(err)
	}
	business := false
	for i, id := range parents {
		for _, one := range submitted {
			if one.ID() == id {
				found[i] = append(found[i], ect.Record{Workflow: one.Workflow(), Issuer: one.Issuer(), Audience: one.Audience()})
			}
		}
		elsewhere := func(r ect.Record) bool { return r.Workflow != v.Workflow() }
		if found[i] = slices.DeleteFunc(found[i], elsewhere); len(found[i]) == 0 {
			return false, nil
		}
		business = business || slices.ContainsFunc(found[i], func(r ect.Record) bool { return s.isBusinessOf(r, v.Issuer()) })
	}
	return business, nil
}

// isBusinessOf reports whether an identity signed a token, or is in its audience, or is the caller whose message a token of ours is about.
func (s *Service) isBusinessOf(r ect.Record, who ect.Identity) bool {
	if r.Issuer == who || slices.Contains(r.Audience, string(who)) {
		return true
	}
	if r.Issuer != s.Self {
		return false
	}
	claims, _, err := ect.ParseUnverified(r.Compact) // our own
	caller, _ := claims.Ext.String(ect.ExtCaller)
	return err == nil && caller == string(who)
}

// judgeGraph judges a task by the rules of its workflow's graph, as far as the tokens that came along and those
// on record tell (ECT draft, "DAG Validation"). The operator decides what a violation means ([policy.GraphRule]).
func (s *Service) judgeGraph(ctx context.Context, m *admitting, v ect.Verified) error {
	rule := m.rules.Constraints.Graph
	if rule == policy.GraphOff || len(v.Parents()) >= ect.MaxLookups {
		return nil
	}
	refs := []ect.Ref{{ID: v.ID(), Workflow: v.Workflow()}}
	for _, id := range v.Parents() {
		refs = append(refs, ect.Ref{ID: id, Workflow: v.Workflow()})
	}
	records, err := s.Evidence.Get(ctx, refs...)
	if err != nil {
		return attest.Recording(err)
	}
	var known []dag.Node
	for _, one := range slices.Concat(m.Evidence.Sources, m.Evidence.Parents) {
		known = append(known, dag.NodeOf(one))
	}
	for _, r := range slices.Concat(records...) {
		known = append(known, dag.NodeOfRecord(r))
	}
	findings := dag.Judge(dag.NodeOf(v), known)
	for _, f := range findings {
		s.Metrics.Verified(v.Level(), string(f.Rule.Reason()))
	}
	switch {
	case len(findings) == 0:
		return nil
	case rule == policy.GraphRefuse:
		return &ect.InvalidError{Reason: findings[0].Rule.Reason(), ID: v.ID(), Claim: "par"}
	}
	s.Attest.Warn(ctx, findings[0].String(), v)
	return nil
}
