package gateway_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// change orders a level of a workflow.
func (b *fixture) change(t testing.TB, wid string, start ect.ID, step hitl.Step, roles ...string) (approval.Level, error) {
	t.Helper()
	return b.Parts().Levels.Change(t.Context(), wid, approval.Order{
		Event: hitl.StandingEvent{Step: step, At: b.now(), By: "boss", Reason: "seen", Roles: roles},
		After: attest.Lineage{Workflow: wid, Parents: []ect.ID{start}},
	})
}

func isAtLevel(err error, stopped bool) bool {
	level, ok := errors.AsType[*problem.LevelError](err)
	return ok && level.Stopped == stopped
}

// TestLevel_OfAWorkflow: new work of a paused workflow waits and can come again, other work goes on; that of a stopped
// one is refused; each level needs the role that it says to be lifted, and the lifting names what it lifts.
func TestLevel_OfAWorkflow(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	wid, start := b.begin(t)
	token := b.task(t, wid, addBody, start.ID)
	pause, err := b.change(t, wid, start.ID, hitl.Pause)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := b.Exchange(t.Context(), b.call(addBody, token)); !isAtLevel(err, false) || problem.From(err).Code != problem.CodePaused {
			t.Fatalf("while it is paused: %v", err)
		}
	}
	if _, err := b.Exchange(t.Context(), b.call(addBody)); err != nil {
		t.Errorf("another workflow: %v", err)
	}
	sent := len(b.agent.bodies)
	if _, err := b.change(t, wid, start.ID, hitl.Lift, "viewer"); !isRefusal(err) {
		t.Errorf("lifted by a viewer: %v", err)
	}
	lift, err := b.change(t, wid, start.ID, hitl.Lift, "operator")
	if err != nil {
		t.Fatal(err)
	}
	escalation, override := claims(t, pause.Token), claims(t, lift.Token)
	if escalation.Act != ect.ActEscalate || !slices.Equal(escalation.Parents, []ect.ID{start.ID}) || override.Act != ect.ActApprovalGranted || !slices.Equal(override.Parents, []ect.ID{escalation.ID}) {
		t.Errorf("the pause is %+v, its lifting %+v", escalation, override)
	}
	if _, err := b.Exchange(t.Context(), b.call(addBody, token)); err != nil || len(b.agent.bodies) != sent+1 {
		t.Errorf("the same message once it goes on: %v", err)
	}
	if _, err := b.change(t, wid, start.ID, hitl.Stop); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Exchange(t.Context(), b.call(addBody, b.task(t, wid, addBody, start.ID))); !isAtLevel(err, true) || problem.From(err).Code != problem.CodeStopped {
		t.Errorf("while it is stopped: %v", err)
	}
	if levels := b.Parts().Levels.List(); len(levels) != 1 || levels[0].Workflow != wid {
		t.Errorf("held are %+v", levels)
	}
}

func isRefusal(err error) bool {
	_, ok := errors.AsType[*hitl.RefusedError](err)
	return ok
}

// TestLevel_PauseBecomesAStop: a pause that is not lifted in a day is a stop.
func TestLevel_PauseBecomesAStop(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	wid, start := b.begin(t)
	if _, err := b.change(t, wid, start.ID, hitl.Pause); err != nil {
		t.Fatal(err)
	}
	b.setNow(b.now().Add(hitl.MaxPause - time.Second))
	if got := b.Parts().Levels.Of(wid).Mode; got != hitl.Paused {
		t.Errorf("a second before: %s", got)
	}
	b.setNow(b.now().Add(time.Second))
	if _, err := b.Exchange(t.Context(), b.call(addBody, b.task(t, wid, addBody, start.ID))); !isAtLevel(err, true) {
		t.Errorf("a day later: %v", err)
	}
	if h, err := b.change(t, wid, start.ID, hitl.Lift, "operator"); err != nil || h.Mode != hitl.Running {
		t.Errorf("lifted: %+v, %v", h, err)
	}
}

