package hitl_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

var (
	opened = time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	until  = opened.Add(15 * time.Minute)
	call   = hitl.Call{Caller: "spiffe://a.example/caller", Agent: "files", Operation: "invoke", Tool: "delete_file", Digest: ect.Hash([]byte("message"))}
	alice  = hitl.Approver{ID: "spiffe://a.example/alice", Name: "alice"}
	bob    = hitl.Approver{ID: "spiffe://a.example/bob", Name: "bob"}
)

func pending(approvers int) hitl.Approval {
	return hitl.Approval{
		Form: hitl.Form, ID: "one", Term: 1, State: hitl.Pending, Call: call, Shown: "text", Whole: true, Opened: opened, Until: until, Changed: opened,
		Demand: hitl.Demand{
			Rules: []string{"r"}, Roles: []string{"approver"}, Approvers: approvers, Wait: 15 * time.Minute, Unreachable: hitl.Continue, Hash: "rules",
		},
	}
}

// event is one that is allowed.
func event(kind hitl.Kind) hitl.Event {
	e := hitl.Event{
		Kind: kind, At: opened.Add(time.Minute), Approver: alice, Roles: []string{"viewer", "approver"}, Shown: "text", Replica: "r1", Call: call, Rules: "rules",
	}
	if kind == hitl.Expire || kind == hitl.Proceed {
		e.At = until
	}
	return e
}

func next(t *testing.T, a hitl.Approval, events ...hitl.Event) hitl.Approval {
	t.Helper()
	for _, e := range events {
		to, err := a.Next(e)
		if err != nil {
			t.Fatalf("%s in %s: %v", e.Kind, a.State, err)
		}
		a = to
	}
	return a
}

func refused(t *testing.T, a hitl.Approval, e hitl.Event) {
	t.Helper()
	to, err := a.Next(e)
	if _, ok := errors.AsType[*hitl.RefusedError](err); !ok || !reflect.DeepEqual(to, a) {
		t.Errorf("%s in %s: %s, %v, want a refusal and no change", e.Kind, a.State, to.State, err)
	}
}

// TestApproval_EveryTransition tries each event in each state; what is not in the table does not follow.
func TestApproval_EveryTransition(t *testing.T) {
	t.Parallel()
	in := map[hitl.State]hitl.Approval{hitl.Pending: pending(1)}
	for state, kind := range map[hitl.State]hitl.Kind{hitl.Granted: hitl.Grant, hitl.Denied: hitl.Deny, hitl.Expired: hitl.Expire, hitl.Canceled: hitl.Cancel} {
		in[state] = next(t, pending(1), event(kind))
	}
	in[hitl.Consumed] = next(t, in[hitl.Granted], event(hitl.Consume))
	raised := pending(1)
	raised.Demand.Unreachable = hitl.Escalate
	want := map[hitl.State]map[hitl.Kind]hitl.State{
		hitl.Pending: {
			hitl.Grant: hitl.Granted, hitl.Deny: hitl.Denied, hitl.Expire: hitl.Expired, hitl.Proceed: hitl.Granted, hitl.Raise: hitl.Pending, hitl.Cancel: hitl.Canceled,
		},
		hitl.Granted: {hitl.Deny: hitl.Denied, hitl.Expire: hitl.Expired, hitl.Cancel: hitl.Canceled, hitl.Consume: hitl.Consumed},
	}
	for _, state := range hitl.States() {
		if got := state.Over(); got != (want[state] == nil) {
			t.Errorf("%s: over %t", state, got)
		}
		for _, kind := range []hitl.Kind{hitl.Grant, hitl.Deny, hitl.Expire, hitl.Proceed, hitl.Raise, hitl.Cancel, hitl.Consume, "other"} {
			e := event(kind)
			e.Approver = bob
			before := in[state]
			if kind == hitl.Raise && state == hitl.Pending {
				before = raised
			}
			if state == hitl.Granted && kind == hitl.Expire || kind == hitl.Raise {
				e.At = before.Until
			}
			after, err := before.Next(e)
			if before.State != state {
				t.Fatalf("the approval is %s, want %s", before.State, state)
			}
			wanted, ok := want[state][kind]
			if ok && (err != nil || after.State != wanted || after.Term != before.Term+1 || !after.Changed.Equal(e.At)) {
				t.Errorf("%s in %s: %+v, %v, want %s", kind, state, after, err, wanted)
			}
			if _, isState := errors.AsType[*hitl.StateError](err); !ok && (!isState || !reflect.DeepEqual(after, before)) {
				t.Errorf("%s in %s: %v, want a *StateError and no change", kind, state, err)
			}
		}
	}
}

