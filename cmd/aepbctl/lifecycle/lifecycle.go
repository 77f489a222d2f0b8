// Package lifecycle has the commands about how agents and the gateway stand, and which circuit breakers are open.
package lifecycle

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/lifecycle"
)

// lifecycleState is what the admin API says of one.
type lifecycleState struct {
	lifecycle.Record
	Warning string `json:"warning,omitempty"`
}

// Commands are the commands of the group.
func Commands(c *client.Client) []*cobra.Command {
	cmd := program.Group("lifecycle", "How agents and the gateway itself stand: active, deprecated, draining, retired", lifecycleShow(c), lifecycleCheck())
	for _, verb := range []struct {
		name  string
		order lifecycle.Order
		short string
	}{
		{"deprecate", lifecycle.Order{To: lifecycle.Deprecated}, "Announce that an agent will go: it works on, and all its answers say so"},
		{"drain", lifecycle.Order{To: lifecycle.Draining}, "Take no new work for an agent; ten minutes after its last work it is retired for good"},
		{"retire", lifecycle.Order{To: lifecycle.Retired}, "Retire a draining agent for good after ten minutes, even if it has work: all its requests then get 410"},
		{"activate", lifecycle.Order{To: lifecycle.Active}, "Take back a deprecation, or a drain that is not over"},
		{"forget", lifecycle.Order{To: lifecycle.Active, Forget: true}, "Forget that an agent is retired; only a development gateway can"},
	} {
		cmd.AddCommand(lifecycleChange(c, verb.name, verb.order, verb.short))
	}
	return []*cobra.Command{cmd, breakersCommand(c)}
}

func lifecycleShow(c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "show [AGENT]", Short: "Show each agent whose lifecycle was ever changed, or one agent", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return client.ShowList(c, cmd, "lifecycles", printLifecycles)
			}
			var one lifecycleState
			if err := c.Fetch(cmd, lifecyclePath(args[0], false), &one); err != nil {
				return err
			}
			return c.Show(cmd, one, func(w io.Writer) error { return printLifecycles(w, []lifecycleState{one}) })
		},
	}
}

