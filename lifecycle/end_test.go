package lifecycle_test

import (
	"slices"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/lifecycle"
)

// TestNext_Order: the five steps of the draft, in its order, and the waits for work and for the grace between them.
func TestNext_Order(t *testing.T) {
	t.Parallel()
	r := in(t, lifecycle.Draining)
	r.Token = "a.b.c"
	var taken []string
	for range 2 { // while there is work
		next, step, ok := r.Next(true, start)
		if !ok {
			t.Fatal("it waits too early")
		}
		taken, r = append(taken, step.String()), next
	}
	if next, step, ok := r.Next(true, start); ok || next != r || step != lifecycle.Refusing {
		t.Fatal("it ends while there is work")
	}
	later := start
	for range 20 {
		next, step, ok := r.Next(false, later)
		if !ok && later.Equal(start) {
			later = start.Add(lifecycle.Grace)
			taken = append(taken, "ten minutes")
			continue
		}
		if !ok {
			break
		}
		if next.Status == lifecycle.Retired {
			taken = append(taken, "retired")
		} else {
			taken = append(taken, step.String())
		}
		if signs := next.Status == lifecycle.Retired || step == lifecycle.Ended; signs != (next.Token == "") {
			t.Errorf("%v: token %q", step, next.Token)
		}
		r = next
		r.Token = "a.b.c"
	}
	if want := []string{"announced", "refusing", "finished", "ten minutes", "ended", "retired"}; !slices.Equal(taken, want) {
		t.Error(taken)
	}
}

// TestNext_ResumesAfterCrash: whatever step the record shows, the end is reached, and what was
// not stored is done again.
func TestNext_ResumesAfterCrash(t *testing.T) {
	t.Parallel()
	for step := lifecycle.Step(0); step <= lifecycle.Ended; step++ {
		r := in(t, lifecycle.Draining)
		r.Step, r.FinalAt = step, r.At
		first := r
		for range 20 {
			crashed, crashedStep, _ := r.Next(false, r.At) // dies before it is stored
			next, nextStep, ok := r.Next(false, r.At)
			if crashed != next || crashedStep != nextStep {
				t.Fatal("the same record has two next steps")
			}
			if !ok {
				break
			}
			r = next
		}
		if r.Status != lifecycle.Retired || r.Step != lifecycle.Ended || r.Term != first.Term+1 {
			t.Errorf("from %q: %+v", step, r)
		}
		change, ok := r.ChangeFrom(first)
		want := lifecycle.Change{Agent: "pricing", From: lifecycle.Draining, To: lifecycle.Retired, Reason: first.Reason}
		if !ok || change != want {
			t.Errorf("%+v", change)
		}
	}
}

// TestNext_Grace: an agent is retired no sooner than ten minutes after its last work, however often
// work comes back; the moment is on record, and only ever later.
func TestNext_Grace(t *testing.T) {
	t.Parallel()
	r := in(t, lifecycle.Draining)
	r.Step = lifecycle.Refusing
	now := r.At
	next := func(workLeft bool, after time.Duration) bool {
		now = now.Add(after)
		before := r
		var ok bool
		if r, _, ok = r.Next(workLeft, now); r.FinalAt.Before(before.FinalAt) {
			t.Errorf("it was final at %v, and now at %v", before.FinalAt, r.FinalAt)
		}
		return ok
	}
	if !next(false, 0) || r.Step != lifecycle.Finished || !r.FinalAt.Equal(now.Add(lifecycle.Grace)) {
		t.Fatalf("%+v", r)
	}
	if next(false, lifecycle.Grace-1) {
		t.Fatal("it ends within the grace")
	}
	if !next(true, 0) || r.FinalAt.Before(now.Add(lifecycle.Grace)) || r.Step != lifecycle.Finished {
		t.Fatalf("with work again: %+v", r)
	}
	if next(true, time.Second) {
		t.Error("it is stored anew each second while there is work")
	}
	if next(false, lifecycle.Grace-time.Second) || !next(false, time.Minute) || r.Step != lifecycle.Ended {
		t.Errorf("%+v", r)
	}
}

// TestNext_FinishedOfOldRecord: a record of a version without a grace has one.
func TestNext_FinishedOfOldRecord(t *testing.T) {
	t.Parallel()
	r := in(t, lifecycle.Draining)
	r.Step = lifecycle.Finished
	if next, step, ok := r.Next(false, start); !ok || step != lifecycle.Finished || next.FinalAt.Before(start.Add(lifecycle.Grace)) {
		t.Errorf("%+v", next)
	}
}

// TestNext_WithoutGrace: a drain that was ordered without the grace waits for work, and for nothing else.
func TestNext_WithoutGrace(t *testing.T) {
	t.Parallel()
	o := order(lifecycle.Draining)
	o.Force, o.Now = true, true
	r := apply(t, in(t, lifecycle.Active), o)
	r.Step = lifecycle.Finished
	if _, _, ok := r.Next(true, start); ok {
		t.Error("aepb:shutdown is signed over work that is under way")
	}
	if next, step, ok := r.Next(false, start); !ok || step != lifecycle.Ended {
		t.Errorf("%+v", next)
	}
}

// TestNext_Retiring: what an operator has ordered to retire waits for the grace alone. Only without work its
// end is graceful.
func TestNext_Retiring(t *testing.T) {
	t.Parallel()
	before := in(t, lifecycle.Draining)
	r := apply(t, before, order(lifecycle.Retired))
	if r.Status != lifecycle.Draining || r.Step != lifecycle.Retiring || r.Term != before.Term || !r.FinalAt.Equal(start.Add(lifecycle.Grace)) {
		t.Fatalf("%+v", r)
	}
	for _, workLeft := range []bool{true, false} {
		if _, _, ok := r.Next(workLeft, r.FinalAt.Add(-1)); ok {
			t.Error("it ends within the grace")
		}
		next, step, ok := r.Next(workLeft, r.FinalAt)
		if !ok || (next.Status == lifecycle.Retired) != workLeft || (step == lifecycle.Ended) == workLeft {
			t.Errorf("work left: %t: %+v", workLeft, next)
		}
	}
	r.Step = lifecycle.Ended
	if next, _, ok := r.Next(true, start); !ok || next.Status != lifecycle.Retired {
		t.Error("a signed shutdown does not become retired")
	}
}

func TestNext_OthersDoNothing(t *testing.T) {
	t.Parallel()
	broken := in(t, lifecycle.Draining)
	broken.Step = lifecycle.Ended + 1
	for _, r := range []lifecycle.Record{{}, in(t, lifecycle.Active), in(t, lifecycle.Deprecated), in(t, lifecycle.Retired), broken} {
		if next, step, ok := r.Next(false, start); ok || next != r || step != r.Step {
			t.Errorf("%+v", next)
		}
	}
	if broken.Step.String() != "" {
		t.Error(broken.Step.String())
	}
}

func TestChangeFrom_SameStatusIsNoChange(t *testing.T) {
	t.Parallel()
	before := in(t, lifecycle.Draining)
	after, _, _ := before.Next(false, start)
	if _, ok := after.ChangeFrom(before); ok {
		t.Error("a step is no transition")
	}
	if _, ok := (lifecycle.Record{Status: lifecycle.Active}).ChangeFrom(lifecycle.Record{}); ok {
		t.Error("the zero status is active")
	}
}
