package consensus

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
)

// groupView is what a gateway says of a group.
type groupView struct {
	Group        string                        `json:"group"`
	Participants []ect.Identity                `json:"participants"`
	Weights      []consensus.Member            `json:"weights"`
	WeightsHash  string                        `json:"weights_hash"`
	Mechanisms   []consensus.Mechanism         `json:"mechanisms"`
	Quorum       map[consensus.Mechanism]int64 `json:"quorum"`
	Threshold    int64                         `json:"threshold"`
	Leader       ect.Identity                  `json:"leader"`
	Deadlock     consensus.Strategy            `json:"deadlock"`
	Longest      int64                         `json:"longest_s"`
	Proposers    []ect.Identity                `json:"proposers"`
}

// roundView is what a gateway says of a round.
type roundView struct {
	Round     string                  `json:"round"`
	Phase     consensus.Phase         `json:"phase"`
	Opened    time.Time               `json:"opened"`
	Changed   time.Time               `json:"changed"`
	Deadline  time.Time               `json:"deadline"`
	Attempt   int                     `json:"attempt"`
	Proposal  json.RawMessage         `json:"proposal"` // signed
	Rules     consensus.Rules         `json:"rules"`
	Workflow  string                  `json:"wid"`
	Propose   string                  `json:"propose"` // jti of the consensus_propose
	Commit    string                  `json:"commit"`  // jti of the consensus_commit
	Outcome   json.RawMessage         `json:"outcome"` // signed
	Why       consensus.Reason        `json:"why"`
	Approval  string                  `json:"approval"`
	Deadlock  consensus.Deadlock      `json:"deadlock"`
	Anomalies []consensus.AnomalyKind `json:"anomalies"`
}

// entry is one message of a round.
type entry struct {
	Kind     string          `json:"kind"` // vote or ack
	Message  json.RawMessage `json:"message"`
	Received time.Time       `json:"received"`
}

// messagePage is a page of messages.
type messagePage struct {
	Messages []entry `json:"messages"`
	Next     string  `json:"next"`
}

func (v roundView) decided() bool { return len(v.Outcome) > 0 && string(v.Outcome) != "null" }

// rows are lines of a name and a value; those without a value are left out.
type rows struct{ text strings.Builder }

func (r *rows) add(name, value string) {
	if value != "" {
		fmt.Fprintf(&r.text, "%-13s %s\n", name, value)
	}
}

func (r *rows) write(w io.Writer) error {
	_, err := io.WriteString(w, r.text.String())
	return err
}

func stamp(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

func (g groupView) print(w io.Writer) error {
	var r rows
	r.add("group", terminal.Word(g.Group))
	for _, id := range g.Participants {
		text := terminal.Word(string(id))
		if i := slices.IndexFunc(g.Weights, func(m consensus.Member) bool { return m.ID == id }); i >= 0 {
			text += fmt.Sprintf(", weight %d.%02d", g.Weights[i].Weight/100, g.Weights[i].Weight%100)
		}
		r.add("participant", text)
	}
	r.add("proposers", terminal.Words(g.Proposers))
	r.add("mechanisms", terminal.Words(g.Mechanisms))
	for _, m := range consensus.Mechanisms() {
		if n := g.Quorum[m]; n > 0 {
			r.add("quorum", fmt.Sprintf("%s: at least %d", m, n))
		}
	}
	r.add("threshold", fmt.Sprintf("%d %% of the weight", g.Threshold))
	r.add("leader now", terminal.Word(string(g.Leader)))
	r.add("deadlock", terminal.Word(string(g.Deadlock)))
	r.add("longest", terminal.Duration(time.Duration(g.Longest)*time.Second))
	r.add("weights hash", terminal.Word(g.WeightsHash))
	return r.write(w)
}

// print shows a round. What is signed is shown as it was signed, and nothing is verified.
func (v roundView) print(w io.Writer) error {
	var r rows
	r.add("round", terminal.Word(v.Round))
	r.add("phase", terminal.Word(string(v.Phase)))
	v.printProposal(&r)
	r.add("opened", stamp(v.Opened))
	r.add("deadline", stamp(v.Deadline))
	if v.Attempt > 1 {
		r.add("attempt", fmt.Sprint(v.Attempt))
	}
	r.add("rules", terminal.Line(rulesText(v.Rules)))
	r.add("workflow", terminal.Word(v.Workflow))
	r.add("propose", terminal.Word(v.Propose))
	r.add("why", terminal.Word(string(v.Why)))
	r.add("approval", terminal.Word(v.Approval))
	for _, c := range v.Deadlock.Candidates {
		r.add("deadlocked", terminal.Word(c.Proposal)+" by "+terminal.Word(string(c.Proposer)))
	}
	r.add("goes first", terminal.Word(v.Deadlock.Preferred))
	r.add("anomalies", terminal.Words(v.Anomalies))
	if v.decided() {
		v.printOutcome(&r)
	}
	r.add("commit", terminal.Word(v.Commit))
	return r.write(w)
}

func (v roundView) printProposal(r *rows) {
	m, err := signed.Parse[consensus.Proposal](v.Proposal)
	if err != nil {
		r.add("proposal", "cannot be read: "+terminal.Line(err.Error()))
		return
	}
	p := m.Content
	r.add("proposal", terminal.Word(p.ID)+" by "+terminal.Word(string(p.Proposer)))
	r.add("group", terminal.Word(p.Terms.Group))
	r.add("mechanism", string(p.Mechanism))
	r.add("subject", terminal.Line(p.Subject))
	r.add("action", terminal.Line(string(p.Action)))
	r.add("resource", terminal.Line(p.Terms.Resource))
	r.add("votes until", stamp(p.Timeout.Time))
	if !p.Terms.RevealBy.IsZero() {
		r.add("reveal by", stamp(p.Terms.RevealBy.Time))
	}
}

func (v roundView) printOutcome(r *rows) {
	m, err := signed.Parse[consensus.Outcome](v.Outcome)
	if err != nil {
		r.add("outcome", "cannot be read: "+terminal.Line(err.Error()))
		return
	}
	o := m.Content
	r.add("outcome", fmt.Sprintf("%s, %s, by %s at %s", o.Result, terminal.Word(string(o.Reason)), terminal.Word(string(o.Coordinator)), stamp(o.Decided)))
	r.add("tally", tallyText(o.Tally))
	r.add("gives way to", terminal.Word(o.Rival))
}

func rulesText(r consensus.Rules) string {
	text := fmt.Sprintf("%d members, quorum %d, messages of %d participants", len(r.Members), r.Quorum, r.Connected)
	if r.Voters > 0 {
		text += fmt.Sprintf(", votes of %d", r.Voters)
	}
	text += fmt.Sprintf(", threshold %d %%", r.Threshold)
	if r.Leader != "" {
		text += ", led by " + string(r.Leader)
	}
	return text + ", deadlocks: " + string(r.Deadlock)
}

func tallyText(t consensus.Tally) string {
	text := fmt.Sprintf("%d approve, %d reject, %d abstain, of %d", t.Approve, t.Reject, t.Abstain, t.Participants)
	if t.Doubled > 0 {
		text += fmt.Sprintf("; %d voted twice, which does not count", t.Doubled)
	}
	if t.TotalWeight > 0 {
		text += fmt.Sprintf("; weight %d for and %d against, of %d", t.ApproveWeight, t.RejectWeight, t.TotalWeight)
	}
	return text
}
