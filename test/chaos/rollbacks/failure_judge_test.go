package rollbacks

import (
	"strings"
	"testing"
)

// undoneJourney is a workflow whose failure was undone as it is to be, with what the hotel knows.
func undoneJourney() (*journey, map[string]booking) {
	j := newJourney()
	j.paused = true
	for _, s := range j.steps {
		s.deeds = []deed{{tool: s.tool, args: s.args, token: "call", hash: "call"}}
	}
	j.steps[stepBooking].undone = []deed{{token: "undo", hash: "undo"}, {token: "undo", hash: "undo"}}
	j.rolledBack = []deed{{token: "back", hash: "back"}}
	return j, map[string]booking{j.steps[stepBooking].args.of(): {canceled: true}, j.steps[stepSibling].args.of(): {guest: "Ada"}}
}

// TestJourney_PlantedViolations: what may be, and each thing that must not be, planted alone.
func TestJourney_PlantedViolations(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		plant func(j *journey, bookings map[string]booking)
		wrong string // empty: nothing
	}{
		"as it is to be":         {func(*journey, map[string]booking) {}, ""},
		"no approval":            {func(j *journey, _ map[string]booking) { j.failure = "no approval waits" }, "no approval waits"},
		"not paused":             {func(j *journey, _ map[string]booking) { j.paused = false }, "was not paused"},
		"does not go on":         {func(j *journey, _ map[string]booking) { j.goesOn = "409" }, "does not go on"},
		"sent twice":             {func(j *journey, _ map[string]booking) { j.steps[stepMail].deeds = make([]deed, 2) }, "done 2 times"},
		"sibling undone":         {func(j *journey, _ map[string]booking) { j.steps[stepSibling].undone = make([]deed, 1) }, "step 0 was undone"},
		"sibling canceled":       {func(j *journey, b map[string]booking) { b[j.steps[stepSibling].args.of()] = booking{canceled: true} }, "finished branch"},
		"not canceled":           {func(j *journey, b map[string]booking) { delete(b, j.steps[stepBooking].args.of()) }, "not canceled"},
		"never compensated":      {func(j *journey, _ map[string]booking) { j.steps[stepBooking].undone = nil }, "compensating call never came"},
		"compensated twice":      {func(j *journey, _ map[string]booking) { j.steps[stepBooking].undone[1].token = "other" }, "with the tokens"},
		"compensated with other": {func(j *journey, _ map[string]booking) { j.steps[stepBooking].undone[1].hash = "other" }, "the hashes"},
		"agent never rolls back": {func(j *journey, _ map[string]booking) { j.rolledBack = nil }, "rollback of the agent never came"},
		"agent rolls back twice": {func(j *journey, _ map[string]booking) {
			j.rolledBack = append(j.rolledBack, deed{token: "other", hash: "back"})
		}, "with the tokens"},
	} {
		j, bookings := undoneJourney()
		tc.plant(j, bookings)
		wrong := strings.Join(append(j.judge(), j.compare(bookings)...), "; ")
		if (wrong == "") != (tc.wrong == "") || !strings.Contains(wrong, tc.wrong) {
			t.Errorf("%s: %q, expected %q", name, wrong, tc.wrong)
		}
	}
	if wrong := judgeTokens(nil, "spiffe://example.com/gateway"); len(wrong) != 3 {
		t.Errorf("without tokens: %q", wrong)
	}
}
