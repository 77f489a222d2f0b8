package consensus

import (
	"slices"

	"github.com/aepb/aepb-gateway/ect"
)

// Record is what an outcome rests on, as anybody can read it once a round is over. Its messages were verified.
type Record struct {
	Proposal Proposal
	Signed   string // the signed proposal
	Rules    Rules
	Box      Box // the moments at which messages were received do not matter
	Outcome  Outcome
	Rival    string // of superseded: the signed outcome of the other round
}

// UnsoundError reports an outcome that does not follow from its messages.
type UnsoundError struct{ Reason string }

func (e *UnsoundError) Error() string { return "consensus: the outcome does not hold: " + e.Reason }

// Check computes an outcome anew from the signed messages that it names, and from no others. An error says why it does not hold: an
// *[UnsoundError]. An outcome that a human decided holds if it names the approval; whether that was given, evidence says. An
// outcome that gives way holds without the signed outcome of the other round, if the record has none.
func Check(rec Record) error {
	r := Round{Proposal: rec.Proposal, Signed: rec.Signed, Rules: rec.Rules}
	c := r.count(rec.received())
	why := rec.wrongRules()
	switch {
	case why != "":
	case rec.Outcome.Votes != MessagesHash(c.hashes):
		why = "the messages are not those that it names: one is missing, or does not count"
	case !slices.Equal(c.hashes, rec.hashes()):
		why = "a message is there that does not count"
	case rec.Outcome.Tally != c.tally:
		why = "its tally is not that of the votes"
	default:
		by := r.judge(c)
		if by == Accepted && c.tally.Connected < rec.Rules.Connected {
			by = NoConnectivity
		}
		why = rec.wrongResult(by)
	}
	if why == "" {
		return nil
	}
	return &UnsoundError{why}
}

// received are the messages as if each had come in time: the coordinator does not count others.
func (rec Record) received() Box {
	box := Box{Ballots: slices.Clone(rec.Box.Ballots), Receipts: slices.Clone(rec.Box.Receipts)}
	for i := range box.Ballots {
		box.Ballots[i].Received = Round{Proposal: rec.Proposal}.Deadline()
	}
	for i := range box.Receipts {
		box.Receipts[i].Received = rec.Proposal.Timeout.Time
	}
	return box
}

// hashes are those of all messages of the record, sorted, each once.
func (rec Record) hashes() (all []string) {
	for _, b := range rec.Box.Ballots {
		all = append(all, b.Hash)
	}
	for _, receipt := range rec.Box.Receipts {
		all = append(all, receipt.Hash)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// wrongRules says what is wrong with what the outcome is about and with the rules that it was decided by; empty: nothing.
func (rec Record) wrongRules() string {
	o, p, rules := rec.Outcome, rec.Proposal, rec.Rules
	switch {
	case o.Proposal != p.ID || o.Round != p.Round || o.Signed != ect.Hash([]byte(rec.Signed)):
		return "it is about another proposal or round"
	case o.Mechanism != p.Mechanism || o.Rules != rules.Hash():
		return "it was decided by other rules"
	case p.Mechanism == Weighted && p.Terms.Weights != WeightsHash(rules.Members):
		return "the weights are not those that the proposal names"
	case !sameMembers(p.Participants, rules.Members):
		return "the members are not the participants of the proposal"
	case rules.Quorum < max(p.Quorum, Group{}.Floor(p.Mechanism, rules.Members)) || rules.Connected < len(rules.Members)/2+1:
		return "the rules ask for less than the proposal or the mechanism, or than connectivity to a majority"
	case rules.Threshold < 1 || rules.Threshold > 99:
		return "the threshold of the rules is no number of percent from 1 to 99"
	case (rules.Leader != "") != (p.Mechanism == Leader):
		return "the rules name a leader under another mechanism than leader, or none under it"
	}
	return ""
}

// wrongResult says what is wrong with how the outcome decides, where the votes and the connectivity decide as given; empty: nothing.
func (rec Record) wrongResult(by Reason) string {
	o, commits := rec.Outcome, rec.Outcome.Result == Commit
	switch {
	case !commits && o.Result != Abort:
		return "it neither commits nor aborts"
	case (o.Approval != "") != (o.Reason == HumanDecided):
		return "a human decided it and the approval is not named, or the other way round"
	case (o.Rival != "") != (o.Reason == Superseded):
		return "it gives way and the other outcome is not named, or the other way round"
	case o.Reason == HumanDecided:
		return ""
	case o.Reason == Superseded && (commits || by != Accepted):
		return "it gives way, and only an outcome that would commit does"
	case o.Reason == Superseded && rec.Rival != "" && ect.Hash([]byte(rec.Rival)) != o.Rival:
		return "the outcome that it gives way to is another one"
	case o.Reason != Superseded && (o.Reason != by || commits != (by == Accepted)):
		return "its outcome is " + string(o.Result) + ", " + string(o.Reason) + ", and by the messages it is " + string(by)
	}
	return ""
}
