// Package approvals has the commands about calls that wait for humans.
package approvals

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// maxApprovalPages bounds what a list reads: 100 approvals a page.
const maxApprovalPages = 100

// anyState has a list show approvals of all states.
const anyState = "all"

// approvalView is what the admin API says of one.
type approvalView struct {
	ID        string          `json:"id"`
	State     hitl.State      `json:"state"`
	Rules     []string        `json:"rules"`
	Until     time.Time       `json:"until"`
	Workflow  string          `json:"wid"`
	Task      string          `json:"task,omitempty"`
	Call      hitl.Call       `json:"call"`
	Gated     ect.ID          `json:"gated"`
	Before    string          `json:"before,omitempty"`
	Demand    approvalDemand  `json:"demand"`
	Shown     string          `json:"shown"`
	Whole     bool            `json:"whole"`
	Opened    time.Time       `json:"opened"`
	Decisions []hitl.Decision `json:"decisions,omitempty"`
	Why       string          `json:"why,omitempty"`
	Text      string          `json:"text,omitempty"`
}

// approvalDemand is what the rules demand.
type approvalDemand struct {
	Roles       []string         `json:"roles"`
	Approvers   int              `json:"approvers"`
	Unreachable hitl.Unreachable `json:"unreachable"`
}

// Commands are the commands of the group.
func Commands(c *client.Client) []*cobra.Command {
	show := &cobra.Command{
		Use: "show ID", Short: "Show one approval, with the text that a decision is about", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := readApproval(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return c.Show(cmd, a, a.print)
		},
	}
	return []*cobra.Command{program.Group("approvals", "Calls that wait for humans: list, read and decide about them", approvalsList(c), show, approvalsApprove(c), approvalsDeny(c))}
}

func approvalsList(c *client.Client) *cobra.Command {
	var state string
	var watch bool
	cmd := &cobra.Command{
		Use: "list", Short: "List approvals: those that wait, or those of another state", Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if state == anyState || slices.Contains(hitl.States(), hitl.State(state)) {
				return nil
			}
			return fmt.Errorf("--state is pending, granted, denied, expired, canceled, consumed or all, not %q", state)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch {
				return watchApprovals(cmd, c, state)
			}
			all, err := approvalsIn(cmd.Context(), c, state)
			if err != nil {
				return err
			}
			return c.Show(cmd, map[string][]approvalView{"approvals": all}, func(w io.Writer) error { return terminal.PrintRows(w, approvalLines(all)) })
		},
	}
	cmd.Flags().StringVar(&state, "state", string(hitl.Pending), "only those in this state; all: of every state")
	cmd.Flags().BoolVar(&watch, "watch", false, "show each change until interrupted")
	return cmd
}

// approvalsIn are those in a state, of all pages.
func approvalsIn(ctx context.Context, c *client.Client, state string) ([]approvalView, error) {
	all, query := []approvalView{}, url.Values{}
	if state != anyState {
		query.Set("state", state)
	}
	for range maxApprovalPages {
		var page struct {
			Approvals []approvalView `json:"approvals"`
			Next      string         `json:"next"`
		}
		if err := c.Ask(ctx, http.MethodGet, "/approvals?"+query.Encode(), nil, http.StatusOK, &page); err != nil {
			return nil, err
		}
		if all = append(all, page.Approvals...); page.Next == "" {
			return all, nil
		}
		query.Set("after", page.Next)
	}
	return nil, fmt.Errorf("there are more than %d approvals: name a --state with fewer", maxApprovalPages*100)
}

// watchApprovals shows each change of a list until its reader has seen enough.
func watchApprovals(cmd *cobra.Command, c *client.Client, state string) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	var shown map[string]bool
	for {
		began := time.Now()
		all, err := approvalsIn(ctx, c, state)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // interrupted by its reader
		}
		if err != nil {
			return err
		}
		if shown, err = terminal.ShowChanges(out, c.Output, shown, approvalLines(all), map[string][]approvalView{"approvals": all}); err != nil {
			return err
		}
		if terminal.Pause(ctx, began) != nil {
			return nil //nolint:nilerr // interrupted by its reader
		}
	}
}

// approvalLines are approvals as the lines of a table.
func approvalLines(all []approvalView) []terminal.Row {
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 4, 2, ' ', 0)
	rows := []string{"ID\tSTATE\tCALLER\tAGENT\tTOOL\tRULES\tUNTIL"}
	for _, a := range all {
		rows = append(rows, strings.Join([]string{
			terminal.Word(a.ID), terminal.Word(a.progress()), terminal.Word(a.caller()), terminal.Word(a.Call.Agent), terminal.Word(cmp.Or(a.Call.Tool, a.Call.Operation)), terminal.Words(a.Rules), terminal.Instant(a.Until),
		}, "\t"))
	}
	fmt.Fprintln(table, strings.Join(rows, "\n"))
	_ = table.Flush() // a buffer takes everything
	var lines []terminal.Row
	for i, line := range strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n") {
		lines = append(lines, terminal.Row{Key: rows[i], Text: line})
	}
	return lines
}

// progress is the state of an approval, with how many have granted one that still waits for others.
func (a approvalView) progress() string {
	granted := 0
	for _, d := range a.Decisions {
		if d.Granted {
			granted++
		}
	}
	if a.State == hitl.Pending && granted > 0 {
		return fmt.Sprintf("%s,%d/%d", a.State, granted, a.Demand.Approvers)
	}
	return string(a.State)
}