// TestLevel_CriticalError: a rule about the severity of errors holds the workflow of a critical one, behind the error.
func TestLevel_CriticalError(t *testing.T) {
	t.Parallel()
	for action, stopped := range map[string]bool{"pause": false, "escalate": false, "stop": true} {
		rules, err := hitl.ParseDocumentRules([]byte(`{"rules":[{"id":"r-critical-error","trigger":{"kind":"keyword_match","op":"eq","value":"critical","input_ref":"atd.severity"},"required_role":"operator:oncall","action":"` + action + `","allow_override":true,"override_action":"continue"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		b := newFixture(t, gateway.Settings{Approvals: rules}, policy.Rules{Open: true})
		wid, start := b.begin(t)
		b.agent.fail = errors.New("a bug")
		_, _ = b.Exchange(t.Context(), b.call(addBody, b.task(t, wid, addBody, start.ID)))
		b.agent.fail = nil
		if _, err := b.Exchange(t.Context(), b.call(addBody, b.task(t, wid, addBody, start.ID))); !isAtLevel(err, stopped) {
			t.Errorf("%s: %v", action, err)
		}
		level := b.Parts().Levels.Of(wid)
		failed := claims(t, level.Token).Parents[0]
		tokens := b.tokensOf(t, wid)
		if at := slices.IndexFunc(tokens, func(c ect.Claims) bool { return c.ID == failed }); at < 0 || tokens[at].Act != ect.ActError {
			t.Errorf("%s: what holds the workflow follows from %s, expected the error", action, failed)
		}
		if _, err := b.change(t, wid, start.ID, hitl.Lift, "operator"); !isRefusal(err) {
			t.Errorf("%s: lifted by another operator: %v", action, err)
		}
		if _, err := b.change(t, wid, start.ID, hitl.Lift, "operator", "operator:oncall"); err != nil {
			t.Errorf("%s: %v", action, err)
		}
	}
}

// TestLevel_OtherErrorsHoldNothing: an error of another severity holds nothing, and without a rule none does.
func TestLevel_OtherErrorsHoldNothing(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{Approvals: approvalRules(t, hitl.Config{Tool: "add", Agent: "other"})}, policy.Rules{Open: true})
	wid, start := b.begin(t)
	b.agent.fail = errors.New("a bug")
	_, _ = b.Exchange(t.Context(), b.call(addBody, b.task(t, wid, addBody, start.ID)))
	if levels := b.Parts().Levels.List(); len(levels) != 0 {
		t.Errorf("held are %+v", levels)
	}
}

// TestLevel_FailedRollbackStops: a rollback result that says failed stops its workflow; another one does not.
func TestLevel_FailedRollbackStops(t *testing.T) {
	t.Parallel()
	for status, stopped := range map[string]bool{"completed": false, "failed": true} {
		b := newSignalFixture(t)
		b.agent.spoil = func(c *ect.Claims) { c.Ext[ect.ExtStatus] = json.RawMessage(`"` + status + `"`) }
		wid, checkpoint := b.work("")
		if _, err := b.Exchange(t.Context(), b.say(b.caller, b.rollback(b.caller, wid, checkpoint))); err != nil {
			t.Fatal(err)
		}
		level := b.Parts().Levels.Of(wid)
		if (level.Mode == hitl.Stopped) != stopped {
			t.Errorf("a rollback that is %s: %+v", status, level)
		}
		if !stopped {
			continue
		}
		parents := claims(t, level.Token).Parents
		if records := b.parents(parents[0]); len(parents) != 1 || len(records) == 0 {
			t.Errorf("the stop follows from %v", parents)
		}
	}
}

// TestLevel_HoldsAGrantedCall: a call that was granted while its workflow is paused is sent once that goes on; in a
// stopped workflow it is never sent.
func TestLevel_HoldsAGrantedCall(t *testing.T) {
	t.Parallel()
	for step, want := range map[hitl.Step]string{hitl.Pause: "TASK_STATE_COMPLETED", hitl.Stop: "TASK_STATE_REJECTED"} {
		synctest.Test(t, func(t *testing.T) {
			callbacks := &notified{}
			b := timed(t, hitl.Config{}, func(d *gateway.Deps) { d.Network.Callbacks = callbacks })
			id := b.park(t)
			wid := b.onlyApproval(t).Origin.Workflow
			b.setNow(time.Now())
			if _, err := b.change(t, wid, b.onlyApproval(t).Origin.Gated, step); err != nil {
				t.Fatal(err)
			}
			if err := b.Parts().Callbacks.Await(t.Context(), b.caller.ID, wid, "https://example.com/hook"); err != nil {
				t.Fatal(err)
			}
			b.decide(t, true)
			time.Sleep(time.Minute)
			if count := callbacks.count(); count != 1 {
				t.Errorf("%s: the decision was told %d times while the call waits, expected once", step, count)
			}
			if state, _ := b.taskState(t, id); len(b.agent.bodies) != 0 || step == hitl.Pause && state != "TASK_STATE_AUTH_REQUIRED" {
				t.Errorf("%s: the task is %s, the call was sent %d times", step, state, len(b.agent.bodies))
			}
			if step == hitl.Pause {
				if _, err := b.change(t, wid, b.onlyApproval(t).Origin.Gated, hitl.Lift, "operator"); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
			if state, why := b.taskState(t, id); state != want {
				t.Errorf("%s: in the end the task is %s (%s), expected %s", step, state, why, want)
			}
		})
	}
}

// TestLevel_OfADialogue: a message that a dialogue leads to a held workflow is held, too.
func TestLevel_OfADialogue(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	body := strings.Replace(addBody, `"messageId"`, `"contextId":"talk","messageId"`, 1)
	answer, err := b.Exchange(t.Context(), b.call(body))
	if err != nil {
		t.Fatal(err)
	}
	first := claims(t, answer.Evidence[0])
	if _, err := b.change(t, first.Workflow, first.ID, hitl.Pause); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Exchange(t.Context(), b.call(body)); !isAtLevel(err, false) || len(b.agent.bodies) != 1 {
		t.Errorf("the next message: %v, sent %d times", err, len(b.agent.bodies))
	}
}
