package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/consensus"
	"github.com/aepb/aepb-gateway/gateway/directory"
	rounds "github.com/aepb/aepb-gateway/gateway/httpapi/consensus"
	"github.com/aepb/aepb-gateway/policy"
	pure "github.com/aepb/aepb-gateway/policy/consensus"
)

// missingRound is the answer about a round that is not there.
const missingRound = `"code":"not_found"`

// TestAttack_Consensus_OutsiderVotes: who is no member of a group votes, acknowledges, and votes in the name of a member. None of it
// counts, and the attacker does not learn that the round exists.
func TestAttack_Consensus_OutsiderVotes(t *testing.T) {
	t.Parallel()
	b := newBed(t, deciding())
	members, mallory := b.threeVoters(t), b.voter(t, "/mallory")
	p := b.proposal(t, members[0], pure.Majority, time.Minute, nil)
	b.propose(t, members[0], p)
	disguised := voter{mallory.Party, mallory.via, mallory.sign}
	named := voteOn(members[1], p, pure.Approve, "")
	for _, l := range []letter{
		voteTo(mallory, p, message(t, mallory, voteOn(mallory, p, pure.Approve, ""))),
		voteTo(mallory, p, message(t, disguised, named)),
		voteTo(mallory, p, message(t, members[1], named)),
		{via: mallory.via, at: roundsAt + "/" + p.Round + "/ack", body: message(t, mallory, ackOf(mallory, p, pure.Received))},
	} {
		b.declines(t, l, http.StatusNotFound, missingRound)
	}
	b.declines(t, letter{via: b.anonymous, at: roundsAt + "/" + p.Round + "/votes", body: message(t, members[1], named)}, http.StatusUnauthorized, "unauthenticated")
	for _, v := range members {
		b.votes(t, v, p, pure.Reject, "no")
	}
	if o := b.holds(t, members[0], b.reaches(t, members[0], p.Round, pure.Aborted), pure.Abort, pure.Rejected); o.Tally.Approve != 0 || o.Tally.Connected != 3 {
		t.Errorf("the tally is %+v", o.Tally)
	}
}

// TestAttack_Consensus_VoteOfAnother: a member sends the vote that another one signed, and votes that it signed itself in the name of
// another; a client with a stolen certificate sends a vote that its own key signed, and one with a stolen signing key does so over
// its own connection. Each participant's votes come over its own connection with its own signature, or not at all.
func TestAttack_Consensus_VoteOfAnother(t *testing.T) {
	t.Parallel()
	b := newBed(t, deciding())
	members, mallory := b.threeVoters(t), b.voter(t, "/mallory")
	alice, bob := members[0], members[1]
	p := b.proposal(t, alice, pure.Majority, time.Minute, nil)
	b.propose(t, alice, p)
	ofBob := voteOn(bob, p, pure.Approve, "")
	b.declines(t, voteTo(alice, p, message(t, bob, ofBob)), http.StatusForbidden, "each participant sends its own")
	b.declines(t, voteTo(alice, p, message(t, alice, ofBob)), http.StatusForbidden, "each participant sends its own")
	b.declines(t, voteTo(bob, p, message(t, alice, ofBob)), http.StatusForbidden, "ect_invalid")   // a session of bob, and a signature of alice
	b.declines(t, voteTo(bob, p, message(t, mallory, ofBob)), http.StatusForbidden, "ect_invalid") // and of an outsider
	b.declines(t, voteTo(bob, p, message(t, alice, voteOn(alice, p, pure.Approve, ""))), http.StatusForbidden, "each participant sends its own")
	good := message(t, bob, ofBob)
	spoiled := strings.Replace(good, `"approve"`, `"reject"`, 1)
	b.declines(t, voteTo(bob, p, spoiled), http.StatusBadRequest, "malformed")
	asProposal := b.proposal(t, bob, pure.Majority, time.Minute, nil)
	b.declines(t, letter{via: alice.via, at: roundsAt, body: message(t, bob, asProposal)}, http.StatusForbidden, "each participant sends its own")
	b.declines(t, letter{via: bob.via, at: roundsAt, body: message(t, alice, asProposal)}, http.StatusForbidden, "ect_invalid")
	if all := b.ballots(t, bob, p.Round); len(all) != 0 {
		t.Errorf("%d messages are on record", len(all))
	}
}

