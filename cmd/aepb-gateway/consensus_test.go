package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/config"
	rounds "github.com/aepb/aepb-gateway/gateway/httpapi/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus"
	ballotbox "github.com/aepb/aepb-gateway/policy/consensus/signed"
)

const roundsAt = "/consensus/rounds"

// voter is a participant of consensus rounds: its certificate is that of its connection, its key signs its messages.
type voter struct {
	*ecttest.Party
	via  *http.Client
	sign *ect.Signer
}

func (b *bed) voter(t *testing.T, path string) voter {
	t.Helper()
	via, who := b.clientOf(t, path)
	return voter{who, via, who.Signer(t, time.Now)}
}

// voters are the participants of a name each.
func (b *bed) voters(t *testing.T, names ...string) (out []voter) {
	t.Helper()
	for _, name := range names {
		out = append(out, b.voter(t, "/"+name))
	}
	return out
}

// threeVoters are the members of the group of [deciding].
func (b *bed) threeVoters(t *testing.T) []voter {
	t.Helper()
	return b.voters(t, "alice", "bob", "carol")
}

func spiffe(name string) string { return "spiffe://" + devTrustDomain + "/" + name }

// groupOf is a group in which all members may propose, by each mechanism.
func groupOf(names ...string) config.Group {
	g := config.Group{Proposers: map[string]int{}, Mechanisms: []string{"majority", "weighted", "leader", "optimistic"}}
	for _, name := range names {
		g.Members = append(g.Members, config.Voter{ID: spiffe(name)})
		g.Proposers[spiffe(name)] = 1
	}
	return g
}

// deciding is a gateway with the group "team" of alice, bob and carol, whose leader is alice, and operators with one role each.
func deciding() plan {
	c := staff()
	g := groupOf("alice", "bob", "carol")
	g.Leader = spiffe("alice")
	c.Limits, c.Consensus = manyRequests(), config.Consensus{Groups: map[string]config.Group{"team": g}}
	return plan{config: c}
}

// group is a group as a participant reads it.
func (b *bed) group(t *testing.T, v voter, name string) rounds.GroupView {
	t.Helper()
	return answered[rounds.GroupView](t, b.send(t, letter{via: v.via, method: http.MethodGet, media: "-", at: "/consensus/groups/" + name}), http.StatusOK)
}

// proposal is one of a participant that can be sent, and what is changed of it.
func (b *bed) proposal(t *testing.T, v voter, m consensus.Mechanism, lasts time.Duration, change func(*consensus.Proposal)) consensus.Proposal {
	t.Helper()
	g := b.group(t, v, "team")
	p := consensus.Proposal{
		ID: string(ect.NewID()), Round: string(ect.NewID()), Proposer: v.ID, Mechanism: m, Subject: "Is <b> to be done?", Action: json.RawMessage(`{"text":"x <y> \u00e9"}`),
		Timeout: consensus.At(time.Now().Add(lasts)), Quorum: g.Quorum[m], Participants: g.Participants,
		Terms: consensus.Terms{Group: "team", Reversible: m == consensus.Optimistic, Timestamp: time.Now()},
	}
	if m == consensus.Weighted {
		p.Terms.Weights = g.WeightsHash
	}
	if change != nil {
		change(&p)
	}
	return p
}

// message is a message as its sender sends it.
func message[M ballotbox.Content](t *testing.T, v voter, m M) string {
	t.Helper()
	s, err := ballotbox.Sign(v.sign, m)
	must(t, err)
	text, err := json.Marshal(s)
	must(t, err)
	return string(text)
}

// propose opens a round.
func (b *bed) propose(t *testing.T, v voter, p consensus.Proposal) rounds.RoundView {
	t.Helper()
	got := b.send(t, letter{via: v.via, at: roundsAt, body: message(t, v, p)})
	if at := got.header.Get("Location"); got.status == http.StatusCreated && at != roundsAt+"/"+p.Round {
		t.Errorf("the round is at %q", at)
	}
	return answered[rounds.RoundView](t, got, http.StatusCreated)
}

// voteOn is a vote on a proposal.
func voteOn(v voter, p consensus.Proposal, d consensus.Decision, why string) consensus.Vote {
	return consensus.Vote{Proposal: p.ID, Round: p.Round, Voter: v.ID, Decision: d, Rationale: why, Timestamp: time.Now(), Weights: p.Terms.Weights}
}

// ackOf is an acknowledgement about a proposal.
func ackOf(v voter, p consensus.Proposal, kind consensus.AckKind) consensus.Ack {
	return consensus.Ack{Proposal: p.ID, Round: p.Round, Participant: v.ID, Kind: kind, Timestamp: time.Now()}
}

func voteTo(v voter, p consensus.Proposal, body string) letter {
	return letter{via: v.via, at: roundsAt + "/" + p.Round + "/votes", body: body}
}

// votes sends a vote that is taken.
func (b *bed) votes(t *testing.T, v voter, p consensus.Proposal, d consensus.Decision, why string) {
	t.Helper()
	answered[rounds.Taken](t, b.send(t, voteTo(v, p, message(t, v, voteOn(v, p, d, why)))), http.StatusAccepted)
}

