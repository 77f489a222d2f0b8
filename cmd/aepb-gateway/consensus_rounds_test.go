package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	rounds "github.com/aepb/aepb-gateway/gateway/httpapi/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus"
	ballotbox "github.com/aepb/aepb-gateway/policy/consensus/signed"
)

// TestConsensus_Weighted: the weights that the group is read with decide, and a vote that is bound to others is refused (R24).
func TestConsensus_Weighted(t *testing.T) {
	t.Parallel()
	p := deciding()
	g := p.config.Consensus.Groups["team"]
	g.Members[0].Weight, g.Members[1].Weight, g.Members[2].Weight = 10, 3, 3
	b := newBed(t, p)
	members := b.threeVoters(t)
	question := b.proposal(t, members[0], consensus.Weighted, time.Minute, nil)
	b.propose(t, members[0], question)
	other := voteOn(members[1], question, consensus.Approve, "")
	other.Weights = ect.Hash([]byte("another table"))
	b.declines(t, voteTo(members[1], question, message(t, members[1], other)), http.StatusForbidden, "weights_hash")
	b.votes(t, members[0], question, consensus.Approve, "")
	b.votes(t, members[1], question, consensus.Reject, "no")
	b.votes(t, members[2], question, consensus.Reject, "never")
	o := b.holds(t, members[1], b.reaches(t, members[1], question.Round, consensus.Committed), consensus.Commit, consensus.Accepted)
	if o.Tally.Reject != 2 || o.Tally.ApproveWeight*6 != o.Tally.RejectWeight*10 || o.Tally.TotalWeight != o.Tally.ApproveWeight+o.Tally.RejectWeight {
		t.Errorf("the tally is %+v", o.Tally)
	}
	question = b.proposal(t, members[0], consensus.Weighted, time.Minute, func(p *consensus.Proposal) { p.Terms.Weights = other.Weights })
	b.declines(t, letter{via: members[0].via, at: roundsAt, body: message(t, members[0], question)}, http.StatusForbidden, "/consensus/groups/team")
}

// declines demands that a message is refused, and for which reason.
func (b *bed) declines(t *testing.T, l letter, status int, reason string) {
	t.Helper()
	if got := b.send(t, l); got.status != status || !strings.Contains(string(got.body), reason) {
		t.Errorf("%s %s: got %d, expected %d for %s: %s", l.method, l.at, got.status, status, reason, short(got.body))
	}
}

// TestConsensus_Leader: the leader alone reads the votes and decides; against most of them with a rationale alone (R24).
func TestConsensus_Leader(t *testing.T) {
	t.Parallel()
	b := newBed(t, deciding())
	members := b.threeVoters(t)
	alice, bob, carol := members[0], members[1], members[2]
	p := b.proposal(t, bob, consensus.Leader, time.Minute, nil)
	if r := b.propose(t, bob, p); r.Rules.Leader != alice.ID {
		t.Errorf("the leader is %s", r.Rules.Leader)
	}
	b.votes(t, bob, p, consensus.Reject, "no")
	b.votes(t, carol, p, consensus.Reject, "never")
	if all, own := b.ballots(t, alice, p.Round), b.ballots(t, bob, p.Round); len(all) != 2 || len(own) != 1 {
		t.Errorf("the leader reads %d votes, and another participant %d", len(all), len(own))
	}
	b.declines(t, voteTo(alice, p, message(t, alice, voteOn(alice, p, consensus.Approve, ""))), http.StatusForbidden, "rationale")
	if r := b.round(t, alice, p.Round); r.Phase != consensus.Voting {
		t.Errorf("the round is %s", r.Phase)
	}
	b.votes(t, alice, p, consensus.Approve, "it cannot wait")
	b.holds(t, bob, b.reaches(t, bob, p.Round, consensus.Committed), consensus.Commit, consensus.Accepted)
}

