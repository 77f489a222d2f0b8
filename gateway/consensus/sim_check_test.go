package consensus

import (
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/consensus"
)

// attempt is a vote as its voter sent it.
type attempt struct {
	voter   ect.Identity
	first   time.Time // when it came to a replica first
	refused bool      // as late, before the deadline
}

// slack is how long what was sent before may be on its way into a slow store.
const slack = 30 * time.Second

// decidedInTime: a round ends at a moment of the store, after its deadline or with all votes, and with the votes that came until then.
func (w *world) decidedInTime(round *played, r consensus.Round, box consensus.Box) {
	at, voters := r.End.Outcome.Decided, voters(box)
	if at.After(time.Now()) || at.Before(r.Opened) || r.Opened.After(time.Now()) {
		w.problem("the outcome says that it was decided at %v, and the round was open from %v to %v: the moment is not the store's", at, r.Opened, time.Now())
	}
	if r.End.Outcome.Reason != consensus.HumanDecided && !round.early && at.Before(r.Deadline()) && len(voters) < len(r.Rules.Members) {
		w.problem("the round was decided %v before its deadline, with the votes of %d of %d members", r.Deadline().Sub(at), len(voters), len(r.Rules.Members))
	}
	for hash, vote := range round.sent {
		if vote.first.After(r.Deadline()) && slices.Contains(r.End.Counted, hash) {
			w.problem("a vote of %s counts that came %v after the deadline", vote.voter, vote.first.Sub(r.Deadline()))
		}
		if vote.refused && !round.early && round.votesOf(vote.voter) == 1 {
			w.problem("the vote of %s was refused as late before the deadline", vote.voter)
		}
	}
}

func (p *played) votesOf(voter ect.Identity) (n int) {
	for _, vote := range p.sent {
		if vote.voter == voter {
			n++
		}
	}
	return n
}

func voters(box consensus.Box) map[ect.Identity][]consensus.Decision {
	all := map[ect.Identity][]consensus.Decision{}
	for _, b := range box.Ballots {
		all[b.Vote.Voter] = append(all[b.Vote.Voter], b.Vote.Decision)
	}
	return all
}

// recounts counts the votes of an outcome in a way of its own, which shares nothing with the coordinator: of members alone, of a voter
// with two votes neither, and a commit needs the connectivity to a majority of members and the approval that its mechanism demands.
func (w *world) recounts(r consensus.Round, box consensus.Box) {
	count, weight, total, doubled := map[consensus.Decision]int{}, map[consensus.Decision]int64{}, int64(0), 0
	connected := map[ect.Identity]bool{}
	for _, receipt := range box.Receipts {
		connected[receipt.Ack.Participant] = true
	}
	all := voters(box)
	for _, m := range r.Rules.Members {
		total += m.Weight
		if len(all[m.ID]) > 0 {
			connected[m.ID] = true
		}
		if len(all[m.ID]) == 1 && m.ID != r.Rules.Leader {
			count[all[m.ID][0]]++
			weight[all[m.ID][0]] += m.Weight
		}
	}
	for voter, decisions := range all {
		if len(decisions) > 1 {
			doubled++
		}
		if !r.Rules.IsMember(voter) && voter != r.Rules.Leader {
			w.problem("a vote of %s counts, which is no participant", voter)
		}
	}
	approve, reject, tally := count[consensus.Approve], count[consensus.Reject], r.End.Outcome.Tally
	if tally.Approve != approve || tally.Reject != reject || tally.Doubled != doubled {
		w.problem("the tally is %+v, and its messages have %d that approve, %d that reject and %d voters with two votes, of which neither counts", tally, approve, reject, doubled)
	}
	if r.End.Outcome.Result != consensus.Commit || r.End.Outcome.Reason == consensus.HumanDecided {
		return
	}
	if 2*len(connected) <= len(r.Rules.Members) {
		w.problem("the round is committed, and %d of %d members are connected: expected a majority", len(connected), len(r.Rules.Members))
	}
	lead := all[r.Rules.Leader]
	holds := map[consensus.Mechanism]bool{
		consensus.Majority:   approve > reject && 2*(approve+reject) >= len(r.Rules.Members),
		consensus.Weighted:   weight[consensus.Approve]*100 > r.Rules.Threshold*total,
		consensus.Leader:     len(lead) == 1 && lead[0] == consensus.Approve,
		consensus.Optimistic: reject == 0,
	}
	if !holds[r.Proposal.Mechanism] {
		w.problem("the round is committed by %s, and its votes do not approve: %v, of the leader %v", r.Proposal.Mechanism, count, lead)
	}
}

// notRecordedYet: until a round is decided, no evidence has its votes.
func (w *world) notRecordedYet(r consensus.Round) {
	entry, found, err := w.shards[0].Get(w.t.Context(), roundKey(r.Proposal.Round, ""))
	fatal(w.t, err)
	if !found {
		return
	}
	now, err := consensus.DecodeRound(entry.Value)
	fatal(w.t, err)
	if n := w.acts(r.Workflow)[ect.ActConsensusVote]; n > 0 && !now.Phase.Decided() {
		w.problem("the evidence has %d votes of a round that is %s: votes are recorded after the tally", n, now.Phase)
	}
}

// onRecord: an outcome is announced after its token is on record.
func (w *world) onRecord(r consensus.Round) {
	found, err := w.evidence.Get(w.t.Context(), ect.Ref{Workflow: r.Workflow, ID: tokenID(r.Token), Issuer: self})
	if err != nil || len(found) == 0 || len(found[0]) == 0 {
		w.problem("an outcome is announced and its token is not on record: %v", err)
	}
}

// acts counts the tokens of a workflow by what they are about.
func (w *world) acts(workflow string) map[ect.Act]int {
	records, _, err := w.evidence.Workflow(w.t.Context(), workflow, "", 100)
	fatal(w.t, err)
	acts := map[ect.Act]int{}
	for _, rec := range records {
		claims, err := ect.ParseRecorded(rec.Compact)
		fatal(w.t, err)
		acts[claims.Act]++
	}
	return acts
}

// givesWay: of two rounds about the same whose votes accept, the one of the lower rank gives way.
func (w *world) givesWay(ended []consensus.Round) {
	for _, low := range ended {
		if o := low.End.Outcome; o.Result != consensus.Commit || o.Reason != consensus.Accepted {
			continue
		}
		for _, high := range ended {
			o := high.End.Outcome
			related := high.Proposal.Topic() == low.Proposal.Topic() && high.Rank.Compare(low.Rank) > 0
			meet := high.Opened.Add(slack).Before(low.End.Outcome.Decided) && !high.Opened.After(low.Deadline()) && !o.Decided.Before(low.Opened)
			if related && meet && o.Result == consensus.Commit && o.Reason == consensus.Accepted {
				w.problem("two rounds about the same are committed at once: the one of the lower rank gives way to the other")
			}
		}
	}
}
