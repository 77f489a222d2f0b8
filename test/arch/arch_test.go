package arch_test

import (
	"slices"
	"strings"
	"testing"
)

// check is one rule.
type check struct {
	name    string
	because string
	find    func(tree) []string
}

func checks() []check {
	return []check{
		{"imports", "the pillars stand apart, so that each can be read, tested and replaced alone", importLaw},
		{"third parties", "a dependency that lives in one room can be replaced in one room", thirdParties},
		{"pure form", "a codec that reads no clock and mints no id can be fuzzed, and its output hashed", pureForm},
		{"protocols", "a protocol is a folder and a line: whoever lists them anew forgets the next one", protocolsLaw},
		{"egress", "one door to the network is one place to guard", egressLaw},
		{"ranks", "data moves forward only: a step that calls an earlier one is a knot again", rankLaw},
		{"one place", "what one place does can be read, changed and guarded there", onePlaceLaw},
		{"init", "nothing happens because something was imported", noInit},
		{"globals", "state without an owner cannot be tested twice in one process", noGlobals},
		{"panic", "one caller's bad message is not every caller's outage", noPanic},
		{"floats", "numbers leave as they came", noFloats},
		{"sleep", "tests wait for events, not for luck", noSleep},
		{"goroutines", "what nobody waits for outlives its reason", noNakedGo},
		{"sizes", "what fits on a screen is read", sizes},
		{"short functions", "steps with names are read", shortFunctions},
		{"docs", "what is not said is guessed", packageDocs},
		{"links", "a reader who follows a link has to find what it names", linksLaw},
		{"names", "a vague room fills with everything", packageNames},
		{"top level", "whoever opens the repository sees the plan of the house", topLevel},
		{"words", "the tree builds anywhere, not only where it was written", words},
	}
}

func TestTheTreeKeepsTheRules(t *testing.T) {
	t.Parallel()
	house := repository(t)
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			failures := c.find(house)
			slices.Sort(failures)
			for _, failure := range failures {
				t.Error(failure)
			}
			if len(failures) > 0 {
				t.Log("the rule stands because " + c.because)
			}
		})
	}
}

// plants are small trees, each with one violation, or with something that
// looks like one and is not.
type plants struct {
	bad, good []map[string]string
}

// TestTheRulesCanFail: every check finds every violation planted for it, and
// nothing in its innocent neighbours.
func TestTheRulesCanFail(t *testing.T) {
	t.Parallel()
	planted := planted()
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cases := planted[c.name]
			if len(cases.bad) == 0 || len(cases.good) == 0 {
				t.Fatal("nothing is planted for this check")
			}
			for _, files := range cases.bad {
				if len(c.find(plant(t, files))) == 0 {
					t.Errorf("not found: %s", show(files))
				}
			}
			for _, files := range cases.good {
				if failures := c.find(plant(t, files)); len(failures) > 0 {
					t.Errorf("%q in %s", failures, show(files))
				}
			}
		})
	}
	if len(planted) != len(checks()) {
		t.Errorf("%d checks and plants for %d", len(checks()), len(planted))
	}
}

func show(files map[string]string) string {
	var b strings.Builder
	for name, content := range files {
		b.WriteString(name + ": " + content[:min(len(content), 200)] + "\n")
	}
	return b.String()
}
