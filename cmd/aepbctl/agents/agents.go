// Package agents has the commands about agents: which there are, how they are reached, and which of their programs run.
package agents

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
)

// agent is what the admin API says of one.
type agent = admindoc.Agent

// Commands are the commands of the group.
func Commands(c *client.Client) []*cobra.Command {
	manage := program.Group("agents", "Manage agents", agentsList(c), agentsAdd(c), agentsRemove(c), agentsShow(c), agentsAccept(c))
	return []*cobra.Command{manage, processesCommand(c), negotiateCommand(c)}
}

func agentsList(c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List agents", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all map[string][]agent
			if err := c.Fetch(cmd, "/agents", &all); err != nil {
				return err
			}
			for _, a := range all["agents"] {
				addCommands(a)
			}
			return c.Show(cmd, all, func(w io.Writer) error { return printAgents(w, all["agents"]) })
		},
	}
}

// addCommands says how the programs among the endpoints of an agent are run.
func addCommands(a agent) {
	for i := range a.Endpoints {
		a.Endpoints[i].Command = commandAt(a.Endpoints[i].URL)
	}
}

func printAgents(w io.Writer, agents []agent) error {
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tPROTOCOL\tURL")
	for _, a := range agents {
		for _, e := range a.Endpoints {
			fmt.Fprintf(table, "%s\t%s\t%s\n", terminal.Word(a.Name), terminal.Word(e.Binding), terminal.Word(where(e.URL)))
		}
		if a.Capability != "" {
			fmt.Fprintf(table, "%s\tdocument\t%s\n", terminal.Word(a.Name), terminal.Word(a.Capability))
		}
	}
	return table.Flush()
}

func agentsAdd(c *client.Client) *cobra.Command {
	var a agent
	var a2a, mcp, slim string
	var others []string
	var program programFlags
	var replace bool
	uacp, ainp := admindoc.Endpoint{Binding: "uacp-v1"}, admindoc.Endpoint{Binding: "ainp-v1"}
	cmd := &cobra.Command{
		Use: "add NAME (--stdio -- COMMAND… | --capability URL | --a2a URL | --mcp URL | --slim ORG/NS/SVC@NODE | --uacp HOST:PORT | --ainp URL [--did DID] | --endpoint BINDING=URL)", Short: "Add an agent", Args: program.arguments,
		PreRunE: func(_ *cobra.Command, args []string) error {
			if err := program.check(args[1:]); err != nil {
				return err
			}
			if a2a == "" && mcp == "" && slim == "" && uacp.URL == "" && ainp.URL == "" && len(others) == 0 && a.Capability == "" && !program.stdio {
				return errors.New("name the capability document with --capability, or an endpoint with --stdio, --a2a, --mcp, --slim, --uacp, --ainp or --endpoint")
			}
			if ainp.URL == "" && (ainp.DID != "" || ainp.Signature != "") || uacp.URL == "" && uacp.Form != "" {
				return errors.New("--did and --signature say something about --ainp, --form about --uacp")
			}
			if slim == "" {
				return nil
			}
			var err error
			slim, err = slimURL(slim)
			return err
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			a.Name = args[0]
			if uacp.URL != "" && !strings.Contains(uacp.URL, "://") {
				uacp.URL = "uacps://" + uacp.URL
			}
			for _, e := range []admindoc.Endpoint{{Binding: "a2a-v1", URL: a2a}, {Binding: "mcp-v1", URL: cmp.Or(mcp, program.url(args[1:]))}, {Binding: "slim-v1", URL: slim}, uacp, ainp} {
				if e.URL != "" {
					a.Endpoints = append(a.Endpoints, e)
				}
			}
			for _, other := range others {
				binding, url, ok := strings.Cut(other, "=")
				if !ok {
					return errors.New("--endpoint is BINDING=URL, such as toy-v1=https://host/toy")
				}
				a.Endpoints = append(a.Endpoints, admindoc.Endpoint{Binding: binding, URL: url})
			}
			return add(cmd, c, a, replace)
		},
	}
	flags := cmd.Flags()
	program.add(flags)
	cmd.SetFlagErrorFunc(program.unknownFlag)
	flags.BoolVar(&replace, "replace", false, "replace the agent of that name, if there is one")
	flags.StringVar(&a.Capability, "capability", "", "URL of the agent's capability document, which says the rest")
	flags.BoolVar(&a.Pin, "pin", false, "a changed description of the agent waits until it is accepted: aepbctl agents accept")
	flags.StringSliceVar(&a.Expose, "expose", nil, "what of an MCP server callers of other protocols see besides its tools: prompts, resources (repeatable)")
	flags.StringVar(&a2a, "a2a", "", "A2A endpoint: the agent's base URL or its JSON-RPC URL")
	flags.StringVar(&mcp, "mcp", "", "MCP endpoint (Streamable HTTP)")
	flags.StringVar(&slim, "slim", "", "SLIM name and one of the gateway's nodes: ORG/NS/SVC@HOST:PORT")
	flags.StringVar(&uacp.URL, "uacp", "", "µACP endpoint over TLS: HOST:PORT; in dev also uacp://ADDRESS:PORT, for datagrams on this machine")
	flags.StringVar(&uacp.Form, "form", "", "how µACP messages are carried: enveloped, or bare for an agent that knows no gateways")
	flags.StringVar(&ainp.URL, "ainp", "", "AINP endpoint (https, or wss for one that answers in several messages)")
	flags.StringVar(&ainp.DID, "did", "", "the DID whose signature its AINP answers must bear (default: any did:key's)")
	flags.StringVar(&ainp.Signature, "signature", "", "what AINP signatures cover: draft, jcs-raw, or none for an agent that cannot sign")
	flags.StringArrayVar(&others, "endpoint", nil, "an endpoint of any protocol that the gateway speaks: BINDING=URL (repeatable)")
	flags.StringVar(&a.ID, "id", "", "the agent's SPIFFE id; its TLS certificate must carry it")
	flags.StringSliceVar(&a.Callers, "caller", nil, "who may call: a SPIFFE id or a prefix ending in /*, with #invoke:NAME behind it for one tool (repeatable)")
	flags.StringSliceVar(&a.Tools, "tool", nil, "a tool or skill that is offered, with * for any characters; others are not (repeatable; default: all)")
	flags.BoolVar(&a.RequireECT, "require-ect", false, "refuse messages without an ECT")
	flags.IntVar(&a.TimeoutSeconds, "timeout", 0, "seconds that one call may take (0: the gateway's default)")
	return cmd
}

