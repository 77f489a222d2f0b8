package attacks

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
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// missingRound is the answer about a round that is not there.
const missingRound = `"code":"not_found"`

// TestAttack_Consensus_OutsiderVotes: who is no member of a group votes, acknowledges, and votes in the name of a member. None of it
// counts, and the attacker does not learn that the round exists.
func TestAttack_Consensus_OutsiderVotes(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Deciding())
	members, mallory := b.ThreeVoters(t), b.Voter(t, "/mallory")
	p := b.Proposal(t, members[0], pure.Majority, time.Minute, nil)
	b.Propose(t, members[0], p)
	disguised := gatewaytest.Voter{Party: mallory.Party, Via: mallory.Via, Sign: mallory.Sign}
	named := gatewaytest.VoteOn(members[1], p, pure.Approve, "")
	for _, l := range []gatewaytest.HTTPRequest{
		gatewaytest.VoteTo(mallory, p, gatewaytest.Message(t, mallory, gatewaytest.VoteOn(mallory, p, pure.Approve, ""))),
		gatewaytest.VoteTo(mallory, p, gatewaytest.Message(t, disguised, named)),
		gatewaytest.VoteTo(mallory, p, gatewaytest.Message(t, members[1], named)),
		{Via: mallory.Via, At: gatewaytest.RoundsAt + "/" + p.Round + "/ack", Body: gatewaytest.Message(t, mallory, gatewaytest.AckOf(mallory, p, pure.Received))},
	} {
		b.Declines(t, l, http.StatusNotFound, missingRound)
	}
	b.Declines(t, gatewaytest.HTTPRequest{Via: b.Anonymous, At: gatewaytest.RoundsAt + "/" + p.Round + "/votes", Body: gatewaytest.Message(t, members[1], named)}, http.StatusUnauthorized, "unauthenticated")
	for _, v := range members {
		b.Votes(t, v, p, pure.Reject, "no")
	}
	if o := b.Holds(t, members[0], b.Reaches(t, members[0], p.Round, pure.Aborted), pure.Abort, pure.Rejected); o.Tally.Approve != 0 || o.Tally.Connected != 3 {
		t.Errorf("the tally is %+v", o.Tally)
	}
}

// TestAttack_Consensus_VoteOfAnother: a member sends the vote that another one signed, and votes that it signed itself in the name of
// another; a client with a stolen certificate sends a vote that its own key signed, and one with a stolen signing key does so over
// its own connection. Each participant's votes come over its own connection with its own signature, or not at all.
func TestAttack_Consensus_VoteOfAnother(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Deciding())
	members, mallory := b.ThreeVoters(t), b.Voter(t, "/mallory")
	alice, bob := members[0], members[1]
	p := b.Proposal(t, alice, pure.Majority, time.Minute, nil)
	b.Propose(t, alice, p)
	ofBob := gatewaytest.VoteOn(bob, p, pure.Approve, "")
	b.Declines(t, gatewaytest.VoteTo(alice, p, gatewaytest.Message(t, bob, ofBob)), http.StatusForbidden, "each participant sends its own")
	b.Declines(t, gatewaytest.VoteTo(alice, p, gatewaytest.Message(t, alice, ofBob)), http.StatusForbidden, "each participant sends its own")
	b.Declines(t, gatewaytest.VoteTo(bob, p, gatewaytest.Message(t, alice, ofBob)), http.StatusForbidden, "ect_invalid")   // a session of bob, and a signature of alice
	b.Declines(t, gatewaytest.VoteTo(bob, p, gatewaytest.Message(t, mallory, ofBob)), http.StatusForbidden, "ect_invalid") // and of an outsider
	b.Declines(t, gatewaytest.VoteTo(bob, p, gatewaytest.Message(t, alice, gatewaytest.VoteOn(alice, p, pure.Approve, ""))), http.StatusForbidden, "each participant sends its own")
	good := gatewaytest.Message(t, bob, ofBob)
	spoiled := strings.Replace(good, `"approve"`, `"reject"`, 1)
	b.Declines(t, gatewaytest.VoteTo(bob, p, spoiled), http.StatusBadRequest, "malformed")
	asProposal := b.Proposal(t, bob, pure.Majority, time.Minute, nil)
	b.Declines(t, gatewaytest.HTTPRequest{Via: alice.Via, At: gatewaytest.RoundsAt, Body: gatewaytest.Message(t, bob, asProposal)}, http.StatusForbidden, "each participant sends its own")
	b.Declines(t, gatewaytest.HTTPRequest{Via: bob.Via, At: gatewaytest.RoundsAt, Body: gatewaytest.Message(t, alice, asProposal)}, http.StatusForbidden, "ect_invalid")
	if all := b.Ballots(t, bob, p.Round); len(all) != 0 {
		t.Errorf("%d messages are on record", len(all))
	}
}

