package consensus

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// rival is a round about the same as r, of another proposal that goes before or after it.
func rival(r Round, before bool, phase Phase) Related {
	out := Related{Candidate: Candidate{uuidOf(50), idOf(1), opened, ""}, Rank: r.Rank, Phase: phase, Attempt: 1, Signed: ect.Hash([]byte("rival"))}
	out.Rank.Round = uuidOf(50)
	if out.Rank.Urgency++; !before {
		out.Rank.Urgency -= 2
	}
	switch phase {
	case Committed:
		out.Outcome = Outcome{Result: Commit, Reason: Accepted, Decided: opened.Add(time.Second)}
	case Aborted, Drawing:
		out.Outcome = Outcome{Result: Abort, Reason: Objected, Decided: opened.Add(time.Second)}
	}
	return out
}

// TestRivals_OfAHigherRank: what accepts waits for a higher rank and gives way to it; a lower rank does not matter (CNS-27).
func TestRivals_OfAHigherRank(t *testing.T) {
	t.Parallel()
	r := roundOf(t, Majority, 3)
	later := rival(r, true, Voting)
	later.Rank.Opened = r.Deadline().Add(1)
	atDeadline := rival(r, true, Voting)
	atDeadline.Rank.Opened = r.Deadline()
	long := rival(r, true, Committed)
	long.Outcome.Decided = r.Opened.Add(-1)
	same := rival(r, true, Committed)
	same.Outcome.Decided = r.Opened
	unsigned := rival(r, true, Committed)
	unsigned.Signed = ""
	for name, c := range map[string]struct {
		others []Related
		phase  Phase
		reason Reason
	}{
		"nothing else":                     {nil, Committed, Accepted},
		"lower, committed":                 {[]Related{rival(r, false, Committed)}, Committed, Accepted},
		"lower, voting":                    {[]Related{rival(r, false, Voting)}, Committed, Accepted},
		"higher, voting":                   {[]Related{rival(r, true, Voting)}, Waiting, ""},
		"higher, suspended":                {[]Related{rival(r, true, Suspended)}, Waiting, ""},
		"higher, waiting":                  {[]Related{rival(r, true, Waiting)}, Waiting, ""},
		"higher, with a human":             {[]Related{rival(r, true, Escalated)}, Committed, Accepted},
		"higher, aborted":                  {[]Related{rival(r, true, Aborted)}, Committed, Accepted},
		"higher, drawing":                  {[]Related{rival(r, true, Drawing)}, Committed, Accepted},
		"higher, committed":                {[]Related{rival(r, true, Committed)}, Aborted, Superseded},
		"higher, committed as this opened": {[]Related{same}, Aborted, Superseded},
		"higher, committed before this":    {[]Related{long}, Committed, Accepted},
		"higher, opened after this ended":  {[]Related{later}, Committed, Accepted},
		"higher, opened as this ended":     {[]Related{atDeadline}, Waiting, ""},
		"higher, committed, not signed":    {[]Related{unsigned}, Waiting, ""},
		"one voting, one committed":        {[]Related{rival(r, true, Voting), rival(r, true, Committed)}, Aborted, Superseded},
		"one committed, one voting":        {[]Related{rival(r, true, Committed), rival(r, true, Voting)}, Aborted, Superseded},
	} {
		box := votesOf(r, "aaa")
		got := lookLate(t, r, box, c.others...)
		ended(t, name, got, c.phase, c.reason)
		if c.reason == Superseded {
			rec := recordOf(got, box)
			if rec.Rival = "rival"; got.Outcome.Rival != ect.Hash([]byte("rival")) || Check(rec) != nil {
				t.Errorf("%s: the rival is %s: %v", name, got.Outcome.Rival, Check(rec))
			}
			rec.Rival = ""
			if err := Check(rec); err != nil {
				t.Errorf("%s: without the signed rival: %v", name, err)
			}
		}
		ended(t, name+", and this is rejected", lookLate(t, r, votesOf(r, "rrr"), c.others...), Aborted, Rejected)
	}
}