// slimURL is an endpoint on SLIM as the directory has it.
func slimURL(text string) (string, error) {
	name, node, ok := strings.Cut(text, "@")
	if !ok || node == "" || strings.Count(name, "/") != 2 || strings.ContainsAny(node, "/@") {
		return "", errors.New("an agent on SLIM is ORG/NS/SVC@HOST:PORT")
	}
	return "slim://" + node + "/" + name, nil
}

// add lists an agent. It fails if the agent cannot be used: it is listed all the same, and the output
// says why.
func add(cmd *cobra.Command, c *client.Client, a agent, replace bool) error {
	base, err := c.PublicURL()
	if err != nil {
		return err
	}
	var before map[string][]agent
	if err := c.Fetch(cmd, "/agents", &before); err != nil {
		return err
	}
	verb := "added"
	if slices.ContainsFunc(before["agents"], func(other agent) bool { return other.Name == a.Name }) {
		if !replace {
			return fmt.Errorf("there is an agent %s already: give another name, or add --replace (aepbctl agents show %[1]s)", terminal.Word(a.Name))
		}
		verb = "replaced"
	}
	got, err := c.Operate(cmd.Context(), http.MethodPost, "/agents", a, http.StatusCreated)
	if err != nil {
		return err
	}
	var shown agent // what it says of itself, or why it cannot be asked
	if err := c.Fetch(cmd, "/agents/"+url.PathEscape(a.Name), &shown); err != nil {
		return err
	}
	shown.Descriptions = nil // agents show has them
	addCommands(shown)
	err = c.Show(cmd, shown, func(w io.Writer) error { return printAdded(w, verb, shown, base, forgotten(got.Body)) })
	if d := shown.Description; err == nil && d != nil && d.Error != "" {
		return program.ErrRefused
	}
	return err
}

