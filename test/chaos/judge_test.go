package main

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plain is a run in which all went well: a call, a task that ended, one that was
// lost with its gateway, and one that waits for an answer.
func plain() evidence {
	alike := func(s sight) []sight { return []sight{s, s, s} }
	return evidence{
		outcomes: []outcome{
			{kind: "call", key: "a", end: endRight, said: "done a 1"},
			{kind: "call", key: "b", end: endBroken},
			{kind: "call", key: "never", end: endError},
			{kind: "task", key: "c", end: endRight, said: "done c 1", agent: "x", task: "C"},
			{kind: "task", key: "d", end: endLost, agent: "x", task: "D"},
			{kind: "task", key: "e", end: endAsks, agent: "x", task: "E"},
			{kind: "task", key: "f", end: endBroken, agent: "x", task: "F"},
			{kind: "task", key: "g", end: endRight, said: "done g 1", agent: "x", task: "G", atOnce: true},
		},
		sights: map[string][]sight{
			"C": alike(sight{end: endRight, said: "done c 1"}), "D": alike(sight{end: endLost}),
			"E": alike(sight{end: endAsks}), "F": alike(sight{end: endRight, said: "done f 1"}),
			"G": {{end: endRight, said: "done g 1"}, {end: endGone}, {end: endGone}},
		},
		runs: map[string][]string{
			"a": {"done a 1"}, "b": {"done b 1"}, "c": {"done c 1"}, "d": {"done d 1"}, "e": {"done e 1"}, "f": {"done f 1"},
			"g": {"done g 1"},
		},
	}
}

func TestJudge_CleanRunHasNoViolations(t *testing.T) {
	t.Parallel()
	counts, lies := judge(plain())
	if len(lies) > 0 {
		t.Errorf("lies %+v", lies)
	}
	want := []count{
		{Kind: "call", Calls: 3, Accepted: 2, Right: 1, Error: 1, Broken: 1},
		{Kind: "task", Calls: 5, Accepted: 5, Right: 3, Error: 1, Lost: 1, Forgot: 1},
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Error(diff)
	}
}

// Each lie, planted alone, is found and is the only one.
func TestJudge_PlantedViolations(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		plant func(*evidence)
		want  string
	}{
		"an answer that no agent gave":      {func(e *evidence) { e.outcomes[0].said = "done a 2" }, lieFalse},
		"another call's answer":             {func(e *evidence) { e.outcomes[0].said = "done b 1" }, lieFalse},
		"a success without an answer":       {func(e *evidence) { e.outcomes[0].said = "" }, lieFalse},
		"a success that nobody worked for":  {func(e *evidence) { delete(e.runs, "a") }, lieFalse},
		"a record with another answer":      {replace("F", sight{end: endRight, said: "done c 1"}), lieFalse},
		"one replica does not know it":      {one("C", sight{end: endGone}), lieGone},
		"no replica knows it":               {replace("D", sight{end: endGone}), lieGone},
		"nobody was asked":                  {func(e *evidence) { delete(e.sights, "D") }, lieGone},
		"gone while its caller watched":     {func(e *evidence) { e.outcomes[4].end = endGone }, lieGone},
		"another answer, told at once":      {replace("G", sight{end: endRight, said: "done c 1"}), lieFalse},
		"at work for ever":                  {replace("D", sight{end: endOpen}), lieOpen},
		"no replica answers":                {replace("D", sight{end: endBroken}), lieOpen},
		"an answer that says: still open":   {func(e *evidence) { e.outcomes[1].end = endOpen }, lieOpen},
		"two ends":                          {one("D", sight{end: endError, said: "failed"}), lieQuarrel},
		"done twice":                        {func(e *evidence) { e.runs["b"] = append(e.runs["b"], "done b 2") }, lieTwice},
		"the second half done twice":        {func(e *evidence) { e.runs["e"+askedSuffix] = []string{"x", "x"} }, lieTwice},
		"a stream that stops":               {func(e *evidence) { e.outcomes[1].end = endSilent }, lieSilent},
		"a stream that stops, on the wire":  {func(e *evidence) { e.streams = []string{"/a2a"} }, lieSilent},
		"nobody answers":                    {func(e *evidence) { e.outcomes[1].end = endHung }, lieHung},
		"a kind of call that never worked":  {func(e *evidence) { e.outcomes[0].kind = "other"; e.outcomes[0].end = endError }, lieNothing},
		"a kind of call that never started": {func(e *evidence) { e.outcomes = append(e.outcomes, outcome{kind: "new", end: endError}) }, lieNothing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := plain()
			tc.plant(&e)
			_, lies := judge(e)
			if !slices.ContainsFunc(lies, func(l lie) bool { return l.What == tc.want }) {
				t.Errorf("got %+v, want %q", lies, tc.want)
			}
			for _, l := range lies {
				if l.What != tc.want && l.What != lieQuarrel && l.What != lieNothing {
					t.Errorf("found %+v as well", l)
				}
			}
		})
	}
}

func replace(task string, s sight) func(*evidence) {
	return func(e *evidence) { e.sights[task] = []sight{s, s, s} }
}

func one(task string, s sight) func(*evidence) {
	return func(e *evidence) { e.sights[task][1] = s }
}

// Who asks again and again is answered as long as somebody says that nobody can
// tell now, and is not once nobody says anything.
func TestOutcome_GivenUp(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		o    outcome
		want end
	}{
		"never refused":          {outcome{end: endOpen}, endHung},
		"refused until the last": {outcome{end: endOpen, refused: now.Add(-agentTimeout + time.Second)}, endError},
		"refused, then silence":  {outcome{end: endOpen, refused: now.Add(-agentTimeout)}, endHung},
		"done":                   {outcome{end: endRight, refused: now}, endRight},
		"lost":                   {outcome{end: endLost}, endLost},
	} {
		if got := c.o.givenUp(now).end; got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}
