package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/lifecycle"
)

// lifecycleState is what the admin API says of one.
type lifecycleState struct {
	lifecycle.Record
	Warning string `json:"warning,omitempty"`
}

func lifecycleCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "lifecycle", Short: "How agents and the gateway itself stand: active, deprecated, draining, retired", Args: cobra.NoArgs, RunE: help,
	}
	cmd.AddCommand(lifecycleShow(t), lifecycleCheck())
	for _, verb := range []struct {
		name  string
		to    lifecycle.Status
		short string
	}{
		{"deprecate", lifecycle.Deprecated, "Announce that an agent will go: it works on, and all its answers say so"},
		{"drain", lifecycle.Draining, "Take no new work for an agent; what is under way is finished, then it is retired"},
		{"retire", lifecycle.Retired, "End an agent for good: all its requests are answered with 410"},
		{"activate", lifecycle.Active, "Take back a deprecation, or a drain that is not over"},
	} {
		cmd.AddCommand(lifecycleChange(t, verb.name, verb.to, verb.short))
	}
	return cmd
}

func lifecycleShow(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "show [AGENT]", Short: "Show all whose lifecycle was ever changed, or one agent", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return list(t, cmd, "lifecycles", printLifecycles)
			}
			var one lifecycleState
			if err := t.fetch(cmd, lifecyclePath(args[0], false), &one); err != nil {
				return err
			}
			return t.show(cmd, one, func(w io.Writer) error { return printLifecycles(w, []lifecycleState{one}) })
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
	return table.Flush()
}

func lifecycleChange(t *target, name string, to lifecycle.Status, short string) *cobra.Command {
	order := lifecycle.Order{To: to}
	var sunset string
	var itself bool
	cmd := &cobra.Command{
		Use: name + " [AGENT]", Short: short, Args: cobra.MaximumNArgs(1),
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
			body, err := json.Marshal(order)
			if err != nil {
				return err
			}
			agent := ""
			if !itself {
				agent = args[0]
			}
			got, err := t.operate(cmd.Context(), http.MethodPost, lifecyclePath(agent, itself), body, http.StatusOK)
			if err != nil {
				return err
			}
			var one lifecycleState
			if err := json.Unmarshal(got.body, &one); err != nil {
				return err
			}
			if one.Warning != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+terminal.Word(one.Warning))
			}
			return t.show(cmd, one, func(w io.Writer) error { return printLifecycles(w, []lifecycleState{one}) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&order.Reason, "reason", "", "why, for callers and auditors (required)")
	flags.StringVar(&order.Successor, "successor", "", "https URL of the capability document of the agent that takes its place")
	flags.StringVar(&sunset, "sunset", "", "when it is gone, such as 2027-01-31T00:00:00Z")
	flags.BoolVar(&itself, "itself", false, "the gateway itself, and no agent")
	if to == lifecycle.Draining {
		flags.BoolVar(&order.Force, "force", false, "drain before the 24 hours of notice are over; the evidence says so")
	}
	return cmd
}

// breakerState is what the admin API says of a circuit breaker.
type breakerState struct {
	Agent    string    `json:"agent"`
	State    string    `json:"state"`
	At       time.Time `json:"at,omitzero"`
	Instance string    `json:"instance"`
}

func breakersCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "breakers", Short: "The circuit breakers that have opened since the start", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return list(t, cmd, "breakers", printBreakers) },
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
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "AGENT\tSTATE\tSINCE\tINSTANCE")
	for _, b := range list {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", terminal.Word(b.Agent), terminal.Word(b.State), since(b.At), terminal.Word(b.Instance))
	}
	return table.Flush()
}
