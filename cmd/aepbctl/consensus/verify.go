package consensus

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	json2 "github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
)

// maxFile bounds a file that is verified, in bytes.
const maxFile = 64 << 20

// verdict is what verify prints.
type verdict struct {
	Holds    bool      `json:"holds"`
	Findings []finding `json:"findings"`
}

func verifyCommand(d Deps) *cobra.Command {
	var t client.Trust
	var coordinator string
	cmd := &cobra.Command{
		Use: "verify DIR", Short: "Verify the outcome of a round that was saved, without the gateway", Args: cobra.ExactArgs(1),
		Long: "Verify the outcome of a round that show --save wrote, with nothing but trust anchors: each signature as of when the\n" +
			"message says that it was signed, and the tally and the result anew from the messages. The exit code is 0 only if\n" +
			"each file of the folder was looked at and everything in it holds. What else is to be looked at is marked \"else\".",
		PreRunE: func(*cobra.Command, []string) error { return t.Check() },
		RunE: func(cmd *cobra.Command, args []string) error {
			verifier, err := d.Verifier(t.Bundle, t.Domain)
			if err != nil {
				return err
			}
			a := audit{verifier: verifier, coordinator: ect.Identity(coordinator)}
			round, pages, err := a.open(args[0])
			if err != nil {
				return err
			}
			a.run(cmd.Context(), round, pages)
			out := verdict{!slices.ContainsFunc(a.findings, func(f finding) bool { return f.Status == statusFailed }), a.findings}
			if err := d.Show(cmd, out, out.print); err != nil {
				return err
			}
			if !out.Holds {
				return d.Refused
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&coordinator, "coordinator", "", "identity of the gateway that has to have signed the outcome")
	t.Add(cmd)
	return cmd
}

// open reads the files of a folder. One that is not of a round is a finding: it was not looked at.
func (a *audit) open(dir string) (round []byte, pages [][]byte, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	known := []string{roundFile}
	if round, err = readFile(dir, roundFile); err != nil {
		return nil, nil, err
	}
	for n := 1; n == 1 || exists(filepath.Join(dir, messageFile(n))); n++ {
		page, err := readFile(dir, messageFile(n))
		if err != nil {
			return nil, nil, err
		}
		known, pages = append(known, messageFile(n)), append(pages, page)
	}
	for _, e := range entries {
		if !slices.Contains(known, e.Name()) {
			a.fail("folder", "%s is not a file of the round, and was not looked at: remove it", e.Name())
		}
	}
	return round, pages, nil
}

func readFile(dir, name string) ([]byte, error) {
	file := filepath.Join(dir, name)
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %s is the folder that show --save wrote", err, dir)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s has %d bytes, expected at most %d", file, info.Size(), maxFile)
	}
	return os.ReadFile(file)
}

func (v verdict) print(w io.Writer) error {
	for _, f := range v.Findings {
		status := f.Status
		if status == statusFailed {
			status = "FAILED"
		}
		if _, err := fmt.Fprintf(w, "%-7s %-13s %s\n", status, f.Check, terminal.Line(f.Found)); err != nil {
			return err
		}
	}
	last := "the outcome holds"
	if !v.Holds {
		last = "the outcome does NOT hold: see what FAILED"
	}
	_, err := fmt.Fprintln(w, last)
	return err
}

// The ways in which one check ends.
const (
	statusOK     = "ok"
	statusFailed = "failed"
	statusElse   = "else" // what else is to be looked at
)

// finding is what one check found. It holds texts of others unchanged.
type finding struct {
	Status string `json:"status"`
	Check  string `json:"check"`
	Found  string `json:"found"`
}

// audit verifies a round from its signed messages, and says why its outcome holds or not (R24, R25).
type audit struct {
	verifier    signed.Verifier
	coordinator ect.Identity // who has to have signed the outcome; empty: that is not known

	view     roundView
	proposal signed.Message[consensus.Proposal]
	outcome  signed.Message[consensus.Outcome]
	box      consensus.Box
	hashes   []string
	findings []finding
}

