// Package rollback has the commands about checkpoints, and about undoing the work behind them.
package rollback

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/lifecycle/rollback"
)

// maxCheckpointPages bounds what a list reads: 100 checkpoints a page, of which a workflow has about ten.
const maxCheckpointPages = 100

// checkpointView is what the admin API says of a checkpoint.
type checkpointView struct {
	ID         ect.ID    `json:"jti"`
	Workflow   string    `json:"wid"`
	Parents    []ect.ID  `json:"par"`
	Agent      string    `json:"agent"`
	Tool       string    `json:"tool,omitempty"`
	Reversible bool      `json:"reversible"`
	How        string    `json:"how"`
	UndoTool   string    `json:"undo_tool,omitempty"`
	Made       time.Time `json:"made"`
	Expires    time.Time `json:"expires"`
	Size       int       `json:"size"`
	Outcome    string    `json:"outcome,omitempty"`
}

// undoneBy says how the work would be undone.
func (v checkpointView) undoneBy() string {
	switch {
	case v.Outcome == "failed":
		return "nothing to undo"
	case v.How == "compensation" && v.Outcome == "unknown":
		return "a human: no result is known"
	case v.How == "compensation":
		return "call of " + terminal.Word(v.UndoTool)
	case v.How == "agent":
		return "the agent"
	case v.How == "deposit":
		return "the agent, from its state"
	default:
		return "a human"
	}
}

// Commands are the commands of the group.
func Commands(c *client.Client) []*cobra.Command {
	return []*cobra.Command{checkpointsCommand(c), rollbackCommand(c)}
}

func checkpointsCommand(c *client.Client) *cobra.Command {
	var wid string
	list := &cobra.Command{
		Use: "list --wid WID", Short: "List the checkpoints of a workflow", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wid == "" {
				return program.Misuse(errors.New("--wid is required: the workflow whose checkpoints are listed"))
			}
			all, err := checkpointsOf(cmd.Context(), c, wid)
			if err != nil {
				return err
			}
			return c.Show(cmd, map[string][]checkpointView{"checkpoints": all}, func(w io.Writer) error { return printCheckpoints(w, all) })
		},
	}
	list.Flags().StringVar(&wid, "wid", "", "the workflow")
	var of string
	show := &cobra.Command{
		Use: "show JTI", Short: "Show one checkpoint, and how its work would be undone", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "/checkpoints/" + url.PathEscape(args[0])
			if of != "" {
				path += "?" + url.Values{"wid": {of}}.Encode()
			}
			var v checkpointView
			if err := ask(cmd.Context(), c, http.MethodGet, path, nil, http.StatusOK, &v); err != nil {
				return err
			}
			return c.Show(cmd, v, v.print)
		},
	}
	show.Flags().StringVar(&of, "wid", "", "its workflow, where several have a checkpoint of this JTI")
	return program.Group("checkpoints", "What is kept to undo the work of workflows: list and show it", list, show)
}

// ask has the admin API answer a request with the status want and a value, or refuse. A nil body is not sent.
func ask(ctx context.Context, c *client.Client, method, path string, body any, want int, into any) error {
	got, err := c.Operate(ctx, method, path, body, want)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(got.Body, into); err != nil {
		return fmt.Errorf("the gateway's answer cannot be read: %w", err)
	}
	return nil
}

// checkpointsOf are the checkpoints of a workflow, of all pages.
func checkpointsOf(ctx context.Context, c *client.Client, wid string) ([]checkpointView, error) {
	all, query := []checkpointView{}, url.Values{"wid": {wid}}
	for range maxCheckpointPages {
		var page struct {
			Checkpoints []checkpointView `json:"checkpoints"`
			Next        string           `json:"next"`
		}
		if err := ask(ctx, c, http.MethodGet, "/checkpoints?"+query.Encode(), nil, http.StatusOK, &page); err != nil {
			return nil, err
		}
		if all = append(all, page.Checkpoints...); page.Next == "" {
			return all, nil
		}
		query.Set("after", page.Next)
	}
	return nil, fmt.Errorf("the gateway lists more than %d pages of checkpoints, and a workflow has about ten: tell its operator", maxCheckpointPages)
}

func printCheckpoints(w io.Writer, all []checkpointView) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no checkpoint of this workflow is kept")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "CHECKPOINT\tAGENT\tTOOL\tUNDONE BY\tMADE\tUNTIL")
	for _, v := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", terminal.Word(v.ID), terminal.Word(v.Agent), cmp.Or(terminal.Word(v.Tool), "-"), v.undoneBy(), terminal.Instant(v.Made), terminal.Instant(v.Expires))
	}
	return table.Flush()
}

