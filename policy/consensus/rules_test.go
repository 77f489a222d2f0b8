package consensus

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// openingOf is an opening of a proposal of a group, before it is judged.
func openingOf(g Group, m Mechanism) Opening {
	table := g.Weigh(known, opened)
	p := Proposal{
		ID: uuidOf(1), Proposer: idOf(0), Round: uuidOf(2), Mechanism: m, Subject: "restart", Action: []byte(`{"tool":"restart"}`),
		Timeout: At(opened.Add(time.Minute)), Quorum: g.Floor(m, table),
		Terms: Terms{Reversible: true, Group: g.Name, Weights: WeightsHash(table), Timestamp: opened},
	}
	for _, one := range table {
		p.Participants = append(p.Participants, one.ID)
	}
	return Opening{Proposal: p, Signed: "signed", Group: g, Since: known, Now: opened}
}

func mustOpen(t *testing.T, o Opening) Round {
	t.Helper()
	r, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// lookAt is a round after a look at a moment.
func lookAt(t *testing.T, r Round, at time.Time, box Box, related ...Related) Round {
	t.Helper()
	next, err := r.Next(Event{Kind: Look, At: at, Box: box, Related: related})
	if err != nil {
		t.Fatal(err)
	}
	if next.Phase != r.Phase && !slices.Contains(transitions[r.Phase][Look], next.Phase) {
		t.Errorf("a look leads from %s to %s, which the table of transitions does not say", r.Phase, next.Phase)
	}
	return next
}

func lookLate(t *testing.T, r Round, box Box, related ...Related) Round {
	t.Helper()
	return lookAt(t, r, r.Deadline().Add(Grace), box, related...)
}

// votesOf are the votes of members 0, 1, …: a approves, r rejects, - abstains, . is silent.
func votesOf(r Round, decisions string) (box Box) {
	for i, d := range decisions {
		if d != '.' {
			box.Ballots = append(box.Ballots, ballotOf(r, i, map[rune]Decision{'a': Approve, 'r': Reject, '-': Abstain}[d]))
		}
	}
	return box
}

func ended(t *testing.T, name string, got Round, phase Phase, reason Reason) {
	t.Helper()
	if got.Phase != phase || phase.Decided() && got.End.Outcome.Reason != reason || phase == Escalated && got.Human.Why != reason {
		t.Errorf("%s: %s, %s%s; expected %s, %s", name, got.Phase, got.End.Outcome.Reason, got.Human.Why, phase, reason)
	}
}

// TestWeighted_Threshold: approving weight has to exceed the part of the total weight; exactly that part rejects.
func TestWeighted_Threshold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		weights   []int64
		threshold int
		votes     string
		phase     Phase
		reason    Reason
	}{
		"exactly half":                    {[]int64{5, 3, 2}, 0, "arr", Aborted, Rejected},
		"one more than half":              {[]int64{6, 3, 2}, 0, "arr", Committed, Accepted},
		"silence counts for the total":    {[]int64{5, 3, 2}, 0, "aa.", Committed, Accepted},
		"abstentions too":                 {[]int64{4, 3, 3}, 0, "a--", Aborted, NoQuorum},
		"half took part":                  {[]int64{5, 3, 2}, 0, "a--", Aborted, Rejected},
		"exactly two thirds of threshold": {[]int64{66, 33, 1}, 66, "arr", Aborted, Rejected},
		"above a high threshold":          {[]int64{67, 32, 1}, 66, "arr", Committed, Accepted},
		"low threshold, exactly":          {[]int64{30, 60, 10}, 30, "ar-", Aborted, Rejected},
		"low threshold, above":            {[]int64{31, 60, 9}, 30, "ar-", Committed, Accepted},
		"largest weights":                 {[]int64{MaxWeight, MaxWeight, MaxWeight - 1}, 0, "aa.", Committed, Accepted},
	} {
		g := groupOf(len(c.weights))
		g.Threshold = c.threshold
		for i, w := range c.weights {
			g.Members[i].Weight = w
		}
		r := mustOpen(t, openingOf(g, Weighted))
		got := lookLate(t, r, votesOf(r, c.votes))
		ended(t, name, got, c.phase, c.reason)
	}
}