// acknowledge sends an acknowledgement that is taken.
func (b *bed) acknowledge(t *testing.T, v voter, p consensus.Proposal, a consensus.Ack) {
	t.Helper()
	answered[rounds.Taken](t, b.send(t, letter{via: v.via, at: roundsAt + "/" + p.Round + "/ack", body: message(t, v, a)}), http.StatusAccepted)
}

// round is a round as a participant reads it.
func (b *bed) round(t *testing.T, v voter, id string) rounds.RoundView {
	t.Helper()
	return answered[rounds.RoundView](t, b.send(t, letter{via: v.via, method: http.MethodGet, media: "-", at: roundsAt + "/" + id}), http.StatusOK)
}

// reaches waits until a round is in a phase.
func (b *bed) reaches(t *testing.T, v voter, id string, phase consensus.Phase) (r rounds.RoundView) {
	t.Helper()
	within(t, patience, "the round is "+string(phase), func() bool {
		r = b.round(t, v, id)
		return r.Phase == phase || r.Phase.Over()
	})
	if r.Phase != phase {
		t.Fatalf("the round is %s, expected %s: %s", r.Phase, phase, r.Outcome)
	}
	return r
}

// ballots are the signed messages of a round that a participant may read, by pages of two.
func (b *bed) ballots(t *testing.T, v voter, id string) (all []rounds.MessageView) {
	t.Helper()
	for after := "0"; after != ""; {
		page := answered[rounds.Messages](t, b.send(t, letter{via: v.via, method: http.MethodGet, media: "-", at: roundsAt + "/" + id + "/votes?limit=2&after=" + after}), http.StatusOK)
		all, after = append(all, page.Messages...), page.Next
	}
	return all
}

// verified reads a message that was signed.
func verified[M ballotbox.Content](t *testing.T, b *bed, text []byte) ballotbox.Message[M] {
	t.Helper()
	m, err := ballotbox.Parse[M](text)
	must(t, err)
	must(t, m.Verify(t.Context(), b.judge))
	return m
}

// holds computes the outcome of a round anew, as a participant does that believes signatures alone.
func (b *bed) holds(t *testing.T, v voter, r rounds.RoundView, result consensus.Result, why consensus.Reason) consensus.Outcome {
	t.Helper()
	p, o := verified[consensus.Proposal](t, b, r.Proposal), verified[consensus.Outcome](t, b, r.Outcome)
	rec := consensus.Record{Proposal: p.Content, Signed: p.Compact, Rules: r.Rules, Outcome: o.Content}
	for _, m := range b.ballots(t, v, r.Round) {
		if m.Kind == "vote" {
			vote := verified[consensus.Vote](t, b, m.Message)
			rec.Box.Ballots = append(rec.Box.Ballots, consensus.Ballot{Vote: vote.Content, Hash: vote.Hash})
			continue
		}
		ack := verified[consensus.Ack](t, b, m.Message)
		rec.Box.Receipts = append(rec.Box.Receipts, consensus.Receipt{Ack: ack.Content, Hash: ack.Hash})
	}
	if err := consensus.Check(rec); err != nil {
		t.Error(err)
	}
	if got := o.Content; got.Result != result || got.Reason != why || string(got.Coordinator) != b.self() {
		t.Errorf("the outcome is %s as %s, of %s; expected %s as %s", got.Result, got.Reason, got.Coordinator, result, why)
	}
	return o.Content
}

// roundEvidence are the claims of the tokens of a round that a caller reads in its workflow, by act.
func (b *bed) roundEvidence(t *testing.T, via *http.Client, wid string) (status int, out map[ect.Act][]ect.Claims) {
	t.Helper()
	got := b.send(t, letter{via: via, method: http.MethodGet, media: "-", at: "/workflows/" + wid})
	var page struct {
		ECTs []string `json:"ects"`
	}
	out = map[ect.Act][]ect.Claims{}
	if got.status != http.StatusOK {
		return got.status, out
	}
	must(t, json.Unmarshal(got.body, &page))
	for _, compact := range page.ECTs {
		token, err := b.judge.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
		must(t, err)
		out[token.Claims().Act] = append(out[token.Claims().Act], token.Claims())
	}
	return got.status, out
}

// eventsOf begins to watch a round.
func (b *bed) eventsOf(t *testing.T, v voter, id string) *bufio.Scanner {
	t.Helper()
	request := b.request(t, letter{method: http.MethodGet, media: "-", at: roundsAt + "/" + id + "/events"})
	response, err := v.via.Do(request)
	must(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s %s", response.Status, response.Header.Get("Content-Type"))
	}
	return bufio.NewScanner(response.Body)
}

