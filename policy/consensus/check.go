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

// Check computes an outcome anew from the signed messages. An error says why it does not hold: an *[UnsoundError].
// An outcome that a human decided holds if it names the approval; whether that was given, evidence says.
func Check(rec Record) error {
	o, p := rec.Outcome, rec.Proposal
	unsound := func(reason string) error { return &UnsoundError{reason} }
	r := Round{Proposal: p, Signed: rec.Signed, Rules: rec.Rules}
	box := Box{Ballots: slices.Clone(rec.Box.Ballots), Receipts: slices.Clone(rec.Box.Receipts)}
	for i := range box.Ballots { // as if each had come in time: the coordinator does not count others
		box.Ballots[i].Received = r.Deadline()
	}
	for i := range box.Receipts {
		box.Receipts[i].Received = p.Timeout.Time
	}
	c := r.count(box)
	reason := r.judge(c)
	connected := c.tally.Connected >= rec.Rules.Connected
	switch {
	case o.Proposal != p.ID || o.Round != p.Round || o.Signed != ect.Hash([]byte(rec.Signed)):
		return unsound("it is about another proposal or round")
	case o.Mechanism != p.Mechanism || o.Rules != rec.Rules.Hash():
		return unsound("it was decided by other rules")
	case p.Mechanism == Weighted && p.Weights != WeightsHash(rec.Rules.Members):
		return unsound("the weights are not those that the proposal names")
	case !sameMembers(p.Participants, rec.Rules.Members):
		return unsound("the members are not the participants of the proposal")
	case rec.Rules.Quorum < p.Quorum || rec.Rules.Connected < len(rec.Rules.Members)/2+1:
		return unsound("the rules ask for less than the proposal, or than connectivity to a majority")
	case o.Votes != MessagesHash(c.hashes):
		return unsound("the messages are not those that it names: one is missing, or does not count")
	case o.Tally != c.tally:
		return unsound("its tally is not that of the votes")
	case o.Reason == HumanDecided:
		if o.Approval == "" {
			return unsound("a human decided it, and the approval is not named")
		}
		return nil
	case o.Reason == Superseded:
		if o.Result != Abort || o.Rival == "" || rec.Rival != "" && ect.Hash([]byte(rec.Rival)) != o.Rival {
			return unsound("the outcome that it gives way to is not there")
		}
		return nil
	case o.Result == Commit && (reason != Accepted || !connected || o.Reason != Accepted):
		return unsound("it commits, and by the votes it is " + string(commitReason(reason)))
	case o.Result == Abort && o.Reason == NoConnectivity && (reason != Accepted || connected):
		return unsound("it aborts without connectivity, and that was there")
	case o.Result == Abort && o.Reason != NoConnectivity && o.Reason != reason:
		return unsound("it aborts as " + string(o.Reason) + ", and by the votes it is " + string(reason))
	}
	return nil
}

func commitReason(by Reason) Reason {
	if by == Accepted {
		return NoConnectivity
	}
	return by
}
