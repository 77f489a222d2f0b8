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
		{"imports", "layers are independent, so that each can be read, tested and replaced alone", importLaw},
		{"third parties", "a dependency that one folder imports can be replaced in that folder", thirdParties},
		{"pure form", "a codec that reads no clock and mints no id can be fuzzed, and its output hashed", pureForm},
		{"protocols", "a protocol is a folder and one line: a second list of protocols misses the next one", protocolsLaw},
		{"egress", "one package that opens connections is one place to guard", egressLaw},
		{"ranks", "data moves forward only: a step that calls an earlier one makes a cycle", rankLaw},
		{"one place", "what one place does can be read, changed and guarded there", onePlaceLaw},
		{"init", "nothing happens because something was imported", noInit},
		{"globals", "state without an owner cannot be tested twice in one process", noGlobals},
		{"panic", "the bad message of one caller must not stop the gateway for all", noPanic},
		{"floats", "numbers must leave with the digits with which they came", noFloats},
		{"sleep", "tests wait for events, not for a time that may be too short", noSleep},
		{"goroutines", "a goroutine for which no owner waits may never end", noNakedGo},
		{"sizes", "readers understand what fits on a screen", sizes},
		{"short functions", "a reader understands steps that have names", shortFunctions},
		{"docs", "readers guess what is not documented", packageDocs},
		{"links", "a reader who follows a link has to find what it names", linksLaw},
		{"names", "a package with a vague name collects unrelated code", packageNames},
		{"test names", "a list of failures says which subject fails, and in which case", testNames},
		{"top level", "the top level shows a reader the structure of the repository", topLevel},
		{"words", "the tree builds anywhere, not only where it was written", words},
	}
}

func TestChecks_RepositoryFollowsTheRules(t *testing.T) {
	t.Parallel()
	ours := repository(t)
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			failures := c.find(ours)
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

// TestChecks_FindPlantedViolations: every check finds every violation planted for it, and
// nothing in trees without one.
func TestChecks_FindPlantedViolations(t *testing.T) {
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
