package agents

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
)

// negotiation is both sides and what they come to.
type negotiation struct {
	Agent   string   `json:"agent"`
	Ours    document `json:"ours"`
	Theirs  document `json:"theirs"`
	Outcome struct {
		Path       string `json:"path"`
		Protocol   string `json:"protocol"`
		From       string `json:"from"`
		Endpoint   string `json:"endpoint"`
		Command    string `json:"command,omitempty"` // of the program at Endpoint
		Gateway    string `json:"gateway,omitempty"`
		Reason     string `json:"reason"`
		Candidates []struct {
			From string `json:"from"`
			To   string `json:"to"`
			Sum  int    `json:"priority_sum"`
		} `json:"candidates"`
	} `json:"outcome"`
}

// document is a side's capability document.
type document struct {
	AEPB      string `json:"aepb_version"`
	AgentID   string `json:"agent_id"`
	Protocols []struct {
		ID       string `json:"id"`
		Version  string `json:"version"`
		Endpoint string `json:"endpoint"`
		Command  string `json:"command,omitempty"` // of the program at Endpoint
		Priority int    `json:"priority"`
	} `json:"protocols"`
	Gateways  []string            `json:"translation_gateways"`
	Level     string              `json:"ect_assurance_level"`
	Lifecycle *admindoc.Lifecycle `json:"lifecycle,omitempty"`
}

func negotiateCommand(c *client.Client) *cobra.Command {
	var speaks []string
	cmd := &cobra.Command{
		Use: "negotiate AGENT", Short: "Say which protocol or gateway path reaches an agent, and why", Args: cobra.ExactArgs(1),
		Long: "Compares the gateway's own capability document with the agent's, or, with --speaks,\n" +
			"the protocols of a caller: the protocol that both speak with the lowest sum of\n" +
			"priorities, else a gateway that translates.",
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "/agents/" + url.PathEscape(args[0]) + "/negotiation"
			if len(speaks) > 0 {
				path += "?speaks=" + url.QueryEscape(strings.Join(speaks, ","))
			}
			var n negotiation
			if err := c.FetchOf(cmd, args[0], path, &n); err != nil {
				return err
			}
			n.Outcome.Command = commandAt(n.Outcome.Endpoint)
			for i := range n.Theirs.Protocols {
				n.Theirs.Protocols[i].Command = commandAt(n.Theirs.Protocols[i].Endpoint)
			}
			return c.Show(cmd, n, n.print)
		},
	}
	cmd.Flags().StringSliceVar(&speaks, "speaks", nil, "what the caller speaks, as protocol or protocol:priority (repeatable)")
	return cmd
}

func (n negotiation) print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "SIDE\tPROTOCOL\tPRIORITY\tENDPOINT")
	for _, side := range []struct {
		name string
		doc  document
	}{{"ours", n.Ours}, {"theirs", n.Theirs}} {
		for _, p := range side.doc.Protocols {
			fmt.Fprintf(table, "%s\t%s\t%d\t%s\n", side.name, terminal.Word(p.ID), p.Priority, terminal.Word(where(p.Endpoint)))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if l := n.Theirs.Lifecycle; l != nil {
		fmt.Fprintf(w, "%s is %s, version %s\n", terminal.Word(n.Agent), terminal.Word(l.Status), terminal.Word(l.Version))
	}
	o := n.Outcome
	if o.Path == "direct" {
		fmt.Fprintf(w, "chosen: %s, directly at %s\n", terminal.Word(o.Protocol), terminal.Word(where(o.Endpoint)))
	} else {
		fmt.Fprintf(w, "chosen: %s to %s, through the gateway %s\n", terminal.Word(o.From), terminal.Word(o.Protocol), terminal.Word(o.Gateway))
	}
	fmt.Fprintln(w, "why:", terminal.Line(o.Reason))
	return nil
}