// TestConsensus_Majority: three participants decide over HTTP, with their certificates and keys, wherever the state is kept. Each
// reads the signed outcome, computes it anew, and reads the evidence; others read nothing of it (R24, R25).
func TestConsensus_Majority(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]func(t *testing.T) config.State{
		"in memory": func(*testing.T) config.State { return config.State{} },
		"in a file": func(t *testing.T) config.State {
			t.Helper()
			return config.State{Path: filepath.Join(t.TempDir(), "state")}
		},
		"in Redis": func(t *testing.T) config.State {
			t.Helper()
			return newRedis(t).state()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := deciding()
			p.config.State = state(t)
			b := newBed(t, p)
			b.decidesByMajority(t)
		})
	}
}

func (b *bed) decidesByMajority(t *testing.T) {
	t.Helper()
	members, outsider := b.threeVoters(t), b.voter(t, "/mallory")
	alice, bob, carol := members[0], members[1], members[2]
	p := b.proposal(t, alice, consensus.Majority, 20*time.Hour, nil)
	opened := b.propose(t, alice, p)
	if again := b.propose(t, alice, p); opened.Phase != consensus.Voting || again.Round != opened.Round || again.Proposed != opened.Proposed {
		t.Errorf("opened as %+v, and once more as %+v", opened, again)
	}
	list := answered[rounds.Page](t, b.send(t, letter{via: carol.via, method: http.MethodGet, media: "-", at: roundsAt}), http.StatusOK)
	if len(list.Rounds) != 1 || list.Rounds[0].Round != p.Round || list.Next != "" {
		t.Errorf("listed as %+v", list)
	}
	stream := b.eventsOf(t, carol, p.Round)
	var seen rounds.RoundView
	must(t, json.Unmarshal([]byte(nextData(t, stream)), &seen))
	b.acknowledge(t, carol, p, ackOf(carol, p, consensus.Received))
	b.votes(t, alice, p, consensus.Approve, "")
	b.votes(t, bob, p, consensus.Approve, "it is right")
	if own, others := b.ballots(t, bob, p.Round), b.ballots(t, carol, p.Round); len(own) != 1 || len(others) != 1 || others[0].Kind != "ack" {
		t.Errorf("before the tally bob reads %d messages, and carol %d", len(own), len(others))
	}
	b.votes(t, carol, p, consensus.Reject, "it is wrong")
	r := b.reaches(t, alice, p.Round, consensus.Committed)
	o := b.holds(t, carol, r, consensus.Commit, consensus.Accepted)
	if o.Tally.Approve != 2 || o.Tally.Reject != 1 || o.Tally.Connected != 3 || len(b.ballots(t, alice, p.Round)) != 4 {
		t.Errorf("the tally is %+v", o.Tally)
	}
	for seen.Phase != consensus.Committed {
		must(t, json.Unmarshal([]byte(nextData(t, stream)), &seen))
	}
	stream.Scan() // the empty line after an event
	if string(seen.Outcome) != string(r.Outcome) || stream.Scan() {
		t.Errorf("the stream ends with %s", seen.Outcome)
	}
	b.decisionIsOnRecord(t, r, members, outsider)
}

// decisionIsOnRecord demands the tokens of a round that was decided, for its participants alone.
func (b *bed) decisionIsOnRecord(t *testing.T, r rounds.RoundView, members []voter, outsider voter) {
	t.Helper()
	var found map[ect.Act][]ect.Claims
	within(t, patience, "the votes are on record", func() bool {
		_, found = b.roundEvidence(t, members[2].via, r.Workflow)
		return len(found[ect.ActConsensusVote]) == len(members)
	})
	opened, ended := found[ect.ActConsensusPropose], found[ect.ActConsensusCommit]
	if len(opened) != 1 || len(ended) != 1 || opened[0].ID != r.Proposed || ended[0].ID != r.Committed {
		t.Fatalf("on record are %+v", found)
	}
	o := verified[consensus.Outcome](t, b, r.Outcome)
	if !slices.Equal(ended[0].Parents, []ect.ID{r.Proposed}) || ended[0].InputHash != o.Content.Votes || ended[0].OutputHash != o.Hash {
		t.Errorf("the outcome is on record as %+v", ended[0])
	}
	for _, v := range members {
		if status, _ := b.roundEvidence(t, v.via, r.Workflow); status != http.StatusOK {
			t.Errorf("%s reads the workflow: %d", v.ID, status)
		}
	}
	if status, _ := b.roundEvidence(t, outsider.via, r.Workflow); status != http.StatusNotFound && status != http.StatusForbidden {
		t.Errorf("an outsider reads the workflow: %d", status)
	}
	for _, c := range slices.Concat(opened, ended, found[ect.ActConsensusVote]) {
		at := letter{via: members[1].via, method: http.MethodGet, media: "-", at: "/ects/" + string(c.ID)}
		if got := b.send(t, at); got.status != http.StatusOK {
			t.Errorf("a participant reads %s %s: %d", c.Act, c.ID, got.status)
		}
		at.via = outsider.via
		if got := b.send(t, at); got.status != http.StatusNotFound && got.status != http.StatusForbidden || strings.Contains(string(got.body), "consensus") {
			t.Errorf("an outsider reads %s: %d %s", c.Act, got.status, got.body)
		}
	}
}
