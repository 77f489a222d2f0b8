package proof

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// FateWords is what became of something that was lost.
func FateWords(fate canonical.Fate) string {
	if fate == canonical.Carried {
		return "kept as an extension"
	}
	return "lost"
}

// Losses is what a message lost, as people read it: each fate with its meanings.
type Losses struct{ Carried, Dropped []Loss }

// Loss is one of them.
type Loss struct {
	code canonical.LossCode // empty: of no row of the catalogue
	fate canonical.Fate
	text string
}

// itemOf reads a warning of an ECT or a loss of ours: "L05 dropped /path". What cannot be read is an
// item without a code.
func itemOf(warning string) Loss {
	code, rest, _ := strings.Cut(warning, " ")
	fate, _, _ := strings.Cut(rest, " ")
	entry, ok := canonical.Lookup(canonical.LossCode(code))
	if !ok {
		return Loss{fate: canonical.Dropped, text: terminal.Line(warning)}
	}
	return Loss{code: entry.Code, fate: canonical.Fate(fate), text: entry.What}
}

// LossesOf reads the warnings of tokens.
func LossesOf(warnings []string) Losses {
	var report Losses
	for _, warning := range warnings {
		item := itemOf(warning)
		list := &report.Dropped
		if item.fate == canonical.Carried {
			list = &report.Carried
		}
		if !slices.ContainsFunc(*list, func(other Loss) bool { return other == item }) {
			*list = append(*list, item)
		}
	}
	for _, list := range [][]Loss{report.Carried, report.Dropped} {
		slices.SortStableFunc(list, func(a, b Loss) int { return cmp.Compare(a.code, b.code) })
	}
	return report
}

// Write writes one line per fate: what was kept as an extension, if anything, and what was lost.
func (r Losses) Write(w io.Writer) error {
	if len(r.Carried) > 0 {
		fmt.Fprintln(w, "kept as extension:", inWords(r.Carried))
	}
	dropped := "nothing"
	if len(r.Dropped) > 0 {
		dropped = inWords(r.Dropped)
	}
	_, err := fmt.Fprintln(w, "lost:", dropped)
	return err
}

func inWords(items []Loss) string {
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = item.text
		if item.code != "" {
			texts[i] += " (" + string(item.code) + ")"
		}
	}
	return strings.Join(texts, "; ")
}