// TestWaiting_Ends: a round that waits ends as the other one does.
func TestWaiting_Ends(t *testing.T) {
	t.Parallel()
	r := roundOf(t, Majority, 3)
	box := votesOf(r, "aaa")
	at := opened.Add(2 * time.Second)
	waiting := lookAt(t, r, at, box, rival(r, true, Voting))
	ended(t, "the other votes", waiting, Waiting, "")
	if due := waiting.Due(); due != at.Add(time.Second) {
		t.Errorf("it is due at %v", due)
	}
	ended(t, "the other votes still", lookAt(t, waiting, at.Add(time.Second), box, rival(r, true, Voting)), Waiting, "")
	ended(t, "the other commits", lookAt(t, waiting, at.Add(time.Second), box, rival(r, true, Committed)), Aborted, Superseded)
	ended(t, "the other aborts", lookAt(t, waiting, at.Add(time.Second), box, rival(r, true, Aborted)), Committed, Accepted)
	for _, d := range []int{0, 1} { // votes of before the deadline can still contradict others
		box.Ballots = append(box.Ballots, ballotOf(r, d, Reject))
	}
	waiting.Attempt = MaxRetries + 1
	ended(t, "doubled votes after the last retry", lookAt(t, waiting, at.Add(time.Second), box, rival(r, true, Voting)), Escalated, NoQuorum)
}

// TestDeadlock_OfTwoRounds: the second failure in a row about the same is a deadlock, which each strategy breaks (CNS-31, CNS-32).
func TestDeadlock_OfTwoRounds(t *testing.T) {
	t.Parallel()
	failed := func(proposal int, reason Reason) Related { return earlier(proposal, opened.Add(-time.Hour), reason) }
	known := failed(50, NoQuorum)
	known.Deadlock.Candidates = []Candidate{{Proposal: uuidOf(51)}}
	running := failed(50, "")
	running.Phase, running.Outcome = Voting, Outcome{}
	older := earlier(50, opened.Add(-2*time.Hour), NoQuorum)
	for name, c := range map[string]struct {
		before []Related
		votes  string
		phase  map[Strategy]Phase
		reason Reason
		first  string // under oldest: the proposal that goes first
	}{
		"nothing before":           {nil, "...", allOf(Aborted), NoQuorum, ""},
		"another one failed":       {[]Related{failed(50, NoQuorum)}, "...", broken(), NoQuorum, uuidOf(50)},
		"another one rejected":     {[]Related{failed(50, Rejected)}, "rrr", broken(), Rejected, uuidOf(50)},
		"no decision before":       {[]Related{failed(50, NoDecision)}, "...", broken(), NoQuorum, uuidOf(50)},
		"no connectivity before":   {[]Related{failed(50, NoConnectivity)}, "...", broken(), NoQuorum, uuidOf(50)},
		"objected before":          {[]Related{failed(50, Objected)}, "...", allOf(Aborted), NoQuorum, ""},
		"a human before":           {[]Related{failed(50, HumanDecided)}, "...", allOf(Aborted), NoQuorum, ""},
		"superseded before":        {[]Related{failed(50, Superseded)}, "...", allOf(Aborted), NoQuorum, ""},
		"committed before":         {[]Related{failed(50, Accepted)}, "...", allOf(Aborted), NoQuorum, ""},
		"committed since":          {[]Related{older, failed(51, Accepted)}, "...", allOf(Aborted), NoQuorum, ""},
		"the last one counts":      {[]Related{failed(51, NoQuorum), older}, "...", broken(), NoQuorum, uuidOf(51)},
		"that one is running":      {[]Related{running}, "...", allOf(Aborted), NoQuorum, ""},
		"found already":            {[]Related{known}, "...", allOf(Aborted), NoQuorum, ""},
		"itself failed":            {[]Related{failed(1, NoQuorum)}, "...", allOf(Escalated), NoQuorum, ""},
		"itself was rejected":      {[]Related{failed(1, Rejected)}, "rrr", allOf(Aborted), Rejected, ""},
		"abstentions, once more":   {[]Related{failed(1, NoQuorum)}, "---", allOf(Escalated), NoQuorum, ""},
		"another one, and accepts": {[]Related{failed(50, NoQuorum)}, "aaa", allOf(Committed), Accepted, ""},
	} {
		for _, strategy := range Strategies() {
			r := roundOf(t, Majority, 3)
			r.Rules.Deadlock = strategy
			got := lookLate(t, r, votesOf(r, c.votes), c.before...)
			ended(t, name+", "+string(strategy), got, c.phase[strategy], c.reason)
			first := ""
			if strategy == Oldest {
				first = c.first
			}
			if got.Deadlock.Preferred != first || len(c.first) > 0 && len(got.Deadlock.Candidates) != 2 {
				t.Errorf("%s, %s: %+v, expected %q first", name, strategy, got.Deadlock, first)
			}
		}
	}
	r := roundOf(t, Optimistic, 3)
	ended(t, "an objection is no deadlock", lookLate(t, r, votesOf(r, "r.."), failed(50, NoQuorum)), Aborted, Objected)
}