// TestWeighted_BoundToTheTable: a proposal and a vote with the hash of another table of weights do not count (CNS-06).
func TestWeighted_BoundToTheTable(t *testing.T) {
	t.Parallel()
	o := openingOf(groupOf(3), Weighted)
	o.Proposal.Terms.Weights = WeightsHash(nil)
	refusedFor(t, "weights_hash", o)
	r := mustOpen(t, openingOf(groupOf(3), Weighted))
	box := votesOf(r, "aaa")
	box.Ballots[1].Vote.Weights = WeightsHash(nil)
	box.Ballots[2].Vote.Weights = ""
	for i, b := range box.Ballots {
		if err := r.Admits(b.Vote, b.Received); (err != nil) != (i > 0) {
			t.Errorf("vote %d: %v", i, err)
		}
	}
	got := lookLate(t, r, box)
	ended(t, "two votes of another table", got, Aborted, NoQuorum)
	want := Tally{Participants: 3, Approve: 1, Connected: 1, ApproveWeight: 100, TotalWeight: 300}
	if got.End.Outcome.Tally != want {
		t.Errorf("%+v, expected %+v", got.End.Outcome.Tally, want)
	}
}

// TestScore_OfAges: weights of identities that are not known long are lowered (Sybil Resistance).
func TestScore_OfAges(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]int64{
		-time.Hour: 25, 0: 25, NewFor - 1: 25, NewFor: 50, YoungFor - 1: 50, YoungFor: 100, 10 * YoungFor: 100,
	} {
		if got := Score(opened.Add(-age), opened); got != want {
			t.Errorf("after %v: %d, expected %d", age, got, want)
		}
	}
	if got := Score(time.Time{}, opened); got != 25 {
		t.Errorf("an unknown identity: %d, expected 25", got)
	}
	g := groupOf(2)
	g.Members[0].Weight, g.Members[1].Weight = 2, 7
	got := g.Weigh(func(id ect.Identity) time.Time { return map[ect.Identity]time.Time{idOf(0): opened.Add(-YoungFor)}[id] }, opened)
	if want := []Member{{idOf(0), 200}, {idOf(1), 175}}; !slices.Equal(got, want) {
		t.Errorf("%v, expected %v", got, want)
	}
}

// TestLeader_Decides: the leader decides with the votes of the others before it, and needs a rationale against most of them.
func TestLeader_Decides(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		decision  Decision
		rationale string
		others    string // members 1 to 4; the leader is member 0
		early     Phase  // at once
		late      Phase  // after the deadline
		reason    Reason
	}{
		"approves as most do":               {Approve, "", ".aaar", Committed, Committed, Accepted},
		"approves a tie":                    {Approve, "", ".aarr", Committed, Committed, Accepted},
		"overrides with a rationale":        {Approve, "it is urgent", ".arrr", Committed, Committed, Accepted},
		"overrides without a rationale":     {Approve, "", ".arrr", Voting, Aborted, NoDecision},
		"rejects":                           {Reject, "it is risky", ".aaaa", Aborted, Aborted, Rejected},
		"rejects alone":                     {Reject, "it is risky", ".....", Aborted, Aborted, Rejected},
		"abstains":                          {Abstain, "", ".aaaa", Voting, Aborted, NoDecision},
		"says nothing":                      {"", "", ".aaaa", Voting, Aborted, NoDecision},
		"approves before others are there":  {Approve, "", "....a", Voting, Suspended, ""},
		"abstentions are no recommendation": {Approve, "", ".--r-", Voting, Aborted, NoDecision},
	} {
		g := groupOf(5)
		g.Leader = idOf(0)
		r := mustOpen(t, openingOf(g, Leader))
		box := votesOf(r, c.others)
		if c.decision != "" {
			b := ballotOf(r, 0, c.decision)
			b.Vote.Rationale = c.rationale
			box.Ballots = append(box.Ballots, b)
		}
		if got := lookAt(t, r, opened.Add(2*time.Second), box); got.Phase != c.early {
			t.Errorf("%s: at once %s, expected %s", name, got.Phase, c.early)
		}
		ended(t, name, lookLate(t, r, box), c.late, c.reason)
	}
}

