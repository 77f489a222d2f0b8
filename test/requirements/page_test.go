package requirements_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pageEnv set to anything writes the page:
// AEPB_UPDATE_REQUIREMENTS=1 go test -run TestRequirements_Page ./test/requirements.
const pageEnv = "AEPB_UPDATE_REQUIREMENTS"

const pageHead = `<!-- made by TestRequirements_Page from test/requirements/rows_*_test.go; AEPB_UPDATE_REQUIREMENTS=1 renews it -->

# Requirements

What the drafts require of a gateway, in short, and the tests that prove it.
Where a draft leaves a choice open, [rulings](rulings.md) say what the gateway does; the [glossary](glossary.md) explains the terms.

* **done**: the tests fail if it breaks.
* **partly**: the row says what is missing; the tests prove the rest.
* **missing**: it is not built yet.

`

// page is the text of docs/requirements.md.
func page() string {
	var text strings.Builder
	text.WriteString(pageHead)
	text.WriteString("| draft | done | partly | missing | all |\n|---|--:|--:|--:|--:|\n")
	all := map[status]int{}
	for _, d := range drafts {
		counts := map[status]int{}
		for _, r := range d.rows {
			counts[r.status]++
			all[r.status]++
		}
		writeCounts(&text, fmt.Sprintf("[%s](#%s)", d.prefix, strings.ToLower(d.prefix)), counts)
	}
	writeCounts(&text, "all", all)
	for _, d := range drafts {
		fmt.Fprintf(&text, "\n## %s\n\n%s.\n\n| id | section | requirement | status | tests |\n|---|---|---|---|---|\n", d.prefix, d.title)
		for _, r := range d.rows {
			fmt.Fprintf(&text, "| %s | %s | %s | %s | %s |\n", r.id, r.section, r.what, r.statusText(), r.testsText())
		}
	}
	return text.String()
}

func writeCounts(text *strings.Builder, name string, counts map[status]int) {
	done, partly, missing := counts[statusDone], counts[statusPartly], counts[statusMissing]
	fmt.Fprintf(text, "| %s | %d | %d | %d | %d |\n", name, done, partly, missing, done+partly+missing)
}

func (r row) statusText() string {
	if r.missing == "" {
		return string(r.status)
	}
	return string(r.status) + ": " + r.missing
}

// testsText has the tests by folder, in the order of the row.
func (r row) testsText() string {
	var folders []string
	names := map[string][]string{}
	for _, one := range r.tests {
		folder, name, _ := strings.Cut(one, ":")
		if names[folder] == nil {
			folders = append(folders, folder)
		}
		names[folder] = append(names[folder], name)
	}
	for n, folder := range folders {
		folders[n] = "`" + folder + "`: " + strings.Join(names[folder], ", ")
	}
	return strings.Join(folders, "; ")
}

// TestRequirements_Page: docs/requirements.md is what the rows say.
func TestRequirements_Page(t *testing.T) {
	t.Parallel()
	file := filepath.Join("..", "..", "docs", "requirements.md")
	if os.Getenv(pageEnv) != "" {
		if err := os.WriteFile(file, []byte(page()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != page() {
		t.Errorf("%s is not what the rows say: run %s=1 go test ./test/requirements and read the diff", file, pageEnv)
	}
}
