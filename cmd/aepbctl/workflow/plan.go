package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/evidence"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/proof"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
	"github.com/aepb/aepb-gateway/lifecycle/descriptor"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

// plan is a descriptor, with what tokens call its agents.
type plan struct {
	descriptor.Descriptor

	version int // 0: it is not stored
	agents  map[string][]string
}

func (p *plan) planned() []workflow.Planned {
	if p == nil {
		return nil
	}
	return p.Planned(func(agent string) []string { return p.agents[agent] })
}

// versionView is a version of a descriptor, as the admin API says; Text and Plan are of one that is shown.
type versionView struct {
	Name    string    `json:"wf_id"`
	Version int       `json:"version"`
	Hash    string    `json:"sha256"`
	By      string    `json:"by"`
	At      time.Time `json:"at"`
	Text    string    `json:"text,omitempty"`
	// Agents are those of a plan that a workflow of ours follows.
	Agents map[string][]string `json:"agents,omitempty"`
	Plan   *struct {
		Agents map[string][]string `json:"agents"`
	} `json:"plan,omitempty"`
}

// planCommands are the commands about the plans of workflows (ATD, Optional Declarative Workflow Format).
func planCommands(c *client.Client) []*cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List the plans that the gateway stores", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return client.ShowList(c, cmd, "descriptors", printVersions)
		},
	}
	put := &cobra.Command{
		Use: "put FILE", Short: "Store a plan as a new version of its wf_id", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, text, err := readPlan(args[0])
			if err != nil {
				return err
			}
			var v versionView
			if err := send(cmd.Context(), c, "", text, http.StatusCreated, &v); err != nil {
				return err
			}
			return c.Show(cmd, v, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s version %d\n", terminal.Line(v.Name), v.Version)
				return err
			})
		},
	}
	return []*cobra.Command{planCheck(c), put, list, planShow(c), planDraw(c)}
}

func planCheck(c *client.Client) *cobra.Command {
	var offline bool
	cmd := &cobra.Command{
		Use: "plan FILE", Short: "Check a plan, and print its waves, gates and irreversible nodes", Args: cobra.ExactArgs(1),
		Long: "Check a plan (application/atd-workflow+json), and print its waves: the nodes of one wave may run at\n" +
			"once. The gateway is asked whether it knows the agents, and has operators for the gates; nothing is stored.",
		RunE: func(cmd *cobra.Command, args []string) error {
			d, text, err := readPlan(args[0])
			if err != nil {
				return err
			}
			out := struct {
				Name  string              `json:"wf_id"`
				Waves [][]descriptor.Node `json:"waves"`
			}{d.Name(), d.Waves()}
			if !offline {
				if err := send(cmd.Context(), c, "?check=true", text, http.StatusOK, nil); err != nil {
					return err
				}
			}
			return c.Show(cmd, out, func(w io.Writer) error { return printPlan(w, d) })
		},
	}
	cmd.Flags().BoolVar(&offline, "offline", false, "do not ask the gateway about agents and roles")
	return cmd
}

func planShow(c *client.Client) *cobra.Command {
	var version int
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Print the text of a plan that the gateway stores", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := fetchPlan(cmd.Context(), c, args[0], version)
			if err != nil {
				return err
			}
			return c.Show(cmd, v, func(w io.Writer) error {
				if terminal.Is(w) {
					w = terminal.Printable{To: w}
				}
				_, err := io.WriteString(w, v.Text)
				return err
			})
		},
	}
	cmd.Flags().IntVar(&version, "version", 0, "which version (default: the newest)")
	return cmd
}

func planDraw(c *client.Client) *cobra.Command {
	var svg string
	cmd := &cobra.Command{
		Use: "draw NAME|FILE", Short: "Draw a plan", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if svg == "" {
				return program.Misuse(errors.New("--svg is required: name the file of the picture"))
			}
			d, _, err := readPlan(args[0])
			follows := &plan{Descriptor: d}
			if errors.Is(err, os.ErrNotExist) {
				var v versionView
				if v, err = fetchPlan(cmd.Context(), c, args[0], 0); err == nil {
					follows, err = v.read()
				}
			}
			if err != nil {
				return err
			}
			run, err := workflow.New(follows.Name(), nil, follows.planned())
			if err != nil {
				return err
			}
			v := workflowView{Report: run.Report(nil, time.Now()), name: proof.Names(nil)}
			return evidence.WritePicture(svg, v.picture())
		},
	}
	cmd.Flags().StringVar(&svg, "svg", "", "write the picture to this file")
	return cmd
}

