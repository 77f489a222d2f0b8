package consensus

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	json2 "github.com/go-json-experiment/json"

	"github.com/aepb/aepb-gateway/ect"
)

// Phase says how a round stands.
type Phase string

// The phases. Stored records hold their text.
const (
	Voting    Phase = "voting"    // votes are received
	Suspended Phase = "suspended" // the deadline is over and the votes accept, but too few participants are connected
	Waiting   Phase = "waiting"   // the votes accept, and a proposal of a higher rank about the same is not decided yet
	Escalated Phase = "escalated" // a human decides
	Drawing   Phase = "drawing"   // it is aborted, and nonces are opened that say which proposal goes first
	Committed Phase = "committed"
	Aborted   Phase = "aborted"
)

const (
	// Grace is how long after a deadline a round is decided: what came in time may be on its way into the store.
	Grace = 2 * time.Second
	// Patience is how long after its deadline a suspended round waits for participants.
	Patience = 24 * time.Hour
	// DrawFor is how long nonces are opened.
	DrawFor = time.Minute
	// MaxRetries is how often a proposal is submitted again.
	MaxRetries = 3
	// TurnFor is how long after a deadlock the proposal that goes first holds up the others.
	TurnFor = 5 * time.Minute
	// Backoff is the pause before a proposal is submitted again; it doubles each time.
	Backoff = 10 * time.Second
)

// Kind is what happens to a round.
type Kind string

// The kinds of events.
const (
	Look   Kind = "look"   // a coordinator looks at what was received
	Decide Kind = "decide" // a human decides
)

// transitions says from which phase an event leads where.
var transitions = map[Phase]map[Kind][]Phase{
	Voting:    {Look: {Committed, Aborted, Suspended, Waiting, Escalated, Drawing}},
	Suspended: {Look: {Committed, Aborted, Waiting, Escalated, Drawing}},
	Waiting:   {Look: {Committed, Aborted, Escalated, Drawing}},
	Escalated: {Decide: {Committed, Aborted}},
	Drawing:   {Look: {Aborted}},
}

// Over reports whether nothing can follow.
func (p Phase) Over() bool { return len(transitions[p]) == 0 }

// Decided reports whether the outcome is known.
func (p Phase) Decided() bool { return p == Committed || p == Aborted || p == Drawing }

// Ballot is a vote that was received. Ballots of one voter with different bytes are all handed in.
type Ballot struct {
	Vote     Vote
	Hash     string // of the signed vote
	Received time.Time
}

// Receipt is an acknowledgement that was received.
type Receipt struct {
	Ack      Ack
	Hash     string
	Received time.Time
}

// Box is all that was received for a round.
type Box struct {
	Ballots  []Ballot
	Receipts []Receipt
}

// Related is another round about the same, as far as it matters.
type Related struct {
	Candidate
	Rank     Rank
	Phase    Phase
	Attempt  int
	Outcome  Outcome // zero: it has none
	Signed   string  // hash of the signed outcome
	Deadlock Deadlock
}

// Related is the round as others about the same see it.
func (r Round) Related() Related {
	out := Related{Candidate: r.candidate(), Rank: r.Rank, Phase: r.Phase, Attempt: r.Attempt, Outcome: r.End.Outcome, Deadlock: r.Deadlock}
	if r.End.Signature != "" {
		out.Signed = ect.Hash([]byte(r.End.Signature))
	}
	return out
}

func (r Round) candidate() Candidate {
	return Candidate{r.Proposal.ID, r.Proposal.Proposer, r.Opened, r.Proposal.Terms.Nonce}
}

// Deadlock is that two rounds about the same failed, one after the other.
type Deadlock struct {
	Candidates []Candidate `json:"candidates,omitempty"` // none: there is no deadlock
	Preferred  string      `json:"preferred,omitempty"`  // the proposal that goes first; empty: not drawn, or a human decides
	Until      time.Time   `json:"until,omitzero"`       // when a draw ends
}

// Candidate is a proposal in a deadlock.
type Candidate struct {
	Proposal string       `json:"proposal_id"`
	Proposer ect.Identity `json:"proposer"`
	Opened   time.Time    `json:"opened"`
	Nonce    string       `json:"nonce_hash,omitempty"`
}

// Rank orders proposals about the same. It is total: two are never equal.
type Rank struct {
	Urgency     int       `json:"urgency"` // at most the authority of the proposer
	Authority   int       `json:"authority"`
	Specificity int       `json:"specificity"`
	Opened      time.Time `json:"opened"`
	Round       string    `json:"round"`
}

// Compare is above zero if the first goes first (Priority-Based Resolution).
func (r Rank) Compare(other Rank) int {
	return cmp.Or(
		cmp.Compare(r.Urgency, other.Urgency), cmp.Compare(r.Authority, other.Authority), cmp.Compare(r.Specificity, other.Specificity),
		other.Opened.Compare(r.Opened), strings.Compare(other.Round, r.Round),
	)
}