func (a *audit) note(status, check, format string, args ...any) {
	a.findings = append(a.findings, finding{status, check, fmt.Sprintf(format, args...)})
}

func (a *audit) fail(check, format string, args ...any) { a.note(statusFailed, check, format, args...) }
func (a *audit) ok(check, format string, args ...any)   { a.note(statusOK, check, format, args...) }

// judge notes that something holds, or the first reason why it does not.
func (a *audit) judge(check, holds string, reasons ...string) {
	if i := slices.IndexFunc(reasons, func(r string) bool { return r != "" }); i >= 0 {
		a.fail(check, "%s", reasons[i])
		return
	}
	a.ok(check, "%s", holds)
}

// unless is a reason, unless something holds.
func unless(holds bool, format string, args ...any) string {
	if holds {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// run makes all checks of a round and the pages of its messages, as they came.
func (a *audit) run(ctx context.Context, round []byte, pages [][]byte) {
	if err := json2.Unmarshal(round, &a.view, json2.RejectUnknownMembers(true)); err != nil {
		a.fail("round", "%s is not what this version of aepbctl knows: %v", roundFile, err)
		return
	}
	if !a.signed(ctx) {
		return
	}
	a.stated()
	a.rules()
	for i, text := range pages {
		var p messagePage
		if err := json2.Unmarshal(text, &p, json2.RejectUnknownMembers(true)); err != nil {
			a.fail("messages", "%s is not what this version of aepbctl knows: %v", messageFile(i+1), err)
			return
		}
		a.judge("messages", fmt.Sprintf("%d in %s", len(p.Messages), messageFile(i+1)),
			unless((p.Next != "") == (i+1 < len(pages)), "%s: it names a next page and that is not there, or there is one that it does not name", messageFile(i+1)))
		for _, e := range p.Messages {
			a.message(ctx, e)
		}
	}
	a.count()
}

// signed verifies the proposal and the outcome. Without them there is nothing to compute.
func (a *audit) signed(ctx context.Context) bool {
	var err error
	if a.proposal, err = signed.Parse[consensus.Proposal](a.view.Proposal); err != nil {
		a.fail("proposal", "%s", reason(err))
		return false
	}
	p := a.proposal.Content
	if err := a.proposal.Verify(ctx, a.verifier); err != nil {
		a.fail("proposal", "it is not signed by %s: %v", p.Proposer, err)
	} else {
		a.ok("proposal", "%s by %s, signed %s: %s", p.ID, p.Proposer, stamp(p.Terms.Timestamp), p.Subject)
	}
	if !a.view.decided() {
		a.fail("outcome", "the round is %s and has no outcome", a.view.Phase)
		return false
	}
	if a.outcome, err = signed.Parse[consensus.Outcome](a.view.Outcome); err != nil {
		a.fail("outcome", "%s", reason(err))
		return false
	}
	o := a.outcome.Content
	by := o.Coordinator
	if err := a.outcome.Verify(ctx, a.verifier); err != nil {
		a.fail("outcome", "it is not signed by %s: %v", by, err)
		return true
	}
	a.judge("outcome", fmt.Sprintf("%s, signed by %s at %s", o.Result, by, stamp(o.Decided)),
		unless(a.coordinator == "" || by == a.coordinator, "it is signed by %s, expected the coordinator %s", by, a.coordinator),
		unless(a.coordinator != "" || by != p.Proposer && !slices.Contains(p.Participants, by), "it is signed by %s, who takes part in the round: name the gateway that coordinates it with --coordinator", by))
	if a.coordinator == "" {
		a.note(statusElse, "outcome", "that %s is the gateway of the group %q: --coordinator checks it", by, p.Terms.Group)
	}
	return true
}

// stated compares what the gateway says beside the signatures with what is signed.
func (a *audit) stated() {
	v, p, o := a.view, a.proposal.Content, a.outcome.Content
	r := consensus.Round{Proposal: p}
	fits := v.Phase == consensus.Committed && o.Result == consensus.Commit || (v.Phase == consensus.Aborted || v.Phase == consensus.Drawing) && o.Result == consensus.Abort
	a.judge("round", fmt.Sprintf("%s, %s; opened, changed, attempt, propose, commit, why and deadlock are the gateway's word alone", v.Round, v.Phase),
		unless(v.Round == p.Round, "round is %s, and the proposal is about %s", v.Round, p.Round),
		unless(fits, "phase is %s, and the outcome is %s", v.Phase, o.Result),
		unless(v.Deadline.Equal(r.Deadline()), "deadline is %s, and by the proposal it is %s", stamp(v.Deadline), stamp(r.Deadline())),
		unless(p.Terms.Workflow == "" || v.Workflow == p.Terms.Workflow, "wid is %s, and the proposal says %s", v.Workflow, p.Terms.Workflow),
		unless(o.Approval == "" || v.Approval == o.Approval, "approval is %s, and the outcome says %s", v.Approval, o.Approval))
}

// rules verifies what the round was decided by, as far as the proposal and the draft bind it (R24).
func (a *audit) rules() {
	p, r := a.proposal.Content, a.view.Rules
	floor := consensus.Group{}.Floor(p.Mechanism, r.Members)
	a.judge("rules", string(p.Mechanism)+": "+rulesText(r),
		unless(r.Hash() == a.outcome.Content.Rules, "the rules are not those that the outcome names"),
		unless(r.Quorum >= floor && r.Quorum >= p.Quorum, "the quorum is %d, expected at least %d", r.Quorum, max(floor, p.Quorum)),
		unless(p.Mechanism != consensus.Weighted || p.Terms.Weights == consensus.WeightsHash(r.Members), "the weights are not those that the proposal names"),
		unless((r.Leader != "") == (p.Mechanism == consensus.Leader), "they name the leader %q, and the mechanism is %s", r.Leader, p.Mechanism))
}

// round is the round without what was received for it.
func (a *audit) round() consensus.Round {
	return consensus.Round{Phase: consensus.Voting, Proposal: a.proposal.Content, Signed: a.proposal.Compact, Rules: a.view.Rules, Attempt: 1}
}

// message verifies one message and puts it into the box.
func (a *audit) message(ctx context.Context, e entry) {
	switch e.Kind {
	case "vote":
		m, err := signed.Parse[consensus.Vote](e.Message)
		if err != nil {
			a.fail("vote", "%s", reason(err))
			return
		}
		why := ""
		if m.Content.Rationale != "" {
			why = ": " + m.Content.Rationale
		}
		a.judge("vote", fmt.Sprintf("%s %ss at %s%s", m.Content.Voter, m.Content.Decision, stamp(m.Content.Timestamp), why),
			authentic(ctx, a.verifier, m), a.twice(m.Hash), reasonOf(a.round().Admits(m.Content, e.Received), m.Content.Voter))
		a.box.Ballots = append(a.box.Ballots, consensus.Ballot{Vote: m.Content, Hash: m.Hash, Received: a.round().Deadline()})
	case "ack":
		m, err := signed.Parse[consensus.Ack](e.Message)
		if err != nil {
			a.fail("ack", "%s", reason(err))
			return
		}
		c, p := m.Content, a.proposal.Content
		a.judge("ack", fmt.Sprintf("%s acknowledges: %s, at %s", c.Participant, c.Kind, stamp(c.Timestamp)),
			authentic(ctx, a.verifier, m), a.twice(m.Hash),
			unless(c.Proposal == p.ID && c.Round == p.Round, "that of %s is about another round", c.Participant),
			unless(a.view.Rules.IsMember(c.Participant), "that of %s, who is no participant of this round", c.Participant),
			unless(c.Kind == consensus.Received || c.Kind == consensus.Sealed, "that of %s is %s, which no outcome rests on", c.Participant, c.Kind))
		a.box.Receipts = append(a.box.Receipts, consensus.Receipt{Ack: c, Hash: m.Hash, Received: p.Timeout.Time})
	default:
		a.fail("messages", "a message is of kind %q, expected vote or ack", e.Kind)
	}
}

func authentic[M signed.Content](ctx context.Context, v signed.Verifier, m signed.Message[M]) string {
	err := m.Verify(ctx, v)
	if err == nil {
		return ""
	}
	by, _ := consensus.Signer(m.Content)
	return fmt.Sprintf("it is not signed by %s: %v", by, err)
}

// twice notes a hash, and is a reason if it was noted before.
func (a *audit) twice(hash string) string {
	before := slices.Contains(a.hashes, hash)
	a.hashes = append(a.hashes, hash)
	return unless(!before, "the message with hash %s stands there twice", hash)
}

func reasonOf(err error, by ect.Identity) string {
	if err == nil {
		return ""
	}
	return fmt.Sprintf("that of %s does not count: %s", by, reason(err))
}

// reason is an error without the name of the package that it comes from.
func reason(err error) string { return strings.TrimPrefix(err.Error(), "consensus: ") }

// count computes the outcome anew.
func (a *audit) count() {
	o, r := a.outcome.Content, a.round()
	end, err := r.Next(consensus.Event{Kind: consensus.Look, At: r.Deadline().Add(consensus.Patience), Box: a.box})
	if err != nil {
		a.fail("tally", "%s", reason(err))
		return
	}
	again := end.End.Outcome
	a.judge("messages", fmt.Sprintf("%d, which are those that the outcome names", len(a.hashes)),
		unless(consensus.MessagesHash(a.hashes) == o.Votes, "they are not those that the outcome names: one is missing, was added or changed"),
		unless(again.Votes == o.Votes, "one of them does not count, and the outcome names it"))
	reached := fmt.Sprintf("messages of %d of %d participants, a commit needs %d", again.Tally.Connected, again.Tally.Participants, r.Rules.Connected)
	a.judge("connectivity", reached, unless(again.Tally.Connected == o.Tally.Connected, "%s, and the outcome says %d", reached, o.Tally.Connected))
	a.judge("tally", tallyText(again.Tally), unless(again.Tally == o.Tally, "by the messages it is %s; the outcome says %s", tallyText(again.Tally), tallyText(o.Tally)))
	if slices.Equal(sorted(a.view.Anomalies), sorted(end.End.Anomalies)) {
		if len(end.End.Anomalies) > 0 {
			a.note(statusElse, "anomalies", "votes that may be agreed upon beforehand: %v", end.End.Anomalies)
		}
	} else {
		a.fail("anomalies", "by the votes they are %v, and the gateway says %v", end.End.Anomalies, a.view.Anomalies)
	}
	a.result()
}

func sorted(kinds []consensus.AnomalyKind) []consensus.AnomalyKind {
	return slices.Sorted(slices.Values(kinds))
}

// result says whether the outcome follows.
func (a *audit) result() {
	o := a.outcome.Content
	err := consensus.Check(consensus.Record{Proposal: a.proposal.Content, Signed: a.proposal.Compact, Rules: a.view.Rules, Box: a.box, Outcome: o})
	if err != nil {
		a.fail("result", "%s", reason(err))
		return
	}
	a.ok("result", "%s, %s", o.Result, o.Reason)
	if o.Reason == consensus.HumanDecided {
		a.note(statusElse, "result", "approval %s, which says that a human decided this: its tokens are in the evidence of the workflow", o.Approval)
	}
	if o.Reason == consensus.Superseded {
		a.note(statusElse, "result", "the outcome with hash %s, to which this one gives way: save and verify the round that it is about", o.Rival)
	}
}