// readPlan reads a descriptor from a file.
func readPlan(file string) (descriptor.Descriptor, []byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return descriptor.Descriptor{}, nil, err
	}
	d, err := descriptor.Parse(text)
	return d, text, err
}

// send gives the gateway the text of a descriptor.
func send(ctx context.Context, c *client.Client, query string, text []byte, want int, into any) error {
	got, err := c.AdministerAs(ctx, http.MethodPost, "/descriptors"+query, descriptor.MediaType, text)
	if err == nil && got.Status != want {
		err = got.Refusal()
	}
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(got.Body, into)
}

func fetchPlan(ctx context.Context, c *client.Client, name string, version int) (v versionView, err error) {
	path := "/descriptors/" + url.PathEscape(name)
	if version != 0 {
		path += "?version=" + strconv.Itoa(version)
	}
	err = c.Ask(ctx, http.MethodGet, path, nil, http.StatusOK, &v)
	return v, err
}

// fetchFollowed fetches the plan that a workflow of ours follows.
func fetchFollowed(ctx context.Context, c *client.Client, wid string) (v versionView, err error) {
	body, err := c.Public(ctx, http.MethodGet, "/atd/workflows/"+url.PathEscape(wid)+"/descriptor", nil, http.StatusOK)
	if err == nil {
		err = json.Unmarshal(body, &v)
	}
	return v, err
}

// read reads the text of a version that is shown.
func (v versionView) read() (*plan, error) {
	d, err := descriptor.Parse([]byte(v.Text))
	p := &plan{Descriptor: d, version: v.Version, agents: v.Agents}
	if v.Plan != nil {
		p.agents = v.Plan.Agents
	}
	return p, err
}

// planFollowed fetches the descriptor that the start of a workflow names; nil: there is none. Its text must be the one
// that the start has the hash of.
func planFollowed(ctx context.Context, c *client.Client, wid string, records []audit.Record) (*plan, error) {
	for _, r := range records {
		if !r.Verified() || r.Claims.Workflow != wid || r.Claims.Act != ect.ActWorkflowStart {
			continue
		}
		claims, err := ect.ParseRecorded(r.Compact)
		if err != nil {
			return nil, err
		}
		name, named := claims.Ext.String(ect.ExtDescriptor)
		if !named {
			continue
		}
		v, err := fetchFollowed(ctx, c, wid)
		if err != nil { // it is not our workflow
			version, _ := strconv.Atoi(string(claims.Ext[ect.ExtPlanVersion]))
			v, err = fetchPlan(ctx, c, name, version)
		}
		if err != nil {
			return nil, fmt.Errorf("the descriptor %s cannot be read: %w", name, err)
		}
		if hash, given := claims.Ext.String(ect.ExtPlanHash); given && hash != ect.Hash([]byte(v.Text)) {
			return nil, fmt.Errorf("the descriptor %s is not the text with which the workflow began: its hash differs from that of the start", name)
		}
		return v.read()
	}
	return nil, nil //nolint:nilnil // it follows none
}

// printPlan prints the waves of a plan.
func printPlan(w io.Writer, d descriptor.Descriptor) error {
	waves := d.Waves()
	var out strings.Builder
	fmt.Fprintf(&out, "workflow %s: %d nodes in %d waves\n", terminal.Line(d.Name()), len(d.Order()), len(waves))
	for i, wave := range waves {
		for _, n := range wave {
			parts := []string{terminal.Line(n.ID) + " " + terminal.Line(n.Label)}
			if n.Agent != "" {
				parts = append(parts, "agent "+terminal.Line(n.Agent))
			}
			if n.Gated {
				parts = append(parts, "gate: "+terminal.Line(n.Role)+" approves")
			}
			if !n.Reversible {
				parts = append(parts, "irreversible")
			}
			if len(n.After) > 0 {
				parts = append(parts, "after "+terminal.Line(strings.Join(n.After, ", ")))
			}
			fmt.Fprintf(&out, "wave %d: %s\n", i+1, strings.Join(parts, ", "))
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// printVersions prints the newest version of each plan.
func printVersions(w io.Writer, all []versionView) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no plan is stored")
		return err
	}
	slices.SortFunc(all, func(a, b versionView) int { return strings.Compare(a.Name, b.Name) })
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "NAME\tVERSION\tSTORED\tBY")
	for _, v := range all {
		_, _ = fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", terminal.Line(v.Name), v.Version, v.At.UTC().Format(time.RFC3339), terminal.Word(v.By))
	}
	return table.Flush()
}