// TestLeader_Doubled: a leader that decides twice has not decided.
func TestLeader_Doubled(t *testing.T) {
	t.Parallel()
	g := groupOf(3)
	g.Leader = idOf(0)
	r := mustOpen(t, openingOf(g, Leader))
	box := votesOf(r, "aaa")
	box.Ballots = append(box.Ballots, ballotOf(r, 0, Reject))
	got := lookLate(t, r, box)
	ended(t, "two decisions", got, Aborted, NoDecision)
	if got.End.Outcome.Tally.Doubled != 1 {
		t.Errorf("doubled is %d, expected 1", got.End.Outcome.Tally.Doubled)
	}
}

// TestLeader_OutsideOfTheMembers: such a leader decides, and is no participant: it neither connects nor counts.
func TestLeader_OutsideOfTheMembers(t *testing.T) {
	t.Parallel()
	g := groupOf(3)
	g.Leader = idOf(9)
	r := mustOpen(t, openingOf(g, Leader))
	box := votesOf(r, "a..")
	box.Ballots = append(box.Ballots, ballotOf(r, 9, Approve))
	box.Receipts = append(box.Receipts, ackOf(r, 9, Received))
	ended(t, "one member and the leader", lookLate(t, r, box), Suspended, "")
	box.Receipts = append(box.Receipts, ackOf(r, 2, Received))
	got := lookLate(t, r, box)
	ended(t, "two members and the leader", got, Committed, Accepted)
	if want := (Tally{Participants: 3, Approve: 1, Connected: 2}); got.End.Outcome.Tally != want {
		t.Errorf("%+v, expected %+v", got.End.Outcome.Tally, want)
	}
	outsider := Box{Ballots: []Ballot{ballotOf(r, 8, Approve)}}
	if err := r.Admits(outsider.Ballots[0].Vote, opened); err == nil {
		t.Error("an outsider that does not lead may vote")
	}
}

// TestLeader_Rotation: without a designated leader each member leads for an hour, one after the other (CNS-09).
func TestLeader_Rotation(t *testing.T) {
	t.Parallel()
	g := groupOf(3)
	hour := time.Unix(3600*3000, 0)
	for i := range 7 {
		for _, within := range []time.Duration{0, time.Hour - 1} {
			if got := g.LeaderAt(hour.Add(time.Duration(i)*time.Hour + within)); got != idOf(i%3) {
				t.Errorf("%v after hour %d: %s leads, expected %s", within, i, got, idOf(i%3))
			}
		}
	}
	r := mustOpen(t, openingOf(g, Leader))
	if r.Rules.Leader != g.LeaderAt(opened) {
		t.Errorf("%s leads the round, expected who leads when it is opened", r.Rules.Leader)
	}
	if r := mustOpen(t, openingOf(g, Majority)); r.Rules.Leader != "" {
		t.Errorf("%s leads a round of majority", r.Rules.Leader)
	}
}