// TestAttack_Consensus_TwoVotes: a proposer approves and rejects, in the hope that one of its votes is counted as suits it. Neither
// counts, both are on record. The proposer is told so, for the second, a third, and the first once more.
func TestAttack_Consensus_TwoVotes(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Deciding())
	members := b.ThreeVoters(t)
	alice := members[0]
	p := b.Proposal(t, alice, pure.Majority, time.Minute, nil)
	b.Propose(t, alice, p)
	first := gatewaytest.Message(t, alice, gatewaytest.VoteOn(alice, p, pure.Approve, ""))
	gatewaytest.Answered[rounds.Taken](t, b.Send(t, gatewaytest.VoteTo(alice, p, first)), http.StatusAccepted)
	for _, vote := range []string{gatewaytest.Message(t, alice, gatewaytest.VoteOn(alice, p, pure.Approve, "again")), gatewaytest.Message(t, alice, gatewaytest.VoteOn(alice, p, pure.Approve, "and again")), first} {
		b.Declines(t, gatewaytest.VoteTo(alice, p, vote), http.StatusConflict, "none of them counts any more")
	}
	b.Votes(t, members[1], p, pure.Approve, "")
	b.Votes(t, members[2], p, pure.Reject, "no")
	o := b.Holds(t, members[1], b.Reaches(t, members[1], p.Round, pure.Aborted), pure.Abort, pure.Rejected)
	if o.Tally.Doubled != 1 || o.Tally.Approve != 1 || len(b.Ballots(t, members[2], p.Round)) != 4 {
		t.Errorf("the tally is %+v", o.Tally)
	}
}

// TestAttack_Consensus_VoteOfAnotherRound: a vote is sent again in another round, about the same proposal submitted again or about
// another one. It counts in its own round alone.
func TestAttack_Consensus_VoteOfAnotherRound(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Deciding())
	members := b.ThreeVoters(t)
	first, second := b.Proposal(t, members[0], pure.Majority, time.Minute, nil), b.Proposal(t, members[0], pure.Majority, time.Minute, nil)
	for _, p := range []pure.Proposal{first, second} {
		b.Propose(t, members[0], p)
	}
	vote := gatewaytest.Message(t, members[1], gatewaytest.VoteOn(members[1], first, pure.Approve, ""))
	gatewaytest.Answered[rounds.Taken](t, b.Send(t, gatewaytest.VoteTo(members[1], first, vote)), http.StatusAccepted)
	b.Declines(t, gatewaytest.VoteTo(members[1], second, vote), http.StatusForbidden, "another round")
	mixed := gatewaytest.VoteOn(members[1], first, pure.Approve, "")
	mixed.Round = second.Round
	b.Declines(t, gatewaytest.VoteTo(members[1], second, gatewaytest.Message(t, members[1], mixed)), http.StatusForbidden, "another round")
	stale := gatewaytest.VoteOn(members[1], second, pure.Approve, "")
	stale.Timestamp = time.Now().Add(-consensus.Freshness - time.Minute)
	b.Declines(t, gatewaytest.VoteTo(members[1], second, gatewaytest.Message(t, members[1], stale)), http.StatusForbidden, "5 minutes")
	if all := b.Ballots(t, members[1], second.Round); len(all) != 0 {
		t.Errorf("%d votes are on record in the other round", len(all))
	}
}

