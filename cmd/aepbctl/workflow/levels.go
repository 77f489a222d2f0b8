package workflow

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// levelView is how a workflow stands, as the admin API says.
type levelView struct {
	Workflow string    `json:"wid"`
	Level    hitl.Mode `json:"level"`
	Since    time.Time `json:"since"`
	By       string    `json:"by,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Roles    []string  `json:"roles,omitempty"`
	Token    string    `json:"ect,omitempty"`
}

// levelOrder is a change.
type levelOrder struct {
	Step   hitl.Step `json:"step"`
	Reason string    `json:"reason"`
}

// printLevels prints the workflows that are held.
func printLevels(w io.Writer, all []levelView) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no workflow is held")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "WORKFLOW\tLEVEL\tSINCE\tBY\tREASON")
	for _, one := range all {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", terminal.Word(one.Workflow), one.Level, one.Since.UTC().Format(time.RFC3339), terminal.Word(one.By), terminal.Word(one.Reason))
	}
	return table.Flush()
}

// workflowLevels are the commands by which operators hold workflows.
func workflowLevels(c *client.Client) []*cobra.Command {
	list := &cobra.Command{
		Use: "held", Short: "List the workflows that are paused or stopped", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return client.ShowList(c, cmd, "levels", printLevels) },
	}
	return []*cobra.Command{
		list,
		workflowLevel(c, hitl.Pause, "Let new work of a workflow wait until the pause is lifted; after 24 hours it becomes a stop"),
		workflowLevel(c, hitl.Stop, "Refuse new work of a workflow until the stop is lifted"),
		workflowLevel(c, hitl.Lift, "Let a workflow go on that is paused or stopped"),
	}
}

func workflowLevel(c *client.Client, step hitl.Step, short string) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: string(step) + " WID", Short: short, Args: cobra.ExactArgs(1), Example: "  aepbctl workflow " + string(step) + " WID --reason 'checked the accounts'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return program.Misuse(errors.New("--reason is required: say why, for the record"))
			}
			var level levelView
			if err := c.Ask(cmd.Context(), http.MethodPost, "/levels/"+url.PathEscape(args[0]), levelOrder{step, reason}, http.StatusOK, &level); err != nil {
				return err
			}
			return c.Show(cmd, level, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "workflow %s is %s\n", terminal.Word(level.Workflow), level.Level)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, at most 512 bytes")
	return cmd
}
