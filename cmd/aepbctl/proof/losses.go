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
	// members are those that the places of extensions name, such as /body/extensions/mcp-v1/annotations.
	members []string
}

// mostMembers bounds the members that are named of one code.
const mostMembers = 5

// itemOf reads a warning of an ECT or a loss of ours: "L05 dropped /path". What cannot be read is an
// item without a code.
func itemOf(warning string) Loss {
	code, rest, _ := strings.Cut(warning, " ")
	fate, place, _ := strings.Cut(rest, " ")
	entry, ok := canonical.Lookup(canonical.LossCode(code))
	if !ok {
		return Loss{fate: canonical.Dropped, text: terminal.Line(warning)}
	}
	item := Loss{code: entry.Code, fate: canonical.Fate(fate), text: entry.What}
	if _, inside, is := strings.Cut(place, "/extensions/"); is {
		if _, member, named := strings.Cut(inside, "/"); named {
			item.members = []string{terminal.Word(member)}
		}
	}
	return item
}

// same reports whether two losses are told as one.
func (l Loss) same(other Loss) bool {
	return l.code == other.code && l.fate == other.fate && l.text == other.text
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
		at := slices.IndexFunc(*list, item.same)
		if at < 0 {
			*list = append(*list, item)
			continue
		}
		for _, member := range item.members {
			if !slices.Contains((*list)[at].members, member) {
				(*list)[at].members = append((*list)[at].members, member)
			}
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
		if len(item.members) > mostMembers {
			item.members = append(item.members[:mostMembers:mostMembers], "…")
		}
		if len(item.members) > 0 {
			texts[i] += ": " + strings.Join(item.members, ", ")
		}
		if item.code != "" {
			texts[i] += " (" + string(item.code) + ")"
		}
	}
	return strings.Join(texts, "; ")
}