// TestOptimistic_Silence: one objection blocks at once; silence approves only from enough participants that were reached.
func TestOptimistic_Silence(t *testing.T) {
	t.Parallel()
	r := roundOf(t, Optimistic, 5)
	one := votesOf(r, "aaar.")
	ended(t, "an objection", lookAt(t, r, opened.Add(time.Second), one), Aborted, Objected)
	ended(t, "no objection yet", lookAt(t, r, r.Deadline().Add(Grace-1), votesOf(r, "aaaa.")), Voting, "")
	ended(t, "silence of all", lookLate(t, r, Box{}), Suspended, "")
	acks := func(kind AckKind, n int) (box Box) {
		for i := range n {
			box.Receipts = append(box.Receipts, ackOf(r, i, kind))
		}
		return box
	}
	ended(t, "two reached", lookLate(t, r, acks(Received, 2)), Suspended, "")
	ended(t, "three reached", lookLate(t, r, acks(Received, 3)), Committed, Accepted)
	for _, kind := range []AckKind{Executed, Refuses, Disputed, NonceOpen} {
		ended(t, "acknowledged by "+string(kind), lookLate(t, r, acks(kind, 5)), Suspended, "")
	}
	ended(t, "abstentions do not object", lookAt(t, r, opened.Add(time.Second), votesOf(r, "-----")), Committed, Accepted)
	o := openingOf(groupOf(3), Optimistic)
	o.Proposal.Terms.Reversible = false
	refusedFor(t, "undone", o)
}

// TestConnectivity_Suspends: a round that accepts waits for participants, decides on votes from before its deadline, and gives up
// after a day. Its deadline does not move.
func TestConnectivity_Suspends(t *testing.T) {
	t.Parallel()
	r := roundOf(t, Majority, 4) // two votes are a quorum, and three have to be connected
	box := votesOf(r, "aa..")
	suspended := lookLate(t, r, box)
	ended(t, "two of four", suspended, Suspended, "")
	if suspended.Term != 2 || suspended.Changed != r.Deadline().Add(Grace) || suspended.Deadline() != r.Deadline() {
		t.Errorf("term %d, changed %v, deadline %v; expected a change, and the same deadline", suspended.Term, suspended.Changed, suspended.Deadline())
	}
	if again := lookAt(t, suspended, r.Deadline().Add(time.Hour), box); again.Term != 2 || again.Changed != suspended.Changed {
		t.Error("a look that finds nothing new changes the round")
	}
	late := func(receipt Receipt) Receipt { receipt.Received = r.Deadline().Add(time.Hour); return receipt }
	withAck := Box{box.Ballots, []Receipt{late(ackOf(r, 3, Received))}}
	ended(t, "a late acknowledgement", lookAt(t, suspended, r.Deadline().Add(2*time.Hour), withAck), Committed, Accepted)
	lateVote := ballotOf(r, 2, Approve)
	lateVote.Received = r.Deadline().Add(1)
	withVote := Box{append(slices.Clone(box.Ballots), lateVote), nil}
	ended(t, "a late vote", lookAt(t, suspended, r.Deadline().Add(2*time.Hour), withVote), Suspended, "")
	lateVote.Vote.Decision = Reject
	withBoth := Box{append(slices.Clone(box.Ballots), lateVote), withAck.Receipts}
	got := lookAt(t, suspended, r.Deadline().Add(2*time.Hour), withBoth)
	ended(t, "a late rejection", got, Committed, Accepted)
	if want := (Tally{Participants: 4, Approve: 2, Connected: 3}); got.End.Outcome.Tally != want {
		t.Errorf("%+v, expected %+v", got.End.Outcome.Tally, want)
	}
	ended(t, "just before a day", lookAt(t, suspended, r.Deadline().Add(Patience-1), box), Suspended, "")
	ended(t, "after a day", lookAt(t, suspended, r.Deadline().Add(Patience), box), Aborted, NoConnectivity)
}

// TestAdmits_AtTheDeadline: a vote that comes at the deadline counts, one that comes later does not, whatever it says of itself.
func TestAdmits_AtTheDeadline(t *testing.T) {
	t.Parallel()
	r := roundOf(t, Majority, 3)
	v := ballotOf(r, 0, Approve).Vote
	if err := r.Admits(v, r.Deadline()); err != nil {
		t.Errorf("at the deadline: %v", err)
	}
	var refused *RefusedError
	if err := r.Admits(v, r.Deadline().Add(1)); !errors.As(err, &refused) || !refused.Late {
		t.Errorf("after the deadline: %v, expected a refusal that says so", err)
	}
	v.Voter = idOf(7)
	if err := r.Admits(v, opened); !errors.As(err, &refused) || refused.Late {
		t.Errorf("an outsider: %v, expected a refusal", err)
	}
}

