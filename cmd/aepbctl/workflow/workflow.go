// Package workflow has the commands about workflows: their steps, their beginning and end, and how operators hold them.
package workflow

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/evidence"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/proof"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
	"github.com/aepb/aepb-gateway/ect/dag/picture"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

// workflowQuery says which workflow is read, from where, and how it is shown.
type workflowQuery struct {
	wid    string
	watch  bool
	svg    string // file of the picture; empty: none
	file   string // with tokens; "-": standard input, empty: the gateway has them
	domain string // trust domain of the CA, for file
}

// Commands are the commands of the group.
func Commands(c *client.Client) []*cobra.Command {
	var q workflowQuery
	cmd := &cobra.Command{
		Use:   "workflow WID",
		Short: "Show how far a workflow is: its steps and their states, found in its tokens",
		Long: "Show how far a workflow is: one line for each step with its state, who wants it, the agent,\n" +
			"the protocols, how long it took, what was lost, and errors. All of it is found in the tokens of\n" +
			"the workflow, each of which is verified here; one that does not verify is named and not counted.\n" +
			"With --file the tokens are read from a file (one token a line, or JSON of aepbctl dag), and the\n" +
			"CA's certificate is all that is needed. Exit code 0: it runs or was a success, 1: it ended\n" +
			"otherwise, or a token does not verify.",
		Example: "  aepbctl workflow 0b39f2a1-6a0c-4a3e-9f0e-3c1a4f6f5d11 --watch\n" +
			"  aepbctl dag WID -o json | aepbctl workflow WID --file - --ca ca.pem --svg workflow.svg",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.wid = args[0]
			if q.watch {
				return watchWorkflow(cmd, c, q)
			}
			v, err := readWorkflow(cmd, c, q)
			if err != nil {
				return err
			}
			if err := c.Show(cmd, v, func(w io.Writer) error { return terminal.PrintRows(w, v.lines(w)) }); err != nil {
				return err
			}
			return v.verdict()
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&q.watch, "watch", false, "show each change until the workflow is completed or has failed")
	flags.StringVar(&q.svg, "svg", "", "write a picture of the steps to this file")
	flags.StringVar(&q.file, "file", "", "read the tokens from this file and ask no gateway; - reads standard input")
	flags.StringVar(&q.domain, "trust-domain", "", "with --file: the trust domain of the CA (default: the one that its certificate names)")
	cmd.MarkFlagsMutuallyExclusive("watch", "file")
	cmd.AddCommand(append(append(workflowLevels(c), workflowBegin(c), workflowComplete(c)), planCommands(c)...)...)
	return []*cobra.Command{cmd}
}

// workflowView is a report of the tokens that were verified, and those that were not.
type workflowView struct {
	workflow.Report
	Refused []refusedToken `json:"not_verified,omitempty"`
	name    func(string) string
	noPlan  string // why the descriptor that it follows is not read; empty: it is, or there is none
}

// refusedToken is a token that does not count.
type refusedToken struct {
	ID      ect.ID `json:"jti"`
	Problem string `json:"problem"`
}

// verdict is program.ErrRefused for a workflow that ended without success, or with tokens that are not verified.
func (v workflowView) verdict() error {
	fine := v.Status == string(workflow.Running) || v.Status == string(workflow.StatusSuccess)
	if fine && v.Refused == nil {
		return nil
	}
	return program.ErrRefused
}

// ended reports whether nothing more is to be expected. A workflow that was begun may get further steps after
// those that are done, until it is completed.
func (v workflowView) ended() bool {
	done := v.Status == string(workflow.StatusSuccess) && v.Declared == "" && v.Starter != ""
	return v.Status != string(workflow.Running) && !done
}

// readWorkflow fetches or reads the tokens of a workflow, verifies them, and finds its states. It writes the
// picture, if one is wanted.
func readWorkflow(cmd *cobra.Command, c *client.Client, q workflowQuery) (workflowView, error) {
	stop := terminal.Progress(cmd, "reading workflow "+q.wid)
	defer stop()
	list, bundle, err := workflowTokens(cmd, c, q)
	if err != nil {
		return workflowView{}, err
	}
	records, err := client.Verify(cmd.Context(), bundle, list)
	if err != nil {
		return workflowView{}, err
	}
	var follows *plan
	var noPlan error
	if q.file == "" {
		follows, noPlan = planFollowed(cmd.Context(), c, q.wid, records)
	}
	v, err := viewWorkflow(q.wid, records, follows, time.Now())
	if noPlan != nil {
		v.noPlan = noPlan.Error()
	}
	if err != nil || q.svg == "" {
		return v, err
	}
	return v, evidence.WritePicture(q.svg, v.picture())
}

