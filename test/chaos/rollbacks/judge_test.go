package rollbacks

import (
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/lifecycle/rollback"
)

// booked is a trip of two bookings that was rolled back from its second step on, with what the hotel knows.
func booked() (*trip, rollback.Result, map[string]booking) {
	t := newTrip(1, true)
	t.from, t.result = 1, "signed"
	bookings := map[string]booking{}
	for i, s := range t.steps {
		s.recorded, s.answered, s.deeds = true, true, []deed{{tool: s.tool, args: s.args, token: "call", hash: "call"}}
		b := bookings[s.args.of()]
		if i >= t.from {
			s.undone = []deed{{token: "undo", hash: "undo"}, {token: "undo", hash: "undo"}}
			b.canceled = b.canceled || s.tool == toolCreate
			b.guest = s.args.Guest
			if s.tool == toolRename {
				b.guest = s.before
			}
		}
		bookings[s.args.of()] = b
	}
	done := rollback.AgentStatus{Agent: "hotel", Status: rollback.StatusCompleted}
	return t, rollback.Result{Status: rollback.StatusCompleted, Cascaded: []rollback.AgentStatus{done, done}}, bookings
}

// TestJudge_PlantedViolations: what may be, and each thing that must not be, planted alone.
func TestJudge_PlantedViolations(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		plant func(t *trip, r *rollback.Result, bookings map[string]booking)
		wrong string // empty: nothing
	}{
		"as the result says": {func(*trip, *rollback.Result, map[string]booking) {}, ""},
		"done twice":         {func(t *trip, _ *rollback.Result, _ map[string]booking) { t.steps[0].deeds = make([]deed, 2) }, "done 2 times"},
		"answered, never done": {func(t *trip, _ *rollback.Result, _ map[string]booking) {
			t.steps[1].deeds = nil
		}, "never done"},
		"undone with two tokens": {func(t *trip, _ *rollback.Result, _ map[string]booking) { t.steps[2].undone[1].token = "other" }, "with the tokens"},
		"undone with two bodies": {func(t *trip, _ *rollback.Result, _ map[string]booking) { t.steps[2].undone[1].hash = "other" }, "the hashes"},
		"undone without a token": {func(t *trip, _ *rollback.Result, _ map[string]booking) { t.steps[2].undone = []deed{{hash: "undo"}} }, "with the tokens"},
		"undone, not covered": {func(t *trip, _ *rollback.Result, _ map[string]booking) {
			t.steps[0].undone = []deed{{token: "undo", hash: "undo"}}
		}, "does not cover"},
		"undone, no rollback": {func(t *trip, _ *rollback.Result, _ map[string]booking) { t.result, t.from = "", -1 }, "no rollback has a result"},
		"not undone": {func(t *trip, _ *rollback.Result, bookings map[string]booking) {
			bookings[t.steps[2].args.of()] = booking{guest: t.steps[3].before}
		}, "step 2 is undone"},
		"undone, and the result says failed": {func(_ *trip, r *rollback.Result, _ map[string]booking) {
			r.Status, r.Cascaded[1].Status = rollback.StatusPartial, rollback.StatusFailed
		}, "step 2 is in place"},
		"completed, and a step is not": {func(_ *trip, r *rollback.Result, _ map[string]booking) { r.Cascaded[1].Status = rollback.StatusFailed }, "a step of it is not"},
		"a step is missing":            {func(_ *trip, r *rollback.Result, _ map[string]booking) { r.Cascaded = r.Cascaded[:1] }, "names 1 steps"},
		"no end":                       {func(t *trip, _ *rollback.Result, _ map[string]booking) { t.failure = "no replica answers" }, "no replica answers"},
		"refused":                      {func(t *trip, _ *rollback.Result, _ map[string]booking) { t.refusal = "404" }, "refused: 404"},
		"refused while a call may run": {func(t *trip, _ *rollback.Result, _ map[string]booking) {
			t.refusal = "steps that would be undone " + wordsRunning
		}, ""},
		"refused though no call runs": {func(t *trip, _ *rollback.Result, _ map[string]booking) { t.refusal = wordsDepend }, "refused"},
	} {
		trip, result, bookings := booked()
		tc.plant(trip, &result, bookings)
		wrong := strings.Join(append(append(trip.judge(), trip.compare(result, bookings)...), trip.doubt(0)...), "; ")
		if (wrong == "") != (tc.wrong == "") || !strings.Contains(wrong, tc.wrong) {
			t.Errorf("%s: %q, expected %q", name, wrong, tc.wrong)
		}
	}
}

// TestDoubt_CallsEnd: a call that was lost is not in the way of a rollback for ever.
func TestDoubt_CallsEnd(t *testing.T) {
	t.Parallel()
	trip, _, _ := booked()
	trip.refusal = wordsRunning
	if len(trip.doubt(runsAtMost-1)) != 0 || len(trip.doubt(runsAtMost)) != 1 {
		t.Error("a refusal after the longest time of a call is not doubted, or one before is")
	}
}

// TestStep_DistinguishesDoAndUndo: a renaming that goes back is told from one that goes forth.
func TestStep_DistinguishesDoAndUndo(t *testing.T) {
	t.Parallel()
	trip, _, _ := booked()
	create, rename := trip.steps[0], trip.steps[1]
	back := deed{tool: toolRename, args: args{ID: rename.args.ID, Guest: rename.before}, token: ect.NewID()}
	if rename.isDo(back) || !rename.isUndo(back) || !rename.isDo(rename.deeds[0]) || rename.isUndo(rename.deeds[0]) || create.isUndo(back) || create.isDo(back) {
		t.Error("a call that undoes is not told from one that does")
	}
}