// TestAttack_Consensus_MembersJoinDuringARound: identities that are added to a group while a round of it is open, as an attacker adds
// that registers many of them, do not vote in it, and its quorum stays (Sybil Resistance).
func TestAttack_Consensus_MembersJoinDuringARound(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Deciding())
	members := b.ThreeVoters(t)
	p := b.Proposal(t, members[0], pure.Majority, time.Minute, nil)
	opened := b.Propose(t, members[0], p)
	c := b.Settings()
	c.Consensus.Groups = maps.Clone(c.Consensus.Groups)
	g := gatewaytest.GroupOf("alice", "bob", "carol", "sybil-1", "sybil-2", "sybil-3", "sybil-4")
	c.Consensus.Groups["team"] = g
	gatewaytest.Must(t, b.Reload(t.Context(), c))
	for _, v := range b.Voters(t, "sybil-1", "sybil-2", "sybil-3", "sybil-4") {
		if len(b.Group(t, v, "team").Participants) != 7 {
			t.Fatal("the group has not changed")
		}
		b.Declines(t, gatewaytest.VoteTo(v, p, gatewaytest.Message(t, v, gatewaytest.VoteOn(v, p, pure.Approve, ""))), http.StatusNotFound, missingRound)
	}
	for _, v := range members {
		b.Votes(t, v, p, pure.Reject, "no")
	}
	r := b.Reaches(t, members[0], p.Round, pure.Aborted)
	if o := b.Holds(t, members[0], r, pure.Abort, pure.Rejected); o.Tally.Participants != 3 || r.Rules.Hash() != opened.Rules.Hash() {
		t.Errorf("decided as %+v", o.Tally)
	}
}

// TestAttack_Consensus_TenThousandRounds: a proposer opens ten thousand rounds, many at once. It gets its own share of them and no
// more, and others open rounds and decide as before.
func TestAttack_Consensus_TenThousandRounds(t *testing.T) {
	t.Parallel()
	p := gatewaytest.Deciding()
	b := gatewaytest.NewFixture(t, p)
	members := b.ThreeVoters(t)
	model := b.Proposal(t, members[2], pure.Majority, time.Hour, nil)
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
				got, err := b.Try(t, gatewaytest.HTTPRequest{Via: members[2].Via, At: gatewaytest.RoundsAt, Body: gatewaytest.Message(t, members[2], p)})
				switch {
				case err == nil && got.Status == http.StatusCreated:
					taken.Add(1)
				case err == nil && got.Status == http.StatusTooManyRequests:
					refused.Add(1)
				default:
					t.Errorf("%d %s %v", got.Status, got.Body, err)
					return
				}
			}
		})
	}
	all.Wait()
	if n := taken.Load(); n > consensus.OfOneProposer || n == 0 || n+refused.Load() != 10_000 {
		t.Errorf("%d rounds were opened, and %d refused", n, refused.Load())
	}
	other := b.Proposal(t, members[0], pure.Majority, time.Minute, nil)
	b.Propose(t, members[0], other)
	for _, v := range members {
		b.Votes(t, v, other, pure.Approve, "")
	}
	b.Holds(t, members[0], b.Reaches(t, members[0], other.Round, pure.Committed), pure.Commit, pure.Accepted)
}

// TestAttack_Consensus_SilentParticipant: participants that never answer, in the hope that a round never ends, do not hold it beyond
// its deadline.
func TestAttack_Consensus_SilentParticipant(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Deciding())
	members := b.ThreeVoters(t)
	p, q := b.Proposal(t, members[0], pure.Majority, 3*time.Second, nil), b.Proposal(t, members[0], pure.Majority, 3*time.Second, nil)
	b.Propose(t, members[0], p)
	b.Propose(t, members[0], q)
	b.Votes(t, members[0], p, pure.Approve, "")
	b.Votes(t, members[1], p, pure.Approve, "")
	b.Votes(t, members[0], q, pure.Approve, "")
	for r, want := range map[string]struct {
		phase  pure.Phase
		result pure.Result
		why    pure.Reason
	}{
		p.Round: {pure.Committed, pure.Commit, pure.Accepted}, q.Round: {pure.Aborted, pure.Abort, pure.NoQuorum},
	} {
		o := b.Holds(t, members[0], b.Reaches(t, members[0], r, want.phase), want.result, want.why)
		if late := o.Decided.Sub(p.Timeout.Time); late < 0 || late > 20*time.Second {
			t.Errorf("the round ended %s after its deadline", late)
		}
	}
}