// TestAttack_Consensus_TwoVotes: a proposer approves and rejects, in the hope that one of its votes is counted as suits it. Neither
// counts, both are on record. The proposer is told so, for the second, a third, and the first once more.
func TestAttack_Consensus_TwoVotes(t *testing.T) {
	t.Parallel()
	b := newBed(t, deciding())
	members := b.threeVoters(t)
	alice := members[0]
	p := b.proposal(t, alice, pure.Majority, time.Minute, nil)
	b.propose(t, alice, p)
	first := message(t, alice, voteOn(alice, p, pure.Approve, ""))
	answered[rounds.Taken](t, b.send(t, voteTo(alice, p, first)), http.StatusAccepted)
	for _, vote := range []string{message(t, alice, voteOn(alice, p, pure.Approve, "again")), message(t, alice, voteOn(alice, p, pure.Approve, "and again")), first} {
		b.declines(t, voteTo(alice, p, vote), http.StatusConflict, "none of them counts any more")
	}
	b.votes(t, members[1], p, pure.Approve, "")
	b.votes(t, members[2], p, pure.Reject, "no")
	o := b.holds(t, members[1], b.reaches(t, members[1], p.Round, pure.Aborted), pure.Abort, pure.Rejected)
	if o.Tally.Doubled != 1 || o.Tally.Approve != 1 || len(b.ballots(t, members[2], p.Round)) != 4 {
		t.Errorf("the tally is %+v", o.Tally)
	}
}

// TestAttack_Consensus_VoteOfAnotherRound: a vote is sent again in another round, about the same proposal submitted again or about
// another one. It counts in its own round alone.
func TestAttack_Consensus_VoteOfAnotherRound(t *testing.T) {
	t.Parallel()
	b := newBed(t, deciding())
	members := b.threeVoters(t)
	first, second := b.proposal(t, members[0], pure.Majority, time.Minute, nil), b.proposal(t, members[0], pure.Majority, time.Minute, nil)
	for _, p := range []pure.Proposal{first, second} {
		b.propose(t, members[0], p)
	}
	vote := message(t, members[1], voteOn(members[1], first, pure.Approve, ""))
	answered[rounds.Taken](t, b.send(t, voteTo(members[1], first, vote)), http.StatusAccepted)
	b.declines(t, voteTo(members[1], second, vote), http.StatusForbidden, "another round")
	mixed := voteOn(members[1], first, pure.Approve, "")
	mixed.Round = second.Round
	b.declines(t, voteTo(members[1], second, message(t, members[1], mixed)), http.StatusForbidden, "another round")
	stale := voteOn(members[1], second, pure.Approve, "")
	stale.Timestamp = time.Now().Add(-consensus.Freshness - time.Minute)
	b.declines(t, voteTo(members[1], second, message(t, members[1], stale)), http.StatusForbidden, "5 minutes")
	if all := b.ballots(t, members[1], second.Round); len(all) != 0 {
		t.Errorf("%d votes are on record in the other round", len(all))
	}
}

