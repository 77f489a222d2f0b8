package consensus

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
)

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
	v := Vote{Proposal: rec.Proposal.ID, Round: round, Voter: voter, Decision: Reject, Rationale: "no", Weights: rec.Proposal.Weights}
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
		return fmt.Errorf("%s, and Check says %v; expected an UnsoundError\n%+v", one.name, err, rec.Outcome)
	}
	return nil
}

// TestCheck_EachTampering: each change is refused of a round of each mechanism that is committed and aborted.
func TestCheck_EachTampering(t *testing.T) {
	t.Parallel()
	applied := map[string]int{}
	for seed := range uint64(400) {
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
