package gatewaytest

import (
	"bufio"
	"encoding/json"
	"net/http"
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

// RoundsAt is the path of consensus rounds.
const RoundsAt = "/consensus/rounds"

// Voter is a participant of consensus rounds: its certificate is that of its connection, its key signs its messages.
type Voter struct {
	*ecttest.Party
	Via  *http.Client
	Sign *ect.Signer
}

// Voter is one with a new certificate of a path of the trust domain. An error ends the test.
func (b *Fixture) Voter(t *testing.T, path string) Voter {
	t.Helper()
	via, who := b.ClientOf(t, path)
	return Voter{who, via, who.Signer(t, time.Now)}
}

// Voters are the participants of a name each.
func (b *Fixture) Voters(t *testing.T, names ...string) (out []Voter) {
	t.Helper()
	for _, name := range names {
		out = append(out, b.Voter(t, "/"+name))
	}
	return out
}

// ThreeVoters are the members of the group of [Deciding].
func (b *Fixture) ThreeVoters(t *testing.T) []Voter {
	t.Helper()
	return b.Voters(t, "alice", "bob", "carol")
}

// Spiffe is the SPIFFE ID of a name in the trust domain of the tests.
func Spiffe(name string) string { return "spiffe://" + TrustDomain + "/" + name }

// GroupOf is a group in which all members may propose, by each mechanism.
func GroupOf(names ...string) config.Group {
	g := config.Group{Proposers: map[string]int{}, Mechanisms: []string{"majority", "weighted", "leader", "optimistic"}}
	for _, name := range names {
		g.Members = append(g.Members, config.Voter{ID: Spiffe(name)})
		g.Proposers[Spiffe(name)] = 1
	}
	return g
}

// Deciding is a gateway with the group "team" of alice, bob and carol, whose leader is alice, and operators with one
// role each.
func Deciding() Plan {
	c := Staff()
	g := GroupOf("alice", "bob", "carol")
	g.Leader = Spiffe("alice")
	c.Limits, c.Consensus = ManyRequests(), config.Consensus{Groups: map[string]config.Group{"team": g}}
	return Plan{Config: c}
}

// Group is a group as a participant reads it.
func (b *Fixture) Group(t *testing.T, v Voter, name string) rounds.GroupView {
	t.Helper()
	return Answered[rounds.GroupView](t, b.Send(t, HTTPRequest{Via: v.Via, Method: http.MethodGet, Media: "-", At: "/consensus/groups/" + name}), http.StatusOK)
}

// Proposal is one of a participant that can be sent, and what is changed of it.
func (b *Fixture) Proposal(t *testing.T, v Voter, m consensus.Mechanism, lasts time.Duration, change func(*consensus.Proposal)) consensus.Proposal {
	t.Helper()
	g := b.Group(t, v, "team")
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

// Message is a message as its sender sends it.
func Message[M ballotbox.Content](t *testing.T, v Voter, m M) string {
	t.Helper()
	s, err := ballotbox.Sign(v.Sign, m)
	Must(t, err)
	text, err := json.Marshal(s)
	Must(t, err)
	return string(text)
}

// Propose opens a round.
func (b *Fixture) Propose(t *testing.T, v Voter, p consensus.Proposal) rounds.RoundView {
	t.Helper()
	got := b.Send(t, HTTPRequest{Via: v.Via, At: RoundsAt, Body: Message(t, v, p)})
	if at := got.Header.Get("Location"); got.Status == http.StatusCreated && at != RoundsAt+"/"+p.Round {
		t.Errorf("the round is at %q", at)
	}
	return Answered[rounds.RoundView](t, got, http.StatusCreated)
}

// VoteOn is a vote on a proposal.
func VoteOn(v Voter, p consensus.Proposal, d consensus.Decision, why string) consensus.Vote {
	return consensus.Vote{Proposal: p.ID, Round: p.Round, Voter: v.ID, Decision: d, Rationale: why, Timestamp: time.Now(), Weights: p.Terms.Weights}
}

// AckOf is an acknowledgement about a proposal.
func AckOf(v Voter, p consensus.Proposal, kind consensus.AckKind) consensus.Ack {
	return consensus.Ack{Proposal: p.ID, Round: p.Round, Participant: v.ID, Kind: kind, Timestamp: time.Now()}
}

// VoteTo is the request by which a participant sends a signed vote, body, to the round of a proposal.
func VoteTo(v Voter, p consensus.Proposal, body string) HTTPRequest {
	return HTTPRequest{Via: v.Via, At: RoundsAt + "/" + p.Round + "/votes", Body: body}
}

// Votes sends a vote that is taken.
func (b *Fixture) Votes(t *testing.T, v Voter, p consensus.Proposal, d consensus.Decision, why string) {
	t.Helper()
	Answered[rounds.Taken](t, b.Send(t, VoteTo(v, p, Message(t, v, VoteOn(v, p, d, why)))), http.StatusAccepted)
}

// Acknowledge sends an acknowledgement that is taken.
func (b *Fixture) Acknowledge(t *testing.T, v Voter, p consensus.Proposal, a consensus.Ack) {
	t.Helper()
	Answered[rounds.Taken](t, b.Send(t, HTTPRequest{Via: v.Via, At: RoundsAt + "/" + p.Round + "/ack", Body: Message(t, v, a)}), http.StatusAccepted)
}

// Round is a round as a participant reads it.
func (b *Fixture) Round(t *testing.T, v Voter, id string) rounds.RoundView {
	t.Helper()
	return Answered[rounds.RoundView](t, b.Send(t, HTTPRequest{Via: v.Via, Method: http.MethodGet, Media: "-", At: RoundsAt + "/" + id}), http.StatusOK)
}

// Reaches waits until a round is in a phase.
func (b *Fixture) Reaches(t *testing.T, v Voter, id string, phase consensus.Phase) (r rounds.RoundView) {
	t.Helper()
	Within(t, Patience, "the round is "+string(phase), func() bool {
		r = b.Round(t, v, id)
		return r.Phase == phase || r.Phase.Over()
	})
	if r.Phase != phase {
		t.Fatalf("the round is %s, expected %s: %s", r.Phase, phase, r.Outcome)
	}
	return r
}

// Ballots are the signed messages of a round that a participant may read, by pages of two.
func (b *Fixture) Ballots(t *testing.T, v Voter, id string) (all []rounds.MessageView) {
	t.Helper()
	for after := "0"; after != ""; {
		page := Answered[rounds.Messages](t, b.Send(t, HTTPRequest{Via: v.Via, Method: http.MethodGet, Media: "-", At: RoundsAt + "/" + id + "/votes?limit=2&after=" + after}), http.StatusOK)
		all, after = append(all, page.Messages...), page.Next
	}
	return all
}

// Verified reads a message that was signed.
func Verified[M ballotbox.Content](t *testing.T, b *Fixture, text []byte) ballotbox.Message[M] {
	t.Helper()
	m, err := ballotbox.Parse[M](text)
	Must(t, err)
	Must(t, m.Verify(t.Context(), b.Judge))
	return m
}

// Holds computes the outcome of a round anew, as a participant does that believes signatures alone.
func (b *Fixture) Holds(t *testing.T, v Voter, r rounds.RoundView, result consensus.Result, why consensus.Reason) consensus.Outcome {
	t.Helper()
	p, o := Verified[consensus.Proposal](t, b, r.Proposal), Verified[consensus.Outcome](t, b, r.Outcome)
	rec := consensus.Record{Proposal: p.Content, Signed: p.Compact, Rules: r.Rules, Outcome: o.Content}
	for _, m := range b.Ballots(t, v, r.Round) {
		if m.Kind == "vote" {
			vote := Verified[consensus.Vote](t, b, m.Message)
			rec.Box.Ballots = append(rec.Box.Ballots, consensus.Ballot{Vote: vote.Content, Hash: vote.Hash})
			continue
		}
		ack := Verified[consensus.Ack](t, b, m.Message)
		rec.Box.Receipts = append(rec.Box.Receipts, consensus.Receipt{Ack: ack.Content, Hash: ack.Hash})
	}
	if err := consensus.Check(rec); err != nil {
		t.Error(err)
	}
	if got := o.Content; got.Result != result || got.Reason != why || string(got.Coordinator) != b.Self() {
		t.Errorf("the outcome is %s as %s, of %s; expected %s as %s", got.Result, got.Reason, got.Coordinator, result, why)
	}
	return o.Content
}

// EventsOf begins to watch a round.
func (b *Fixture) EventsOf(t *testing.T, v Voter, id string) *bufio.Scanner {
	t.Helper()
	request := b.Request(t, HTTPRequest{Method: http.MethodGet, Media: "-", At: RoundsAt + "/" + id + "/events"})
	response, err := v.Via.Do(request)
	Must(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s %s", response.Status, response.Header.Get("Content-Type"))
	}
	return bufio.NewScanner(response.Body)
}

// Declines demands that a message is refused, and for which reason.
func (b *Fixture) Declines(t *testing.T, l HTTPRequest, status int, reason string) {
	t.Helper()
	if got := b.Send(t, l); got.Status != status || !strings.Contains(string(got.Body), reason) {
		t.Errorf("%s %s: got %d, expected %d for %s: %s", l.Method, l.At, got.Status, status, reason, Short(got.Body))
	}
}