func (v checkpointView) print(w io.Writer) error {
	var text strings.Builder
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&text, "%-10s %s\n", name, value)
		}
	}
	row("checkpoint", terminal.Word(v.ID))
	row("workflow", terminal.Word(v.Workflow))
	for _, parent := range v.Parents {
		row("parent", terminal.Word(parent))
	}
	row("agent", terminal.Word(v.Agent))
	row("tool", terminal.Word(v.Tool))
	row("undone by", v.undoneBy())
	row("made", terminal.Instant(v.Made))
	row("until", terminal.Instant(v.Expires))
	row("size", fmt.Sprintf("%d bytes", v.Size))
	_, err := io.WriteString(w, text.String())
	return err
}

// rollbackOrder is a request for a rollback, or for its plan.
type rollbackOrder struct {
	Checkpoint string `json:"checkpoint"`
	Workflow   string `json:"wid,omitempty"`
	Cascade    bool   `json:"cascade,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Plan       bool   `json:"plan,omitempty"`
}

// rollbackPlan is what a rollback would do.
type rollbackPlan struct {
	Workflow string          `json:"wid"`
	From     ect.ID          `json:"checkpoint"`
	Cascade  bool            `json:"cascade"`
	Steps    []rollback.Step `json:"steps"`
	Agents   []string        `json:"agents"`
	Escalate []ect.ID        `json:"escalate"`
	Stale    []ect.ID        `json:"stale"`
	By       time.Time       `json:"by"`
}

func rollbackCommand(c *client.Client) *cobra.Command {
	var order rollbackOrder
	var yes bool
	cmd := &cobra.Command{
		Use: "rollback JTI", Short: "Undo the work behind a checkpoint, or say what that would do", Args: cobra.ExactArgs(1),
		Long: "Undo the work behind a checkpoint. What would happen is printed to standard error, and begins once \"yes\" is\n" +
			"typed on a terminal; a script passes --yes. Then each step is shown until the rollback is over. The exit code\n" +
			"is 0 if all was undone. With --plan nothing is undone.",
		Example: "  aepbctl rollback --plan JTI --cascade\n  aepbctl rollback JTI --cascade --reason 'wrong customer'",
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case order.Plan:
				return nil
			case order.Reason == "":
				return errors.New("--reason is required: say why, for the record; or --plan, to see what would happen")
			case !yes && !terminal.Interactive(cmd):
				return errors.New("--yes is required without a terminal; --plan says what would happen")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			order.Checkpoint = args[0]
			if order.Plan || !yes {
				if done, err := planned(cmd, c, order); done || err != nil {
					return err
				}
			}
			var v rollbackView
			if err := ask(cmd.Context(), c, http.MethodPost, "/rollbacks", order, http.StatusAccepted, &v); err != nil {
				return err
			}
			return follow(cmd, c, v)
		},
	}
	cmd.Flags().BoolVar(&order.Plan, "plan", false, "say what would happen, to whom and until when, and do nothing")
	cmd.Flags().BoolVar(&order.Cascade, "cascade", false, "undo what depends on the checkpoint as well")
	cmd.Flags().StringVar(&order.Reason, "reason", "", "why, for the record: one line of at most 512 bytes")
	cmd.Flags().StringVar(&order.Workflow, "wid", "", "its workflow, where several have a checkpoint of this JTI")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.AddCommand(&cobra.Command{
		Use: "show WID REQUEST", Short: "Show each step of a rollback until it is over", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := readRollback(cmd.Context(), c, args[0], args[1])
			if err != nil {
				return err
			}
			return follow(cmd, c, v)
		},
	})
	return cmd
}

// planned shows what a rollback would do. With --plan that is all; else it asks whether to begin.
func planned(cmd *cobra.Command, c *client.Client, order rollbackOrder) (done bool, err error) {
	only, p := order.Plan, rollbackPlan{}
	order.Plan = true
	if err := ask(cmd.Context(), c, http.MethodPost, "/rollbacks", order, http.StatusOK, &p); err != nil {
		return false, err
	}
	if only {
		return true, c.Show(cmd, p, p.print)
	}
	if err := p.print(cmd.ErrOrStderr()); err != nil {
		return false, err
	}
	return false, terminal.Confirm(cmd, "undo this?", "nothing is undone: the answer was not yes")
}

func (p rollbackPlan) print(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "rollback to checkpoint %s of workflow %s, until %s at most:\n", terminal.Word(p.From), terminal.Word(p.Workflow), terminal.Instant(p.By))
	for i, s := range p.Steps {
		fmt.Fprintf(&text, "%d %s: %s\n", i+1, terminal.Word(s.Agent), wayOf(s))
	}
	if len(p.Steps) == 0 {
		fmt.Fprintln(&text, "there is nothing to undo")
	}
	if len(p.Agents) > 0 {
		fmt.Fprintf(&text, "agents whose work is undone: %s\n", terminal.Words(p.Agents))
	}
	if len(p.Escalate) > 0 {
		fmt.Fprintf(&text, "a human has to undo: %s\n", idsOf(p.Escalate))
	}
	if len(p.Stale) > 0 {
		fmt.Fprintf(&text, "out of date then, because they used what is undone: %s\n", idsOf(p.Stale))
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// wayOf says how a step is undone.
func wayOf(s rollback.Step) string {
	action, at := terminal.Word(s.Action), " (checkpoint "+terminal.Word(s.Checkpoint)+")"
	switch s.How {
	case rollback.ByAgent:
		return "the agent is asked to roll back action " + action + at
	case rollback.ByCall:
		return "a call undoes action " + action + at
	case rollback.Nothing:
		return "nothing to undo, because action " + action + " failed" + at
	default:
		return "action " + action + " cannot be undone, and a human is told" + at
	}
}

func idsOf(ids []ect.ID) string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	return terminal.Words(out)
}

// rollbackView is how a rollback stands.
type rollbackView struct {
	Workflow string              `json:"wid"`
	From     ect.ID              `json:"checkpoint"`
	Request  ect.ID              `json:"request"`
	Status   rollback.Status     `json:"status,omitempty"` // empty: it goes on
	Accepted time.Time           `json:"accepted,omitzero"`
	By       time.Time           `json:"by,omitzero"`
	Ended    time.Time           `json:"ended,omitzero"`
	Steps    []rollback.Progress `json:"steps"`
	Result   string              `json:"ect,omitempty"`
}

func readRollback(ctx context.Context, c *client.Client, wid, request string) (v rollbackView, err error) {
	err = ask(ctx, c, http.MethodGet, "/rollbacks/"+url.PathEscape(wid)+"/"+url.PathEscape(request), nil, http.StatusOK, &v)
	return v, err
}

// follow shows each change of a rollback until it is over. Its error is program.ErrRefused if not all was undone.
func follow(cmd *cobra.Command, c *client.Client, v rollbackView) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	var shown map[string]bool
	for {
		began := time.Now()
		var err error
		if shown, err = terminal.ShowChanges(out, c.Output, shown, v.lines(out), v); err != nil {
			return err
		}
		switch v.Status {
		case "":
		case rollback.StatusCompleted:
			return nil
		default:
			return program.ErrRefused
		}
		at := v
		if err = terminal.Pause(ctx, began); err == nil {
			v, err = readRollback(ctx, c, at.Workflow, string(at.Request))
		}
		if err != nil {
			return fmt.Errorf("the rollback goes on at the gateway, and aepbctl rollback show %s %s shows it: %w", terminal.Word(at.Workflow), terminal.Word(at.Request), err)
		}
	}
}

// lines are a rollback as text: its steps, and then how it ended and what to do.
func (v rollbackView) lines(w io.Writer) []terminal.Row {
	var lines []terminal.Row
	add := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		lines = append(lines, terminal.Row{Key: text, Text: text})
	}
	add("rollback %s of workflow %s to checkpoint %s", terminal.Word(v.Request), terminal.Word(v.Workflow), terminal.Word(v.From))
	for i, s := range v.Steps {
		mark := func(_ io.Writer, text string) string { return text }
		switch s.State {
		case rollback.StepCompleted:
			mark = terminal.Good
		case rollback.StepFailed, rollback.StepEscalated:
			mark = terminal.Bad
		default:
		}
		text := fmt.Sprintf("%d %s %s: %s", i+1, mark(w, fmt.Sprintf("%-9s", terminal.Word(s.State))), terminal.Word(s.Agent), wayOf(s.Step))
		if s.Tries > 1 {
			text += fmt.Sprintf(", try %d", s.Tries)
		}
		if s.Reason != "" {
			text += ": " + terminal.Line(s.Reason)
		}
		add("%s", text)
	}
	if v.Status != "" {
		add("%s: %s", terminal.Word(v.Status), v.advice())
	}
	return lines
}

// advice says what to do about the status of a rollback.
func (v rollbackView) advice() string {
	lift := ", then let the workflow go on: aepbctl workflow lift " + terminal.Word(v.Workflow) + " --reason TEXT"
	switch v.Status {
	case rollback.StatusCompleted:
		return "all is undone"
	case rollback.StatusPartial:
		return "some of it is undone, and some is not; undo by hand what is not completed" + lift
	case rollback.StatusEscalated:
		return "the gateway cannot undo this; undo by hand what is escalated" + lift
	default:
		return "nothing is undone; correct what the reasons name and roll back again, or undo it by hand" + lift
	}
}