// caller is who made the call, or its address.
func (a approvalView) caller() string { return cmp.Or(string(a.Call.Caller), a.Call.Address) }

// readApproval reads one. Its text is the one that shown is the hash of: what a decision is about is what was printed.
func readApproval(ctx context.Context, c *client.Client, id string) (a approvalView, err error) {
	if err := c.Ask(ctx, http.MethodGet, approvalPath(id), nil, http.StatusOK, &a); err != nil {
		return a, err
	}
	if a.Text != "" && ect.Hash([]byte(a.Text)) != a.Shown {
		return a, errors.New("the gateway sent a text that does not have the hash that it says: do not decide about it, and tell its operator")
	}
	return a, nil
}

func approvalPath(id string) string { return "/approvals/" + url.PathEscape(id) }

// print prints what is known of an approval, and then its text alone, so that the text cannot pass for the rest.
func (a approvalView) print(w io.Writer) error {
	var err error
	row := func(name, text string) {
		if err == nil && text != "" {
			_, err = fmt.Fprintf(w, "%-10s %s\n", name, text)
		}
	}
	row("approval", terminal.Word(a.ID)+" "+terminal.Word(a.progress()))
	row("call", terminal.Word(a.caller())+" -> "+terminal.Word(a.Call.Agent)+" "+terminal.Word(cmp.Or(a.Call.Tool, a.Call.Operation)))
	row("rules", terminal.Words(a.Rules))
	row("roles", terminal.Words(a.Demand.Roles))
	row("until", terminal.Instant(a.Until)+", then "+terminal.Word(a.Demand.Unreachable))
	row("workflow", terminal.Word(a.Workflow))
	row("task", terminal.Word(a.Task))
	for _, d := range a.Decisions {
		verb := "denied"
		if d.Granted {
			verb = "granted"
		}
		text := verb + " by " + terminal.Word(cmp.Or(d.Approver.Name, string(d.Approver.ID))) + " at " + terminal.Instant(d.At)
		if d.Reason != "" {
			text += ": " + terminal.Line(d.Reason)
		}
		row("decision", text)
	}
	row("why", terminal.Line(a.Why))
	if !a.Whole {
		row("deny only", "the text does not show all of the call")
	}
	row("shown", terminal.Word(a.Shown))
	switch {
	case err != nil:
		return err
	case a.Text == "":
		_, err = fmt.Fprintln(w, "the text is for auditors and for those who decide about it")
	default:
		_, err = fmt.Fprintf(w, "\n%s\n", terminal.Escaped([]byte(a.Text)))
	}
	return err
}

// consent is how an approver agrees: by an answer on a terminal, or with the hash of the text that was read before.
type consent struct {
	yes   bool
	shown string
}

func approvalsApprove(c *client.Client) *cobra.Command {
	var reason string
	var how consent
	cmd := &cobra.Command{
		Use: "approve ID", Short: "Grant an approval, after its text was read", Args: cobra.ExactArgs(1),
		Long: "Grant an approval. Its text is printed to standard error, and granted once \"yes\" is typed on a terminal.\n" +
			"A script passes the hash of the text that was read (shown of aepbctl approvals show) in --shown, so\n" +
			"that it grants that text and no other.",
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if how.shown == "" && (how.yes || !terminal.Interactive(cmd)) {
				return errors.New("--shown is required with --yes, and without a terminal: the hash of the text that was read, from aepbctl approvals show")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := readApproval(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if a.Text == "" {
				return errors.New("its text is not for this operator: the role approver, or one that the approval demands, is required to grant it")
			}
			if err := a.print(cmd.ErrOrStderr()); err != nil {
				return err
			}
			if how.shown != "" && how.shown != a.Shown {
				return errors.New("--shown is the hash of another text: read it again with aepbctl approvals show")
			}
			if terminal.Interactive(cmd) && !how.yes {
				if err := terminal.Confirm(cmd, "grant this call?", "not granted, and not denied: the answer was not yes"); err != nil {
					return err
				}
			}
			return decide(cmd, c, a, "approve", reason)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record: one line of at most 512 bytes")
	cmd.Flags().BoolVar(&how.yes, "yes", false, "do not ask; --shown is required")
	cmd.Flags().StringVar(&how.shown, "shown", "", "hash of the text that was read")
	return cmd
}

func approvalsDeny(c *client.Client) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "deny ID", Short: "Deny an approval: the call is not sent", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := readApproval(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return decide(cmd, c, a, "deny", reason)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the caller and the record: one line of at most 512 bytes")
	return cmd
}

// decide posts a decision about the text of an approval, and prints how the approval stands then.
func decide(cmd *cobra.Command, c *client.Client, a approvalView, decision, reason string) error {
	order := struct {
		Decision string `json:"decision"`
		Shown    string `json:"shown"`
		Reason   string `json:"reason,omitempty"`
	}{decision, a.Shown, reason}
	var after approvalView
	if err := c.Ask(cmd.Context(), http.MethodPost, approvalPath(a.ID)+"/decision", order, http.StatusOK, &after); err != nil {
		return err
	}
	return c.Show(cmd, after, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "approval %s is %s\n", terminal.Word(after.ID), terminal.Word(after.progress()))
		return err
	})
}