// workflowTokens are the tokens of a workflow, and what they are verified against.
func workflowTokens(cmd *cobra.Command, c *client.Client, q workflowQuery) (list []string, bundle *identity.Bundle, err error) {
	var in proof.Input
	switch q.file {
	case "":
		if list, err = evidence.Tokens(cmd.Context(), c, q.wid); err != nil {
			return nil, nil, err
		}
		bundle, err = c.Bundle()
		return list, bundle, err
	case "-":
		in, err = evidence.Reader(cmd).Read(nil)
	default:
		in, err = evidence.Reader(cmd).Read([]string{q.file})
	}
	if err != nil {
		return nil, nil, err
	}
	list = in.Tokens
	bundle, err = c.Anchors("", q.domain)
	return list, bundle, err
}

// viewWorkflow finds the states of a workflow in tokens that were judged, and in the plan that it follows, if it is not
// nil. Tokens of others are left out.
func viewWorkflow(wid string, records []audit.Record, follows *plan, now time.Time) (workflowView, error) {
	var refused []refusedToken
	var good []workflow.Token
	for _, v := range records {
		if !v.Verified() {
			refused = append(refused, refusedToken{v.Claims.ID, v.Problem})
			continue
		}
		if v.Claims.Workflow != wid {
			continue
		}
		claims, err := ect.ParseRecorded(v.Compact)
		if err != nil {
			return workflowView{}, err
		}
		good = append(good, workflow.TokenOf(claims))
	}
	if good == nil && refused == nil {
		return workflowView{}, fmt.Errorf("no token of workflow %s: expected the wid of a workflow, as aepbctl workflow begin and aepbctl send print it", terminal.Word(wid))
	}
	run, err := workflow.New(wid, good, follows.planned())
	if err != nil {
		return workflowView{}, err
	}
	v := workflowView{Report: run.Report(good, now), Refused: refused, name: proof.Names(records)}
	if follows != nil {
		v.Descriptor, v.Version = follows.Name(), follows.version
	}
	return v, nil
}

// lines are a workflow as text: the workflow, each step, and what is missing or wrong.
func (v workflowView) lines(w io.Writer) []terminal.Row {
	lines := []terminal.Row{v.headline()}
	places := v.places()
	for i, s := range v.Steps {
		lines = append(lines, v.stepLine(w, i, s, places))
	}
	below := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		lines = append(lines, terminal.Row{Key: text, Text: text})
	}
	if v.noPlan != "" {
		below("%s: %s", terminal.Bad(w, "NO PLAN"), terminal.Line(v.noPlan))
	}
	for _, id := range v.Missing {
		below("%s: parent %s is not among the tokens: you may not see it, or it is not kept here", terminal.Bad(w, "INCOMPLETE"), terminal.Word(id))
	}
	for _, r := range v.Refused {
		below("%s: token %s does not count: %s", terminal.Bad(w, "NOT VERIFIED"), cmp.Or(terminal.Word(r.ID), "(unreadable)"), terminal.Line(r.Problem))
	}
	for _, finding := range v.Findings {
		below("%s: %s", terminal.Bad(w, "INVALID"), terminal.Line(finding))
	}
	return lines
}

func (v workflowView) headline() terminal.Row {
	done := 0
	for _, s := range v.Steps {
		if s.State == workflow.Done {
			done++
		}
	}
	text := "workflow " + terminal.Word(v.Workflow)
	if v.Description != "" {
		text += ` "` + terminal.Line(v.Description) + `"`
	}
	if v.Starter != "" {
		text += " of " + v.name(string(v.Starter))
	}
	text += ": " + terminal.Word(v.Status)
	steps := fmt.Sprintf("%d of %d steps done", done, max(len(v.Steps), v.Expected))
	span := ""
	switch {
	case v.Declared != "":
		span = " after " + terminal.Duration(v.Elapsed)
	case v.Status == string(workflow.Running):
		span = " for " + terminal.Duration(v.Elapsed)
	default:
		steps += ", no completion on record"
	}
	return terminal.Row{Key: text + steps, Text: text + span + ", " + steps}
}

