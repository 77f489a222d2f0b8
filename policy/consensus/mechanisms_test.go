package consensus

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// TestMajority_EveryTally: of up to eight participants, each of whom approves, rejects, abstains or is silent, more than half
// of the votes that count accept, once half of the participants have voted and more than half are connected.
func TestMajority_EveryTally(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 8; n++ {
		for approve := 0; approve <= n; approve++ {
			for reject := 0; approve+reject <= n; reject++ {
				for abstain := 0; approve+reject+abstain <= n; abstain++ {
					majority(t, n, approve, reject, abstain)
				}
			}
		}
	}
}

func majority(t *testing.T, n, approve, reject, abstain int) {
	t.Helper()
	r, box := roundOf(t, Majority, n), Box{}
	for i := range approve + reject + abstain {
		d := Approve
		if i >= approve {
			d = Reject
		}
		if i >= approve+reject {
			d = Abstain
		}
		box.Ballots = append(box.Ballots, ballotOf(r, i, d))
	}
	got, err := r.Next(Event{Kind: Look, At: r.Deadline().Add(Grace), Box: box})
	if err != nil {
		t.Fatal(err)
	}
	want, reason := Aborted, NoQuorum
	if votes := approve + reject; votes >= (n+1)/2 {
		if reason = Rejected; approve*2 > votes {
			want, reason = Suspended, ""
			if votes+abstain >= n/2+1 {
				want, reason = Committed, Accepted
			}
		}
	}
	if got.Phase != want || got.End.Outcome.Reason != reason {
		t.Errorf("of %d participants %d approve, %d reject and %d abstain: %s, %s; expected %s, %s", n, approve, reject, abstain, got.Phase, got.End.Outcome.Reason, want, reason)
	}
}

var opened = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func idOf(i int) ect.Identity {
	return ect.Identity("spiffe://prod.example/agent/" + strconv.Itoa(1000+i))
}

func uuidOf(i int) string { return "00000000-0000-4000-8000-" + strconv.Itoa(100_000_000_000+i) }

func groupOf(n int) Group {
	g := Group{Name: "ops", Proposers: map[ect.Identity]int{idOf(0): 1, idOf(1): 2}, Mechanisms: Mechanisms(), Deadlock: Escalate}
	for i := range n {
		g.Members = append(g.Members, Member{idOf(i), 1})
	}
	return g
}

func roundOf(t *testing.T, m Mechanism, n int) Round {
	t.Helper()
	g := groupOf(n)
	table := g.Weigh(known, opened)
	p := Proposal{
		ID: uuidOf(1), Proposer: idOf(0), Round: uuidOf(2), Mechanism: m, Subject: "restart", Action: []byte(`{"tool":"restart"}`),
		Timeout: At(opened.Add(time.Minute)), Quorum: g.Floor(m, table),
		Terms: Terms{Reversible: true, Group: "ops", Weights: WeightsHash(table), Timestamp: opened},
	}
	for _, one := range table {
		p.Participants = append(p.Participants, one.ID)
	}
	r, err := Open(Opening{Proposal: p, Signed: "signed", Group: g, Since: known, Now: opened})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func known(ect.Identity) time.Time { return opened.Add(-1000 * time.Hour) }

func ballotOf(r Round, voter int, d Decision) Ballot {
	v := Vote{Proposal: r.Proposal.ID, Round: r.Proposal.Round, Voter: idOf(voter), Decision: d, Rationale: "because", Weights: r.Proposal.Terms.Weights, Timestamp: opened.Add(time.Duration(voter) * time.Second)}
	return Ballot{Vote: v, Hash: ect.Hash(fmt.Append(nil, v)), Received: opened.Add(time.Second)}
}

// recordOf is a round that is over with the messages that its outcome rests on.
func recordOf(r Round, all Box) Record {
	rec := Record{Proposal: r.Proposal, Signed: r.Signed, Rules: r.Rules, Outcome: r.End.Outcome}
	named := map[string]bool{}
	for _, hash := range r.End.Counted {
		named[hash] = true
	}
	for _, b := range all.Ballots {
		if named[b.Hash] {
			b.Received = time.Time{} // a record does not have it
			rec.Box.Ballots = append(rec.Box.Ballots, b)
			delete(named, b.Hash)
		}
	}
	for _, a := range all.Receipts {
		if named[a.Hash] {
			a.Received = time.Time{}
			rec.Box.Receipts = append(rec.Box.Receipts, a)
			delete(named, a.Hash)
		}
	}
	return rec
}