// TestAttack_Consensus_MembersJoinDuringARound: identities that are added to a group while a round of it is open, as an attacker adds
// that registers many of them, do not vote in it, and its quorum stays (Sybil Resistance).
func TestAttack_Consensus_MembersJoinDuringARound(t *testing.T) {
	t.Parallel()
	b := newBed(t, deciding())
	members := b.threeVoters(t)
	p := b.proposal(t, members[0], pure.Majority, time.Minute, nil)
	opened := b.propose(t, members[0], p)
	c := b.settings.config
	c.Consensus.Groups = maps.Clone(c.Consensus.Groups)
	g := groupOf("alice", "bob", "carol", "sybil-1", "sybil-2", "sybil-3", "sybil-4")
	c.Consensus.Groups["team"] = g
	must(t, b.reload(t.Context(), c))
	for _, v := range b.voters(t, "sybil-1", "sybil-2", "sybil-3", "sybil-4") {
		if len(b.group(t, v, "team").Participants) != 7 {
			t.Fatal("the group has not changed")
		}
		b.declines(t, voteTo(v, p, message(t, v, voteOn(v, p, pure.Approve, ""))), http.StatusNotFound, missingRound)
	}
	for _, v := range members {
		b.votes(t, v, p, pure.Reject, "no")
	}
	r := b.reaches(t, members[0], p.Round, pure.Aborted)
	if o := b.holds(t, members[0], r, pure.Abort, pure.Rejected); o.Tally.Participants != 3 || r.Rules.Hash() != opened.Rules.Hash() {
		t.Errorf("decided as %+v", o.Tally)
	}
}

// TestAttack_Consensus_TenThousandRounds: a proposer opens ten thousand rounds, many at once. It gets its own share of them and no
// more, and others open rounds and decide as before.
func TestAttack_Consensus_TenThousandRounds(t *testing.T) {
	t.Parallel()
	p := deciding()
	b := newBed(t, p)
	members := b.threeVoters(t)
	model := b.proposal(t, members[2], pure.Majority, time.Hour, nil)
	var taken, refused atomic.Int32
	next := make(chan struct{}, 10_000)
	for range 10_000 {
		next <- struct{}{}
	}
	close(next)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range next {
				p := model
				p.ID, p.Round, p.Terms.Timestamp = string(ect.NewID()), string(ect.NewID()), time.Now()
				got, err := b.try(t, letter{via: members[2].via, at: roundsAt, body: message(t, members[2], p)})
				switch {
				case err == nil && got.status == http.StatusCreated:
					taken.Add(1)
				case err == nil && got.status == http.StatusTooManyRequests:
					refused.Add(1)
				default:
					t.Errorf("%d %s %v", got.status, got.body, err)
					return
				}
			}
		})
	}
	all.Wait()
	if n := taken.Load(); n > consensus.OfOneProposer || n == 0 || n+refused.Load() != 10_000 {
		t.Errorf("%d rounds were opened, and %d refused", n, refused.Load())
	}
	other := b.proposal(t, members[0], pure.Majority, time.Minute, nil)
	b.propose(t, members[0], other)
	for _, v := range members {
		b.votes(t, v, other, pure.Approve, "")
	}
	b.holds(t, members[0], b.reaches(t, members[0], other.Round, pure.Committed), pure.Commit, pure.Accepted)
}

// TestAttack_Consensus_SilentParticipant: participants that never answer, in the hope that a round never ends, do not hold it beyond
// its deadline.
func TestAttack_Consensus_SilentParticipant(t *testing.T) {
	t.Parallel()
	b := newBed(t, deciding())
	members := b.threeVoters(t)
	p, q := b.proposal(t, members[0], pure.Majority, 3*time.Second, nil), b.proposal(t, members[0], pure.Majority, 3*time.Second, nil)
	b.propose(t, members[0], p)
	b.propose(t, members[0], q)
	b.votes(t, members[0], p, pure.Approve, "")
	b.votes(t, members[1], p, pure.Approve, "")
	b.votes(t, members[0], q, pure.Approve, "")
	for r, want := range map[string]struct {
		phase  pure.Phase
		result pure.Result
		why    pure.Reason
	}{
		p.Round: {pure.Committed, pure.Commit, pure.Accepted}, q.Round: {pure.Aborted, pure.Abort, pure.NoQuorum},
	} {
		o := b.holds(t, members[0], b.reaches(t, members[0], r, want.phase), want.result, want.why)
		if late := o.Decided.Sub(p.Timeout.Time); late < 0 || late > 20*time.Second {
			t.Errorf("the round ended %s after its deadline", late)
		}
	}
}

