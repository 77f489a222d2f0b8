package consensus

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// sealedOf is a majority round of n whose votes are committed to for one minute, and sent within the next one.
func sealedOf(t *testing.T, n int) Round {
	t.Helper()
	r := roundOf(t, Majority, n)
	r.Proposal.RevealBy = At(r.Proposal.Timeout.Add(time.Minute))
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
		if err != nil || got.Outcome.Tally != c.want {
			t.Errorf("%s: %+v, %v; expected %+v", name, got.Outcome.Tally, err, c.want)
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
	if err != nil || got.Phase != Committed || !slices.Equal(got.Counted, slices.Sorted(slices.Values([]string{"a", b.Hash}))) {
		t.Errorf("%s, %v, %v; expected a commit that rests on the vote and its commitment", got.Phase, got.Counted, err)
	}
}
