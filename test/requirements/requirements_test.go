// Package requirements says for each requirement of the drafts what proves it, or what is missing, and
// writes docs/requirements.md from that. The rows are in rows_*_test.go; TestRequirements_Proven checks
// them, and TestRequirements_Page checks the page.
package requirements_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// status says how much of a requirement there is.
type status string

const (
	statusDone    status = "done"
	statusPartly  status = "partly"
	statusMissing status = "missing"
)

// row is one requirement. Done has tests; partly has what is missing, and tests of the rest if there are any;
// missing has what is missing alone.
type row struct {
	id, section, what string
	status            status
	missing           string
	tests             []string // FOLDER:NAME
}

func done(id, section, what string, tests ...string) row {
	return row{id, section, what, statusDone, "", tests}
}

func partly(id, section, what, missing string, tests ...string) row {
	return row{id, section, what, statusPartly, missing, tests}
}

func missing(id, section, what, missing string) row {
	return row{id, section, what, statusMissing, missing, nil}
}

// draft is the requirements of one draft, numbered from 1 to count.
type draft struct {
	prefix, title string
	format        string // of an id
	count         int
	rows          []row
}

var drafts = []draft{
	{"AEPB", "Agent Ecosystem Protocol Binding", "AEPB-%02d", 81, aepbRows},
	{"CPAT", "Cross-Protocol Agent Translation", "CPAT-%02d", 31, cpatRows},
	{"ATD", "Agent Task DAG", "ATD-%02d", 96, atdRows},
	{"CNS", "Multi-Agent Consensus and Capability Negotiation Protocols", "CNS-%02d", 74, cnsRows},
	{"ECT", "Execution Context Tokens", "ECT-%d", 5, ectRows},
}

// TestRequirements_Proven: the rows of each draft are numbered without a gap, and each has what its status
// promises: tests that exist, or what is missing.
func TestRequirements_Proven(t *testing.T) {
	t.Parallel()
	for _, d := range drafts {
		if len(d.rows) != d.count {
			t.Errorf("%s has %d rows, want %d: add the rows, or change the count in drafts", d.prefix, len(d.rows), d.count)
		}
		for _, fault := range faults(d) {
			t.Error(fault)
		}
	}
}

// faults are what is wrong with the rows of a draft.
func faults(d draft) (found []string) {
	for n, r := range d.rows {
		if want := fmt.Sprintf(d.format, n+1); r.id != want {
			found = append(found, fmt.Sprintf("row %d of %s is %s, want %s: rows are sorted, each number once", n+1, d.prefix, r.id, want))
		}
		if fault := r.fault(); fault != "" {
			found = append(found, r.id+": "+fault)
		}
	}
	return found
}

// fault says what is wrong with a row, or nothing.
func (r row) fault() string {
	switch {
	case r.section == "" || r.what == "" || strings.ContainsAny(r.section+r.what+r.missing, "|\n"):
		return "a row has a section and a text, without | and line ends"
	case r.status == statusDone && len(r.tests) == 0:
		return "is done without a test: name one that fails without it, or say what is missing"
	case (r.status == statusDone) != (r.missing == ""):
		return fmt.Sprintf("is %s, and %q is missing: one of the two is wrong", r.status, r.missing)
	case r.status == statusMissing && len(r.tests) != 0:
		return "is missing and has tests: it is done partly, or the tests are of another row"
	}
	for n, one := range r.tests {
		if slices.Contains(r.tests[:n], one) {
			return "names " + one + " twice"
		}
		if !exists(one) {
			return "there is no " + one + ": name a test as FOLDER:NAME"
		}
	}
	return ""
}

// exists reports whether there is a test FOLDER:NAME.
func exists(test string) bool {
	folder, name, _ := strings.Cut(test, ":")
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(folder), "*_test.go"))
	if err != nil {
		return false
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}

// TestRequirements_FaultsAreFound: a row that promises what it does not hold is a fault, as is a gap.
func TestRequirements_FaultsAreFound(t *testing.T) {
	t.Parallel()
	const here = "test/requirements:TestRequirements_FaultsAreFound"
	for name, rows := range map[string][]row{
		"no test":           {done("X-1", "A", "a")},
		"no such test":      {done("X-1", "A", "a", "test/requirements:TestRequirements_None")},
		"no such folder":    {done("X-1", "A", "a", "test/none:TestRequirements_Proven")},
		"part of a name":    {done("X-1", "A", "a", "test/requirements:TestRequirements_Fault")},
		"the same twice":    {done("X-1", "A", "a", here, here)},
		"nothing missing":   {missing("X-1", "A", "a", "")},
		"partly, all there": {partly("X-1", "A", "a", "", here)},
		"missing, a test":   {{"X-1", "A", "a", statusMissing, "all", []string{here}}},
		"done, a lack":      {{"X-1", "A", "a", statusDone, "much", []string{here}}},
		"no text":           {done("X-1", "A", "", here)},
		"no section":        {done("X-1", "", "a", here)},
		"a bar":             {done("X-1", "A", "a|b", here)},
		"a gap":             {done("X-1", "A", "a", here), done("X-3", "A", "a", here)},
		"twice":             {done("X-1", "A", "a", here), done("X-1", "A", "a", here)},
		"not sorted":        {done("X-2", "A", "a", here), done("X-1", "A", "a", here)},
	} {
		if got := faults(draft{format: "X-%d", rows: rows}); len(got) == 0 {
			t.Errorf("%s: found nothing", name)
		}
	}
	good := []row{done("X-1", "A", "a", here), partly("X-2", "A", "a", "much"), missing("X-3", "A", "a", "all")}
	if got := faults(draft{format: "X-%d", rows: good}); len(got) != 0 {
		t.Errorf("good rows: %q", got)
	}
}