// TestConsensus_Optimistic: one objection with a rationale ends a round at once; silence of participants that acknowledged
// accepts at the deadline; an action that cannot be undone is not decided this way (R24).
func TestConsensus_Optimistic(t *testing.T) {
	t.Parallel()
	b := newBed(t, deciding())
	members := b.threeVoters(t)
	alice, bob := members[0], members[1]
	quiet := b.proposal(t, alice, consensus.Optimistic, 4*time.Second, nil)
	b.propose(t, alice, quiet)
	for _, v := range members[1:] {
		b.acknowledge(t, v, quiet, ackOf(v, quiet, consensus.Received))
	}
	p := b.proposal(t, alice, consensus.Optimistic, time.Minute, nil)
	b.propose(t, alice, p)
	b.votes(t, bob, p, consensus.Reject, "it breaks what we have")
	b.holds(t, alice, b.reaches(t, alice, p.Round, consensus.Aborted), consensus.Abort, consensus.Objected)
	final := b.proposal(t, alice, consensus.Optimistic, time.Minute, func(p *consensus.Proposal) { p.Terms.Reversible = false })
	b.declines(t, letter{via: alice.via, at: roundsAt, body: message(t, alice, final)}, http.StatusForbidden, "undone")
	o := b.holds(t, bob, b.reaches(t, bob, quiet.Round, consensus.Committed), consensus.Commit, consensus.Accepted)
	if o.Tally.Connected != 2 || o.Decided.Before(quiet.Timeout.Time) {
		t.Errorf("silence accepts with %+v at %s", o.Tally, o.Decided)
	}
}

// sealedVote is a vote and the acknowledgement that commits to it.
func sealedVote(t *testing.T, v voter, p consensus.Proposal, d consensus.Decision, why string) (vote string, commitment consensus.Ack) {
	t.Helper()
	m, err := ballotbox.Sign(v.sign, voteOn(v, p, d, why))
	must(t, err)
	text, err := json.Marshal(m)
	must(t, err)
	commitment = ackOf(v, p, consensus.Sealed)
	commitment.Vote = m.Hash
	return string(text), commitment
}

// TestConsensus_CommitAndReveal: participants commit to the hashes of their votes until the timeout, and send the votes after it. A
// vote that comes before, or that is another one, does not count (R25).
func TestConsensus_CommitAndReveal(t *testing.T) {
	t.Parallel()
	b := newBed(t, deciding())
	members := b.threeVoters(t)
	p := b.proposal(t, members[0], consensus.Majority, 4*time.Second, func(p *consensus.Proposal) { p.Terms.RevealBy = consensus.At(p.Timeout.Add(20 * time.Second)) })
	b.propose(t, members[0], p)
	votes := make([]string, len(members))
	for i, v := range members {
		var commitment consensus.Ack
		votes[i], commitment = sealedVote(t, v, p, consensus.Approve, "")
		b.acknowledge(t, v, p, commitment)
	}
	b.declines(t, voteTo(members[0], p, votes[0]), http.StatusForbidden, "committed to first")
	within(t, patience, "votes are taken", func() bool { return b.send(t, voteTo(members[0], p, votes[0])).status == http.StatusAccepted })
	late, commitment := sealedVote(t, members[1], p, consensus.Reject, "I have changed my mind")
	b.declines(t, letter{via: members[1].via, at: roundsAt + "/" + p.Round + "/ack", body: message(t, members[1], commitment)}, http.StatusConflict, "not committed to now")
	b.declines(t, voteTo(members[1], p, late), http.StatusForbidden, "committed to another vote")
	answered[rounds.Taken](t, b.send(t, voteTo(members[1], p, votes[1])), http.StatusAccepted)
	answered[rounds.Taken](t, b.send(t, voteTo(members[2], p, votes[2])), http.StatusAccepted)
	o := b.holds(t, members[2], b.reaches(t, members[2], p.Round, consensus.Committed), consensus.Commit, consensus.Accepted)
	if o.Tally.Approve != 3 || o.Tally.Reject != 0 || o.Tally.Doubled != 0 {
		t.Errorf("the tally is %+v", o.Tally)
	}
}

// TestConsensus_LastVoteOfAWaitingRound: the last vote is taken although its round then waits for one of a higher rank about the
// same; the round is decided after that one.
func TestConsensus_LastVoteOfAWaitingRound(t *testing.T) {
	t.Parallel()
	b := newBed(t, deciding())
	members := b.threeVoters(t)
	about := func(urgency int) func(*consensus.Proposal) {
		return func(p *consensus.Proposal) { p.Terms.Resource, p.Terms.Urgency = "the door", urgency }
	}
	first, second := b.proposal(t, members[0], consensus.Majority, time.Minute, about(1)), b.proposal(t, members[1], consensus.Majority, time.Minute, about(0))
	b.propose(t, members[0], first)
	b.propose(t, members[1], second)
	for _, v := range members {
		vote := voteTo(v, second, message(t, v, voteOn(v, second, consensus.Approve, "")))
		answered[rounds.Taken](t, b.send(t, vote), http.StatusAccepted)
		answered[rounds.Taken](t, b.send(t, vote), http.StatusAccepted)
	}
	b.reaches(t, members[1], second.Round, consensus.Waiting)
	b.declines(t, voteTo(members[0], second, message(t, members[0], voteOn(members[0], second, consensus.Reject, "late"))), http.StatusConflict, "over")
	for _, v := range members {
		b.votes(t, v, first, consensus.Approve, "")
	}
	o := b.holds(t, members[1], b.reaches(t, members[1], second.Round, consensus.Aborted), consensus.Abort, consensus.Superseded)
	if won := verified[consensus.Outcome](t, b, b.round(t, members[0], first.Round).Outcome); o.Rival != won.Hash {
		t.Errorf("the rival is %s, expected %s", o.Rival, won.Hash)
	}
}