// TestRound_ClosesEarly: a round ends before its deadline if each member has voted, and waits for late messages a moment after it.
func TestRound_ClosesEarly(t *testing.T) {
	t.Parallel()
	r := roundOf(t, Majority, 3)
	ended(t, "all voted", lookAt(t, r, opened.Add(time.Second), votesOf(r, "aar")), Committed, Accepted)
	ended(t, "one has not", lookAt(t, r, opened.Add(time.Second), votesOf(r, "aa.")), Voting, "")
	ended(t, "one has not, at the deadline", lookAt(t, r, r.Deadline().Add(Grace-1), votesOf(r, "aa.")), Voting, "")
	if due := r.Due(); due != r.Deadline().Add(Grace) {
		t.Errorf("it is due at %v", due)
	}
	over := lookAt(t, r, opened.Add(time.Second), votesOf(r, "aaa"))
	var state *StateError
	if _, err := over.Next(Event{Kind: Look, At: opened}); !errors.As(err, &state) || !over.Phase.Over() || !over.Due().IsZero() {
		t.Errorf("a round that is over: %v, expected a StateError", err)
	}
}

// TestVotes_Doubled: of a voter with two different votes none counts, and both are among the messages of the outcome; the same
// bytes are the same vote (R24).
func TestVotes_Doubled(t *testing.T) {
	t.Parallel()
	r := roundOf(t, Majority, 3)
	box := votesOf(r, "aar")
	second := ballotOf(r, 0, Reject)
	box.Ballots = append(box.Ballots, second, box.Ballots[1])
	got := lookLate(t, r, box)
	ended(t, "a tie without the doubled vote", got, Aborted, Rejected)
	want := Tally{Participants: 3, Approve: 1, Reject: 1, Doubled: 1, Connected: 3}
	if got.End.Outcome.Tally != want {
		t.Errorf("%+v, expected %+v", got.End.Outcome.Tally, want)
	}
	hashes := []string{box.Ballots[0].Hash, box.Ballots[1].Hash, box.Ballots[2].Hash, second.Hash}
	slices.Sort(hashes)
	if !slices.Equal(got.End.Counted, hashes) || got.End.Outcome.Votes != MessagesHash(hashes) || got.End.Outcome.Votes != ect.Hash([]byte(strings.Join(hashes, "\n"))) {
		t.Errorf("the outcome rests on %v, expected %v", got.End.Counted, hashes)
	}
	if err := Check(recordOf(got, box)); err != nil {
		t.Error(err)
	}
	third := ballotOf(r, 0, Abstain)
	if got := lookLate(t, r, Box{Ballots: append(box.Ballots, third)}); got.End.Outcome.Tally != want {
		t.Errorf("with three votes of one voter: %+v, expected %+v", got.End.Outcome.Tally, want)
	}
}

// TestAnomalies_OfThree: three votes with the same words or of the same moment are told of; two are not.
func TestAnomalies_OfThree(t *testing.T) {
	t.Parallel()
	at := func(ms int, words string) Ballot {
		return Ballot{Vote: Vote{Rationale: words, Timestamp: opened.Add(time.Duration(ms) * time.Millisecond)}}
	}
	for name, c := range map[string]struct {
		ballots []Ballot
		want    []AnomalyKind
	}{
		"two alike":              {[]Ballot{at(1, "risky"), at(1, "risky"), at(2, "")}, nil},
		"three say the same":     {[]Ballot{at(1, "too  Risky"), at(2, "too risky"), at(3, " TOO risky ")}, []AnomalyKind{SameRationale}},
		"three say nothing":      {[]Ballot{at(1, ""), at(2, " "), at(3, "")}, nil},
		"three at the same time": {[]Ballot{at(1, "a"), at(1, "b"), at(1, "c")}, []AnomalyKind{SameMoment}},
		"both":                   {[]Ballot{at(1, "a"), at(1, "a"), at(1, "a")}, []AnomalyKind{SameRationale, SameMoment}},
	} {
		if got := Anomalies(c.ballots); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, expected %v", name, got, c.want)
		}
	}
	r := roundOf(t, Majority, 3)
	if got := lookLate(t, r, votesOf(r, "aaa")); !slices.Equal(got.End.Anomalies, []AnomalyKind{SameRationale}) {
		t.Errorf("a round of three equal rationales has the anomalies %v", got.End.Anomalies)
	}
}

