package consensus

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// count is what was received for a round, counted.
type count struct {
	tally   Tally
	voted   int // members of whom a vote came, doubled ones included
	led     bool
	lead    Vote     // of the leader
	hashes  []string // of the messages that the tally rests on, sorted
	ballots []Ballot // that count
}

// count counts each vote once, of members alone. Of a voter with several different votes, none counts.
func (r Round) count(b Box) count {
	c := count{tally: Tally{Participants: len(r.Rules.Members)}}
	if r.Proposal.Mechanism == Weighted {
		c.tally.TotalWeight = r.Rules.Total()
	}
	connected := map[ect.Identity]bool{}
	for _, receipt := range b.Receipts {
		if id := receipt.Ack.Participant; r.concerns(receipt.Ack.Proposal, receipt.Ack.Round) && r.Rules.IsMember(id) && r.connects(receipt) {
			connected[id] = true
			c.hashes = append(c.hashes, receipt.Hash)
		}
	}
	for voter, votes := range r.votesOf(b) {
		if r.Rules.IsMember(voter) {
			connected[voter] = true
			c.voted++
		}
		for _, ballot := range votes {
			c.hashes = append(c.hashes, ballot.Hash)
		}
		switch {
		case len(votes) > 1:
			c.tally.Doubled++
		case voter == r.Rules.Leader:
			c.led, c.lead = true, votes[0].Vote
		default:
			c.add(votes[0], r.weightOf(voter))
		}
	}
	c.tally.Connected = len(connected)
	slices.Sort(c.hashes)
	c.hashes = slices.Compact(c.hashes)
	slices.SortFunc(c.ballots, func(a, b Ballot) int { return strings.Compare(a.Hash, b.Hash) })
	return c
}

// connects reports whether an acknowledgement shows that a participant is reached while it votes. A commitment that came too late
// does not: a record without the moments could not say which of two commitments binds the voter.
func (r Round) connects(receipt Receipt) bool {
	return receipt.Ack.Kind == Received || r.seals(receipt)
}

// seals reports whether an acknowledgement commits its participant to a vote in this round.
func (r Round) seals(receipt Receipt) bool {
	a := receipt.Ack
	return a.Kind == Sealed && r.concerns(a.Proposal, a.Round) && !receipt.Received.After(r.Proposal.Timeout.Time)
}

func (r Round) concerns(proposal, round string) bool {
	return proposal == r.Proposal.ID && round == r.Proposal.Round
}

// weightOf is the weight of a member; zero unless the mechanism is weighted.
func (r Round) weightOf(id ect.Identity) int64 {
	i := slices.IndexFunc(r.Rules.Members, func(m Member) bool { return m.ID == id })
	if r.Proposal.Mechanism != Weighted || i < 0 {
		return 0
	}
	return r.Rules.Members[i].Weight
}

func (c *count) add(b Ballot, weight int64) {
	c.ballots = append(c.ballots, b)
	switch b.Vote.Decision {
	case Approve:
		c.tally.Approve++
		c.tally.ApproveWeight += weight
	case Reject:
		c.tally.Reject++
		c.tally.RejectWeight += weight
	case Abstain:
		c.tally.Abstain++
	}
}

// votesOf are the votes that are allowed, by voter, those with the same bytes once.
func (r Round) votesOf(b Box) map[ect.Identity][]Ballot {
	sealed := map[ect.Identity]string{} // hash of the vote that a voter committed to; "-": it committed to several
	for _, receipt := range b.Receipts {
		id := receipt.Ack.Participant
		if !r.seals(receipt) {
			continue
		}
		if before, there := sealed[id]; there && before != receipt.Ack.Vote {
			sealed[id] = "-"
		} else {
			sealed[id] = receipt.Ack.Vote
		}
	}
	votes := map[ect.Identity][]Ballot{}
	for _, ballot := range b.Ballots {
		voter := ballot.Vote.Voter
		same := slices.ContainsFunc(votes[voter], func(o Ballot) bool { return o.Hash == ballot.Hash })
		if same || r.Admits(ballot.Vote, ballot.Received) != nil || !r.Proposal.Terms.RevealBy.IsZero() && sealed[voter] != ballot.Hash {
			continue
		}
		votes[voter] = append(votes[voter], ballot)
	}
	return votes
}

// Admits says why a vote that came at a time does not count, whatever the round has besides; nil: it does. Its error is a
// *[RefusedError].
func (r Round) Admits(v Vote, received time.Time) error {
	switch {
	case !r.concerns(v.Proposal, v.Round):
		return &RefusedError{Reason: "the vote is about another round"}
	case !r.Rules.IsMember(v.Voter) && v.Voter != r.Rules.Leader:
		return &RefusedError{Reason: "the voter is no participant of this round"}
	case received.After(r.Deadline()):
		return &RefusedError{Reason: "the time for votes is over", Late: true}
	case r.Proposal.Mechanism == Weighted && v.Weights != r.Proposal.Terms.Weights:
		return &RefusedError{Reason: "the vote is bound to another table of weights: weights_hash is that of the proposal"}
	case !r.Proposal.Terms.RevealBy.IsZero() && !received.After(r.Proposal.Timeout.Time):
		return &RefusedError{Reason: "votes of this round are committed to first: send the hash, and the vote after the timeout"}
	}
	return nil
}