// places are where the steps stand in the list, by the ids of their tokens. Of several with one id the first counts.
func (v workflowView) places() map[ect.ID]int {
	places := map[ect.ID]int{}
	for i, s := range slices.Backward(v.Steps) {
		places[s.ID] = i
	}
	return places
}

func (v workflowView) stepLine(w io.Writer, i int, s workflow.StepReport, places map[ect.ID]int) terminal.Row {
	mark := func(_ io.Writer, text string) string { return text }
	switch s.State {
	case workflow.Done:
		mark = terminal.Good
	case workflow.Failed:
		mark = terminal.Bad
	default:
	}
	state := fmt.Sprintf("%-11s", terminal.Word(s.State))
	parts := []string{fmt.Sprintf("%s: %s", v.between(s), v.work(s)), terminal.Duration(s.Elapsed)}
	if s.ID == "" {
		parts = parts[:1]
	}
	key := strings.Join([]string{string(s.ID), string(s.Caller), state, parts[0]}, " ")
	rest := v.outcome(s)
	var after []string
	for _, id := range s.After {
		after = append(after, fmt.Sprint(places[id]+1))
	}
	if after != nil {
		parts = append(parts, "after "+strings.Join(after, " "))
	}
	if slices.Contains(v.Unplanned, s.ID) && s.ID != "" {
		parts = append(parts, "not planned")
	}
	return terminal.Row{Key: key + rest, Text: fmt.Sprintf("%d %s %s%s", i+1, mark(w, state), strings.Join(parts, ", "), rest)}
}

// between says who wants a step done, and which agent is to do it.
func (v workflowView) between(s workflow.StepReport) string {
	text := "any agent"
	if s.ID != "" {
		text = v.name(string(s.Caller))
	}
	if len(s.Agents) == 0 {
		return text
	}
	agents := make([]string, len(s.Agents))
	for i, agent := range s.Agents {
		agents[i] = v.name(agent)
	}
	if s.ID == "" {
		return strings.Join(agents, ", ")
	}
	return text + " -> " + strings.Join(agents, ", ")
}

// work says what is done in a step: its act, unless that is the gateway's, and the protocols.
func (v workflowView) work(s workflow.StepReport) string {
	act := string(s.Act)
	if s.Kind == workflow.KindIntent || s.Kind == workflow.KindRequest {
		act = string(s.Kind)
	}
	text := terminal.Word(cmp.Or(act, s.Planned))
	if s.Planned != "" {
		text = "node " + terminal.Line(s.Planned) + " " + text
	}
	if from, to, found := strings.Cut(s.Protocol, " → "); found {
		text += " " + terminal.Word(from) + " → " + terminal.Word(to)
	}
	return text
}

// outcome says what was lost in a step, and why it failed.
func (v workflowView) outcome(s workflow.StepReport) string {
	report := proof.LossesOf(s.Losses)
	parts := []string{proof.Codes("kept", report.Carried) + proof.Codes("lost", report.Dropped)}
	for _, reason := range s.Errors {
		parts = append(parts, terminal.Line(reason))
	}
	return strings.Join(parts, "; ")
}

// watchWorkflow shows each change of a workflow until it has ended, or its reader has seen enough.
func watchWorkflow(cmd *cobra.Command, c *client.Client, q workflowQuery) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	var shown map[string]bool
	var verdict error
	for {
		began := time.Now()
		v, err := readWorkflow(cmd, c, q)
		if ctx.Err() != nil {
			return verdict
		}
		if err != nil {
			return err
		}
		if shown, err = terminal.ShowChanges(out, c.Output, shown, v.lines(out), v); err != nil {
			return err
		}
		if verdict = v.verdict(); v.ended() {
			return verdict
		}
		if terminal.Pause(ctx, began) != nil {
			return verdict
		}
	}
}