// Round is a round. It does not change: Next makes the next one.
type Round struct {
	Form     int       `json:"form"`
	Term     uint64    `json:"term"` // grows with each change
	Phase    Phase     `json:"phase"`
	Proposal Proposal  `json:"proposal"`
	Signed   string    `json:"signed"` // the signed proposal
	Rules    Rules     `json:"rules"`
	Rank     Rank      `json:"rank"`
	Attempt  int       `json:"attempt"` // 1: it was submitted for the first time
	Opened   time.Time `json:"opened"`
	Changed  time.Time `json:"changed"`
	Workflow string    `json:"wid"`
	Proposed ect.ID    `json:"propose"` // the consensus_propose

	End      End      `json:"end,omitzero"`
	Human    Human    `json:"human,omitzero"`
	Deadlock Deadlock `json:"deadlock,omitzero"`
	Token    string   `json:"token,omitempty"` // the consensus_commit, or the consensus_propose before it
}

// End is how a round ended. One that a human decides has the outcome that it would have had.
type End struct {
	Outcome   Outcome       `json:"outcome"`
	Signature string        `json:"signature,omitempty"` // the signed outcome; empty: there is none yet
	Counted   []string      `json:"counted,omitempty"`   // hashes of the messages that the outcome rests on, sorted
	Anomalies []AnomalyKind `json:"anomalies,omitempty"`
}

// Human is why and where a human decides a round.
type Human struct {
	Why      Reason `json:"why,omitempty"`
	Approval string `json:"approval,omitempty"`
}

// Form is the version of the JSON of stored rounds.
const Form = 1

// Encode writes a round as it is stored, equal rounds as equal bytes.
func (r Round) Encode() ([]byte, error) { return json2.Marshal(r, json2.Deterministic(true)) }

// DecodeRound reads a stored round. Its error is [ErrForm] for one of another version.
func DecodeRound(text []byte) (r Round, err error) {
	if err = json2.Unmarshal(text, &r); err == nil && r.Form != Form {
		err = ErrForm
	}
	return r, err
}

// ErrForm reports a round that another version of this program has written.
var ErrForm = errors.New("consensus: the round was written by another version of the gateway")

// Event is what happens to a round.
type Event struct {
	Kind    Kind
	At      time.Time
	Box     Box       // with Look
	Related []Related // with Look: other rounds about the same
	Granted bool      // with Decide
}

// Deadline is the moment until which votes are received.
func (r Round) Deadline() time.Time {
	if r.Proposal.Terms.RevealBy.IsZero() {
		return r.Proposal.Timeout.Time
	}
	return r.Proposal.Terms.RevealBy.Time
}

// Due is when a round has to be looked at, whatever is received; the zero time: never.
func (r Round) Due() time.Time {
	switch r.Phase {
	case Voting:
		return r.Deadline().Add(Grace)
	case Suspended, Waiting:
		return r.Changed.Add(time.Second)
	case Drawing:
		return r.Deadlock.Until
	default:
		return time.Time{}
	}
}

// Next is the round after an event. Its error is a *[StateError]; the round stays as it is then. An event that changes
// nothing, such as a look at a round whose time is not over, returns the round as it was, with the same Term.
func (r Round) Next(e Event) (Round, error) {
	if _, ok := transitions[r.Phase][e.Kind]; !ok {
		return r, &StateError{r.Phase, e.Kind}
	}
	var next Round
	switch {
	case e.Kind == Decide:
		next = r.decideHuman(e)
	case r.Phase == Drawing:
		next = r.draw(e)
	default:
		next = r.look(e)
	}
	if next.Phase == r.Phase && next.Deadlock.Preferred == r.Deadlock.Preferred {
		return r, nil
	}
	next.Term, next.Changed = r.Term+1, e.At
	return next, nil
}

// look is the round after a look at what was received for it.
func (r Round) look(e Event) Round {
	count := r.count(e.Box)
	if !r.closes(e, count) {
		return r
	}
	reason := r.judge(count)
	switch {
	case reason != Accepted:
		return r.fail(e, count, reason)
	case count.tally.Connected < r.Rules.Connected && e.At.Before(r.Deadline().Add(Patience)):
		return r.hold(Suspended, count)
	case count.tally.Connected < r.Rules.Connected:
		return r.fail(e, count, NoConnectivity)
	}
	rival, waits := r.rivals(e.Related)
	switch {
	case rival != "":
		return r.end(e, count, Abort, Superseded, rival)
	case waits:
		return r.hold(Waiting, count)
	}
	return r.end(e, count, Commit, Accepted, "")
}

// rivals looks for rounds of a higher rank about the same: the signed outcome of one that was accepted, and whether one is still to
// come. One that was opened after the deadline does not matter.
func (r Round) rivals(related []Related) (accepted string, waits bool) {
	for _, other := range related {
		switch {
		case other.Rank.Compare(r.Rank) < 0 || other.Rank.Opened.After(r.Deadline()):
		case other.Phase == Committed && other.Outcome.Decided.Before(r.Opened):
		case other.Phase == Committed && other.Signed != "":
			accepted = max(accepted, other.Signed)
		case other.Phase == Committed || !other.Phase.Decided() && other.Phase != Escalated: // its outcome is not signed, or not known
			waits = true
		}
	}
	return accepted, waits
}