// lifecycleCheck holds a new capability document against the one before it.
func lifecycleCheck() *cobra.Command {
	return &cobra.Command{
		Use: "check OLD NEW", Args: cobra.ExactArgs(2),
		Short: "Check two capability documents (files): what breaks callers needs a higher major version",
		RunE: func(cmd *cobra.Command, args []string) error {
			var versions [2]lifecycle.Description
			for i, file := range args {
				text, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				doc, err := directory.ParseDocument(text, true)
				if err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
				versions[i] = lifecycle.Description{Version: doc.Lifecycle.Version, Level: int(doc.Level)}
				for _, e := range doc.Protocols {
					versions[i].Protocols = append(versions[i].Protocols, string(e.Binding)+" "+e.Version)
				}
			}
			if err := lifecycle.CheckVersion(versions[0], versions[1]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s may follow %s\n", terminal.Word(versions[1].Version), terminal.Word(versions[0].Version))
			return err
		},
	}
}

func lifecyclePath(agent string, itself bool) string {
	if itself {
		return "/lifecycle"
	}
	return "/agents/" + url.PathEscape(agent) + "/lifecycle"
}

func printLifecycles(w io.Writer, list []lifecycleState) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no lifecycle was ever changed: all agents and this gateway are active")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "AGENT\tSTATUS\tSTEP\tSUNSET\tSUCCESSOR\tBY\tREASON")
	for _, l := range list {
		sunset := ""
		if !l.SunsetAt.IsZero() {
			sunset = l.SunsetAt.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", terminal.Word(cmp.Or(l.Agent, "(this gateway)")), terminal.Word(string(cmp.Or(l.Status, lifecycle.Active))),
			terminal.Word(l.Step.String()), sunset, terminal.Word(l.Successor), terminal.Word(l.By), terminal.Word(l.Reason))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, l := range list {
		if l.Status == lifecycle.Draining || l.Status == lifecycle.Retired {
			fmt.Fprintln(w, untilFinal(l.Record))
		}
	}
	return nil
}

// untilFinal says when what drains is retired for good, and what takes that back until then or afterwards.
func untilFinal(r lifecycle.Record) string {
	name, back := toTakeBack(r.Agent)
	switch {
	case r.Status == lifecycle.Retired:
		return name + " is retired for good; only a development gateway can forget that: aepbctl lifecycle forget " + terminal.Word(cmp.Or(r.Agent, "--itself")) + " --reason TEXT"
	case r.Step == lifecycle.Ended:
		return name + " is being retired for good now"
	case r.FinalAt.IsZero():
		return name + " is retired for good ten minutes after its last work has ended; until then: " + back
	case !r.FinalAt.After(r.At):
		return name + " is retired for good as soon as its last work has ended; until then: " + back
	}
	return name + " is retired for good at " + r.FinalAt.UTC().Format(time.RFC3339) + "; until then: " + back
}

// toTakeBack is what drains in words, and the command that takes the drain back.
func toTakeBack(agent string) (name, back string) {
	if agent == "" {
		return "this gateway", "aepbctl lifecycle activate --itself --reason TEXT"
	}
	return terminal.Word(agent), "aepbctl lifecycle activate " + terminal.Word(agent) + " --reason TEXT"
}

// final says what of an order cannot be undone, before it is done; empty: all can.
func final(o lifecycle.Order, agent string) string {
	name, back := toTakeBack(agent)
	const refused = "all its requests are answered with 410, and a gateway that runs with serve never takes the name back. "
	const only = "Only a development gateway can forget it: aepbctl lifecycle forget"
	until := "Until then it is taken back by: " + back
	switch {
	case o.To == lifecycle.Draining && o.Now:
		return name + " takes no new work, and as soon as its last work has ended, within seconds if it has none, it is retired for good: " + refused + only
	case o.To == lifecycle.Draining:
		return name + " takes no new work, and ten minutes after its last work has ended it is retired for good: " + refused + until
	case o.To == lifecycle.Retired && o.Now:
		return name + " is retired for good at once, and work under way is lost: " + refused + only
	case o.To == lifecycle.Retired:
		return name + " is retired for good in ten minutes, also if it has work then: " + refused + until
	}
	return ""
}

func lifecycleChange(c *client.Client, name string, order lifecycle.Order, short string) *cobra.Command {
	var sunset string
	var itself, yes bool
	agentOf := func(args []string) string { return strings.Join(args, "") } // empty: the gateway
	cmd := &cobra.Command{
		Use: name + " [AGENT]", Short: short, Args: cobra.MaximumNArgs(1),
		PreRunE: func(cmd *cobra.Command, args []string) error {
			if order.Reason == "" {
				return errors.New("--reason is required: say why, for callers and auditors")
			}
			if text := final(order, agentOf(args)); text != "" && !yes && itself != (len(args) == 1) && !terminal.Interactive(cmd) {
				return errors.New("this cannot be undone, so --yes is required without a terminal: " + text)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if itself == (len(args) == 1) {
				return errors.New("name the agent, or give --itself for the gateway")
			}
			if sunset != "" {
				at, err := time.Parse(time.RFC3339, sunset)
				if err != nil {
					return fmt.Errorf("--sunset %q is no time such as 2027-01-31T00:00:00Z", sunset)
				}
				order.Sunset = at
			}
			if text := final(order, agentOf(args)); text != "" && !yes {
				fmt.Fprintln(cmd.ErrOrStderr(), text)
				if err := terminal.Confirm(cmd, "do this?", "nothing is changed: the answer was not yes"); err != nil {
					return err
				}
			}
			return changeLifecycle(c, cmd, agentOf(args), order)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&order.Reason, "reason", "", "why, for callers and auditors (required)")
	flags.BoolVar(&itself, "itself", false, "the gateway itself, and no agent")
	announcing(flags, &order, &sunset)
	if order.To == lifecycle.Draining {
		flags.BoolVar(&order.Force, "force", false, "drain before the 24 hours of notice are over; the evidence says so")
	}
	if final(order, "") != "" {
		flags.BoolVar(&order.Now, "now", false, "skip the ten minutes in which activate takes it back")
		flags.BoolVar(&yes, "yes", false, "do not ask whether to do what cannot be undone")
	}
	return cmd
}

// announcing adds the flags of orders that tell callers what comes after the agent.
func announcing(flags *pflag.FlagSet, order *lifecycle.Order, sunset *string) {
	if order.To != lifecycle.Active {
		flags.StringVar(&order.Successor, "successor", "", "https URL of the capability document of the agent that takes its place")
	}
	if order.To == lifecycle.Deprecated || order.To == lifecycle.Draining {
		flags.StringVar(sunset, "sunset", "", "when the agent is gone, such as 2027-01-31T00:00:00Z")
	}
}

// changeLifecycle posts an order about an agent, or with an empty name about the gateway, and prints how that
// stands then.
func changeLifecycle(c *client.Client, cmd *cobra.Command, agent string, order lifecycle.Order) error {
	var one lifecycleState
	if err := c.Ask(cmd.Context(), http.MethodPost, lifecyclePath(agent, agent == ""), order, http.StatusOK, &one); err != nil {
		return err
	}
	if one.Warning != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+terminal.Line(one.Warning))
	}
	return c.Show(cmd, one, func(w io.Writer) error { return printLifecycles(w, []lifecycleState{one}) })
}

// breakerState is what the admin API says of a circuit breaker.
type breakerState struct {
	Agent    string    `json:"agent"`
	State    string    `json:"state"`
	At       time.Time `json:"at,omitzero"`
	Instance string    `json:"instance"`
}

func breakersCommand(c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "breakers", Short: "The circuit breakers that have opened since the start", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return client.ShowList(c, cmd, "breakers", printBreakers) },
	}
}

// since is a time and how long ago that is.
func since(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339) + " (" + terminal.Duration(time.Since(at).Truncate(time.Second)) + " ago)"
}

func printBreakers(w io.Writer, list []breakerState) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no circuit breaker has opened since the gateway was started: all are closed")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "AGENT\tSTATE\tSINCE\tINSTANCE")
	for _, b := range list {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", terminal.Word(b.Agent), terminal.Word(b.State), since(b.At), terminal.Word(b.Instance))
	}
	return table.Flush()
}