// TestAttack_Consensus_HostileMessages: messages of hostile sizes, depths, names and numbers are refused as such, quickly, and the
// gateway works on.
func TestAttack_Consensus_HostileMessages(t *testing.T) {
	t.Parallel()
	b := newBed(t, deciding())
	alice := b.threeVoters(t)[0]
	p := b.proposal(t, alice, pure.Majority, time.Minute, nil)
	b.propose(t, alice, p)
	good := message(t, alice, voteOn(alice, p, pure.Approve, ""))
	deep := func(open, end string) string { return strings.Repeat(open, 10_000) + strings.Repeat(end, 10_000) }
	for at, limit := range map[string]int{roundsAt: 256 << 10, roundsAt + "/" + p.Round + "/votes": 32 << 10, roundsAt + "/" + p.Round + "/ack": 128 << 10} {
		for name, c := range map[string]struct {
			body   string
			status int
		}{
			"too large":     {`{"signature":"` + strings.Repeat("a", limit) + `"}`, http.StatusRequestEntityTooLarge},
			"empty":         {"", http.StatusBadRequest},
			"no object":     {"[]", http.StatusBadRequest},
			"no UTF-8":      {"{\"signature\":\"\xff\"}", http.StatusBadRequest},
			"two objects":   {good + good, http.StatusBadRequest},
			"a name twice":  {strings.Replace(good, "{", `{"signature":"a.b.c",`, 1), http.StatusBadRequest},
			"another case":  {strings.Replace(good, `"signature"`, `"Signature"`, 1), http.StatusBadRequest},
			"unknown":       {`{"also":1,"signature":"a.b.c"}`, http.StatusBadRequest},
			"no signature":  {`{"signature":""}`, http.StatusBadRequest},
			"many dots":     {`{"signature":"` + strings.Repeat(".", 8_000) + `"}`, http.StatusBadRequest},
			"deep arrays":   {`{"action":` + deep("[", "]")[:2] + deep("[", "]")[2:] + `,"signature":"a.b.c"}`, http.StatusBadRequest},
			"large numbers": {`{"quorum":` + strings.Repeat("9", 10_000) + `,"signature":"a.b.c"}`, http.StatusBadRequest},
		} {
			began := time.Now()
			if got := b.send(t, letter{via: alice.via, at: at, body: c.body}); got.status != c.status || time.Since(began) > 5*time.Second {
				t.Errorf("%s at %s: got %d after %v, expected %d: %s", name, at, got.status, time.Since(began), c.status, short(got.body))
			}
		}
	}
	for name, change := range map[string]func(*pure.Proposal){
		"a deep action": func(p *pure.Proposal) {
			p.Action = json.RawMessage(`{"a":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`)
		},
		"a large action": func(p *pure.Proposal) {
			p.Action = json.RawMessage(`{"a":"` + strings.Repeat("x", pure.MaxAction) + `"}`)
		},
		"many members": func(p *pure.Proposal) {
			p.Participants = nil
			for i := range pure.MaxParticipants + 1 {
				p.Participants = append(p.Participants, ect.Identity(fmt.Sprintf("spiffe://a/%d", i)))
			}
		},
	} {
		q := p
		change(&q)
		text, err := pure.Encode(q)
		must(t, err)
		compact, err := alice.sign.SignNote("consensus-proposal+jwt", text, pure.MaxProposal)
		must(t, err)
		body := string(text[:len(text)-1]) + `,"signature":"` + compact + `"}`
		if got := b.send(t, letter{via: alice.via, at: roundsAt, body: body}); got.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, got.status, short(got.body))
		}
	}
	also := voteTo(alice, p, strings.Replace(good, "{", `{"also":1,`, 1))
	b.declines(t, also, http.StatusBadRequest, "malformed")
	b.votes(t, alice, p, pure.Approve, "")
	b.works(t)
}

