package reference

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/proof"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/spelling"
)

// lossView is a row of the loss catalogue in words.
type lossView struct {
	Code    canonical.LossCode `json:"code"`
	Fates   []canonical.Fate   `json:"fates"` // the usual one first
	Meaning string             `json:"meaning"`
	Example string             `json:"example"`
	Todo    string             `json:"what_to_do"`
}

// Commands are the commands of the group.
func Commands(c *client.Client) []*cobra.Command {
	return []*cobra.Command{bindingsCommand(c), lossesCommand(c)}
}

func lossesCommand(c *client.Client) *cobra.Command {
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
					return program.Misuse(err)
				}
				entries = []canonical.Entry{entry}
			}
			views := make([]lossView, len(entries))
			for i, entry := range entries {
				views[i] = viewOf(entry)
			}
			return c.Show(cmd, views, func(w io.Writer) error { return printLosses(w, views) })
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
	view := lossView{Code: entry.Code, Fates: []canonical.Fate{entry.Fate}, Meaning: entry.What, Example: entry.Example}
	if entry.Fate == canonical.Carried { // an agent whose protocol has no extensions does not get it
		view.Fates = append(view.Fates, canonical.Dropped)
		view.Todo = "nothing while it is kept: it travels in an extension of the message, and returns with the reply; if it is lost: "
	}
	if entry.Weight == canonical.WeightContent {
		view.Todo += fmt.Sprintf("such a message is refused (semantic_loss); leave this out, call the agent in its own protocol, or have the operator allow it with policy.allow_losses: [%s]", entry.Code)
	} else {
		view.Todo += "the message means the same without it; a caller that needs it calls the agent in its own protocol"
	}
	return view
}

func printLosses(w io.Writer, views []lossView) error {
	for i, v := range views {
		fates := make([]string, len(v.Fates))
		for j, fate := range v.Fates {
			fates[j] = proof.FateWords(fate)
		}
		if i > 0 {
			fmt.Fprintln(w)
		}
		if _, err := fmt.Fprintf(w, "%s  %s\n     such as %s\n     usually %s\n     what to do: %s\n", v.Code, v.Meaning, v.Example, strings.Join(fates, ", else "), v.Todo); err != nil {
			return err
		}
	}
	return nil
}