// deadlocks has two proposals about the same fail one after the other, so that a human decides about the second.
func (b *bed) deadlocks(t *testing.T, members []voter) consensus.Proposal {
	t.Helper()
	var p consensus.Proposal
	about := string(ect.NewID())
	for i, phase := range []consensus.Phase{consensus.Aborted, consensus.Escalated} {
		p = b.proposal(t, members[i], consensus.Majority, time.Minute, func(p *consensus.Proposal) { p.Terms.Resource = about })
		b.propose(t, members[i], p)
		b.votes(t, members[0], p, consensus.Approve, "")
		b.votes(t, members[1], p, consensus.Reject, "no")
		b.votes(t, members[2], p, consensus.Reject, "never")
		b.reaches(t, members[0], p.Round, phase)
	}
	return p
}

// TestConsensus_HumansDecide: a round whose participants block each other is decided by an approver, who reads the proposal, all
// votes and the reason. What a human decided is binding, and on record (Escalation to Human Operator).
func TestConsensus_HumansDecide(t *testing.T) {
	t.Parallel()
	p := deciding()
	p.config.Admin = gatedAgents().config.Admin
	b := newBed(t, p)
	members := b.threeVoters(t)
	for decision, want := range map[string]struct {
		phase  consensus.Phase
		result consensus.Result
	}{
		"approve": {consensus.Committed, consensus.Commit}, "deny": {consensus.Aborted, consensus.Abort},
	} {
		p := b.deadlocks(t, members)
		within(t, patience, "humans are asked", func() bool {
			return b.send(t, letter{via: b.as(t, "/staff/approver"), method: http.MethodGet, media: "-", at: b.at.Admin + "/api/approvals/" + p.Round}).status == http.StatusOK
		})
		shown := b.approval(t, p.Round).Text
		for _, part := range []string{p.ID, "never", "rejected", string(members[2].ID)} {
			if !strings.Contains(shown, part) {
				t.Errorf("%s is not in what the approver reads: %s", part, shown)
			}
		}
		b.declines(t, voteTo(members[2], p, message(t, members[2], voteOn(members[2], p, consensus.Approve, "late"))), http.StatusConflict, "over")
		if got := b.decides(t, "approver", p.Round, decision); got.status != http.StatusOK {
			t.Fatalf("%s: %d %s", decision, got.status, got.body)
		}
		r := b.reaches(t, members[0], p.Round, want.phase)
		o := b.holds(t, members[0], r, want.result, consensus.HumanDecided)
		_, found := b.roundEvidence(t, members[0].via, r.Workflow)
		act := map[string]ect.Act{"approve": ect.ActApprovalGranted, "deny": ect.ActApprovalDenied}[decision]
		if o.Approval != p.Round || len(found[act]) != 1 || len(found[ect.ActConsensusCommit]) != 1 {
			t.Errorf("decided by %q, with %+v on record", o.Approval, found)
		}
	}
}