// TestAttack_Consensus_HostileMessages: messages of hostile sizes, depths, names and numbers are refused as such, quickly, and the
// gateway works on.
func TestAttack_Consensus_HostileMessages(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Deciding())
	alice := b.ThreeVoters(t)[0]
	p := b.Proposal(t, alice, pure.Majority, time.Minute, nil)
	b.Propose(t, alice, p)
	good := gatewaytest.Message(t, alice, gatewaytest.VoteOn(alice, p, pure.Approve, ""))
	deep := func(open, end string) string { return strings.Repeat(open, 10_000) + strings.Repeat(end, 10_000) }
	for at, limit := range map[string]int{gatewaytest.RoundsAt: 256 << 10, gatewaytest.RoundsAt + "/" + p.Round + "/votes": 32 << 10, gatewaytest.RoundsAt + "/" + p.Round + "/ack": 128 << 10} {
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
			if got := b.Send(t, gatewaytest.HTTPRequest{Via: alice.Via, At: at, Body: c.body}); got.Status != c.status || time.Since(began) > 5*time.Second {
				t.Errorf("%s at %s: got %d after %v, expected %d: %s", name, at, got.Status, time.Since(began), c.status, gatewaytest.Short(got.Body))
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
		gatewaytest.Must(t, err)
		compact, err := alice.Sign.SignNote("consensus-proposal+jwt", text, pure.MaxProposal)
		gatewaytest.Must(t, err)
		body := string(text[:len(text)-1]) + `,"signature":"` + compact + `"}`
		if got := b.Send(t, gatewaytest.HTTPRequest{Via: alice.Via, At: gatewaytest.RoundsAt, Body: body}); got.Status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, got.Status, gatewaytest.Short(got.Body))
		}
	}
	also := gatewaytest.VoteTo(alice, p, strings.Replace(good, "{", `{"also":1,`, 1))
	b.Declines(t, also, http.StatusBadRequest, "malformed")
	b.Votes(t, alice, p, pure.Approve, "")
	b.Works(t)
}

// TestAttack_Consensus_OutsiderEnumerates: who takes no part asks for groups and rounds by their ids, lists them, watches them, and
// opens a round with the id of another. It is answered as if they were not there.
func TestAttack_Consensus_OutsiderEnumerates(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Deciding())
	members, mallory := b.ThreeVoters(t), b.Voter(t, "/mallory")
	p := b.Proposal(t, members[0], pure.Majority, time.Minute, nil)
	b.Propose(t, members[0], p)
	get := func(at string) gatewaytest.HTTPRequest {
		return gatewaytest.HTTPRequest{Via: mallory.Via, Method: http.MethodGet, Media: "-", At: at}
	}
	post := func(round, what, body string) gatewaytest.HTTPRequest {
		return gatewaytest.HTTPRequest{Via: mallory.Via, At: gatewaytest.RoundsAt + "/" + round + what, Body: body}
	}
	absent := p
	absent.Round = string(ect.NewID())
	mine, mineAbsent := p, absent
	mine.Proposer, mineAbsent.Proposer = mallory.ID, mallory.ID
	for name, pair := range map[string][2]gatewaytest.HTTPRequest{
		"a group":       {get("/consensus/groups/team"), get("/consensus/groups/teem")},
		"a round":       {get(gatewaytest.RoundsAt + "/" + p.Round), get(gatewaytest.RoundsAt + "/" + absent.Round)},
		"votes":         {get(gatewaytest.RoundsAt + "/" + p.Round + "/votes"), get(gatewaytest.RoundsAt + "/" + absent.Round + "/votes")},
		"events":        {get(gatewaytest.RoundsAt + "/" + p.Round + "/events"), get(gatewaytest.RoundsAt + "/" + absent.Round + "/events")},
		"a vote":        {post(p.Round, "/votes", gatewaytest.Message(t, mallory, gatewaytest.VoteOn(mallory, p, pure.Approve, ""))), post(absent.Round, "/votes", gatewaytest.Message(t, mallory, gatewaytest.VoteOn(mallory, absent, pure.Approve, "")))},
		"an ack":        {post(p.Round, "/ack", gatewaytest.Message(t, mallory, gatewaytest.AckOf(mallory, p, pure.Received))), post(absent.Round, "/ack", gatewaytest.Message(t, mallory, gatewaytest.AckOf(mallory, absent, pure.Received)))},
		"a proposal":    {{Via: mallory.Via, At: gatewaytest.RoundsAt, Body: gatewaytest.Message(t, mallory, mine)}, {Via: mallory.Via, At: gatewaytest.RoundsAt, Body: gatewaytest.Message(t, mallory, mineAbsent)}},
		"a replayed":    {{Via: mallory.Via, At: gatewaytest.RoundsAt, Body: gatewaytest.Message(t, members[0], p)}, {Via: mallory.Via, At: gatewaytest.RoundsAt, Body: gatewaytest.Message(t, members[0], absent)}},
		"for operators": {{Via: mallory.Via, Method: http.MethodGet, Media: "-", At: b.At.Admin + "/api/consensus/" + p.Round}, {Via: mallory.Via, Method: http.MethodGet, Media: "-", At: b.At.Admin + "/api/consensus/" + absent.Round}},
	} {
		there, not := b.Send(t, pair[0]), b.Send(t, pair[1])
		described := func(r gatewaytest.Reply, id string) string {
			var problem struct{ Code, Detail, Title string }
			gatewaytest.Must(t, json.Unmarshal(r.Body, &problem))
			return strings.ReplaceAll(problem.Code+problem.Detail+problem.Title, id, "ID")
		}
		if there.Status != not.Status || there.Status < 400 || described(there, p.Round) != described(not, absent.Round) {
			t.Errorf("%s: %d %s, and without it %d %s", name, there.Status, there.Body, not.Status, not.Body)
		}
	}
	if list := gatewaytest.Answered[rounds.Page](t, b.Send(t, get(gatewaytest.RoundsAt)), http.StatusOK); len(list.Rounds) != 0 || list.Next != "" {
		t.Errorf("an outsider lists %+v", list)
	}
}

