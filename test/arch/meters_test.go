package arch_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// meter is a figure of the tree that may only fall. A figure above its ceiling
// fails, and so does one below: the ceiling then comes down in the same commit,
// or the next change could use up what this one saved.
type meter struct {
	name    string
	ceiling int
	step    int // how far a figure may fall before its ceiling follows; 0 is 1
	read    func(tree) reading
}

// reading is what a meter says of a tree: one figure and the places that it
// comes from, worst first.
type reading struct {
	figure int
	worst  []string
}

// meters is the table of ceilings. None of them is raised without a reason in
// the commit that does it.
func meters() []meter {
	return []meter{
		{"methods per type, worst", 112, 0, mostMethodsOfType},
		{"types over 30 methods", 14, 0, largeTypes},
		{"fields per struct, worst", 26, 0, mostFieldsOfStruct},
		{"structs over 16 fields outside gateway/config", 1, 0, largeStructs},
		{"fields per struct with those of embedded structs, worst", 48, 0, mostFlatFields},
		{"structs over 16 fields with those of embedded structs", 20, 0, largeFlatStructs},
		{"methods per interface with those of embedded ones, worst", 19, 0, mostMethodsOfInterface},
		{"interfaces over 8 methods with those of embedded ones", 4, 0, largeInterfaces},
		{"files per package, worst outside gateway", 20, 0, mostFilesOfPackage},
		{"files of package gateway", 14, 0, filesOfRoot},
		{"functions over complexity 15", 38, 0, complexFunctions},
		{"complexity of a function, worst", 35, 0, mostComplex},
		{"files in one circle of calls, worst", 19, 0, largestCircle},
		{"packages with a circle of calls over 6 files", 9, 0, largeCircles},
		{"files in one circle of calls, package gateway", 2, 0, circleOfRoot},
		{"pairs of files that call each other, package gateway", 3, 0, pairsOfRoot},
		{"arrows that run back up in gateway/", 4, 0, arrowsBack},
		{"files that write one field, worst", 2, 0, mostWriters},
		{"fields that more than 2 files write", 0, 0, fieldsOfManyWriters},
		{"forbidden words, production", 0, 0, wordsInProduction},
		{"forbidden words, tests", 117, 0, wordsInTests},
		{"forbidden words in comments and strings, production", 0, 0, proseInProduction},
		{"references to rulings and sections that do not resolve", 0, 0, unresolved},
		{"production lines", 153900, 100, productionLines},
		{"production code lines", 122700, 100, productionCodeLines},
		{"places that sign in gateway/", 1, 0, placesThatSign},
		{"places that verify in gateway/", 1, 0, placesThatVerify},
		{"levels that are written out (ect.L2) in gateway/", 0, 0, levelsWrittenOut},
		{"functions that compute a holder", 0, 0, functionsOfHolders},
		{"assertions to interfaces of translators, package gateway", 0, 0, assertionsOfRoot},
	}
}

// cleanPackages hold no forbidden word, in production or in tests. A package
// that is new or rewritten gets a row, no row is taken out.
var cleanPackages = []string{
	"gateway/admission",
	"gateway/attest",
	"gateway/conversation",
	"gateway/destination",
	"gateway/idempotency",
	"gateway/mcpbridge",
	"gateway/outbound",
	"gateway/rollback",
	"gateway/routing",
	"gateway/task",
	"gateway/task/execution",
	"gateway/task/store",
	"gateway/worker",
	"gateway/state/seal",
	"gateway/webhook",
	"policy",
}

// TestMeters_WithinCeilings compares each figure with its ceiling. With -v, as `make meters`
// runs it, it prints all of them.
func TestMeters_WithinCeilings(t *testing.T) {
	t.Parallel()
	repo := repository(t)
	var readings []reading
	for _, m := range meters() {
		got := m.read(repo)
		readings = append(readings, got)
		if failure := m.compare(got); failure != "" {
			t.Error(failure)
		}
	}
	for _, failure := range cleanLaw(repo, cleanPackages) {
		t.Error(failure)
	}
	if testing.Verbose() {
		printMeters(t.Output(), meters(), readings)
		printPackages(t.Output(), repo, cleanPackages)
	}
}

// compare says what is wrong with a reading, or nothing.
func (m meter) compare(got reading) string {
	switch {
	case got.figure > m.ceiling:
		return fmt.Sprintf("%s: %d, at most %d: bring it down again; worst: %s", m.name, got.figure, m.ceiling, strings.Join(shortest(got.worst), ", "))
	case got.figure <= m.ceiling-max(m.step, 1):
		return fmt.Sprintf("%s: %d, the ceiling is %d: lower the ceiling in test/arch/meters_test.go to %d", m.name, got.figure, m.ceiling, roundUp(got.figure, m.step))
	}
	return ""
}

func roundUp(n, step int) int {
	if step < 2 {
		return n
	}
	return (n + step - 1) / step * step
}

// shortest cuts a list of places to what fits on a line.
func shortest(places []string) []string { return places[:min(len(places), 5)] }

func printMeters(w io.Writer, all []meter, readings []reading) {
	fmt.Fprintf(w, "%-58s %7s %7s  %s\n", "meter", "figure", "ceiling", "worst")
	for i, m := range all {
		fmt.Fprintf(w, "%-58s %7d %7d  %s\n", m.name, readings[i].figure, m.ceiling, strings.Join(shortest(readings[i].worst), ", "))
	}
}

// printPackages shows the figures of the packages that hold no forbidden word.
func printPackages(w io.Writer, t tree, dirs []string) {
	fmt.Fprintf(w, "\n%-36s %6s %6s %8s %7s %8s %7s %6s\n", "clean package", "files", "lines", "methods", "fields", "complex", "circle", "words")
	for _, dir := range dirs {
		p := t.only(dir)
		circle, _ := circleOf(callsOf(t, p.production()))
		fmt.Fprintf(w, "%-36s %6d %6d %8d %7d %8d %7d %6d\n", dir, len(p.production()), linesOf(p.production()),
			mostMethodsOfType(p).figure, mostFieldsOfStruct(p).figure, complexFunctions(p).figure, len(circle),
			wordsInProduction(p).figure+wordsInTests(p).figure)
	}
}

// only is the tree of one package.
func (t tree) only(dir string) tree {
	return tree{sources: slices.DeleteFunc(slices.Clone(t.sources), func(s *source) bool { return s.dir != dir })}
}

// cleanLaw: a package of the table exists, and holds no forbidden word.
func cleanLaw(t tree, dirs []string) []string {
	var failures []string
	for _, dir := range dirs {
		p := t.only(dir)
		if len(p.sources) == 0 {
			failures = append(failures, dir+": cleanPackages names it and it holds no Go file: correct the row")
		}
		for _, s := range p.sources {
			for _, word := range forbiddenIn(s) {
				failures = append(failures, word+": forbidden (forbiddenWords and forbiddenNames in test/arch): expected a plain name, rename it")
			}
		}
	}
	return failures
}