// refusedFor opens a proposal that is to be refused with a reason that has these words.
func refusedFor(t *testing.T, words string, o Opening) {
	t.Helper()
	var refused *RefusedError
	if _, err := Open(o); !errors.As(err, &refused) || !strings.Contains(err.Error(), words) {
		t.Errorf("%v, expected a RefusedError about %s", err, words)
	}
}

// sealedOf is a majority round of n whose votes are committed to for one minute, and sent within the next one.
func sealedOf(t *testing.T, n int) Round {
	t.Helper()
	r := roundOf(t, Majority, n)
	r.Proposal.Terms.RevealBy = At(r.Proposal.Timeout.Add(time.Minute))
	return r
}

// sealOf is the commitment to a vote, in time.
func sealOf(r Round, b Ballot, hash string) Receipt {
	a := Ack{Proposal: r.Proposal.ID, Round: r.Proposal.Round, Participant: b.Vote.Voter, Kind: Sealed, Vote: b.Hash, Timestamp: opened}
	return Receipt{a, hash, r.Proposal.Timeout.Time}
}

func ackOf(r Round, i int, kind AckKind) Receipt {
	a := Ack{Proposal: r.Proposal.ID, Round: r.Proposal.Round, Participant: idOf(i), Kind: kind, Timestamp: opened}
	return Receipt{a, string(kind) + uuidOf(i), opened.Add(time.Second)}
}

