package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/spelling"
)

// lossView is a row of the loss catalogue in words.
type lossView struct {
	Code    canonical.LossCode `json:"code"`
	Fates   []canonical.Fate   `json:"fates"` // the usual one first
	Meaning string             `json:"meaning"`
	Todo    string             `json:"what_to_do"`
}

func lossesCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use:   "losses [CODE]",
		Short: "Explain the codes of what translations cannot carry natively",
		Long: "Explain the codes (L01, L02 …) that \"send\", \"translate\", \"ect verify\", metrics and\n" +
			"signed records give for what a translation could not carry natively.",
		Example: "  aepbctl losses\n  aepbctl losses L19\n  aepbctl losses -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			entries := canonical.Catalogue()
			if len(args) == 1 {
				entry, err := lossOf(args[0])
				if err != nil {
					return &usageError{err}
				}
				entries = []canonical.Entry{entry}
			}
			views := make([]lossView, len(entries))
			for i, entry := range entries {
				views[i] = viewOf(entry)
			}
			return t.show(cmd, views, func(w io.Writer) error { return printLosses(w, views) })
		},
	}
}

// lossOf finds the row of a code, in either case.
func lossOf(code string) (canonical.Entry, error) {
	if entry, ok := canonical.Lookup(canonical.LossCode(strings.ToUpper(code))); ok {
		return entry, nil
	}
	all := canonical.Catalogue()
	codes := make([]string, len(all))
	for i, entry := range all {
		codes[i] = string(entry.Code)
	}
	return canonical.Entry{}, fmt.Errorf("no loss has the code %s: they are %s to %s%s; aepbctl losses lists them",
		terminal.Word(code), codes[0], codes[len(codes)-1], meantCode(code, codes))
}

// meantCode is the code with a missing zero or letter put in, else the one that is spelled nearly so.
func meantCode(code string, codes []string) string {
	digits := strings.TrimLeft(strings.ToUpper(code), "L0O")
	for _, c := range codes {
		if digits != "" && strings.TrimLeft(c, "L0") == digits {
			return "; did you mean " + c + "?"
		}
	}
	return spelling.DidYouMean(code, codes)
}

func viewOf(entry canonical.Entry) lossView {
	view := lossView{Code: entry.Code, Fates: []canonical.Fate{entry.Fate}, Meaning: entry.What}
	if entry.Fate == canonical.Carried { // an agent whose protocol has no extensions does not get it
		view.Fates = append(view.Fates, canonical.Dropped)
		view.Todo = "nothing while it is kept: it travels in an extension of the message, and returns with the reply; if it is lost: "
	}
	if entry.Weight == canonical.WeightContent {
		view.Todo += fmt.Sprintf("such a message is refused (semantic_loss); leave this out, call the agent in its own protocol, or have the operator allow it with policy.allow_losses: [%s]", entry.Code)
	} else {
		view.Todo += "the message means the same without it; who needs it calls the agent in its own protocol"
	}
	return view
}

func printLosses(w io.Writer, views []lossView) error {
	for i, v := range views {
		fates := make([]string, len(v.Fates))
		for j, fate := range v.Fates {
			fates[j] = fateWords(fate)
		}
		if i > 0 {
			fmt.Fprintln(w)
		}
		if _, err := fmt.Fprintf(w, "%s  %s\n     usually %s\n     what to do: %s\n", v.Code, v.Meaning, strings.Join(fates, ", else "), v.Todo); err != nil {
			return err
		}
	}
	return nil
}

func fateWords(fate canonical.Fate) string {
	if fate == canonical.Carried {
		return "kept as an extension"
	}
	return "lost"
}

// lossReport is what a message lost, as people read it: each fate with its meanings.
type lossReport struct{ carried, dropped []lossItem }

type lossItem struct {
	code canonical.LossCode // empty: of no row of the catalogue
	fate canonical.Fate
	text string
}

// itemOf reads a warning of an ECT or a loss of ours: "L05 dropped /path". What cannot be read is an
// item without a code.
func itemOf(warning string) lossItem {
	code, rest, _ := strings.Cut(warning, " ")
	fate, _, _ := strings.Cut(rest, " ")
	entry, ok := canonical.Lookup(canonical.LossCode(code))
	if !ok {
		return lossItem{fate: canonical.Dropped, text: terminal.Line(warning)}
	}
	return lossItem{code: entry.Code, fate: canonical.Fate(fate), text: entry.What}
}

func reportOf(warnings []string) lossReport {
	var report lossReport
	for _, warning := range warnings {
		item := itemOf(warning)
		list := &report.dropped
		if item.fate == canonical.Carried {
			list = &report.carried
		}
		if !slices.ContainsFunc(*list, func(other lossItem) bool { return other == item }) {
			*list = append(*list, item)
		}
	}
	for _, list := range [][]lossItem{report.carried, report.dropped} {
		slices.SortStableFunc(list, func(a, b lossItem) int { return cmp.Compare(a.code, b.code) })
	}
	return report
}

// write writes one line per fate: what was kept as an extension, if anything, and what was lost.
func (r lossReport) write(w io.Writer) error {
	if len(r.carried) > 0 {
		fmt.Fprintln(w, "kept as extension:", inWords(r.carried))
	}
	dropped := "nothing"
	if len(r.dropped) > 0 {
		dropped = inWords(r.dropped)
	}
	_, err := fmt.Fprintln(w, "lost:", dropped)
	return err
}

func inWords(items []lossItem) string {
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = item.text
		if item.code != "" {
			texts[i] += " (" + string(item.code) + ")"
		}
	}
	return strings.Join(texts, "; ")
}