// TestConsensus_ActionIsSentOnce: what was agreed is sent once to each participant that is a listed agent, with evidence that names
// the outcome; participants that are none read it (R24). What was not agreed is sent to none.
func TestConsensus_ActionIsSentOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t, deciding())
	members := b.threeVoters(t)
	agents := map[string]*fake{"bob": {conduct: well}, "carol": {conduct: well}}
	for name, agent := range agents {
		svid := b.svid(t, "/"+name)
		b.serve(t, "agent-"+name, "mcp-v1", agent, host{tls: serving(svid), id: svid.ID})
	}
	action := func(p *consensus.Proposal) { p.Action = json.RawMessage(`{"tool":"add","arguments":{"a":1,"b":2}}`) }
	for i, d := range []consensus.Decision{consensus.Reject, consensus.Approve} {
		p := b.proposal(t, members[0], consensus.Majority, time.Minute, action)
		b.propose(t, members[0], p)
		for _, v := range members {
			b.votes(t, v, p, d, "because")
		}
		r := b.reaches(t, members[0], p.Round, map[consensus.Decision]consensus.Phase{consensus.Approve: consensus.Committed, consensus.Reject: consensus.Aborted}[d])
		within(t, patience, "what follows is done", func() bool {
			_, found := b.roundEvidence(t, members[0].via, r.Workflow)
			return len(found[ect.ActConsensusVote]) == 3 && len(sentAfter(found, r.Committed)) == 2*i
		})
		for name, agent := range agents {
			if n := agent.calls.Load(); n != int32(i) {
				t.Errorf("%s was called %d times after it was said %s", name, n, d)
			}
		}
	}
}

// sentAfter are the requests to agents that an outcome led to.
func sentAfter(found map[ect.Act][]ect.Claims, outcome ect.ID) (out []ect.Claims) {
	for act, all := range found {
		for _, c := range all {
			if act != ect.ActConsensusVote && len(c.Parents) == 1 && c.Parents[0] == outcome {
				out = append(out, c)
			}
		}
	}
	return out
}

// TestConsensus_AtAnotherReplica: participants vote at one replica or the other, and each tells the one outcome. What was agreed is
// sent once, by whichever replica (R18).
func TestConsensus_AtAnotherReplica(t *testing.T) {
	t.Parallel()
	p := deciding()
	p.config.State = newRedis(t).state()
	first := newBed(t, p)
	second := first.besides(t, "gateway", p)
	members := first.threeVoters(t)
	agent, svid := &fake{conduct: well}, first.svid(t, "/carol")
	at := first.serve(t, "agent-carol", "mcp-v1", agent, host{tls: serving(svid), id: svid.ID})
	second.list(t, "agent-carol", "mcp-v1", at, host{id: svid.ID})
	for i := range 5 {
		p := first.proposal(t, members[0], consensus.Majority, time.Minute, func(p *consensus.Proposal) {
			p.Action = json.RawMessage(`{"tool":"add","arguments":{"n":` + strconv.Itoa(i) + `}}`)
		})
		first.propose(t, members[0], p)
		stream := second.eventsOf(t, members[0], p.Round)
		second.votes(t, members[1], p, consensus.Approve, "")
		first.votes(t, members[0], p, consensus.Approve, "")
		second.votes(t, members[2], p, consensus.Approve, "")
		r := first.reaches(t, members[0], p.Round, consensus.Committed)
		other := second.reaches(t, members[1], p.Round, consensus.Committed)
		var seen rounds.RoundView
		for seen.Phase != consensus.Committed {
			must(t, json.Unmarshal([]byte(nextData(t, stream)), &seen))
		}
		if string(r.Outcome) != string(other.Outcome) || string(r.Outcome) != string(seen.Outcome) || r.Committed != other.Committed {
			t.Errorf("one replica tells %s, the other %s", r.Outcome, other.Outcome)
		}
		first.holds(t, members[2], r, consensus.Commit, consensus.Accepted)
		within(t, patience, "it is sent", func() bool {
			_, found := second.roundEvidence(t, members[0].via, r.Workflow)
			return agent.calls.Load() > int32(i) && len(found[ect.ActConsensusVote]) == 3
		})
		if n := agent.calls.Load(); n != int32(i)+1 {
			t.Errorf("of %d rounds, %d actions were sent", i+1, n)
		}
	}
}

