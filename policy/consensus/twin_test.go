package consensus

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

const rounds = 50_000

// scenario is a random round with what was received for it, and the moment at which it is looked at.
type scenario struct {
	group Group
	ages  map[ect.Identity]time.Duration
	round Round
	box   Box
	at    time.Time
}

// TestRound_Twin: random rounds end as a second computation of R24 says, which shares no code with the first. Check accepts each
// outcome with the messages that it names, and no changed one.
func TestRound_Twin(t *testing.T) {
	t.Parallel()
	for part := range uint64(2) {
		t.Run(strconv.FormatUint(part, 10), func(t *testing.T) {
			t.Parallel()
			twinRounds(t, part*rounds/2, (part+1)*rounds/2)
		})
	}
}

func twinRounds(t *testing.T, from, to uint64) {
	t.Helper()
	ended, all, seen := uint64(0), tamperings(), map[Mechanism]map[Phase]int{}
	for _, m := range Mechanisms() {
		seen[m] = map[Phase]int{}
	}
	for seed := from; seed < to; seed++ {
		random := rand.New(rand.NewPCG(seed, 25))
		s := scenarioOf(t, random)
		got, err := s.round.Next(Event{Kind: Look, At: s.at, Box: s.box})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		phase, reason, tally := s.twin()
		if got.Phase != phase || phase.Decided() && (got.End.Outcome.Reason != reason || got.End.Outcome.Tally != tally) || phase == Escalated && got.Human.Why != reason {
			t.Fatalf("seed %d: %s round of %d ends as %s, %s, %+v; expected %s, %s, %+v\nrules %+v\nbox %+v",
				seed, s.round.Proposal.Mechanism, len(s.group.Members), got.Phase, got.End.Outcome.Reason, got.End.Outcome.Tally, phase, reason, tally, s.round.Rules, s.box)
		}
		seen[s.round.Proposal.Mechanism][phase]++
		if phase == Escalated {
			got.Human.Approval = "approval"
			if got, err = got.Next(Event{Kind: Decide, At: s.at, Granted: random.IntN(2) == 0}); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if got.Phase.Decided() {
			ended++
			if err := checkAndTamper(random, s.record(got), pick(random, all...)); err != nil {
				t.Fatalf("seed %d: %s, %s: %v\nrules %+v\nbox %+v", seed, got.Phase, got.End.Outcome.Reason, err, s.round.Rules, s.box)
			}
		}
	}
	for _, m := range Mechanisms() {
		for _, p := range []Phase{Voting, Suspended, Committed, Aborted, Escalated} {
			if seen[m][p] == 0 && (m != Optimistic || p != Escalated) {
				t.Errorf("no round of %s was %s: the scenarios are too narrow", m, p)
			}
		}
	}
	if ended < (to-from)/4 {
		t.Errorf("only %d of %d rounds ended", ended, to-from)
	}
}

func pick[T any](random *rand.Rand, from ...T) T { return from[random.IntN(len(from))] }

func scenarioOf(t *testing.T, random *rand.Rand) scenario {
	t.Helper()
	n := 1 + random.IntN(7)
	s := scenario{ages: map[ect.Identity]time.Duration{}}
	s.group = Group{
		Name: "ops", Proposers: map[ect.Identity]int{idOf(0): 1}, Mechanisms: Mechanisms(), Deadlock: pick(random, Strategies()...),
		Threshold: pick(random, 0, 0, 30, 66, 99), MaxFaulty: pick(random, 0, 0, random.IntN((n+1)/2)),
		Leader: pick(random, "", idOf(random.IntN(n)), idOf(90)),
	}
	for i := range n {
		s.group.Members = append(s.group.Members, Member{idOf(i), 1 + random.Int64N(4)})
		s.ages[idOf(i)] = pick(random, -time.Hour, 0, time.Hour, 23*time.Hour, 24*time.Hour, 167*time.Hour, 168*time.Hour, 1000*time.Hour)
	}
	since := func(id ect.Identity) time.Time {
		if s.ages[id] < 0 {
			return time.Time{}
		}
		return opened.Add(-s.ages[id])
	}
	table := s.group.Weigh(since, opened)
	m := pick(random, Mechanisms()...)
	p := Proposal{
		ID: uuidOf(1), Proposer: idOf(0), Round: uuidOf(2), Mechanism: m, Subject: "restart", Action: []byte(`{"tool":"restart"}`),
		Timeout: At(opened.Add(time.Minute)),
		Terms:   Terms{Reversible: true, Group: "ops", Nonce: "nonce", Timestamp: opened},
	}
	if m == Weighted || random.IntN(2) == 0 {
		p.Terms.Weights = WeightsHash(table)
	}
	if m != Leader && random.IntN(3) == 0 {
		p.Terms.RevealBy = At(opened.Add(2 * time.Minute))
	}
	p.Quorum = s.group.Floor(m, table)
	if most := map[Mechanism]int64{Majority: int64(n), Weighted: Rules{Members: table}.Total()}[m]; most > p.Quorum && random.IntN(3) == 0 {
		p.Quorum += random.Int64N(most - p.Quorum + 1)
	}
	for _, one := range table {
		p.Participants = append(p.Participants, one.ID)
	}
	random.Shuffle(n, func(i, j int) { p.Participants[i], p.Participants[j] = p.Participants[j], p.Participants[i] })
	var err error
	if s.round, err = Open(Opening{Proposal: p, Signed: "signed", Group: s.group, Since: since, Now: opened}); err != nil {
		t.Fatal(err)
	}
	s.round.Attempt = pick(random, 1, 1, 1, 2, 4)
	s.fill(random, n)
	deadline := s.round.Deadline()
	s.at = pick(random, opened.Add(30*time.Second), deadline, deadline.Add(Grace-1), deadline.Add(Grace), deadline.Add(Grace), deadline.Add(Patience-1), deadline.Add(Patience))
	if random.IntN(5) == 0 { // as a round that was suspended before
		s.round.Phase = Suspended
		s.at = slices.MaxFunc([]time.Time{s.at, deadline.Add(Grace)}, time.Time.Compare)
	}
	return s
}

// fill receives votes and acknowledgements: of members and others, in time and late, doubled, for other rounds, sealed and not.
func (s *scenario) fill(random *rand.Rand, n int) {
	p, diligent := s.round.Proposal, random.IntN(2) == 0
	whom := func() ect.Identity {
		switch random.IntN(12) {
		case 0:
			return idOf(91)
		case 1, 2:
			return leaderOr(s.round, idOf(0))
		default:
			return idOf(random.IntN(n))
		}
	}
	moment := func() time.Time {
		if diligent {
			return pick(random, p.Timeout.Time, p.Timeout.Time, p.Timeout.Add(-time.Minute))
		}
		return pick(random, opened, p.Timeout.Add(-1), p.Timeout.Time, p.Timeout.Add(1), p.Timeout.Add(time.Second), s.round.Deadline(), s.round.Deadline().Add(1), s.round.Deadline().Add(time.Hour))
	}
	unlikely := func() bool { return random.IntN(30) == 0 }
	sure := random.IntN(2) == 0
	for i := range random.IntN(2*n + 3) {
		v := Vote{Proposal: p.ID, Round: p.Round, Voter: whom(), Decision: pick(random, Approve, Approve, Approve, Reject, Abstain), Weights: p.Terms.Weights, Timestamp: opened, Rationale: pick(random, "", "because")}
		if sure {
			v.Voter, v.Decision = idOf(i%n), pick(random, Approve, Approve, Approve, v.Decision)
		}
		if unlikely() {
			v.Round = uuidOf(3)
		}
		if unlikely() {
			v.Proposal = uuidOf(3)
		}
		if unlikely() {
			v.Weights = "other"
		}
		b := Ballot{Vote: v, Hash: hashOf("vote", i), Received: moment()}
		if !p.Terms.RevealBy.IsZero() && !unlikely() {
			seal := Ack{Proposal: p.ID, Round: p.Round, Participant: v.Voter, Kind: Sealed, Vote: b.Hash}
			if unlikely() {
				seal.Round = uuidOf(3)
			}
			s.box.Receipts = append(s.box.Receipts, Receipt{seal, hashOf("seal", i), moment()})
			if !unlikely() {
				b.Received = b.Received.Add(time.Minute)
			}
		}
		s.box.Ballots = append(s.box.Ballots, b)
		if random.IntN(10) == 0 { // the same bytes are the same vote
			b.Received = moment()
			s.box.Ballots = append(s.box.Ballots, b)
		}
	}
	for i := range random.IntN(n + 2) {
		a := Ack{Proposal: p.ID, Round: p.Round, Participant: whom(), Kind: pick(random, Received, Received, Received, Executed, Refuses, Disputed, NonceOpen, Sealed)}
		if unlikely() {
			a.Round = uuidOf(3)
		}
		if a.Kind == Sealed {
			a.Vote = hashOf("vote", random.IntN(n))
		}
		s.box.Receipts = append(s.box.Receipts, Receipt{a, hashOf("ack", i), moment()})
	}
	random.Shuffle(len(s.box.Ballots), func(i, j int) { s.box.Ballots[i], s.box.Ballots[j] = s.box.Ballots[j], s.box.Ballots[i] })
	random.Shuffle(len(s.box.Receipts), func(i, j int) { s.box.Receipts[i], s.box.Receipts[j] = s.box.Receipts[j], s.box.Receipts[i] })
}

func hashOf(kind string, i int) string { return kind + strconv.Itoa(i) }

// leaderOr is the leader of a round, or somebody else where it has none.
func leaderOr(r Round, id ect.Identity) ect.Identity {
	if r.Rules.Leader != "" {
		return r.Rules.Leader
	}
	return id
}

// twin computes how the round stands, from R24 and the draft.
func (s *scenario) twin() (Phase, Reason, Tally) {
	p, n, f := s.round.Proposal, len(s.group.Members), s.group.MaxFaulty
	deadline := p.Timeout.Time
	if !p.Terms.RevealBy.IsZero() {
		deadline = p.Terms.RevealBy.Time
	}
	leader := s.twinLeader()
	tally, voted, decided := s.twinCount(leader, deadline)
	needs := max(n/2+1, 2*f+1)
	reached := tally.Connected >= needs
	reason := s.twinReason(tally, decided)
	over := s.at.Sub(deadline) >= 2*time.Second || s.round.Phase == Suspended
	switch p.Mechanism {
	case Majority, Weighted:
		over = over || voted == n
	case Optimistic:
		over = over || voted == n || tally.Reject > 0
	case Leader:
		over = over || reason == Rejected || reason == Accepted && reached
	}
	switch {
	case !over:
		return s.round.Phase, "", Tally{}
	case reason == Accepted && reached:
		return Committed, Accepted, tally
	case reason == Accepted && s.at.Sub(deadline) < 24*time.Hour:
		return Suspended, "", Tally{}
	case reason == Accepted:
		reason = NoConnectivity
	case reason == Rejected || reason == Objected: // the group has decided
		return Aborted, reason, tally
	}
	if s.round.Attempt > 3 {
		return Escalated, reason, tally
	}
	return Aborted, reason, tally
}

func (s *scenario) twinLeader() ect.Identity {
	if s.round.Proposal.Mechanism != Leader {
		return ""
	}
	if s.group.Leader != "" {
		return s.group.Leader
	}
	hours := int(opened.Sub(time.Unix(0, 0)).Hours())
	return s.group.Members[hours%len(s.group.Members)].ID
}

// twinCount counts voter by voter. It returns how many members have voted a vote, and the votes of the leader.
func (s *scenario) twinCount(leader ect.Identity, deadline time.Time) (t Tally, voted int, decided []Vote) {
	p := s.round.Proposal
	voters := []Member{}
	for _, m := range s.group.Members {
		weight := m.Weight * 100
		if age := s.ages[m.ID]; age < 24*time.Hour {
			weight = m.Weight * 25
		} else if age < 7*24*time.Hour {
			weight = m.Weight * 50
		}
		voters = append(voters, Member{m.ID, weight})
	}
	if leader == idOf(90) {
		voters = append(voters, Member{leader, 0})
	}
	for _, voter := range voters {
		member := voter.ID != idOf(90)
		votes, connected := []Ballot{}, false
		var seals []string
		for _, receipt := range s.box.Receipts {
			a := receipt.Ack
			if a.Participant != voter.ID || a.Proposal != p.ID || a.Round != p.Round {
				continue
			}
			late := receipt.Received.Sub(p.Timeout.Time) > 0
			connected = connected || a.Kind == Received || a.Kind == Sealed && !late
			if a.Kind == Sealed && !late && !slices.Contains(seals, a.Vote) {
				seals = append(seals, a.Vote)
			}
		}
		for _, b := range s.box.Ballots {
			v := b.Vote
			late := b.Received.Sub(deadline) > 0
			bound := p.Mechanism != Weighted || v.Weights == p.Terms.Weights
			open := p.Terms.RevealBy.IsZero() || len(seals) == 1 && seals[0] == b.Hash && b.Received.Sub(p.Timeout.Time) > 0
			known := slices.ContainsFunc(votes, func(o Ballot) bool { return o.Hash == b.Hash })
			if v.Voter == voter.ID && v.Proposal == p.ID && v.Round == p.Round && !late && bound && open && !known {
				votes = append(votes, b)
			}
		}
		if member {
			t.Participants++
			if len(votes) > 0 {
				voted++
			}
			if connected || len(votes) > 0 {
				t.Connected++
			}
		}
		weight := int64(0)
		if p.Mechanism == Weighted {
			weight = voter.Weight
		}
		t.TotalWeight += weight
		switch {
		case len(votes) > 1:
			t.Doubled++
		case len(votes) == 0:
		case voter.ID == leader:
			decided = append(decided, votes[0].Vote)
		case votes[0].Vote.Decision == Approve:
			t.Approve++
			t.ApproveWeight += weight
		case votes[0].Vote.Decision == Reject:
			t.Reject++
			t.RejectWeight += weight
		default:
			t.Abstain++
		}
	}
	return t, voted, decided
}

// twinReason is what the votes say, whatever the connectivity.
func (s *scenario) twinReason(t Tally, decided []Vote) Reason {
	n, f, quorum := len(s.group.Members), s.group.MaxFaulty, s.round.Proposal.Quorum
	switch s.round.Proposal.Mechanism {
	case Majority:
		counted := t.Approve + t.Reject
		if counted*2 < n || int64(counted) < quorum || counted < 2*f+1 {
			return NoQuorum
		}
		if t.Approve > t.Reject {
			return Accepted
		}
		return Rejected
	case Weighted:
		weight := t.ApproveWeight + t.RejectWeight
		if weight*2 < t.TotalWeight || weight < quorum || f > 0 && t.Approve+t.Reject < 2*f+1 {
			return NoQuorum
		}
		threshold := int64(s.group.Threshold)
		if threshold == 0 {
			threshold = 50
		}
		if t.ApproveWeight*100 > threshold*t.TotalWeight {
			return Accepted
		}
		return Rejected
	case Leader:
		if len(decided) == 0 || decided[0].Decision == Abstain {
			return NoDecision
		}
		if decided[0].Decision == Reject {
			return Rejected
		}
		if t.Reject > t.Approve && decided[0].Rationale == "" {
			return NoDecision
		}
		return Accepted
	default:
		if t.Reject > 0 {
			return Objected
		}
		return Accepted
	}
}

// record is what anybody can read about a round that is over: the messages that its outcome names.
func (s *scenario) record(r Round) Record { return recordOf(r, s.box) }

// tampering is a change of a record that makes it false, or false without having changed it: then it does not apply.
type tampering struct {
	name  string
	apply func(random *rand.Rand, rec *Record) bool
}

func tamperings() []tampering {
	return slices.Concat(tamperedMessages(), tamperedOutcomes(), tamperedRules())
}

func tamperedMessages() []tampering {
	return []tampering{
		{"a counted vote is missing", func(random *rand.Rand, rec *Record) bool {
			if len(rec.Box.Ballots) == 0 {
				return false
			}
			i := random.IntN(len(rec.Box.Ballots))
			rec.Box.Ballots = slices.Delete(slices.Clone(rec.Box.Ballots), i, i+1)
			return true
		}},
		{"a counted acknowledgement is missing", func(random *rand.Rand, rec *Record) bool {
			if len(rec.Box.Receipts) == 0 {
				return false
			}
			i := random.IntN(len(rec.Box.Receipts))
			rec.Box.Receipts = slices.Delete(slices.Clone(rec.Box.Receipts), i, i+1)
			return true
		}},
		{"a vote of an outsider is added", func(_ *rand.Rand, rec *Record) bool {
			return rec.vote(idOf(91), rec.Proposal.Round)
		}},
		{"a vote for another round is added", func(_ *rand.Rand, rec *Record) bool {
			return rec.vote(rec.Rules.Members[0].ID, uuidOf(7))
		}},
		{"a second vote is added", func(_ *rand.Rand, rec *Record) bool {
			return len(rec.Box.Ballots) > 0 && rec.vote(rec.Box.Ballots[0].Vote.Voter, rec.Proposal.Round)
		}},
		{"a vote of a member is added", func(random *rand.Rand, rec *Record) bool {
			return rec.vote(rec.Rules.Members[random.IntN(len(rec.Rules.Members))].ID, rec.Proposal.Round)
		}},
		{"an acknowledgement is added", func(random *rand.Rand, rec *Record) bool {
			a := Ack{Proposal: rec.Proposal.ID, Round: rec.Proposal.Round, Participant: pick(random, idOf(91), rec.Rules.Members[0].ID), Kind: pick(random, Received, Sealed, Executed)}
			rec.Box.Receipts = append(slices.Clone(rec.Box.Receipts), Receipt{Ack: a, Hash: "added"})
			return true
		}},
		{"a decision is another one", func(random *rand.Rand, rec *Record) bool {
			if len(rec.Box.Ballots) == 0 || rec.Outcome.Tally.Doubled > 0 {
				return false
			}
			rec.Box.Ballots = slices.Clone(rec.Box.Ballots)
			b := &rec.Box.Ballots[random.IntN(len(rec.Box.Ballots))]
			b.Vote.Decision = map[Decision]Decision{Approve: Reject, Reject: Abstain, Abstain: Approve}[b.Vote.Decision]
			return b.Vote.Voter != rec.Rules.Leader
		}},
	}
}

func (rec *Record) vote(voter ect.Identity, round string) bool {
	v := Vote{Proposal: rec.Proposal.ID, Round: round, Voter: voter, Decision: Reject, Rationale: "no", Weights: rec.Proposal.Terms.Weights}
	rec.Box.Ballots = append(slices.Clone(rec.Box.Ballots), Ballot{Vote: v, Hash: "added"})
	return true
}

func tamperedOutcomes() []tampering {
	set := func(name string, f func(o *Outcome)) tampering {
		return tampering{name, func(_ *rand.Rand, rec *Record) bool { f(&rec.Outcome); return true }}
	}
	return []tampering{
		{"the result is the other one", func(_ *rand.Rand, rec *Record) bool {
			if rec.Outcome.Result == Commit {
				rec.Outcome.Result = Abort
			} else {
				rec.Outcome.Result = Commit
			}
			return rec.Outcome.Reason != HumanDecided // a human can decide both
		}},
		set("the result is none", func(o *Outcome) { o.Result = "postponed" }),
		{"the reason is another one", func(random *rand.Rand, rec *Record) bool {
			before := rec.Outcome.Reason
			rec.Outcome.Reason = pick(random, Accepted, Rejected, Objected, NoQuorum, NoConnectivity, NoDecision, Superseded, HumanDecided, "")
			return rec.Outcome.Reason != before
		}},
		{"it gives way, though it does not accept", func(_ *rand.Rand, rec *Record) bool {
			if rec.Outcome.Reason == Accepted || rec.Outcome.Reason == HumanDecided {
				return false
			}
			rec.Outcome.Reason, rec.Outcome.Rival = Superseded, ect.Hash([]byte("rival"))
			rec.Rival = "rival"
			return true
		}},
		{"it gives way to another outcome", func(_ *rand.Rand, rec *Record) bool {
			rec.Outcome.Result, rec.Outcome.Reason, rec.Outcome.Rival = Abort, Superseded, ect.Hash([]byte("rival"))
			rec.Rival = "other"
			return true
		}},
		{"it gives way, and commits", func(_ *rand.Rand, rec *Record) bool {
			rec.Outcome.Result, rec.Outcome.Reason, rec.Outcome.Rival, rec.Rival = Commit, Superseded, ect.Hash([]byte("rival")), "rival"
			return true
		}},
		{"a rival is named beside", func(_ *rand.Rand, rec *Record) bool {
			rec.Outcome.Rival = ect.Hash([]byte("rival"))
			return true
		}},
		{"an approval is named beside", func(_ *rand.Rand, rec *Record) bool {
			rec.Outcome.Approval = "approval"
			return rec.Outcome.Reason != HumanDecided
		}},
		{"a number of the tally is another one", func(random *rand.Rand, rec *Record) bool {
			t := &rec.Outcome.Tally
			numbers := []*int{&t.Participants, &t.Approve, &t.Reject, &t.Abstain, &t.Doubled, &t.Connected}
			if i := random.IntN(9); i < 6 {
				*numbers[i] += pick(random, -1, 1)
			} else {
				*pick(random, &t.ApproveWeight, &t.RejectWeight, &t.TotalWeight) += pick[int64](random, -1, 1)
			}
			return true
		}},
		set("it is about another proposal", func(o *Outcome) { o.Proposal = uuidOf(8) }),
		set("it is about another round", func(o *Outcome) { o.Round = uuidOf(8) }),
		set("it is about another signature", func(o *Outcome) { o.Signed = ect.Hash([]byte("other")) }),
		set("it names other messages", func(o *Outcome) { o.Votes = MessagesHash([]string{"other"}) }),
		set("it names other rules", func(o *Outcome) { o.Rules = ect.Hash([]byte("other")) }),
		{"it names another mechanism", func(random *rand.Rand, rec *Record) bool {
			rec.Outcome.Mechanism = pick(random, Mechanisms()...)
			return rec.Outcome.Mechanism != rec.Proposal.Mechanism
		}},
		{"the proposal was signed otherwise", func(_ *rand.Rand, rec *Record) bool { rec.Signed = "other"; return true }},
	}
}

// tamperedRules are rules that a coordinator made up: the outcome names them.
func tamperedRules() []tampering {
	forged := func(name string, f func(rec *Record) bool) tampering {
		return tampering{name, func(_ *rand.Rand, rec *Record) bool {
			rec.Rules.Members = slices.Clone(rec.Rules.Members)
			if !f(rec) {
				return false
			}
			rec.Outcome.Rules = rec.Rules.Hash()
			return true
		}}
	}
	return []tampering{
		{"a rule is another one", func(random *rand.Rand, rec *Record) bool {
			rec.Rules.Members = slices.Clone(rec.Rules.Members)
			r := &rec.Rules
			switch random.IntN(7) {
			case 0:
				r.Quorum++
			case 1:
				r.Connected++
			case 2:
				r.Threshold--
			case 3:
				r.Voters++
			case 4:
				r.Members[random.IntN(len(r.Members))].Weight++
			case 5:
				r.Authority++
			default:
				r.Members = r.Members[1:]
			}
			return true
		}},
		forged("weights are not those of the proposal", func(rec *Record) bool {
			rec.Rules.Members[0].Weight += 100
			return rec.Proposal.Mechanism == Weighted
		}),
		forged("a member is left out", func(rec *Record) bool {
			rec.Rules.Members = rec.Rules.Members[1:]
			return true
		}),
		forged("a member is somebody else", func(rec *Record) bool { rec.Rules.Members[0].ID = idOf(92); return true }),
		forged("the quorum is under that of the proposal", func(rec *Record) bool {
			rec.Rules.Quorum = rec.Proposal.Quorum - 1
			return true
		}),
		forged("the proposal asks for less than half", func(rec *Record) bool {
			rec.Proposal.Quorum, rec.Rules.Quorum = 0, 0
			return rec.Proposal.Mechanism == Majority || rec.Proposal.Mechanism == Weighted
		}),
		forged("less than a majority is connected", func(rec *Record) bool {
			rec.Rules.Connected = len(rec.Rules.Members) / 2
			return true
		}),
		forged("the threshold is no percentage", func(rec *Record) bool { rec.Rules.Threshold = -1; return true }),
		forged("it has a leader, and is none of a leader", func(rec *Record) bool {
			rec.Rules.Leader = idOf(0)
			return rec.Proposal.Mechanism != Leader
		}),
		forged("it has no leader", func(rec *Record) bool {
			rec.Rules.Leader = ""
			return rec.Proposal.Mechanism == Leader
		}),
	}
}

// checkAndTamper checks a record, and then a changed one.
func checkAndTamper(random *rand.Rand, rec Record, change tampering) error {
	if err := Check(rec); err != nil {
		return fmt.Errorf("the outcome is refused: %w", err)
	}
	return refuses(random, change, rec)
}

func refuses(random *rand.Rand, one tampering, rec Record) error {
	if !one.apply(random, &rec) {
		return nil
	}
	var unsound *UnsoundError
	if err := Check(rec); !errors.As(err, &unsound) {
		return fmt.Errorf("%s, and Check says %w; expected an UnsoundError; outcome %s of %s", one.name, err, rec.Outcome.Result, rec.Outcome.Round)
	}
	return nil
}

// TestCheck_EachTampering: each change is refused of a round of each mechanism that is committed and aborted.
func TestCheck_EachTampering(t *testing.T) {
	t.Parallel()
	applied := map[string]int{}
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 7))
		s := scenarioOf(t, random)
		got, err := s.round.Next(Event{Kind: Look, At: s.at, Box: s.box})
		if err != nil || !got.Phase.Decided() {
			continue
		}
		for _, one := range tamperings() {
			rec := s.record(got)
			if err := refuses(random, one, rec); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if one.apply(random, &rec) {
				applied[one.name]++
			}
		}
	}
	for _, one := range tamperings() {
		if applied[one.name] == 0 {
			t.Errorf("%q was never tried", one.name)
		}
	}
}

// TestCheck_ForgedWeights: weights that leave the tally as it is have to be those of the proposal all the same.
func TestCheck_ForgedWeights(t *testing.T) {
	t.Parallel()
	g := groupOf(3)
	g.Members[0].Weight, g.Members[1].Weight = 9, 2
	r := mustOpen(t, openingOf(g, Weighted))
	box := votesOf(r, "a..")
	box.Receipts = append(box.Receipts, ackOf(r, 1, Received))
	rec := recordOf(lookLate(t, r, box), box)
	if err := Check(rec); err != nil || rec.Outcome.Result != Commit {
		t.Fatalf("%v, %v; expected a commit", rec.Outcome, err)
	}
	rec.Rules.Members = slices.Clone(rec.Rules.Members)
	rec.Rules.Members[1].Weight, rec.Rules.Members[2].Weight = rec.Rules.Members[2].Weight, rec.Rules.Members[1].Weight
	rec.Outcome.Rules = rec.Rules.Hash()
	if err := Check(rec); err == nil {
		t.Error("an outcome with other weights than those of the proposal is believed")
	}
}
