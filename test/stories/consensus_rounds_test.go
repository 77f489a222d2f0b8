package stories

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
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestConsensus_Weighted: the weights that the group is read with decide, and a vote that is bound to others is refused (R24).
func TestConsensus_Weighted(t *testing.T) {
	t.Parallel()
	p := gatewaytest.Deciding()
	g := p.Config.Consensus.Groups["team"]
	g.Members[0].Weight, g.Members[1].Weight, g.Members[2].Weight = 10, 3, 3
	b := gatewaytest.NewFixture(t, p)
	members := b.ThreeVoters(t)
	question := b.Proposal(t, members[0], consensus.Weighted, time.Minute, nil)
	b.Propose(t, members[0], question)
	other := gatewaytest.VoteOn(members[1], question, consensus.Approve, "")
	other.Weights = ect.Hash([]byte("another table"))
	b.Declines(t, gatewaytest.VoteTo(members[1], question, gatewaytest.Message(t, members[1], other)), http.StatusForbidden, "weights_hash")
	b.Votes(t, members[0], question, consensus.Approve, "")
	b.Votes(t, members[1], question, consensus.Reject, "no")
	b.Votes(t, members[2], question, consensus.Reject, "never")
	o := b.Holds(t, members[1], b.Reaches(t, members[1], question.Round, consensus.Committed), consensus.Commit, consensus.Accepted)
	if o.Tally.Reject != 2 || o.Tally.ApproveWeight*6 != o.Tally.RejectWeight*10 || o.Tally.TotalWeight != o.Tally.ApproveWeight+o.Tally.RejectWeight {
		t.Errorf("the tally is %+v", o.Tally)
	}
	question = b.Proposal(t, members[0], consensus.Weighted, time.Minute, func(p *consensus.Proposal) { p.Terms.Weights = other.Weights })
	b.Declines(t, gatewaytest.HTTPRequest{Via: members[0].Via, At: gatewaytest.RoundsAt, Body: gatewaytest.Message(t, members[0], question)}, http.StatusForbidden, "/consensus/groups/team")
}

// TestConsensus_Leader: the leader alone reads the votes and decides; against most of them with a rationale alone (R24).
func TestConsensus_Leader(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Deciding())
	members := b.ThreeVoters(t)
	alice, bob, carol := members[0], members[1], members[2]
	p := b.Proposal(t, bob, consensus.Leader, time.Minute, nil)
	if r := b.Propose(t, bob, p); r.Rules.Leader != alice.ID {
		t.Errorf("the leader is %s", r.Rules.Leader)
	}
	b.Votes(t, bob, p, consensus.Reject, "no")
	b.Votes(t, carol, p, consensus.Reject, "never")
	if all, own := b.Ballots(t, alice, p.Round), b.Ballots(t, bob, p.Round); len(all) != 2 || len(own) != 1 {
		t.Errorf("the leader reads %d votes, and another participant %d", len(all), len(own))
	}
	b.Declines(t, gatewaytest.VoteTo(alice, p, gatewaytest.Message(t, alice, gatewaytest.VoteOn(alice, p, consensus.Approve, ""))), http.StatusForbidden, "rationale")
	if r := b.Round(t, alice, p.Round); r.Phase != consensus.Voting {
		t.Errorf("the round is %s", r.Phase)
	}
	b.Votes(t, alice, p, consensus.Approve, "it cannot wait")
	b.Holds(t, bob, b.Reaches(t, bob, p.Round, consensus.Committed), consensus.Commit, consensus.Accepted)
}

// TestConsensus_Optimistic: one objection with a rationale ends a round at once; silence of participants that acknowledged
// accepts at the deadline; an action that cannot be undone is not decided this way (R24).
func TestConsensus_Optimistic(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Deciding())
	members := b.ThreeVoters(t)
	alice, bob := members[0], members[1]
	quiet := b.Proposal(t, alice, consensus.Optimistic, 4*time.Second, nil)
	b.Propose(t, alice, quiet)
	for _, v := range members[1:] {
		b.Acknowledge(t, v, quiet, gatewaytest.AckOf(v, quiet, consensus.Received))
	}
	p := b.Proposal(t, alice, consensus.Optimistic, time.Minute, nil)
	b.Propose(t, alice, p)
	b.Votes(t, bob, p, consensus.Reject, "it breaks what we have")
	b.Holds(t, alice, b.Reaches(t, alice, p.Round, consensus.Aborted), consensus.Abort, consensus.Objected)
	final := b.Proposal(t, alice, consensus.Optimistic, time.Minute, func(p *consensus.Proposal) { p.Terms.Reversible = false })
	b.Declines(t, gatewaytest.HTTPRequest{Via: alice.Via, At: gatewaytest.RoundsAt, Body: gatewaytest.Message(t, alice, final)}, http.StatusForbidden, "undone")
	o := b.Holds(t, bob, b.Reaches(t, bob, quiet.Round, consensus.Committed), consensus.Commit, consensus.Accepted)
	if o.Tally.Connected != 2 || o.Decided.Before(quiet.Timeout.Time) {
		t.Errorf("silence accepts with %+v at %s", o.Tally, o.Decided)
	}
}