// TestConsensus_Draw: two proposals about the same fail one after the other. Their proposers open the nonces that they have committed
// to, and the draw says which proposal goes first: the other one is refused for now (R24).
func TestConsensus_Draw(t *testing.T) {
	t.Parallel()
	setup := deciding()
	g := setup.config.Consensus.Groups["team"]
	g.Deadlock = "random"
	setup.config.Consensus.Groups["team"] = g
	b := newBed(t, setup)
	members := b.threeVoters(t)
	nonces := []string{"the nonce of alice", "the nonce of bob"}
	var all []consensus.Proposal
	for i, phase := range []consensus.Phase{consensus.Aborted, consensus.Drawing} {
		p := b.proposal(t, members[i], consensus.Majority, time.Minute, func(p *consensus.Proposal) { p.Terms.Resource, p.Terms.Nonce = "the door", ect.Hash([]byte(nonces[i])) })
		all = append(all, p)
		b.propose(t, members[i], p)
		for _, v := range members {
			b.votes(t, v, p, consensus.Reject, "no")
		}
		b.reaches(t, members[i], p.Round, phase)
	}
	drawn := all[1]
	for i, v := range members {
		a := ackOf(v, drawn, consensus.NonceOpen)
		if i == 2 {
			a.Nonce = "of no proposer"
			b.declines(t, letter{via: v.via, at: roundsAt + "/" + drawn.Round + "/ack", body: message(t, v, a)}, http.StatusForbidden, "proposers")
			continue
		}
		a.Nonce = nonces[i]
		b.acknowledge(t, v, drawn, a)
	}
	r := b.reaches(t, members[0], drawn.Round, consensus.Aborted)
	b.holds(t, members[0], r, consensus.Abort, consensus.Rejected)
	if r.Deadlock == nil || r.Deadlock.Preferred != all[0].ID && r.Deadlock.Preferred != drawn.ID {
		t.Fatalf("the draw ended as %+v", r.Deadlock)
	}
	for i, p := range all {
		if p.ID == r.Deadlock.Preferred {
			continue
		}
		p.Round, p.Terms.Timestamp = string(ect.NewID()), time.Now()
		got := b.send(t, letter{via: members[i].via, at: roundsAt, body: message(t, members[i], p)})
		if got.status != http.StatusConflict || !strings.Contains(string(got.body), "goes first") || got.header.Get("Retry-After") == "" {
			t.Errorf("the other proposal: %d %s", got.status, got.body)
		}
	}
}

// TestConsensus_ActionUnderWay: while one replica sends what was agreed, another one that looks at the round does not send it, too.
func TestConsensus_ActionUnderWay(t *testing.T) {
	t.Parallel()
	setup := deciding()
	setup.config.State = newRedis(t).state()
	first := newBed(t, setup)
	second := first.besides(t, "gateway", setup)
	members := first.threeVoters(t)
	answer, again := make(chan struct{}), make(chan struct{}, 1)
	agent, svid := &fake{}, first.svid(t, "/carol")
	agent.conduct = func(w http.ResponseWriter, r *http.Request, good []byte) {
		if agent.calls.Load() > 1 {
			again <- struct{}{}
		}
		<-answer
		well(w, r, good)
	}
	at := first.serve(t, "agent-carol", "mcp-v1", agent, host{tls: serving(svid), id: svid.ID})
	second.list(t, "agent-carol", "mcp-v1", at, host{id: svid.ID})
	p := first.proposal(t, members[0], consensus.Majority, time.Minute, func(p *consensus.Proposal) { p.Action = json.RawMessage(`{"tool":"add"}`) })
	first.propose(t, members[0], p)
	for _, v := range members {
		first.votes(t, v, p, consensus.Approve, "")
	}
	r := first.reaches(t, members[0], p.Round, consensus.Committed)
	within(t, patience, "it is sent", func() bool { return agent.calls.Load() == 1 })
	done := ackOf(members[0], p, consensus.Executed)
	done.Outcomes = []string{verified[consensus.Outcome](t, first, r.Outcome).Compact}
	second.acknowledge(t, members[0], p, done)
	select {
	case <-again:
		t.Error("the other replica sends it, too")
	case <-time.After(2 * time.Second):
	}
	close(answer)
	second.holds(t, members[1], r, consensus.Commit, consensus.Accepted)
}

// TestConsensus_AnomaliesAreTold: operators are told of votes that are explained in the same words; the outcome stays as it is
// (Coercion and Collusion Detection).
func TestConsensus_AnomaliesAreTold(t *testing.T) {
	t.Parallel()
	b := newBed(t, deciding())
	members := b.threeVoters(t)
	p := b.proposal(t, members[0], consensus.Majority, time.Minute, nil)
	b.propose(t, members[0], p)
	for _, v := range members {
		b.votes(t, v, p, consensus.Approve, "it is time")
	}
	r := b.reaches(t, members[0], p.Round, consensus.Committed)
	if !slices.Contains(r.Anomalies, consensus.SameRationale) {
		t.Errorf("the round names %v, expected %s", r.Anomalies, consensus.SameRationale)
	}
	b.counts(t, `aepb_consensus_anomalies_total{kind="same_rationale"} 1`)
	if !strings.Contains(b.logs.String(), "votes of a consensus round look alike") {
		t.Error("the log does not tell operators")
	}
}