// picture draws the steps.
func (v workflowView) picture() picture.Picture {
	boxes := make([]picture.Box, len(v.Steps))
	var arrows []picture.Arrow
	places := v.places()
	for i, s := range v.Steps {
		boxes[i] = picture.Box{
			Lines: []string{string(s.State), v.between(s), v.work(s), terminal.Duration(s.Elapsed) + v.outcome(s)},
			Title: v.stepLine(io.Discard, i, s, places).Text + " (" + string(s.ID) + ")",
			Tone:  toneOf(s.State),
		}
		for _, id := range s.After {
			arrows = append(arrows, picture.Arrow{From: places[id], To: i})
		}
		for _, node := range s.AfterNodes {
			from := slices.IndexFunc(v.Steps, func(o workflow.StepReport) bool { return o.Planned == node })
			if a := (picture.Arrow{From: from, To: i}); from >= 0 && !slices.Contains(arrows, a) {
				arrows = append(arrows, a)
			}
		}
	}
	return picture.Layout(boxes, arrows)
}

func toneOf(state workflow.State) picture.Tone {
	switch state {
	case workflow.Pending:
		return picture.Waiting
	case workflow.Running:
		return picture.Active
	case workflow.Done:
		return picture.Good
	case workflow.Failed:
		return picture.Bad
	case workflow.RolledBack, workflow.Escalated:
		return picture.Warning
	default:
		return picture.Plain
	}
}

// workflowBoundary is the gateway's answer to a request to begin or to complete a workflow.
type workflowBoundary struct {
	Workflow string `json:"wid"`
	Status   string `json:"status,omitempty"`
	ID       ect.ID `json:"jti"`
	Token    string `json:"ect"`
}

func workflowBegin(c *client.Client) *cobra.Command {
	var plan struct {
		Description string `json:"description,omitempty"`
		Steps       int    `json:"node_count,omitempty"`
		Descriptor  string `json:"descriptor,omitempty"`
		Version     int    `json:"version,omitempty"`
	}
	cmd := &cobra.Command{
		Use: "begin", Short: "Begin a workflow, and print its wid and the jti that its first messages name as parent", Args: cobra.NoArgs,
		Long: "Begin a workflow. The gateway signs its start, and prints the wid of the workflow and the jti of the\n" +
			"start. The first messages of the workflow name that jti as their parent: in par of the caller's own\n" +
			"token, or in the header Aepb-Parent-Jti.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return boundary(cmd, c, "/atd/workflows", plan, http.StatusCreated)
		},
	}
	cmd.Flags().StringVar(&plan.Description, "description", "", "what it is for, at most 256 bytes")
	cmd.Flags().IntVar(&plan.Steps, "steps", 0, "how many steps are expected, at most 10000")
	cmd.Flags().StringVar(&plan.Descriptor, "descriptor", "", "name of the plan that it follows, as aepbctl workflow list prints it")
	cmd.Flags().IntVar(&plan.Version, "version", 0, "version of the plan (default: the newest)")
	return cmd
}

func workflowComplete(c *client.Client) *cobra.Command {
	var end struct {
		Status workflow.Status `json:"status,omitempty"`
	}
	var status string
	cmd := &cobra.Command{
		Use: "complete WID", Short: "Complete a workflow that we began: its steps say how it ended", Args: cobra.ExactArgs(1),
		PreRunE: func(*cobra.Command, []string) error {
			if end.Status = workflow.Status(status); end.Status != "" && end.Status != workflow.StatusFailed && end.Status != workflow.StatusPartial {
				return errors.New("--status is failed or partial, for a workflow whose steps still run")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return boundary(cmd, c, "/atd/workflows/"+url.PathEscape(args[0])+"/complete", end, http.StatusOK)
		},
	}
	cmd.Flags().StringVar(&status, "status", "", "how it ended, if steps still run: failed or partial")
	return cmd
}

// boundary has the gateway begin or complete a workflow, and prints its answer.
func boundary(cmd *cobra.Command, c *client.Client, path string, body any, want int) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	got, err := c.Public(cmd.Context(), http.MethodPost, path, data, want)
	if err != nil {
		return err
	}
	var answer workflowBoundary
	if err := json.Unmarshal(got, &answer); err != nil {
		return fmt.Errorf("the gateway's answer cannot be read: %w", err)
	}
	return c.Show(cmd, answer, func(w io.Writer) error {
		text := "wid " + terminal.Word(answer.Workflow) + "\njti " + terminal.Word(answer.ID) + "\n"
		if answer.Status != "" {
			text += "status " + terminal.Word(answer.Status) + "\n"
		}
		_, err := io.WriteString(w, text)
		return err
	})
}