// sealedVote is a vote and the acknowledgement that commits to it.
func sealedVote(t *testing.T, v gatewaytest.Voter, p consensus.Proposal, d consensus.Decision, why string) (vote string, commitment consensus.Ack) {
	t.Helper()
	m, err := ballotbox.Sign(v.Sign, gatewaytest.VoteOn(v, p, d, why))
	gatewaytest.Must(t, err)
	text, err := json.Marshal(m)
	gatewaytest.Must(t, err)
	commitment = gatewaytest.AckOf(v, p, consensus.Sealed)
	commitment.Vote = m.Hash
	return string(text), commitment
}

// TestConsensus_CommitAndReveal: participants commit to the hashes of their votes until the timeout, and send the votes after it. A
// vote that comes before, or that is another one, does not count (R25).
func TestConsensus_CommitAndReveal(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Deciding())
	members := b.ThreeVoters(t)
	p := b.Proposal(t, members[0], consensus.Majority, 4*time.Second, func(p *consensus.Proposal) { p.Terms.RevealBy = consensus.At(p.Timeout.Add(20 * time.Second)) })
	b.Propose(t, members[0], p)
	votes := make([]string, len(members))
	for i, v := range members {
		var commitment consensus.Ack
		votes[i], commitment = sealedVote(t, v, p, consensus.Approve, "")
		b.Acknowledge(t, v, p, commitment)
	}
	b.Declines(t, gatewaytest.VoteTo(members[0], p, votes[0]), http.StatusForbidden, "committed to first")
	gatewaytest.Within(t, gatewaytest.Patience, "votes are taken", func() bool {
		return b.Send(t, gatewaytest.VoteTo(members[0], p, votes[0])).Status == http.StatusAccepted
	})
	late, commitment := sealedVote(t, members[1], p, consensus.Reject, "I have changed my mind")
	b.Declines(t, gatewaytest.HTTPRequest{Via: members[1].Via, At: gatewaytest.RoundsAt + "/" + p.Round + "/ack", Body: gatewaytest.Message(t, members[1], commitment)}, http.StatusConflict, "not committed to now")
	b.Declines(t, gatewaytest.VoteTo(members[1], p, late), http.StatusForbidden, "committed to another vote")
	gatewaytest.Answered[rounds.Taken](t, b.Send(t, gatewaytest.VoteTo(members[1], p, votes[1])), http.StatusAccepted)
	gatewaytest.Answered[rounds.Taken](t, b.Send(t, gatewaytest.VoteTo(members[2], p, votes[2])), http.StatusAccepted)
	o := b.Holds(t, members[2], b.Reaches(t, members[2], p.Round, consensus.Committed), consensus.Commit, consensus.Accepted)
	if o.Tally.Approve != 3 || o.Tally.Reject != 0 || o.Tally.Doubled != 0 {
		t.Errorf("the tally is %+v", o.Tally)
	}
}

// TestConsensus_LastVoteOfAWaitingRound: the last vote is taken although its round then waits for one of a higher rank about the
// same; the round is decided after that one.
func TestConsensus_LastVoteOfAWaitingRound(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Deciding())
	members := b.ThreeVoters(t)
	about := func(urgency int) func(*consensus.Proposal) {
		return func(p *consensus.Proposal) { p.Terms.Resource, p.Terms.Urgency = "the door", urgency }
	}
	first, second := b.Proposal(t, members[0], consensus.Majority, time.Minute, about(1)), b.Proposal(t, members[1], consensus.Majority, time.Minute, about(0))
	b.Propose(t, members[0], first)
	b.Propose(t, members[1], second)
	for _, v := range members {
		vote := gatewaytest.VoteTo(v, second, gatewaytest.Message(t, v, gatewaytest.VoteOn(v, second, consensus.Approve, "")))
		gatewaytest.Answered[rounds.Taken](t, b.Send(t, vote), http.StatusAccepted)
		gatewaytest.Answered[rounds.Taken](t, b.Send(t, vote), http.StatusAccepted)
	}
	b.Reaches(t, members[1], second.Round, consensus.Waiting)
	b.Declines(t, gatewaytest.VoteTo(members[0], second, gatewaytest.Message(t, members[0], gatewaytest.VoteOn(members[0], second, consensus.Reject, "late"))), http.StatusConflict, "over")
	for _, v := range members {
		b.Votes(t, v, first, consensus.Approve, "")
	}
	o := b.Holds(t, members[1], b.Reaches(t, members[1], second.Round, consensus.Aborted), consensus.Abort, consensus.Superseded)
	if won := gatewaytest.Verified[consensus.Outcome](t, b, b.Round(t, members[0], first.Round).Outcome); o.Rival != won.Hash {
		t.Errorf("the rival is %s, expected %s", o.Rival, won.Hash)
	}
}