// TestAttack_Consensus_VotesBeforeTheTally: who wants to know how others have voted looks for it in everything that the gateway says
// before the outcome: rounds, lists, streams, evidence, logs, metrics, and what operators see. Nothing depends on a vote.
func TestAttack_Consensus_VotesBeforeTheTally(t *testing.T) {
	t.Parallel()
	p := gatewaytest.Deciding()
	p.Config.Admin = gatewaytest.GatedAgents().Config.Admin
	b := gatewaytest.NewFixture(t, p)
	members := b.ThreeVoters(t)
	question := b.Proposal(t, members[0], pure.Majority, time.Minute, nil)
	opened := b.Propose(t, members[0], question)
	before := saidOf(t, b, opened, members[2])
	stream := b.EventsOf(t, members[2], question.Round)
	events := []string{gatewaytest.NextData(t, stream)}
	const why = "rationale-of-bob-7f3"
	b.Votes(t, members[1], question, pure.Reject, why)
	b.Acknowledge(t, members[0], question, gatewaytest.AckOf(members[0], question, pure.Received))
	after := saidOf(t, b, opened, members[2])
	for at, text := range before {
		if after[at] != text {
			t.Errorf("%s has changed with a vote:\n%s\n%s", at, text, after[at])
		}
	}
	if logs := b.Logs.String(); strings.Contains(logs, why) || strings.Contains(logs, string(members[1].ID)+`","decision`) || strings.Contains(logs, `"reject"`) {
		t.Error("a vote is in the log")
	}
	b.Votes(t, members[2], question, pure.Reject, "me too")
	b.Votes(t, members[0], question, pure.Reject, "me too")
	b.Reaches(t, members[0], question.Round, pure.Aborted)
	for stream.Scan() {
		if data, ok := strings.CutPrefix(stream.Text(), "data: "); ok {
			events = append(events, data)
		}
	}
	if len(events) != 2 || strings.Contains(events[0], why) || strings.Contains(events[1], why) {
		t.Errorf("the stream has told %s", events)
	}
	if logs := b.Logs.String(); strings.Contains(logs, why) {
		t.Error("a rationale is in the log")
	}
}

// saidOf is what a participant who has not voted, and operators, read about a round.
func saidOf(t *testing.T, b *gatewaytest.Fixture, r rounds.RoundView, v gatewaytest.Voter) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, at := range []string{gatewaytest.RoundsAt + "/" + r.Round, gatewaytest.RoundsAt, gatewaytest.RoundsAt + "/" + r.Round + "/votes", "/workflows/" + r.Workflow, "/ects/" + string(r.Proposed)} {
		out[at] = string(b.Send(t, gatewaytest.HTTPRequest{Via: v.Via, Method: http.MethodGet, Media: "-", At: at}).Body)
	}
	for _, at := range []string{"/api/consensus", "/api/consensus/" + r.Round, "/api/approvals", "/api/workflows/" + r.Workflow, "/metrics"} {
		got := b.Send(t, gatewaytest.HTTPRequest{Via: b.As(t, "/staff/auditor"), Method: http.MethodGet, Media: "-", At: b.At.Admin + at})
		if got.Status != http.StatusOK {
			t.Fatalf("%s: %d %s", at, got.Status, got.Body)
		}
		out[at] = string(got.Body)
	}
	lines := strings.Split(out["/metrics"], "\n")
	out["/metrics"] = strings.Join(slices.DeleteFunc(lines, func(line string) bool { return !strings.Contains(line, "consensus") }), "\n")
	return out
}

