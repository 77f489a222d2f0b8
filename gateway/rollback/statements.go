package rollback

import (
	"encoding/json"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/directory"
	undo "github.com/aepb/aepb-gateway/lifecycle/rollback"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

// statements says what is signed of a rollback.
type statements struct {
	self      ect.Identity
	directory *directory.Directory
}

// stepRequest asks for one step (ATD, Basic Rollback). Its one parent is the checkpoint, since a further gateway knows no other token of the
// rollback; aepb.rollback names the request that it follows. It does not cascade: what depends on the step was undone before it.
func (s statements) stepRequest(u underWay, at int) *attest.Statement {
	step := u.Steps[at]
	ext := ect.Ext{}
	ext.SetText(ect.ExtATDReason, reasonOf(u))
	ext.SetBool(ect.ExtCascade, false)
	ext.SetString(ect.ExtRollback, string(u.Request))
	return s.statement(u, ect.ActRollbackRequest, ext, s.audience(step.Agent), u.known(step))
}

// The reasons that the gateway gives for what follows from a failure.
const (
	cascadeReason  = "a step failed, and takes with it what led to it alone"
	reasonLeft     = "something cannot be undone: an approver decides"
	reasonCritical = "a rollback reaches steps that are declared critical: an operator lets the workflow go on, or stops it"
)

// cascade asks for the rollback that follows from a failure (AEPB, Translation Failure Handling). The error is what it follows from.
func (s statements) cascade(a aftermath) *attest.Statement {
	ext := ect.Ext{}
	ext.SetText(ect.ExtATDReason, cascadeReason)
	ext.SetBool(ect.ExtCascade, true)
	ext.SetList(ect.ExtUpstreamErrors, []string{string(attest.After(a.Cause).Parents[0])}, 0)
	return &attest.Statement{
		Act: ect.ActRollbackRequest, Lineage: attest.Lineage{Workflow: a.Workflow, Parents: []ect.ID{a.Roots[0]}}, Audience: []string{string(a.Caller)},
		Ext: ext, Holder: a.Holder,
	}
}

// call calls humans to what cannot be undone (ATD, Interaction with HITL, 1). content is what they decide about.
func (s statements) call(a aftermath, content []byte) *attest.Statement {
	ext := ect.Ext{}
	ext.SetString(ect.ExtEscalation, "irreversible")
	return &attest.Statement{
		Act: ect.ActEscalate, Lineage: attest.After(a.Cause), Audience: []string{string(a.Caller)}, Input: ect.Hash(content), Ext: ext, Holder: a.Holder,
	}
}

func reasonOf(u underWay) string {
	if u.Reason != "" {
		return u.Reason
	}
	return "a rollback of the workflow was requested"
}

// stepResult says that a step is undone. by are the tokens of the agent that say so.
func (s statements) stepResult(u underWay, step undo.Progress, restored string, by []ect.ID) *attest.Statement {
	request, err := ect.ParseRecorded(step.Request)
	if err != nil {
		return nil // it was read before
	}
	ext := ect.Ext{}
	ext.SetString(ect.ExtStatus, string(undo.StatusCompleted))
	ext.SetString(ect.ExtCheckpointID, string(step.Checkpoint))
	ext[ect.ExtCascaded] = json.RawMessage("[]")
	st := s.statement(u, ect.ActRollbackResult, ext, nil, append([]ect.ID{request.ID}, by...)...)
	st.Output = restored
	return st
}

// overdue is the error of a rollback that took longer than it may (ATD, Rollback Timeout and Escalation).
func (s statements) overdue(u underWay) *attest.Statement {
	ext := ect.Ext{}
	ext.SetString(ect.ExtSeverity, workflow.SeverityCritical.String())
	ext.SetString(ect.ExtErrorType, string(workflow.ErrorTimeout))
	ext.SetString(ect.ExtCheckpointID, string(u.From))
	ext.SetText(ect.ExtATDDescription, "rollback timeout: it was not over by "+u.By.UTC().Format(time.RFC3339))
	ext.SetList(ect.ExtUpstreamErrors, []string{}, 0)
	return s.statement(u, ect.ActError, ext, nil, u.Request)
}

// escalation calls a human: behind the error where the time is over, else behind the request, because something cannot be undone.
func (s statements) escalation(u underWay) *attest.Statement {
	ext, reason := ect.Ext{}, "irreversible"
	if u.Error != "" {
		reason = "rollback_timeout"
	}
	ext.SetString(ect.ExtEscalation, reason)
	st := s.statement(u, ect.ActEscalate, ext, nil, u.Request)
	if u.Error != "" {
		st.Lineage = attest.After(u.Error)
	}
	return st
}

// ending is the result of the whole rollback (ATD, Basic Rollback).
func (s statements) ending(u underWay) *attest.Statement {
	j := u.Journal
	st := s.statement(u, ect.ActRollbackResult, j.Ext(), nil, j.Request)
	st.Output = j.OutHash()
	return st
}

func (s statements) statement(u underWay, act ect.Act, ext ect.Ext, audience []string, parents ...ect.ID) *attest.Statement {
	if u.Issuer != s.self {
		audience = append(audience, string(u.Issuer))
	}
	return &attest.Statement{
		Act: act, Lineage: attest.Lineage{Workflow: u.Workflow, Parents: parents}, Audience: audience, Ext: ext, Holder: u.Holder,
	}
}

// audience is how tokens name an agent.
func (s statements) audience(name string) []string {
	agent, found := s.directory.Find(name)
	switch {
	case !found:
		return nil
	case agent.ID != "":
		return []string{string(agent.ID)}
	case len(agent.Endpoints) > 0:
		return []string{agent.Endpoints[0].Audience(agent.Name)}
	}
	return nil
}

// derived is the id of what is sent for a request of the gateway's own: always the same one.
func derived(request ect.ID) ect.ID { return ect.DerivedID("rollback step " + string(request)) }