// AdmitsAck says why an acknowledgement that came at a time is not taken; nil: it is. Its error is a *[RefusedError].
func (r Round) AdmitsAck(a Ack, received time.Time) error {
	sender := r.Rules.IsMember(a.Participant) || a.Participant == r.Rules.Leader
	switch {
	case !r.concerns(a.Proposal, a.Round):
		return &RefusedError{Reason: "the acknowledgement is about another round"}
	case a.Kind == NonceOpen:
		return r.admitsNonce(a, received)
	case !sender:
		return &RefusedError{Reason: "the sender is no participant of this round"}
	case a.Kind != Received && a.Kind != Sealed: // it is about an outcome
		if !r.Phase.Decided() {
			return &RefusedError{Reason: "the round has no outcome yet"}
		}
		return nil
	case a.Kind == Sealed && (r.Proposal.Terms.RevealBy.IsZero() || received.After(r.Proposal.Timeout.Time)):
		return &RefusedError{Reason: "votes of this round are not committed to now", Late: true}
	case r.Phase.Decided() || r.Phase == Escalated:
		return &RefusedError{Reason: "the round is " + string(r.Phase), Late: true}
	}
	return nil
}

func (r Round) admitsNonce(a Ack, received time.Time) error {
	switch {
	case !slices.ContainsFunc(r.Deadlock.Candidates, func(c Candidate) bool { return c.Proposer == a.Participant }):
		return &RefusedError{Reason: "nonces are opened by the proposers of deadlocked proposals alone"}
	case r.Phase != Drawing || received.After(r.Deadlock.Until):
		return &RefusedError{Reason: "there is no draw in this round now"}
	}
	return nil
}

// Overrides reports whether a leader decides against most of the votes without a rationale.
func (r Round) Overrides(b Box) bool {
	c := r.count(b)
	return c.led && c.lead.Rationale == "" && c.lead.Decision == Approve && c.tally.Reject > c.tally.Approve
}

// judge is how the votes decide, whatever the connectivity: Accepted, or why they do not.
func (r Round) judge(c count) Reason {
	votes, t := c.tally.Approve+c.tally.Reject, c.tally
	switch r.Proposal.Mechanism {
	case Majority:
		if int64(votes) < r.Rules.Quorum {
			return NoQuorum
		}
		return accepted(2*t.Approve > votes)
	case Weighted:
		if t.ApproveWeight+t.RejectWeight < r.Rules.Quorum || votes < r.Rules.Voters {
			return NoQuorum
		}
		return accepted(t.ApproveWeight*100 > r.Rules.Threshold*t.TotalWeight)
	case Leader:
		overrides := c.lead.Decision == Approve && t.Reject > t.Approve // a vote that rejects has a rationale
		if !c.led || c.lead.Decision == Abstain || overrides && c.lead.Rationale == "" {
			return NoDecision
		}
		return accepted(c.lead.Decision == Approve)
	default:
		if t.Reject > 0 {
			return Objected
		}
		return Accepted
	}
}

func accepted(yes bool) Reason {
	if yes {
		return Accepted
	}
	return Rejected
}

// MessagesHash names a set of messages by their sorted hashes (R25).
func MessagesHash(hashes []string) string {
	return ect.Hash([]byte(strings.Join(slices.Sorted(slices.Values(hashes)), "\n")))
}

// AnomalyKind is a pattern of votes that may come of collusion (Coercion and Collusion Detection).
type AnomalyKind string

// The patterns. At least three voters are in each.
const (
	SameRationale AnomalyKind = "same_rationale" // they explain their votes in the same words
	SameMoment    AnomalyKind = "same_moment"    // they cast their votes in the same millisecond
)

// AnomalyKinds lists them all.
func AnomalyKinds() []AnomalyKind { return []AnomalyKind{SameRationale, SameMoment} }

const fewestAlike = 3

// Anomalies are the patterns of the votes of one round.
func Anomalies(ballots []Ballot) (found []AnomalyKind) {
	words, moments := map[string]int{}, map[int64]int{}
	for _, b := range ballots {
		if text := strings.Join(strings.Fields(strings.ToLower(b.Vote.Rationale)), " "); text != "" {
			words[text]++
		}
		moments[b.Vote.Timestamp.UnixMilli()]++
	}
	if slices.ContainsFunc(slices.Collect(maps.Values(words)), func(n int) bool { return n >= fewestAlike }) {
		found = append(found, SameRationale)
	}
	if slices.ContainsFunc(slices.Collect(maps.Values(moments)), func(n int) bool { return n >= fewestAlike }) {
		found = append(found, SameMoment)
	}
	return found
}

// draw ends a draw among the proposals of a deadlock. Who does not open its nonce loses; where all are silent, the oldest proposal
// goes first.
func (r Round) draw(e Event) Round {
	type opened struct {
		Candidate
		nonce string
	}
	var all []opened
	for _, c := range r.Deadlock.Candidates {
		for _, receipt := range e.Box.Receipts {
			late := receipt.Received.After(r.Deadlock.Until)
			if a := receipt.Ack; a.Kind == NonceOpen && !late && a.Participant == c.Proposer && c.Nonce != "" && ect.Hash([]byte(a.Nonce)) == c.Nonce {
				all = append(all, opened{c, a.Nonce})
				break
			}
		}
	}
	if len(all) < len(r.Deadlock.Candidates) && e.At.Before(r.Deadlock.Until) {
		return r
	}
	next := r.to(Aborted)
	if len(all) == 0 {
		next.Deadlock.Preferred = oldest(r.Deadlock.Candidates).Proposal
		return next
	}
	slices.SortFunc(all, func(a, b opened) int { return strings.Compare(a.Proposal, b.Proposal) })
	sum := sha256.New()
	for _, one := range all {
		sum.Write([]byte(one.nonce + "\n"))
	}
	next.Deadlock.Preferred = all[binary.BigEndian.Uint64(sum.Sum(nil))%uint64(len(all))].Proposal
	return next
}