func TestApproval_TheSameDecisionTwice(t *testing.T) {
	t.Parallel()
	granted := next(t, pending(1), event(hitl.Grant))
	if again := next(t, granted, event(hitl.Grant)); !reflect.DeepEqual(again, granted) {
		t.Errorf("a grant twice: %+v, want no change", again)
	}
	denied := next(t, granted, event(hitl.Deny))
	if again := next(t, denied, event(hitl.Deny)); !reflect.DeepEqual(again, denied) {
		t.Errorf("a denial twice: %+v, want no change", again)
	}
	if _, err := denied.Next(event(hitl.Grant)); err == nil {
		t.Error("a grant after the own denial: no error, want one: it is denied")
	}
}

// TestApproval_ProceedCanBeSent: what goes on without a human has time to be sent, once.
func TestApproval_ProceedCanBeSent(t *testing.T) {
	t.Parallel()
	e := event(hitl.Proceed)
	e.Reason = "no human decided"
	a := next(t, pending(2), e)
	if want := until.Add(15 * time.Minute); !a.Until.Equal(want) {
		t.Errorf("it expires at %s, want %s", a.Until, want)
	}
	send := event(hitl.Consume)
	send.At = until.Add(time.Second)
	sent := next(t, a, send)
	if sent.State != hitl.Consumed || sent.End.Why != "no human decided" || sent.End.Replica != "r1" {
		t.Errorf("sent: %+v", sent)
	}
	send.At = a.Until
	refused(t, a, send)
}

func TestApproval_ProceedNeedsTheRules(t *testing.T) {
	t.Parallel()
	for _, u := range []hitl.Unreachable{hitl.DenyCall, hitl.Escalate, ""} {
		a := pending(1)
		a.Demand.Unreachable = u
		refused(t, a, event(hitl.Proceed))
	}
	a := pending(1)
	a.Whole = false
	refused(t, a, event(hitl.Proceed))
	if got := next(t, a, event(hitl.Expire)).State; got != hitl.Expired {
		t.Errorf("it is %s, want expired", got)
	}
}

func TestApproval_TimeIsOverAtItsEnd(t *testing.T) {
	t.Parallel()
	a := pending(1)
	granted := next(t, a, event(hitl.Grant))
	for _, kind := range []hitl.Kind{hitl.Grant, hitl.Deny} {
		e := event(kind)
		e.At = until
		refused(t, a, e)
		e.At = until.Add(-1)
		next(t, a, e)
	}
	early := event(hitl.Expire)
	early.At = until.Add(-1)
	refused(t, a, early)
	refused(t, granted, early)
	late := event(hitl.Consume)
	late.At = granted.Until
	refused(t, granted, late)
	late.At = late.At.Add(-1)
	next(t, granted, late)
	if want := event(hitl.Grant).At.Add(a.Demand.Wait); !granted.Until.Equal(want) {
		t.Errorf("granted, it may be sent until %s, want %s", granted.Until, want)
	}
}

func TestApproval_RulesThatChanged(t *testing.T) {
	t.Parallel()
	granted := next(t, pending(1), event(hitl.Grant))
	e := event(hitl.Consume)
	e.Rules = "others"
	refused(t, granted, e)
	e.Rules = ""
	if got := next(t, granted, e).State; got != hitl.Consumed {
		t.Errorf("without a rule it is %s, want consumed", got)
	}
}

func TestApproval_ReplicaIsThatWhichConsumes(t *testing.T) {
	t.Parallel()
	if got := next(t, pending(1), event(hitl.Grant)).End.Replica; got != "" {
		t.Errorf("granted by replica %q, want none", got)
	}
}

// TestAttack_Approval_CallerGrantsItsOwn: a caller grants its own call.
func TestAttack_Approval_CallerGrantsItsOwn(t *testing.T) {
	t.Parallel()
	for _, kind := range []hitl.Kind{hitl.Grant, hitl.Deny} {
		e := event(kind)
		e.Approver = hitl.Approver{ID: call.Caller, Name: "other"}
		refused(t, pending(1), e)
	}
}

// TestAttack_Approval_OneApproverForFourEyes: one approver grants twice where two are demanded, also under another name.
func TestAttack_Approval_OneApproverForFourEyes(t *testing.T) {
	t.Parallel()
	once := next(t, pending(2), event(hitl.Grant))
	if once.State != hitl.Pending || len(once.Decisions) != 1 {
		t.Fatalf("after one of two: %s, %d decisions", once.State, len(once.Decisions))
	}
	if again := next(t, once, event(hitl.Grant)); !reflect.DeepEqual(again, once) {
		t.Error("the same grant twice counts twice")
	}
	for _, who := range []hitl.Approver{{ID: alice.ID}, {Name: alice.Name}, {ID: alice.ID, Name: "other"}, {ID: bob.ID, Name: alice.Name}} {
		e := event(hitl.Grant)
		e.Approver = who
		refused(t, once, e)
	}
	e := event(hitl.Grant)
	e.Approver = bob
	if got := next(t, once, e); got.State != hitl.Granted || len(got.Decisions) != 2 {
		t.Errorf("after two of two: %s", got.State)
	}
}