// TestAttack_Consensus_OutsiderEnumerates: who takes no part asks for groups and rounds by their ids, lists them, watches them, and
// opens a round with the id of another. It is answered as if they were not there.
func TestAttack_Consensus_OutsiderEnumerates(t *testing.T) {
	t.Parallel()
	b := newBed(t, deciding())
	members, mallory := b.threeVoters(t), b.voter(t, "/mallory")
	p := b.proposal(t, members[0], pure.Majority, time.Minute, nil)
	b.propose(t, members[0], p)
	get := func(at string) letter { return letter{via: mallory.via, method: http.MethodGet, media: "-", at: at} }
	post := func(round, what, body string) letter {
		return letter{via: mallory.via, at: roundsAt + "/" + round + what, body: body}
	}
	absent := p
	absent.Round = string(ect.NewID())
	mine, mineAbsent := p, absent
	mine.Proposer, mineAbsent.Proposer = mallory.ID, mallory.ID
	for name, pair := range map[string][2]letter{
		"a group":       {get("/consensus/groups/team"), get("/consensus/groups/teem")},
		"a round":       {get(roundsAt + "/" + p.Round), get(roundsAt + "/" + absent.Round)},
		"votes":         {get(roundsAt + "/" + p.Round + "/votes"), get(roundsAt + "/" + absent.Round + "/votes")},
		"events":        {get(roundsAt + "/" + p.Round + "/events"), get(roundsAt + "/" + absent.Round + "/events")},
		"a vote":        {post(p.Round, "/votes", message(t, mallory, voteOn(mallory, p, pure.Approve, ""))), post(absent.Round, "/votes", message(t, mallory, voteOn(mallory, absent, pure.Approve, "")))},
		"an ack":        {post(p.Round, "/ack", message(t, mallory, ackOf(mallory, p, pure.Received))), post(absent.Round, "/ack", message(t, mallory, ackOf(mallory, absent, pure.Received)))},
		"a proposal":    {{via: mallory.via, at: roundsAt, body: message(t, mallory, mine)}, {via: mallory.via, at: roundsAt, body: message(t, mallory, mineAbsent)}},
		"a replayed":    {{via: mallory.via, at: roundsAt, body: message(t, members[0], p)}, {via: mallory.via, at: roundsAt, body: message(t, members[0], absent)}},
		"for operators": {{via: mallory.via, method: http.MethodGet, media: "-", at: b.at.Admin + "/api/consensus/" + p.Round}, {via: mallory.via, method: http.MethodGet, media: "-", at: b.at.Admin + "/api/consensus/" + absent.Round}},
	} {
		there, not := b.send(t, pair[0]), b.send(t, pair[1])
		described := func(r reply, id string) string {
			var problem struct{ Code, Detail, Title string }
			must(t, json.Unmarshal(r.body, &problem))
			return strings.ReplaceAll(problem.Code+problem.Detail+problem.Title, id, "ID")
		}
		if there.status != not.status || there.status < 400 || described(there, p.Round) != described(not, absent.Round) {
			t.Errorf("%s: %d %s, and without it %d %s", name, there.status, there.body, not.status, not.body)
		}
	}
	if list := answered[rounds.Page](t, b.send(t, get(roundsAt)), http.StatusOK); len(list.Rounds) != 0 || list.Next != "" {
		t.Errorf("an outsider lists %+v", list)
	}
}

