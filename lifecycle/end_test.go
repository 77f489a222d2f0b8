package lifecycle_test

import (
	"slices"
	"testing"

	"github.com/aepb/aepb-gateway/lifecycle"
)

// TestNext_Order: the five steps of the draft, in its order, and the wait for work between them.
func TestNext_Order(t *testing.T) {
	t.Parallel()
	r := in(t, lifecycle.Draining)
	r.Token = "a.b.c"
	var taken []string
	for range 2 { // while there is work
		next, step, ok := r.Next(true)
		if !ok {
			t.Fatal("it waits too early")
		}
		taken, r = append(taken, step.String()), next
	}
	if next, step, ok := r.Next(true); ok || next != r || step != lifecycle.Refusing {
		t.Fatal("it ends while there is work")
	}
	for range 20 {
		next, step, ok := r.Next(false)
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
	if want := []string{"announced", "refusing", "finished", "ended", "retired"}; !slices.Equal(taken, want) {
		t.Error(taken)
	}
}

// TestNext_ResumesAfterCrash: whatever step the record shows, the end is reached, and what was
// not stored is done again.
func TestNext_ResumesAfterCrash(t *testing.T) {
	t.Parallel()
	for step := lifecycle.Step(0); step <= lifecycle.Ended; step++ {
		r := in(t, lifecycle.Draining)
		r.Step = step
		first := r
		for range 20 {
			crashed, crashedStep, _ := r.Next(false) // dies before it is stored
			next, nextStep, ok := r.Next(false)
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

// TestNext_WorkAfterFinishedIsWaitedFor: a replica that took over a task may have it still.
func TestNext_WorkAfterFinishedIsWaitedFor(t *testing.T) {
	t.Parallel()
	r := in(t, lifecycle.Draining)
	r.Step = lifecycle.Finished
	if _, _, ok := r.Next(true); ok {
		t.Error("aepb:shutdown is signed over work that is under way")
	}
	r.Step = lifecycle.Ended
	if next, _, ok := r.Next(true); !ok || next.Status != lifecycle.Retired {
		t.Error("a signed shutdown does not become retired")
	}
}

func TestNext_OthersDoNothing(t *testing.T) {
	t.Parallel()
	broken := in(t, lifecycle.Draining)
	broken.Step = lifecycle.Ended + 1
	for _, r := range []lifecycle.Record{{}, in(t, lifecycle.Active), in(t, lifecycle.Deprecated), in(t, lifecycle.Retired), broken} {
		if next, step, ok := r.Next(false); ok || next != r || step != r.Step {
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
	after, _, _ := before.Next(false)
	if _, ok := after.ChangeFrom(before); ok {
		t.Error("a step is no transition")
	}
	if _, ok := (lifecycle.Record{Status: lifecycle.Active}).ChangeFrom(lifecycle.Record{}); ok {
		t.Error("the zero status is active")
	}
}
