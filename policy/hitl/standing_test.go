package hitl_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/policy/hitl"
)

func stand(t *testing.T, s hitl.Standing, events ...hitl.StandingEvent) hitl.Standing {
	t.Helper()
	for _, e := range events {
		to, err := s.Next(e)
		if err != nil {
			t.Fatalf("%s while %s: %v", e.Step, s.Mode, err)
		}
		s = to
	}
	return s
}

// step is one that is allowed after a pause at opened.
func step(kind hitl.Step) hitl.StandingEvent {
	e := hitl.StandingEvent{Step: kind, At: opened, By: "alice", Roles: []string{"operator"}, Reason: "seen"}
	if kind == hitl.Overdue {
		e = hitl.StandingEvent{Step: kind, At: opened.Add(hitl.MaxPause)}
	}
	return e
}

func TestStanding_EveryStep(t *testing.T) {
	t.Parallel()
	in := map[hitl.Mode]hitl.Standing{
		hitl.Running: {}, hitl.Paused: stand(t, hitl.Standing{}, step(hitl.Pause)), hitl.Stopped: stand(t, hitl.Standing{}, step(hitl.Stop)),
	}
	want := map[hitl.Mode]map[hitl.Step]hitl.Mode{
		hitl.Running: {hitl.Pause: hitl.Paused, hitl.Stop: hitl.Stopped},
		hitl.Paused:  {hitl.Pause: hitl.Paused, hitl.Stop: hitl.Stopped, hitl.Lift: hitl.Running, hitl.Overdue: hitl.Stopped},
		hitl.Stopped: {hitl.Pause: hitl.Stopped, hitl.Stop: hitl.Stopped, hitl.Lift: hitl.Running},
	}
	for _, mode := range []hitl.Mode{hitl.Running, hitl.Paused, hitl.Stopped} {
		for _, kind := range []hitl.Step{hitl.Pause, hitl.Stop, hitl.Lift, hitl.Overdue, "other"} {
			before := in[mode]
			after, err := before.Next(step(kind))
			to, ok := want[mode][kind]
			_, isStanding := errors.AsType[*hitl.StandingError](err)
			switch {
			case ok && (err != nil || after.Mode != to):
				t.Errorf("%s while %s: %s, %v, want %s", kind, mode, after.Mode, err, to)
			case ok && to == mode && !reflect.DeepEqual(after, before):
				t.Errorf("%s while %s: %+v, want no change", kind, mode, after)
			case ok && to != mode && (after.Term != before.Term+1 || !after.At.Equal(step(kind).At) || after.By != step(kind).By || after.Form != hitl.Form):
				t.Errorf("%s while %s: %+v", kind, mode, after)
			case !ok && (!isStanding || !reflect.DeepEqual(after, before)):
				t.Errorf("%s while %s: %v, want a *StandingError and no change", kind, mode, err)
			}
		}
	}
}

func TestStanding_OverdueAfterADay(t *testing.T) {
	t.Parallel()
	paused := stand(t, hitl.Standing{}, step(hitl.Pause))
	if !paused.Due().Equal(opened.Add(hitl.MaxPause)) {
		t.Errorf("due at %s", paused.Due())
	}
	e := step(hitl.Overdue)
	e.At = e.At.Add(-1)
	if _, err := paused.Next(e); err == nil {
		t.Error("a pause is overdue before its end")
	}
	later := step(hitl.Pause)
	later.At, later.Roles = opened.Add(hitl.MaxPause/2), []string{"operator:oncall"}
	if again := stand(t, paused, later); !again.At.Equal(opened) || again.Term != paused.Term+1 {
		t.Errorf("a second pause moves the end of the first: %+v", again)
	}
	stopped := stand(t, paused, step(hitl.Overdue))
	if stopped.Why == "" || !stopped.Due().IsZero() || !slices.Equal(stopped.Roles, []string{"operator"}) {
		t.Errorf("overdue: %+v", stopped)
	}
}