// TestAttack_Approval_RoleMissing: an approver without a role that is demanded decides.
func TestAttack_Approval_RoleMissing(t *testing.T) {
	t.Parallel()
	a := pending(1)
	a.Demand.Roles = []string{"approver", "operator:oncall"}
	for _, roles := range [][]string{nil, {"approver"}, {"operator:oncall"}, {"approver", "operator", "operator:other"}} {
		e := event(hitl.Grant)
		e.Roles = roles
		refused(t, a, e)
		e.Kind = hitl.Deny
		refused(t, a, e)
	}
	e := event(hitl.Grant)
	e.Roles = []string{"operator:oncall", "approver"}
	next(t, a, e)
}

// TestAttack_Approval_OtherText: a decision is about another text than the one that is shown.
func TestAttack_Approval_OtherText(t *testing.T) {
	t.Parallel()
	for _, kind := range []hitl.Kind{hitl.Grant, hitl.Deny} {
		for _, text := range []string{"", "Text", "text2"} {
			e := event(kind)
			e.Shown = text
			refused(t, pending(1), e)
		}
	}
	a := pending(1)
	a.Whole = false
	refused(t, a, event(hitl.Grant))
	next(t, a, event(hitl.Deny))
}

// TestAttack_Approval_WithoutIdentity: a decision names no approver.
func TestAttack_Approval_WithoutIdentity(t *testing.T) {
	t.Parallel()
	e := event(hitl.Grant)
	e.Approver = hitl.Approver{}
	refused(t, pending(1), e)
}

// TestAttack_Approval_OtherCallIsSent: another call is sent on an approval.
func TestAttack_Approval_OtherCallIsSent(t *testing.T) {
	t.Parallel()
	granted := next(t, pending(1), event(hitl.Grant))
	changes := []func(*hitl.Call){
		func(c *hitl.Call) { c.Caller += "x" }, func(c *hitl.Call) { c.Address = "192.0.2.1" }, func(c *hitl.Call) { c.Agent = "other" },
		func(c *hitl.Call) { c.Operation = "native" }, func(c *hitl.Call) { c.Tool = "" }, func(c *hitl.Call) { c.Digest = ect.Hash(nil) },
	}
	if n := reflect.TypeFor[hitl.Call]().NumField(); n != len(changes) {
		t.Errorf("a call has %d fields, %d are tried", n, len(changes))
	}
	for _, change := range changes {
		e := event(hitl.Consume)
		change(&e.Call)
		refused(t, granted, e)
	}
	sent := next(t, granted, event(hitl.Consume))
	if _, err := sent.Next(event(hitl.Consume)); err == nil {
		t.Error("it is sent twice")
	}
}

// TestApproval_DoesNotChange: two that follow one approval share no decisions.
func TestApproval_DoesNotChange(t *testing.T) {
	t.Parallel()
	a := pending(5)
	a.Decisions = slices.Grow(a.Decisions, 8)
	one := next(t, a, event(hitl.Grant))
	e := event(hitl.Grant)
	e.Approver = bob
	other := next(t, a, e)
	if one.Decisions[0].Approver != alice || other.Decisions[0].Approver != bob || len(a.Decisions) != 0 {
		t.Errorf("decisions are shared: %+v, %+v", one.Decisions, other.Decisions)
	}
}

// TestApproval_WaitsOnceMore: where operators are told again, an approval waits as long once more, and not twice.
func TestApproval_WaitsOnceMore(t *testing.T) {
	t.Parallel()
	refused(t, pending(1), event(hitl.Raise))
	a := pending(1)
	a.Demand.Unreachable = hitl.Escalate
	late := event(hitl.Raise)
	late.At = a.Until
	early := late
	early.At = early.At.Add(-1)
	refused(t, a, early)
	raised := next(t, a, late)
	if raised.State != hitl.Pending || raised.Demand.Unreachable != hitl.DenyCall || !raised.Until.Equal(late.At.Add(a.Demand.Wait)) {
		t.Errorf("it is %+v", raised)
	}
	late.At = raised.Until
	refused(t, raised, late)
	late.Kind = hitl.Expire
	if got := next(t, raised, late).State; got != hitl.Expired {
		t.Errorf("it is %s, want expired", got)
	}
}