// closes reports whether no vote is waited for any more.
func (r Round) closes(e Event, c count) bool {
	switch {
	case r.Phase != Voting:
		return true
	case !e.At.Before(r.Deadline().Add(Grace)):
		return true
	case r.Rules.Leader != "": // it may still have to give a rationale, and participants to be reached
		reason := r.judge(c)
		return reason == Rejected || reason == Accepted && c.tally.Connected >= r.Rules.Connected
	case r.Proposal.Mechanism == Optimistic && c.tally.Reject > 0:
		return true
	default:
		return c.voted == len(r.Rules.Members)
	}
}

// fail is the round after votes that do not accept, unless others about the same failed before: that is a deadlock (Deadlock
// Detection and Breaking). After the last retry a human decides.
func (r Round) fail(e Event, c count, reason Reason) Round {
	candidates := r.deadlocked(e.Related)
	switch {
	case reason == Objected || reason == Rejected && len(candidates) < 2:
		return r.end(e, c, Abort, reason, "")
	case r.Attempt > MaxRetries || len(candidates) == 1 || len(candidates) > 1 && r.Rules.Deadlock == Escalate:
		next := r.to(Escalated)
		next.Human.Why, next.Deadlock.Candidates = reason, candidates
		next.End.Outcome, next.End.Counted = r.outcome(e, c, Abort, reason, ""), c.hashes
		next.End.Anomalies = Anomalies(c.ballots)
		return next
	case len(candidates) == 0:
		return r.end(e, c, Abort, reason, "")
	}
	next := r.end(e, c, Abort, reason, "")
	next.Deadlock.Candidates = candidates
	if r.Rules.Deadlock == Random {
		next.Phase, next.Deadlock.Until = Drawing, e.At.Add(DrawFor)
	} else {
		next.Deadlock.Preferred = oldest(candidates).Proposal
	}
	return next
}

// deadlocked are the proposals that block each other: this one, and that of the related round which failed before it, unless a
// deadlock was found then or something was committed since; none: there is no deadlock. One alone: its participants do
// not vote.
func (r Round) deadlocked(related []Related) []Candidate {
	last, found := Related{}, false
	for _, other := range related {
		if other.Phase.Decided() && (!found || other.Outcome.Decided.After(last.Outcome.Decided)) {
			last, found = other, true
		}
	}
	failed := last.Outcome.Reason == NoQuorum || last.Outcome.Reason == NoDecision || last.Outcome.Reason == NoConnectivity || last.Outcome.Reason == Rejected
	if !found || !failed || len(last.Deadlock.Candidates) > 0 {
		return nil
	}
	if last.Proposal == r.Proposal.ID {
		return []Candidate{r.candidate()}
	}
	return []Candidate{last.Candidate, r.candidate()}
}

func oldest(candidates []Candidate) Candidate {
	return slices.MinFunc(candidates, func(a, b Candidate) int {
		return cmp.Or(a.Opened.Compare(b.Opened), strings.Compare(a.Proposal, b.Proposal))
	})
}

// decideHuman ends a round as a human decided.
func (r Round) decideHuman(e Event) Round {
	next := r.to(Aborted)
	next.End.Outcome.Result = Abort
	if e.Granted {
		next.Phase, next.End.Outcome.Result = Committed, Commit
	}
	next.End.Outcome.Reason, next.End.Outcome.Approval, next.End.Outcome.Decided = HumanDecided, r.Human.Approval, e.At
	return next
}

func (r Round) to(p Phase) Round {
	r.Phase = p
	return r
}

// hold is the round with the votes accepted, and without an outcome yet. What counts by now counts at its end too.
func (r Round) hold(p Phase, c count) Round {
	next := r.to(p)
	next.End.Counted = c.hashes
	return next
}

// end is the round with its outcome.
func (r Round) end(e Event, c count, result Result, reason Reason, rival string) Round {
	next := r.to(Aborted)
	if result == Commit {
		next.Phase = Committed
	}
	next.End.Outcome, next.End.Counted = r.outcome(e, c, result, reason, rival), c.hashes
	next.End.Anomalies = Anomalies(c.ballots)
	return next
}

func (r Round) outcome(e Event, c count, result Result, reason Reason, rival string) Outcome {
	return Outcome{
		Proposal: r.Proposal.ID, Round: r.Proposal.Round, Signed: ect.Hash([]byte(r.Signed)), Mechanism: r.Proposal.Mechanism, Result: result,
		Reason: reason, Tally: c.tally, Rules: r.Rules.Hash(), Votes: MessagesHash(c.hashes), Rival: rival, Decided: e.At,
	}
}

// StateError reports an event that does not follow.
type StateError struct {
	Phase Phase
	Kind  Kind
}

func (e *StateError) Error() string {
	return "consensus: the round is " + string(e.Phase) + ", so there is nothing to " + string(e.Kind)
}