// TestAttack_Consensus_VotesBeforeTheTally: who wants to know how others have voted looks for it in everything that the gateway says
// before the outcome: rounds, lists, streams, evidence, logs, metrics, and what operators see. Nothing depends on a vote.
func TestAttack_Consensus_VotesBeforeTheTally(t *testing.T) {
	t.Parallel()
	p := deciding()
	p.config.Admin = gatedAgents().config.Admin
	b := newBed(t, p)
	members := b.threeVoters(t)
	question := b.proposal(t, members[0], pure.Majority, time.Minute, nil)
	opened := b.propose(t, members[0], question)
	before := b.saidOf(t, opened, members[2])
	stream := b.eventsOf(t, members[2], question.Round)
	events := []string{nextData(t, stream)}
	const why = "rationale-of-bob-7f3"
	b.votes(t, members[1], question, pure.Reject, why)
	b.acknowledge(t, members[0], question, ackOf(members[0], question, pure.Received))
	after := b.saidOf(t, opened, members[2])
	for at, text := range before {
		if after[at] != text {
			t.Errorf("%s has changed with a vote:\n%s\n%s", at, text, after[at])
		}
	}
	if logs := b.logs.String(); strings.Contains(logs, why) || strings.Contains(logs, string(members[1].ID)+`","decision`) || strings.Contains(logs, `"reject"`) {
		t.Error("a vote is in the log")
	}
	b.votes(t, members[2], question, pure.Reject, "me too")
	b.votes(t, members[0], question, pure.Reject, "me too")
	b.reaches(t, members[0], question.Round, pure.Aborted)
	for stream.Scan() {
		if data, ok := strings.CutPrefix(stream.Text(), "data: "); ok {
			events = append(events, data)
		}
	}
	if len(events) != 2 || strings.Contains(events[0], why) || strings.Contains(events[1], why) {
		t.Errorf("the stream has told %s", events)
	}
	if logs := b.logs.String(); strings.Contains(logs, why) {
		t.Error("a rationale is in the log")
	}
}

// saidOf is what a participant who has not voted, and operators, read about a round.
func (b *bed) saidOf(t *testing.T, r rounds.RoundView, v voter) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, at := range []string{roundsAt + "/" + r.Round, roundsAt, roundsAt + "/" + r.Round + "/votes", "/workflows/" + r.Workflow, "/ects/" + string(r.Proposed)} {
		out[at] = string(b.send(t, letter{via: v.via, method: http.MethodGet, media: "-", at: at}).body)
	}
	for _, at := range []string{"/api/consensus", "/api/consensus/" + r.Round, "/api/approvals", "/api/workflows/" + r.Workflow, "/metrics"} {
		got := b.send(t, letter{via: b.as(t, "/staff/auditor"), method: http.MethodGet, media: "-", at: b.at.Admin + at})
		if got.status != http.StatusOK {
			t.Fatalf("%s: %d %s", at, got.status, got.body)
		}
		out[at] = string(got.body)
	}
	lines := strings.Split(out["/metrics"], "\n")
	out["/metrics"] = strings.Join(slices.DeleteFunc(lines, func(line string) bool { return !strings.Contains(line, "consensus") }), "\n")
	return out
}