func allOf(p Phase) map[Strategy]Phase {
	return map[Strategy]Phase{Oldest: p, Random: p, Escalate: p}
}

func broken() map[Strategy]Phase {
	return map[Strategy]Phase{Oldest: Aborted, Random: Drawing, Escalate: Escalated}
}

// TestDeadlock_PreferredGoesFirst: after a deadlock the preferred proposal goes first, until it had its turn or let it pass.
func TestDeadlock_PreferredGoesFirst(t *testing.T) {
	t.Parallel()
	decided := opened.Add(-time.Minute)
	blocked := earlier(1, decided, NoQuorum)
	blocked.Deadlock = Deadlock{Candidates: []Candidate{{Proposal: uuidOf(50)}, {Proposal: uuidOf(1)}}, Preferred: uuidOf(50)}
	o := openingOf(groupOf(3), Majority)
	o.Related = []Related{earlier(50, decided.Add(-time.Minute), NoQuorum), blocked}
	refusedFor(t, "goes first", o)
	other := o
	other.Proposal.ID = uuidOf(77)
	refusedFor(t, "goes first", other)
	first := o
	first.Proposal.ID = uuidOf(50)
	if r := mustOpen(t, first); r.Attempt != 2 {
		t.Errorf("the preferred proposal has attempt %d, expected 2", r.Attempt)
	}
	turn := earlier(50, opened.Add(-time.Second), Rejected)
	turn.Rank.Opened = opened.Add(-50 * time.Second)
	had := o
	had.Related = append(slices.Clone(o.Related), turn)
	mustOpen(t, had)
	passed := o
	passed.Now = decided.Add(TurnFor - 1)
	passed.Proposal.Timeout = At(passed.Now.Add(time.Minute))
	refusedFor(t, "goes first", passed)
	passed.Now = decided.Add(TurnFor)
	mustOpen(t, passed)
}

// drawingOf is a round that is aborted in a deadlock of its proposal and another one, with the nonces of both.
func drawingOf(t *testing.T) (r Round, mine, others Receipt) {
	t.Helper()
	r = roundOf(t, Majority, 3)
	r.Rules.Deadlock, r.Proposal.Nonce = Random, ect.Hash([]byte("mine"))
	before := earlier(50, opened.Add(-time.Hour), NoQuorum)
	before.Proposer, before.Nonce = idOf(1), ect.Hash([]byte("other"))
	r = lookLate(t, r, Box{}, before)
	ended(t, "a deadlock", r, Drawing, NoQuorum)
	if r.Due() != r.Changed.Add(DrawFor) || !r.Phase.Decided() || r.Phase.Over() {
		t.Errorf("it is due at %v, decided %v, over %v", r.Due(), r.Phase.Decided(), r.Phase.Over())
	}
	mine, others = ackOf(r, 0, NonceOpen), ackOf(r, 1, NonceOpen)
	mine.Ack.Nonce, others.Ack.Nonce = "mine", "other"
	mine.Received, others.Received = r.Deadlock.Until, r.Deadlock.Until
	return r, mine, others
}

// TestDraw_OfNonces: a draw depends on the nonces of all, ends once all are open, and is lost by who is silent.
func TestDraw_OfNonces(t *testing.T) {
	t.Parallel()
	r, mine, others := drawingOf(t)
	until := r.Deadlock.Until
	sum := sha256.Sum256([]byte("mine\nother\n")) // by proposal: 1 before 50
	want := []string{uuidOf(1), uuidOf(50)}[binary.BigEndian.Uint64(sum[:8])%2]
	late, wrong, foreign := mine, mine, mine
	late.Received, wrong.Ack.Nonce, foreign.Ack.Participant = until.Add(1), "wrong", idOf(2)
	for name, c := range map[string]struct {
		receipts []Receipt
		early    Phase
		first    string
	}{
		"both":             {[]Receipt{mine, others}, Aborted, want},
		"both, reversed":   {[]Receipt{others, mine}, Aborted, want},
		"both, one twice":  {[]Receipt{mine, mine, others}, Aborted, want},
		"mine alone":       {[]Receipt{mine}, Drawing, uuidOf(1)},
		"the other alone":  {[]Receipt{others}, Drawing, uuidOf(50)},
		"silence":          {nil, Drawing, uuidOf(50)}, // it is the oldest
		"mine is late":     {[]Receipt{late, others}, Drawing, uuidOf(50)},
		"mine is wrong":    {[]Receipt{wrong, others}, Drawing, uuidOf(50)},
		"mine of another":  {[]Receipt{foreign, others}, Drawing, uuidOf(50)},
		"wrong, then mine": {[]Receipt{wrong, mine}, Drawing, uuidOf(1)},
	} {
		early := lookAt(t, r, until.Add(-1), Box{Receipts: c.receipts})
		if early.Phase != c.early {
			t.Errorf("%s: before the end %s, expected %s", name, early.Phase, c.early)
		}
		got := lookAt(t, r, until, Box{Receipts: c.receipts})
		ended(t, name, got, Aborted, NoQuorum)
		if got.Deadlock.Preferred != c.first || got.Outcome != r.Outcome {
			t.Errorf("%s: %s goes first, expected %s and the same outcome", name, got.Deadlock.Preferred, c.first)
		}
	}
}