// forgotten reports whether an agent that was added ends with the gateway's process.
func forgotten(answer []byte) bool {
	var a agent
	return json.Unmarshal(answer, &a) == nil && a.From == "process"
}

func printAdded(w io.Writer, verb string, a agent, base string, forgotten bool) error {
	switch about := a.Description; {
	case about == nil:
		fmt.Fprintf(w, "%s %s\n", verb, terminal.Word(a.Name))
	case about.Error != "":
		fmt.Fprintf(w, "%s %s, but it cannot be used now: %s\n", verb, terminal.Word(a.Name), terminal.Line(about.Error))
		fmt.Fprintf(w, "it stays on the list; to take it off: aepbctl agents remove %s\n", terminal.Word(a.Name))
	default:
		fmt.Fprintf(w, "%s %s: %s %s, %s\n", verb, terminal.Word(a.Name), terminal.Word(cmp.Or(about.Name, "it gives no name")), terminal.Word(about.Version), offered(about.Capabilities))
		printURL(w, about)
		printOmitted(w, about)
	}
	if l := a.Lifecycle; l != nil && (l.Status == "draining" || l.Status == "retired") {
		fmt.Fprintf(w, "it is %s and takes no new work: see aepbctl lifecycle show %s\n", terminal.Word(l.Status), terminal.Word(a.Name))
	}
	if forgotten {
		fmt.Fprintln(w, "this gateway process alone knows it, until it ends: write it into the configuration file, or keep state in state.path, or in state.redis with state.key")
	}
	_, err := fmt.Fprintf(w, "reach it as\n  an A2A agent  %[2]s/agents/%[1]s/a2a\n  an MCP server %[2]s/agents/%[1]s/mcp\n  an AINP agent %[2]s/agents/%[1]s/ainp\n", terminal.Word(a.Name), terminal.Word(base))
	return err
}

// offered counts what an agent can do, and names the first few.
func offered(capabilities []string) string {
	const shown = 8
	if len(capabilities) == 0 {
		return "which offers nothing"
	}
	names := make([]string, 0, shown)
	for _, name := range capabilities[:min(shown, len(capabilities))] {
		names = append(names, terminal.Word(name))
	}
	more := ""
	if len(capabilities) > shown {
		more = ", …"
	}
	return fmt.Sprintf("which offers %d: %s%s", len(capabilities), strings.Join(names, ", "), more)
}

func agentsRemove(c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Remove an agent", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := c.Operate(cmd.Context(), http.MethodDelete, "/agents/"+url.PathEscape(args[0]), nil, http.StatusNoContent)
			if err != nil {
				return c.Named(cmd.Context(), args[0], got, err)
			}
			return c.Show(cmd, map[string]string{"removed": args[0]}, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, "removed", terminal.Word(args[0]))
				return err
			})
		},
	}
}

func agentsShow(c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show an agent and its description", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var a agent
			if err := c.FetchOf(cmd, args[0], "/agents/"+url.PathEscape(args[0]), &a); err != nil {
				return err
			}
			addCommands(a)
			err := c.Show(cmd, a, func(w io.Writer) error { return printAgent(w, a) })
			if d := a.Description; err == nil && d != nil && d.Error != "" {
				return program.ErrRefused // the output says why
			}
			return err
		},
	}
}

// printCredential prints its kind, when its token ends, and why the last attempt to get one failed.
func printCredential(w io.Writer, c *admindoc.Credential) {
	if c == nil {
		return
	}
	out := terminal.Word(c.Kind)
	if c.Ends != nil {
		out += ", token until " + c.Ends.Format(time.RFC3339)
	}
	if c.Error != "" {
		out += ", last attempt failed: " + terminal.Line(c.Error)
	}
	fmt.Fprintln(w, "  is shown a credential:", out)
}

// printRules says who may call what of an agent.
func printRules(w io.Writer, a agent) {
	if len(a.Callers) > 0 {
		fmt.Fprintln(w, "  may be called by:", terminal.Words(a.Callers))
	}
	if len(a.Tools) > 0 {
		fmt.Fprintln(w, "  offers alone:", terminal.Words(a.Tools))
	}
	for _, own := range slices.Sorted(maps.Keys(a.ToolNames)) {
		fmt.Fprintf(w, "  offers %s as %s\n", terminal.Word(own), terminal.Word(a.ToolNames[own]))
	}
}