// TestAttack_Consensus_FalseDispute: a participant that does not like an outcome reports a second one that was never signed, is its own
// work, or is the same; and repeats a refusal. Operators are called once, and for what is signed alone.
func TestAttack_Consensus_FalseDispute(t *testing.T) {
	t.Parallel()
	b := newBed(t, deciding())
	members := b.threeVoters(t)
	p, other := b.proposal(t, members[0], pure.Majority, time.Minute, nil), b.proposal(t, members[0], pure.Majority, time.Minute, nil)
	var outcomes []string
	for _, q := range []pure.Proposal{p, other} {
		b.propose(t, members[0], q)
		for _, v := range members {
			b.votes(t, v, q, pure.Approve, "")
		}
		outcomes = append(outcomes, verified[pure.Outcome](t, b, b.reaches(t, members[0], q.Round, pure.Committed).Outcome).Compact)
	}
	bob := members[1]
	dispute := func(kind pure.AckKind, outcomes ...string) letter {
		a := ackOf(bob, p, kind)
		a.Outcomes, a.Rationale = outcomes, "eyJ-is-not-logged"
		return letter{via: bob.via, at: roundsAt + "/" + p.Round + "/ack", body: message(t, bob, a)}
	}
	b.declines(t, dispute(pure.Disputed, outcomes[0], outcomes[0]), http.StatusBadRequest, "the same")
	b.declines(t, dispute(pure.Disputed, outcomes[0], outcomes[1]), http.StatusBadRequest, "another round")
	b.declines(t, dispute(pure.Disputed, outcomes[0], "a.b.c"), http.StatusBadRequest, "signed outcomes")
	forged := verified[pure.Outcome](t, b, b.round(t, bob, p.Round).Outcome).Content
	forged.Result = pure.Abort
	text, err := pure.Encode(forged)
	must(t, err)
	compact, err := bob.sign.SignNote("consensus-outcome+jwt", text, pure.MaxVote)
	must(t, err)
	b.declines(t, dispute(pure.Disputed, outcomes[0], compact), http.StatusForbidden, "ect_invalid")
	forged.Coordinator = bob.ID // its own work, well signed
	text, err = pure.Encode(forged)
	must(t, err)
	compact, err = bob.sign.SignNote("consensus-outcome+jwt", text, pure.MaxVote)
	must(t, err)
	b.declines(t, dispute(pure.Disputed, outcomes[0], compact), http.StatusBadRequest, "another coordinator")
	refusal := dispute(pure.Refuses, outcomes[0])
	for range 3 {
		answered[rounds.Taken](t, b.send(t, refusal), http.StatusAccepted)
	}
	if n := strings.Count(b.logs.String(), "does not accept the outcome"); n != 1 {
		t.Errorf("operators were told %d times", n)
	}
	b.counts(t, `aepb_consensus_anomalies_total{kind="refuses"} 1`)
	b.counts(t, `aepb_consensus_anomalies_total{kind="disputed"} 0`)
}

// TestAttack_Consensus_BorrowedAuthority: a proposer has members that collude agree on a call that it may not make itself, or not without
// an approval. The gateway, which may call each agent, does not make it in the proposer's place.
func TestAttack_Consensus_BorrowedAuthority(t *testing.T) {
	t.Parallel()
	plan := deciding()
	plan.config.Policy.Approvals = []config.Approval{{Agent: "agent-bob", Tool: "add"}}
	b := newBed(t, plan)
	members := b.threeVoters(t)
	agents := map[string]*fake{}
	for i, name := range []string{"alice", "bob", "carol"} {
		agents[name] = &fake{conduct: well}
		svid := b.svid(t, "/"+name)
		at := b.serve(t, "agent-"+name, "mcp-v1", agents[name], host{tls: serving(svid), id: svid.ID})
		if i == 2 { // only bob may call it
			must(t, b.directory.Put(directory.Agent{
				Name: "agent-carol", ID: svid.ID, Rules: policy.Rules{Callers: []string{spiffe("bob")}}, Endpoints: []directory.Endpoint{{Binding: "mcp-v1", URL: at}},
			}))
		}
	}
	p := b.proposal(t, members[0], pure.Majority, time.Minute, func(p *pure.Proposal) {
		p.Action = json.RawMessage(`{"tool":"add","arguments":{"a":1,"b":2}}`)
	})
	b.propose(t, members[0], p)
	for _, v := range members {
		b.votes(t, v, p, pure.Approve, "")
	}
	b.reaches(t, members[0], p.Round, pure.Committed)
	within(t, patience, "each agent was tried", func() bool {
		return agents["alice"].calls.Load() == 1 && strings.Contains(b.logs.String(), "a human has to approve this call") && strings.Contains(b.logs.String(), `"agent":"agent-carol"`)
	})
	for _, name := range []string{"bob", "carol"} {
		if n := agents[name].calls.Load(); n != 0 {
			t.Errorf("agent-%s was called %d times", name, n)
		}
	}
}