// deadlocks has two proposals about the same fail one after the other, so that a human decides about the second.
func deadlocks(t *testing.T, b *gatewaytest.Fixture, members []gatewaytest.Voter) consensus.Proposal {
	t.Helper()
	var p consensus.Proposal
	about := string(ect.NewID())
	for i, phase := range []consensus.Phase{consensus.Aborted, consensus.Escalated} {
		p = b.Proposal(t, members[i], consensus.Majority, time.Minute, func(p *consensus.Proposal) { p.Terms.Resource = about })
		b.Propose(t, members[i], p)
		b.Votes(t, members[0], p, consensus.Approve, "")
		b.Votes(t, members[1], p, consensus.Reject, "no")
		b.Votes(t, members[2], p, consensus.Reject, "never")
		b.Reaches(t, members[0], p.Round, phase)
	}
	return p
}

// TestConsensus_HumansDecide: a round whose participants block each other is decided by an approver, who reads the proposal, all
// votes and the reason. What a human decided is binding, and on record (Escalation to Human Operator).
func TestConsensus_HumansDecide(t *testing.T) {
	t.Parallel()
	p := gatewaytest.Deciding()
	p.Config.Admin = gatewaytest.GatedAgents().Config.Admin
	b := gatewaytest.NewFixture(t, p)
	members := b.ThreeVoters(t)
	for decision, want := range map[string]struct {
		phase  consensus.Phase
		result consensus.Result
	}{
		"approve": {consensus.Committed, consensus.Commit}, "deny": {consensus.Aborted, consensus.Abort},
	} {
		p := deadlocks(t, b, members)
		gatewaytest.Within(t, gatewaytest.Patience, "humans are asked", func() bool {
			return b.Send(t, gatewaytest.HTTPRequest{Via: b.As(t, "/staff/approver"), Method: http.MethodGet, Media: "-", At: b.At.Admin + "/api/approvals/" + p.Round}).Status == http.StatusOK
		})
		shown := b.Approval(t, p.Round).Text
		for _, part := range []string{p.ID, "never", "rejected", string(members[2].ID)} {
			if !strings.Contains(shown, part) {
				t.Errorf("%s is not in what the approver reads: %s", part, shown)
			}
		}
		b.Declines(t, gatewaytest.VoteTo(members[2], p, gatewaytest.Message(t, members[2], gatewaytest.VoteOn(members[2], p, consensus.Approve, "late"))), http.StatusConflict, "over")
		if got := b.Decides(t, "approver", p.Round, decision); got.Status != http.StatusOK {
			t.Fatalf("%s: %d %s", decision, got.Status, got.Body)
		}
		r := b.Reaches(t, members[0], p.Round, want.phase)
		o := b.Holds(t, members[0], r, want.result, consensus.HumanDecided)
		_, found := roundEvidence(t, b, members[0].Via, r.Workflow)
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
	b := gatewaytest.NewFixture(t, gatewaytest.Deciding())
	members := b.ThreeVoters(t)
	agents := map[string]*gatewaytest.Fake{"bob": {Conduct: gatewaytest.Well}, "carol": {Conduct: gatewaytest.Well}}
	for name, agent := range agents {
		svid := b.SVID(t, "/"+name)
		b.Serve(t, "agent-"+name, "mcp-v1", agent, gatewaytest.Host{TLS: gatewaytest.Serving(svid), ID: svid.ID})
	}
	action := func(p *consensus.Proposal) { p.Action = json.RawMessage(`{"tool":"add","arguments":{"a":1,"b":2}}`) }
	for i, d := range []consensus.Decision{consensus.Reject, consensus.Approve} {
		p := b.Proposal(t, members[0], consensus.Majority, time.Minute, action)
		b.Propose(t, members[0], p)
		for _, v := range members {
			b.Votes(t, v, p, d, "because")
		}
		r := b.Reaches(t, members[0], p.Round, map[consensus.Decision]consensus.Phase{consensus.Approve: consensus.Committed, consensus.Reject: consensus.Aborted}[d])
		gatewaytest.Within(t, gatewaytest.Patience, "what follows is done", func() bool {
			_, found := roundEvidence(t, b, members[0].Via, r.Workflow)
			return len(found[ect.ActConsensusVote]) == 3 && len(sentAfter(found, r.Committed)) == 2*i
		})
		for name, agent := range agents {
			if n := agent.Calls.Load(); n != int32(i) {
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
	p := gatewaytest.Deciding()
	p.Config.State = gatewaytest.NewRedis(t).State()
	first := gatewaytest.NewFixture(t, p)
	second := first.Besides(t, "gateway", p)
	members := first.ThreeVoters(t)
	agent, svid := &gatewaytest.Fake{Conduct: gatewaytest.Well}, first.SVID(t, "/carol")
	at := first.Serve(t, "agent-carol", "mcp-v1", agent, gatewaytest.Host{TLS: gatewaytest.Serving(svid), ID: svid.ID})
	second.List(t, "agent-carol", "mcp-v1", at, gatewaytest.Host{ID: svid.ID})
	for i := range 5 {
		p := first.Proposal(t, members[0], consensus.Majority, time.Minute, func(p *consensus.Proposal) {
			p.Action = json.RawMessage(`{"tool":"add","arguments":{"n":` + strconv.Itoa(i) + `}}`)
		})
		first.Propose(t, members[0], p)
		stream := second.EventsOf(t, members[0], p.Round)
		second.Votes(t, members[1], p, consensus.Approve, "")
		first.Votes(t, members[0], p, consensus.Approve, "")
		second.Votes(t, members[2], p, consensus.Approve, "")
		r := first.Reaches(t, members[0], p.Round, consensus.Committed)
		other := second.Reaches(t, members[1], p.Round, consensus.Committed)
		var seen rounds.RoundView
		for seen.Phase != consensus.Committed {
			gatewaytest.Must(t, json.Unmarshal([]byte(gatewaytest.NextData(t, stream)), &seen))
		}
		if string(r.Outcome) != string(other.Outcome) || string(r.Outcome) != string(seen.Outcome) || r.Committed != other.Committed {
			t.Errorf("one replica tells %s, the other %s", r.Outcome, other.Outcome)
		}
		first.Holds(t, members[2], r, consensus.Commit, consensus.Accepted)
		gatewaytest.Within(t, gatewaytest.Patience, "it is sent", func() bool {
			_, found := roundEvidence(t, second, members[0].Via, r.Workflow)
			return agent.Calls.Load() > int32(i) && len(found[ect.ActConsensusVote]) == 3
		})
		if n := agent.Calls.Load(); n != int32(i)+1 {
			t.Errorf("of %d rounds, %d actions were sent", i+1, n)
		}
	}
}

// TestConsensus_Draw: two proposals about the same fail one after the other. Their proposers open the nonces that they have committed
// to, and the draw says which proposal goes first: the other one is refused for now (R24).
func TestConsensus_Draw(t *testing.T) {
	t.Parallel()
	setup := gatewaytest.Deciding()
	g := setup.Config.Consensus.Groups["team"]
	g.Deadlock = "random"
	setup.Config.Consensus.Groups["team"] = g
	b := gatewaytest.NewFixture(t, setup)
	members := b.ThreeVoters(t)
	nonces := []string{"the nonce of alice", "the nonce of bob"}
	var all []consensus.Proposal
	for i, phase := range []consensus.Phase{consensus.Aborted, consensus.Drawing} {
		p := b.Proposal(t, members[i], consensus.Majority, time.Minute, func(p *consensus.Proposal) { p.Terms.Resource, p.Terms.Nonce = "the door", ect.Hash([]byte(nonces[i])) })
		all = append(all, p)
		b.Propose(t, members[i], p)
		for _, v := range members {
			b.Votes(t, v, p, consensus.Reject, "no")
		}
		b.Reaches(t, members[i], p.Round, phase)
	}
	drawn := all[1]
	for i, v := range members {
		a := gatewaytest.AckOf(v, drawn, consensus.NonceOpen)
		if i == 2 {
			a.Nonce = "of no proposer"
			b.Declines(t, gatewaytest.HTTPRequest{Via: v.Via, At: gatewaytest.RoundsAt + "/" + drawn.Round + "/ack", Body: gatewaytest.Message(t, v, a)}, http.StatusForbidden, "proposers")
			continue
		}
		a.Nonce = nonces[i]
		b.Acknowledge(t, v, drawn, a)
	}
	r := b.Reaches(t, members[0], drawn.Round, consensus.Aborted)
	b.Holds(t, members[0], r, consensus.Abort, consensus.Rejected)
	if r.Deadlock == nil || r.Deadlock.Preferred != all[0].ID && r.Deadlock.Preferred != drawn.ID {
		t.Fatalf("the draw ended as %+v", r.Deadlock)
	}
	for i, p := range all {
		if p.ID == r.Deadlock.Preferred {
			continue
		}
		p.Round, p.Terms.Timestamp = string(ect.NewID()), time.Now()
		got := b.Send(t, gatewaytest.HTTPRequest{Via: members[i].Via, At: gatewaytest.RoundsAt, Body: gatewaytest.Message(t, members[i], p)})
		if got.Status != http.StatusConflict || !strings.Contains(string(got.Body), "goes first") || got.Header.Get("Retry-After") == "" {
			t.Errorf("the other proposal: %d %s", got.Status, got.Body)
		}
	}
}

// TestConsensus_ActionUnderWay: while one replica sends what was agreed, another one that looks at the round does not send it, too.
func TestConsensus_ActionUnderWay(t *testing.T) {
	t.Parallel()
	setup := gatewaytest.Deciding()
	setup.Config.State = gatewaytest.NewRedis(t).State()
	first := gatewaytest.NewFixture(t, setup)
	second := first.Besides(t, "gateway", setup)
	members := first.ThreeVoters(t)
	answer, again := make(chan struct{}), make(chan struct{}, 1)
	agent, svid := &gatewaytest.Fake{}, first.SVID(t, "/carol")
	agent.Conduct = func(w http.ResponseWriter, r *http.Request, good []byte) {
		if agent.Calls.Load() > 1 {
			again <- struct{}{}
		}
		<-answer
		gatewaytest.Well(w, r, good)
	}
	at := first.Serve(t, "agent-carol", "mcp-v1", agent, gatewaytest.Host{TLS: gatewaytest.Serving(svid), ID: svid.ID})
	second.List(t, "agent-carol", "mcp-v1", at, gatewaytest.Host{ID: svid.ID})
	p := first.Proposal(t, members[0], consensus.Majority, time.Minute, func(p *consensus.Proposal) { p.Action = json.RawMessage(`{"tool":"add"}`) })
	first.Propose(t, members[0], p)
	for _, v := range members {
		first.Votes(t, v, p, consensus.Approve, "")
	}
	r := first.Reaches(t, members[0], p.Round, consensus.Committed)
	gatewaytest.Within(t, gatewaytest.Patience, "it is sent", func() bool { return agent.Calls.Load() == 1 })
	done := gatewaytest.AckOf(members[0], p, consensus.Executed)
	done.Outcomes = []string{gatewaytest.Verified[consensus.Outcome](t, first, r.Outcome).Compact}
	second.Acknowledge(t, members[0], p, done)
	select {
	case <-again:
		t.Error("the other replica sends it, too")
	case <-time.After(2 * time.Second):
	}
	close(answer)
	second.Holds(t, members[1], r, consensus.Commit, consensus.Accepted)
}

// TestConsensus_AnomaliesAreTold: operators are told of votes that are explained in the same words; the outcome stays as it is
// (Coercion and Collusion Detection).
func TestConsensus_AnomaliesAreTold(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Deciding())
	members := b.ThreeVoters(t)
	p := b.Proposal(t, members[0], consensus.Majority, time.Minute, nil)
	b.Propose(t, members[0], p)
	for _, v := range members {
		b.Votes(t, v, p, consensus.Approve, "it is time")
	}
	r := b.Reaches(t, members[0], p.Round, consensus.Committed)
	if !slices.Contains(r.Anomalies, consensus.SameRationale) {
		t.Errorf("the round names %v, expected %s", r.Anomalies, consensus.SameRationale)
	}
	b.Counts(t, `aepb_consensus_anomalies_total{kind="same_rationale"} 1`)
	if !strings.Contains(b.Logs.String(), "votes of a consensus round look alike") {
		t.Error("the log does not tell operators")
	}
}