func printAgent(w io.Writer, a agent) error {
	fmt.Fprintln(w, terminal.Word(a.Name), terminal.Word(a.ID))
	if a.Capability != "" {
		fmt.Fprintln(w, "  described at", terminal.Word(a.Capability))
	}
	for _, e := range a.Endpoints {
		at := terminal.Word(where(e.URL))
		if e.Through != "" {
			at = "through " + terminal.Word(e.Through)
		}
		fmt.Fprintln(w, " ", terminal.Word(e.Binding), terminal.Word(e.Version), at)
	}
	printRules(w, a)
	printCredential(w, a.Credential)
	if l := a.Lifecycle; l != nil {
		fmt.Fprintln(w, "  is", terminal.Word(l.Status))
		if l.Successor != nil {
			fmt.Fprintln(w, "  its successor is described at", terminal.Word(*l.Successor))
		}
	}
	if d := a.Description; d != nil && d.Error != "" {
		fmt.Fprintln(w, "  cannot be asked:", terminal.Line(d.Error))
	} else if d != nil {
		fmt.Fprintf(w, "  says it is %s %s, speaks %s\n  can: %s\n", terminal.Word(d.Name), terminal.Word(d.Version), terminal.Word(d.Protocol), terminal.Words(d.Capabilities))
		printURL(w, d)
		printOmitted(w, d)
		if d.Asking != "" {
			fmt.Fprintf(w, "  callers of other protocols have it in %s, where it can ask them; those of its own in theirs, where it has that\n", terminal.Word(d.Asking))
		}
	}
	for _, p := range a.Descriptions {
		printPin(w, p, a)
	}
	return nil
}

// printOmitted names the tools of an agent that cannot be used.
func printOmitted(w io.Writer, d *admindoc.Summary) {
	for _, o := range d.Omitted {
		fmt.Fprintf(w, "  left out: %s, %s\n", terminal.Word(cmp.Or(o.Name, "a tool without a name")), terminal.Line(o.Reason))
	}
}

// printURL says where an agent is called, where that is not plain.
func printURL(w io.Writer, d *admindoc.Summary) {
	if d.Why != "" {
		fmt.Fprintf(w, "  called at %s: %s\n", terminal.Word(d.URL), terminal.Line(d.Why))
	}
}

func printPin(w io.Writer, p admindoc.Pin, a agent) {
	fmt.Fprintf(w, "  description over %s: sha256 %s\n", terminal.Word(p.Binding), terminal.Word(p.Hash))
	if p.Pending == nil {
		return
	}
	fmt.Fprintf(w, "  a change waits: sha256 %s\n", terminal.Word(p.Pending.Hash))
	for _, c := range p.Pending.Changes {
		name := cmp.Or(terminal.Word(c.Capability), "the agent itself")
		fmt.Fprintf(w, "    %s %s %s\n", terminal.Word(c.Kind), name, terminal.Words(c.Members))
		if c.Was != "" {
			fmt.Fprintf(w, "      - %s\n", strconv.QuoteToASCII(c.Was))
		}
		if c.Is != "" {
			fmt.Fprintf(w, "      + %s\n", strconv.QuoteToASCII(c.Is))
		}
	}
	fmt.Fprintf(w, "  accept it with: aepbctl agents accept %s --sha256 %s\n", terminal.Word(a.Name), terminal.Word(p.Pending.Hash))
}

func agentsAccept(c *client.Client) *cobra.Command {
	var hash string
	cmd := &cobra.Command{
		Use: "accept NAME", Short: "Accept the changed description of a pinned agent", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "/agents/" + url.PathEscape(args[0]) + "/accept"
			if hash != "" {
				path += "?sha256=" + url.QueryEscape(hash)
			}
			got, err := c.Operate(cmd.Context(), http.MethodPost, path, nil, http.StatusNoContent)
			return c.Named(cmd.Context(), args[0], got, err)
		},
	}
	cmd.Flags().StringVar(&hash, "sha256", "", "accept only the description with this hash, as shown")
	return cmd
}
