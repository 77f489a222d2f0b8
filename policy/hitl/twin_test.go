package hitl_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/policy/hitl"
)

// number reads an environment variable, such as AEPB_STEPS that make chaos sets.
func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		t.Fatalf("%s: %v, want a number", variable, err)
	}
	return n
}

// twin is an approval as the list of all events that happened to it, judged afresh each time.
type twin struct {
	demand hitl.Demand
	whole  bool
	log    []hitl.Event
}

func (w twin) count(kind hitl.Kind) (n int) {
	for _, e := range w.log {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

func (w twin) state() hitl.State {
	switch {
	case w.count(hitl.Consume) > 0:
		return hitl.Consumed
	case w.count(hitl.Deny) > 0:
		return hitl.Denied
	case w.count(hitl.Cancel) > 0:
		return hitl.Canceled
	case w.count(hitl.Expire) > 0:
		return hitl.Expired
	case w.count(hitl.Proceed) > 0, w.count(hitl.Grant) >= max(w.demand.Approvers, 1):
		return hitl.Granted
	default:
		return hitl.Pending
	}
}

func (w twin) end() time.Time {
	end, grants := until, 0
	for _, e := range w.log {
		if e.Kind == hitl.Grant {
			grants++
		}
		whole := e.Kind == hitl.Grant && grants == max(w.demand.Approvers, 1)
		if whole || e.Kind == hitl.Proceed || e.Kind == hitl.Raise {
			end = e.At.Add(w.demand.Wait)
		}
	}
	return end
}

const (
	accepted = iota
	repeated
	outOfState
	notAllowed
)

// judge says what becomes of an event.
func (w twin) judge(e hitl.Event) int {
	decision := e.Kind == hitl.Grant || e.Kind == hitl.Deny
	var last hitl.Kind
	hasGranted := false
	for _, old := range w.log {
		if old.Kind == hitl.Grant || old.Kind == hitl.Deny {
			if old.Approver == e.Approver {
				last = old.Kind
			}
			hasGranted = hasGranted || old.Approver.ID != "" && old.Approver.ID == e.Approver.ID ||
				old.Approver.Name != "" && old.Approver.Name == e.Approver.Name
		}
	}
	if decision && last == e.Kind {
		return repeated
	}
	state := w.state()
	if state != hitl.Pending && state != hitl.Granted || state == hitl.Granted && (e.Kind == hitl.Grant || e.Kind == hitl.Proceed || e.Kind == hitl.Raise) ||
		state == hitl.Pending && e.Kind == hitl.Consume {
		return outOfState
	}
	inTime := e.At.Before(w.end())
	var ok bool
	switch e.Kind {
	case hitl.Grant, hitl.Deny:
		ok = inTime && e.Approver != (hitl.Approver{}) && e.Approver.ID != call.Caller && e.Shown == "text"
		for _, role := range w.demand.Roles {
			ok = ok && slices.Contains(e.Roles, role)
		}
		ok = ok && (e.Kind == hitl.Deny || w.whole && !hasGranted)
	case hitl.Expire:
		ok = !inTime
	case hitl.Proceed:
		ok = !inTime && w.demand.Unreachable == hitl.Continue && w.whole
	case hitl.Raise:
		ok = !inTime && w.demand.Unreachable == hitl.Escalate && w.count(hitl.Raise) == 0
	case hitl.Consume:
		ok = inTime && e.Call == call && (e.Rules == "" || e.Rules == w.demand.Hash)
	case hitl.Cancel:
		ok = true
	}
	if ok {
		return accepted
	}
	return notAllowed
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// often is the first of a list mostly.
func often[T any](r *rand.Rand, list ...T) T {
	if r.IntN(4) > 0 {
		return list[0]
	}
	return pick(r, list...)
}

func randomEvent(r *rand.Rand, a hitl.Approval) hitl.Event {
	carol, other := hitl.Approver{Name: "carol"}, call
	other.Digest = "other"
	return hitl.Event{
		Kind: pick(r, hitl.Grant, hitl.Grant, hitl.Grant, hitl.Deny, hitl.Expire, hitl.Proceed, hitl.Raise, hitl.Cancel, hitl.Consume, hitl.Consume),
		At:   often(r, opened.Add(time.Duration(r.Int64N(int64(15*time.Minute)))), a.Until, a.Until.Add(-1), a.Until.Add(time.Duration(r.Int64N(int64(time.Hour))))),
		Approver: pick(r, alice, alice, bob, bob, carol, hitl.Approver{ID: alice.ID}, hitl.Approver{Name: "bob"},
			hitl.Approver{ID: "spiffe://a.example/dave", Name: "alice"}, hitl.Approver{ID: call.Caller}, hitl.Approver{}),
		Roles:  often(r, []string{"operator", "operator:oncall", "approver"}, nil, []string{"approver"}, []string{"operator:oncall"}),
		Reason: pick(r, "", "because"), Shown: often(r, "text", "", "other"), Replica: pick(r, "r1", "r2"),
		Call: often(r, call, other), Rules: often(r, "rules", "", "others"),
	}
}

// TestApproval_Twin goes random steps with an approval and its dumb twin.
func TestApproval_Twin(t *testing.T) {
	t.Parallel()
	seed := number(t, "AEPB_SEED", rand.Uint64())
	t.Logf("AEPB_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 23))
	verdicts, states := map[int]int{}, map[hitl.State]int{}
	for left := int(number(t, "AEPB_STEPS", 50_000)); left > 0; {
		a := pending(r.IntN(4))
		a.Demand.Unreachable = pick(r, hitl.Continue, hitl.DenyCall, hitl.Escalate)
		a.Demand.Roles = pick(r, []string{"approver"}, []string{"approver", "operator:oncall"})
		a.Whole = r.IntN(5) > 0
		w := twin{demand: a.Demand, whole: a.Whole}
		for range min(left, 1+r.IntN(20)) {
			left--
			e := randomEvent(r, a)
			verdict := w.judge(e)
			verdicts[verdict]++
			if verdict == accepted {
				w.log = append(w.log, e)
			}
			before, count := a, len(a.Decisions)
			to, err := a.Next(e)
			compare(t, w, e, verdict, before, to, err)
			if len(before.Decisions) != count || t.Failed() {
				t.Fatalf("AEPB_SEED=%d", seed)
			}
			a = to
			states[a.State]++
		}
	}
	for verdict := accepted; verdict <= notAllowed; verdict++ {
		if verdicts[verdict] == 0 {
			t.Errorf("verdict %d never came: the steps are too few or too tame", verdict)
		}
	}
	for _, state := range hitl.States() {
		if states[state] == 0 {
			t.Errorf("never %s: the steps are too few or too tame", state)
		}
	}
}

func compare(t *testing.T, w twin, e hitl.Event, verdict int, before, after hitl.Approval, err error) {
	t.Helper()
	_, isState := errors.AsType[*hitl.StateError](err)
	_, isRefused := errors.AsType[*hitl.RefusedError](err)
	if isState != (verdict == outOfState) || isRefused != (verdict == notAllowed) || (err == nil) != (verdict <= repeated) {
		t.Errorf("%+v\nin %+v: %v, want verdict %d", e, before, err, verdict)
	}
	if verdict != accepted && !reflect.DeepEqual(before, after) {
		t.Errorf("%+v changed what it may not: %+v", e, after)
	}
	if (after.Demand.Unreachable == hitl.DenyCall) != (w.demand.Unreachable == hitl.DenyCall || w.count(hitl.Raise) > 0) || after.State != w.state() || !after.Until.Equal(w.end()) || after.Term != uint64(1+len(w.log)) ||
		len(after.Decisions) != w.count(hitl.Grant)+w.count(hitl.Deny) {
		t.Errorf("%+v\nleads to %+v\nwant %s until %s", e, after, w.state(), w.end())
	}
	if after.State == hitl.Consumed {
		watchConsumed(t, w, after)
	}
}

// watchConsumed knows neither machine: these are the promises in words.
func watchConsumed(t *testing.T, w twin, a hitl.Approval) {
	t.Helper()
	names, ids := map[string]bool{}, map[string]bool{}
	for _, d := range a.Decisions {
		if !d.Granted || d.Approver.ID == call.Caller || d.Shown != a.Shown || !a.Whole ||
			d.Approver.Name != "" && names[d.Approver.Name] || d.Approver.ID != "" && ids[string(d.Approver.ID)] {
			t.Errorf("sent after the decision %+v", d)
		}
		names[d.Approver.Name], ids[string(d.Approver.ID)] = true, true
	}
	if w.count(hitl.Proceed) == 0 && len(a.Decisions) < a.Demand.Approvers || w.count(hitl.Consume) != 1 || a.End.Replica == "" {
		t.Errorf("sent without its demand: %+v", a)
	}
}