// TestAttack_Consensus_FalseDispute: a participant that does not like an outcome reports a second one that was never signed, is its own
// work, or is the same; and repeats a refusal. Operators are called once, and for what is signed alone.
func TestAttack_Consensus_FalseDispute(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Deciding())
	members := b.ThreeVoters(t)
	p, other := b.Proposal(t, members[0], pure.Majority, time.Minute, nil), b.Proposal(t, members[0], pure.Majority, time.Minute, nil)
	var outcomes []string
	for _, q := range []pure.Proposal{p, other} {
		b.Propose(t, members[0], q)
		for _, v := range members {
			b.Votes(t, v, q, pure.Approve, "")
		}
		outcomes = append(outcomes, gatewaytest.Verified[pure.Outcome](t, b, b.Reaches(t, members[0], q.Round, pure.Committed).Outcome).Compact)
	}
	bob := members[1]
	dispute := func(kind pure.AckKind, outcomes ...string) gatewaytest.HTTPRequest {
		a := gatewaytest.AckOf(bob, p, kind)
		a.Outcomes, a.Rationale = outcomes, "eyJ-is-not-logged"
		return gatewaytest.HTTPRequest{Via: bob.Via, At: gatewaytest.RoundsAt + "/" + p.Round + "/ack", Body: gatewaytest.Message(t, bob, a)}
	}
	b.Declines(t, dispute(pure.Disputed, outcomes[0], outcomes[0]), http.StatusBadRequest, "the same")
	b.Declines(t, dispute(pure.Disputed, outcomes[0], outcomes[1]), http.StatusBadRequest, "another round")
	b.Declines(t, dispute(pure.Disputed, outcomes[0], "a.b.c"), http.StatusBadRequest, "signed outcomes")
	forged := gatewaytest.Verified[pure.Outcome](t, b, b.Round(t, bob, p.Round).Outcome).Content
	forged.Result = pure.Abort
	text, err := pure.Encode(forged)
	gatewaytest.Must(t, err)
	compact, err := bob.Sign.SignNote("consensus-outcome+jwt", text, pure.MaxVote)
	gatewaytest.Must(t, err)
	b.Declines(t, dispute(pure.Disputed, outcomes[0], compact), http.StatusForbidden, "ect_invalid")
	forged.Coordinator = bob.ID // its own work, well signed
	text, err = pure.Encode(forged)
	gatewaytest.Must(t, err)
	compact, err = bob.Sign.SignNote("consensus-outcome+jwt", text, pure.MaxVote)
	gatewaytest.Must(t, err)
	b.Declines(t, dispute(pure.Disputed, outcomes[0], compact), http.StatusBadRequest, "another coordinator")
	refusal := dispute(pure.Refuses, outcomes[0])
	for range 3 {
		gatewaytest.Answered[rounds.Taken](t, b.Send(t, refusal), http.StatusAccepted)
	}
	if n := strings.Count(b.Logs.String(), "does not accept the outcome"); n != 1 {
		t.Errorf("operators were told %d times", n)
	}
	b.Counts(t, `aepb_consensus_anomalies_total{kind="refuses"} 1`)
	b.Counts(t, `aepb_consensus_anomalies_total{kind="disputed"} 0`)
}