// TestSealed_VotesThatCount: a vote counts if its voter committed to it, and to no other one, in time, and sent it between the
// timeout and the end of revealing.
func TestSealed_VotesThatCount(t *testing.T) {
	t.Parallel()
	r := sealedOf(t, 3)
	timeout, end := r.Proposal.Timeout.Time, r.Deadline()
	if end != timeout.Add(time.Minute) {
		t.Fatalf("the deadline is %v, expected reveal_by", end)
	}
	vote, other := ballotOf(r, 0, Approve), ballotOf(r, 0, Reject)
	vote.Received, other.Received = timeout.Add(1), timeout.Add(1)
	later := func(receipt Receipt) Receipt { receipt.Received = timeout.Add(1); return receipt }
	at := func(moment time.Time) Ballot { b := vote; b.Received = moment; return b }
	foreign := sealOf(r, other, "foreign")
	foreign.Ack.Round = uuidOf(9)
	for name, c := range map[string]struct {
		votes []Ballot
		seals []Receipt
		want  Tally
	}{
		"committed and sent":                   {[]Ballot{vote}, []Receipt{sealOf(r, vote, "a")}, Tally{Approve: 1, Connected: 1}},
		"sent at the last moment":              {[]Ballot{at(end)}, []Receipt{sealOf(r, vote, "a")}, Tally{Approve: 1, Connected: 1}},
		"sent too late":                        {[]Ballot{at(end.Add(1))}, []Receipt{sealOf(r, vote, "a")}, Tally{Connected: 1}},
		"sent before the timeout":              {[]Ballot{at(timeout)}, []Receipt{sealOf(r, vote, "a")}, Tally{Connected: 1}},
		"not committed to":                     {[]Ballot{vote}, nil, Tally{}},
		"committed to too late":                {[]Ballot{vote}, []Receipt{later(sealOf(r, vote, "a"))}, Tally{}},
		"committed to another one":             {[]Ballot{vote}, []Receipt{sealOf(r, other, "a")}, Tally{Connected: 1}},
		"committed to two, and sent one":       {[]Ballot{vote}, []Receipt{sealOf(r, vote, "a"), sealOf(r, other, "b")}, Tally{Connected: 1}},
		"committed to two, the first one last": {[]Ballot{vote}, []Receipt{sealOf(r, vote, "a"), sealOf(r, other, "b"), sealOf(r, vote, "c")}, Tally{Connected: 1}},
		"committed to one, sent two":           {[]Ballot{other, vote}, []Receipt{sealOf(r, vote, "a")}, Tally{Approve: 1, Connected: 1}},
		"committed twice to the same":          {[]Ballot{vote}, []Receipt{sealOf(r, vote, "a"), sealOf(r, vote, "b")}, Tally{Approve: 1, Connected: 1}},
		"committed to another one too late":    {[]Ballot{vote}, []Receipt{sealOf(r, vote, "a"), later(sealOf(r, other, "b"))}, Tally{Approve: 1, Connected: 1}},
		"committed to in another round too":    {[]Ballot{vote}, []Receipt{sealOf(r, vote, "a"), foreign}, Tally{Approve: 1, Connected: 1}},
		"committed to in another round alone":  {[]Ballot{other}, []Receipt{foreign}, Tally{}},
	} {
		c.want.Participants = 3
		got, err := r.Next(Event{Kind: Look, At: end.Add(Patience), Box: Box{c.votes, c.seals}})
		if err != nil || got.End.Outcome.Tally != c.want {
			t.Errorf("%s: %+v, %v; expected %+v", name, got.End.Outcome.Tally, err, c.want)
			continue
		}
		if err := Check(recordOf(got, Box{c.votes, c.seals})); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSealed_NothingBeforeTheTimeout: votes that are sent while commitments are taken are refused, and do not end the round.
func TestSealed_NothingBeforeTheTimeout(t *testing.T) {
	t.Parallel()
	r := sealedOf(t, 1)
	b := ballotOf(r, 0, Approve)
	var refused *RefusedError
	if err := r.Admits(b.Vote, r.Proposal.Timeout.Time); !errors.As(err, &refused) || refused.Late {
		t.Errorf("a vote before the timeout: %v; expected a refusal that is not about being late", err)
	}
	if err := r.Admits(b.Vote, r.Proposal.Timeout.Add(1)); err != nil {
		t.Errorf("a vote after the timeout: %v", err)
	}
	got, err := r.Next(Event{Kind: Look, At: r.Proposal.Timeout.Add(Grace), Box: Box{[]Ballot{b}, []Receipt{sealOf(r, b, "a")}}})
	if err != nil || got.Phase != Voting {
		t.Errorf("%s, %v; expected that votes are waited for until reveal_by", got.Phase, err)
	}
	b.Received = r.Proposal.Timeout.Add(1)
	got, err = r.Next(Event{Kind: Look, At: r.Proposal.Timeout.Add(1), Box: Box{[]Ballot{b}, []Receipt{sealOf(r, b, "a")}}})
	if err != nil || got.Phase != Committed || !slices.Equal(got.End.Counted, slices.Sorted(slices.Values([]string{"a", b.Hash}))) {
		t.Errorf("%s, %v, %v; expected a commit that rests on the vote and its commitment", got.Phase, got.End.Counted, err)
	}
}

// TestFloor_OfOddTotals: half of a total that is odd is rounded up, as half of the members is.
func TestFloor_OfOddTotals(t *testing.T) {
	t.Parallel()
	g := groupOf(3)
	if got := g.Floor(Weighted, []Member{{idOf(0), 25}}); got != 13 {
		t.Errorf("of the weight 25: %d, expected 13", got)
	}
	if got := g.Floor(Majority, []Member{{idOf(0), 1}, {idOf(1), 1}, {idOf(2), 1}}); got != 2 {
		t.Errorf("of three members: %d, expected 2", got)
	}
}