// TestAttack_Standing_LiftedWithoutItsRoles: a level is lifted by an operator without the roles for that.
func TestAttack_Standing_LiftedWithoutItsRoles(t *testing.T) {
	t.Parallel()
	other := step(hitl.Stop)
	other.Roles = []string{"approver", "operator:oncall"}
	blocked := stand(t, hitl.Standing{}, step(hitl.Pause), other)
	all := []string{"approver", "operator", "operator:oncall"}
	if !slices.Equal(blocked.Roles, all) {
		t.Fatalf("it needs %q, want %q", blocked.Roles, all)
	}
	lift := step(hitl.Lift)
	refuse := func(s hitl.Standing, why string) {
		t.Helper()
		to, err := s.Next(lift)
		if _, ok := errors.AsType[*hitl.RefusedError](err); !ok || !reflect.DeepEqual(to, s) || !strings.HasPrefix(err.Error(), "workflow: ") {
			t.Errorf("lifted %s: %v", why, err)
		}
	}
	for i := range all {
		lift.Roles = slices.Delete(slices.Clone(all), i, i+1)
		refuse(blocked, "without "+all[i])
	}
	lift.Roles, lift.Reason = all, ""
	refuse(blocked, "without a reason")
	lift.Reason = strings.Repeat("a", 513)
	refuse(blocked, "with a reason that is too long")
	lift.Reason, lift.By = "seen", ""
	refuse(blocked, "by no operator")
	lift.By = "alice"
	refuse(hitl.Standing{Mode: hitl.Stopped}, "though its roles are not known")
	free := stand(t, blocked, lift)
	if want := (hitl.Standing{Form: hitl.Form, Term: blocked.Term + 1, Mode: hitl.Running, By: "alice", At: opened, Reason: "seen"}); !reflect.DeepEqual(free, want) {
		t.Errorf("lifted: %+v, want %+v", free, want)
	}
	if got := stand(t, hitl.Standing{}, hitl.StandingEvent{Step: hitl.Pause}).Roles; !slices.Equal(got, []string{"operator"}) {
		t.Errorf("a pause without roles needs %q, want operator", got)
	}
}

func TestStanding_Passes(t *testing.T) {
	t.Parallel()
	begins := []string{"invoke", "native", "unknown", ""}
	passes := []string{
		"describe", "capabilities", "ping", "notice", "task.get", "task.list", "task.cancel", "task.subscribe", "task.answer", "task.result",
		"push", "answer", "abort", "rollback", "decision",
	}
	for _, mode := range []hitl.Mode{"", hitl.Running, hitl.Paused, hitl.Stopped, "corrupt"} {
		s := hitl.Standing{Mode: mode}
		for _, operation := range slices.Concat(begins, passes) {
			want := mode == "" || mode == hitl.Running || slices.Contains(passes, operation)
			if got := s.Passes(operation, true); got != want {
				t.Errorf("%q, new work, while %q: %t, want %t", operation, mode, got, want)
			}
			if !s.Passes(operation, false) {
				t.Errorf("%q, no new work, while %q: false", operation, mode)
			}
		}
	}
}

func TestStanding_JSON(t *testing.T) {
	t.Parallel()
	e := step(hitl.Pause)
	e.Why = "rule r"
	data, err := json.Marshal(stand(t, hitl.Standing{}, e))
	const want = `{"form":1,"term":1,"mode":"paused","by":"alice","at":"2026-12-01T09:00:00Z","reason":"seen","why":"rule r","roles":["operator"]}`
	if err != nil || string(data) != want {
		t.Errorf("%s, %v\nwant %s", data, err, want)
	}
	var back hitl.Standing
	if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(back, stand(t, hitl.Standing{}, e)) {
		t.Errorf("%+v, %v", back, err)
	}
}

// TestStanding_DoesNotChange: what follows one standing shares no roles.
func TestStanding_DoesNotChange(t *testing.T) {
	t.Parallel()
	blocked := stand(t, hitl.Standing{}, step(hitl.Pause))
	blocked.Roles = slices.Grow(blocked.Roles, 8)
	one, other := step(hitl.Pause), step(hitl.Pause)
	one.Roles, other.Roles = []string{"a"}, []string{"b"}
	first, second := stand(t, blocked, one), stand(t, blocked, other)
	if !slices.Equal(first.Roles, []string{"a", "operator"}) || !slices.Equal(second.Roles, []string{"b", "operator"}) || len(blocked.Roles) != 1 {
		t.Errorf("roles are shared: %q, %q, %q", blocked.Roles, first.Roles, second.Roles)
	}
}