// TestDraw_HoldsOthers: while nonces are opened, nothing about the same is submitted.
func TestDraw_HoldsOthers(t *testing.T) {
	t.Parallel()
	r, _, _ := drawingOf(t)
	o := openingOf(groupOf(3), Majority)
	o.Proposal.ID, o.Related, o.Now = uuidOf(77), []Related{r.Related()}, r.Deadlock.Until.Add(-20*time.Second)
	o.Proposal.Timeout = At(o.Now.Add(time.Minute))
	var refused *RefusedError
	if _, err := Open(o); !errors.As(err, &refused) || refused.Again != 20*time.Second {
		t.Errorf("%v, expected a refusal for 20 seconds", err)
	}
	o.Related[0].Phase = Aborted
	mustOpen(t, o)
}

// TestEscalated_AfterTheLastRetry: a human decides, with all votes and the reason at hand; that is final (CNS-28 to 30).
func TestEscalated_AfterTheLastRetry(t *testing.T) {
	t.Parallel()
	for attempt := 1; attempt <= MaxRetries+1; attempt++ {
		r := roundOf(t, Majority, 3)
		r.Attempt = attempt
		want := Aborted
		if attempt == MaxRetries+1 {
			want = Escalated
		}
		ended(t, "without a quorum", lookLate(t, r, votesOf(r, "a--")), want, NoQuorum)
		ended(t, "without connectivity", lookAt(t, r, r.Deadline().Add(Patience), Box{}), want, NoQuorum)
		ended(t, "rejected", lookLate(t, r, votesOf(r, "arr")), Aborted, Rejected)
	}
	r := roundOf(t, Majority, 3)
	r.Attempt = MaxRetries + 1
	box := votesOf(r, "a--")
	asked := lookLate(t, r, box)
	if asked.Outcome.Tally != (Tally{Participants: 3, Approve: 1, Abstain: 2, Connected: 3}) || len(asked.Counted) != 3 || !asked.Due().IsZero() || len(asked.Anomalies) != 1 {
		t.Errorf("a human is asked with %+v, %v, %v", asked.Outcome.Tally, asked.Counted, asked.Anomalies)
	}
	var state *StateError
	if _, err := asked.Next(Event{Kind: Look, At: opened, Box: votesOf(r, "aaa")}); !errors.As(err, &state) {
		t.Errorf("a late quorum: %v, expected a StateError", err)
	}
	asked.Approval = "approval"
	for granted, phase := range map[bool]Phase{true: Committed, false: Aborted} {
		at := r.Deadline().Add(time.Hour)
		got, err := asked.Next(Event{Kind: Decide, At: at, Granted: granted})
		if err != nil {
			t.Fatal(err)
		}
		ended(t, "a human", got, phase, HumanDecided)
		if (got.Outcome.Result == Commit) != granted || got.Outcome.Approval != "approval" || got.Outcome.Decided != at || got.Outcome.Tally != asked.Outcome.Tally || got.Term != asked.Term+1 {
			t.Errorf("%+v", got.Outcome)
		}
		if err := Check(recordOf(got, box)); err != nil {
			t.Error(err)
		}
		for _, kind := range []Kind{Look, Decide} {
			if _, err := got.Next(Event{Kind: kind, At: at, Granted: !granted}); !errors.As(err, &state) {
				t.Errorf("%s after that: %v, expected a StateError", kind, err)
			}
		}
	}
	if _, err := r.Next(Event{Kind: Decide, At: opened, Granted: true}); !errors.As(err, &state) {
		t.Errorf("a human who was not asked: %v, expected a StateError", err)
	}
}