// TestAttack_Consensus_BorrowedAuthority: a proposer has members that collude agree on a call that it may not make itself, or not without
// an approval. The gateway, which may call each agent, does not make it in the proposer's place.
func TestAttack_Consensus_BorrowedAuthority(t *testing.T) {
	t.Parallel()
	plan := gatewaytest.Deciding()
	plan.Config.Policy.Approvals = []config.Approval{{Agent: "agent-bob", Tool: "add"}}
	b := gatewaytest.NewFixture(t, plan)
	members := b.ThreeVoters(t)
	agents := map[string]*gatewaytest.Fake{}
	for i, name := range []string{"alice", "bob", "carol"} {
		agents[name] = &gatewaytest.Fake{Conduct: gatewaytest.Well}
		svid := b.SVID(t, "/"+name)
		at := b.Serve(t, "agent-"+name, "mcp-v1", agents[name], gatewaytest.Host{TLS: gatewaytest.Serving(svid), ID: svid.ID})
		if i == 2 { // only bob may call it
			gatewaytest.Must(t, b.Directory().Put(directory.Agent{
				Name: "agent-carol", ID: svid.ID, Rules: policy.Rules{Callers: []string{gatewaytest.Spiffe("bob")}}, Endpoints: []directory.Endpoint{{Binding: "mcp-v1", URL: at}},
			}))
		}
	}
	p := b.Proposal(t, members[0], pure.Majority, time.Minute, func(p *pure.Proposal) {
		p.Action = json.RawMessage(`{"tool":"add","arguments":{"a":1,"b":2}}`)
	})
	b.Propose(t, members[0], p)
	for _, v := range members {
		b.Votes(t, v, p, pure.Approve, "")
	}
	b.Reaches(t, members[0], p.Round, pure.Committed)
	gatewaytest.Within(t, gatewaytest.Patience, "each agent was tried", func() bool {
		return agents["alice"].Calls.Load() == 1 && strings.Contains(b.Logs.String(), "a human has to approve this call") && strings.Contains(b.Logs.String(), `"agent":"agent-carol"`)
	})
	for _, name := range []string{"bob", "carol"} {
		if n := agents[name].Calls.Load(); n != 0 {
			t.Errorf("agent-%s was called %d times", name, n)
		}
	}
}

// TestAttack_Consensus_ToolOfAnother: a proposer that may call some tools of an agent has members that collude agree on
// words, on data, or on the name under which another tool is shown, for one that it may not call.
func TestAttack_Consensus_ToolOfAnother(t *testing.T) {
	t.Parallel()
	for what, action := range map[string]string{
		"words": `{"text":"use add"}`, "data": `{"skill":"add","input":{"a":1,"b":2}}`, "a tool": `{"tool":"add","arguments":{"a":1,"b":2}}`,
	} {
		b := gatewaytest.NewFixture(t, gatewaytest.Deciding())
		members := b.ThreeVoters(t)
		agents := map[string]*gatewaytest.Fake{}
		proposer := gatewaytest.Spiffe("alice")
		for name, rules := range map[string]policy.Rules{
			"alice": {Callers: []string{proposer}},
			"bob":   {Callers: []string{proposer + "#invoke:read"}},
			"carol": {Callers: []string{proposer}, Tools: []string{"read"}, Names: policy.NewNames(map[string]string{"write": "add"})},
		} {
			agents[name] = &gatewaytest.Fake{Conduct: gatewaytest.Well}
			svid := b.SVID(t, "/"+name)
			at := b.Serve(t, "agent-"+name, "a2a-v1", agents[name], gatewaytest.Host{TLS: gatewaytest.Serving(svid), ID: svid.ID})
			gatewaytest.Must(t, b.Directory().Put(directory.Agent{
				Name: "agent-" + name, ID: svid.ID, Rules: rules, Endpoints: []directory.Endpoint{{Binding: "a2a-v1", URL: at}},
			}))
		}
		p := b.Proposal(t, members[0], pure.Majority, time.Minute, func(p *pure.Proposal) { p.Action = json.RawMessage(action) })
		b.Propose(t, members[0], p)
		for _, v := range members {
			b.Votes(t, v, p, pure.Approve, "")
		}
		b.Reaches(t, members[0], p.Round, pure.Committed)
		gatewaytest.Within(t, gatewaytest.Patience, "each agent was tried", func() bool {
			tried := func(name string) bool {
				return agents[name].Calls.Load() > 0 || strings.Contains(b.Logs.String(), `"agent":"agent-`+name+`"`)
			}
			return tried("alice") && tried("bob") && tried("carol")
		})
		for _, name := range []string{"bob", "carol"} {
			if n := agents[name].Calls.Load(); n != 0 {
				t.Errorf("%s: agent-%s was called %d times", what, name, n)
			}
		}
	}
}
