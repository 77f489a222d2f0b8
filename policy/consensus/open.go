package consensus

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// DefaultLongest bounds a round whose group does not say it.
const DefaultLongest = 24 * time.Hour

// Opening is a proposal that was signed by its proposer, and what it is judged by.
type Opening struct {
	Proposal Proposal
	Signed   string // the signed proposal
	Group    Group
	Since    func(ect.Identity) time.Time // since when the coordinator knows an identity
	Related  []Related                    // rounds about the same
	Workflow string
	Now      time.Time
}

// RefusedError reports a proposal, a vote or an acknowledgement that is not taken.
type RefusedError struct {
	Reason  string
	Late    bool          // its time is over
	Doubled bool          // it contradicts another vote of the same voter
	Again   time.Duration // it can be sent again after this; zero: that does not help
}

func (e *RefusedError) Error() string { return "consensus: " + e.Reason }

// Open makes the round of a proposal. Its error is a *[RefusedError].
func Open(o Opening) (Round, error) {
	table := o.Group.Weigh(o.Since, o.Now)
	if err := o.judge(table); err != nil {
		return Round{}, err
	}
	attempt, err := o.attempt()
	if err != nil {
		return Round{}, err
	}
	p := o.Proposal
	authority := o.Group.Proposers[p.Proposer]
	return Round{
		Form: Form, Term: 1, Phase: Voting, Proposal: p, Signed: o.Signed, Rules: o.Group.freeze(p, table, o.Now), Attempt: attempt,
		Rank:   Rank{Urgency: min(p.Terms.Urgency, authority), Authority: authority, Specificity: specificity(p.Action), Opened: o.Now, Round: p.Round},
		Opened: o.Now, Changed: o.Now, Workflow: o.Workflow,
	}, nil
}

// specificity counts the values of an action: what names more is more specific.
func specificity(action []byte) int { return min(1+bytes.Count(action, []byte(`":`)), 1000) }

func (o Opening) judge(table []Member) error {
	refused := func(format string, args ...any) error { return &RefusedError{Reason: fmt.Sprintf(format, args...)} }
	p, g := o.Proposal, o.Group
	longest := g.WithDefaults().Longest
	end := Round{Proposal: p}.Deadline()
	floor, most := g.Floor(p.Mechanism, table), g.most(p.Mechanism, table)
	_, proposes := g.Proposers[p.Proposer]
	switch {
	case !proposes:
		return refused("%s may not propose to the group %q", p.Proposer, g.Name)
	case !slices.Contains(g.Mechanisms, p.Mechanism):
		return refused("the group %q does not decide by %s, expected one of %v", g.Name, p.Mechanism, g.Mechanisms)
	case !sameMembers(p.Participants, table):
		return refused("participants are not the members of the group %q: ask for them at /consensus/groups/%s", g.Name, g.Name)
	case !p.Timeout.After(o.Now) || end.Sub(o.Now) > longest:
		return refused("timeout is in the past or too late: a round of the group %q lasts up to %v", g.Name, longest)
	case !within(p.Quorum, floor, most):
		return refused("quorum is %d, expected %d to %d", p.Quorum, floor, most)
	}
	return o.judgeTerms(table)
}

// most is the largest quorum that a proposal may ask for.
func (g Group) most(m Mechanism, table []Member) int64 {
	switch m {
	case Weighted:
		return Rules{Members: table}.Total()
	case Majority:
		return int64(len(table))
	default: // it has none
		return 0
	}
}

func (o Opening) judgeTerms(table []Member) error {
	refused := func(format string, args ...any) error { return &RefusedError{Reason: fmt.Sprintf(format, args...)} }
	m, t, g := o.Proposal.Mechanism, o.Proposal.Terms, o.Group
	switch {
	case m == Weighted && t.Weights != WeightsHash(table):
		return refused("weights_hash is that of another table of weights: ask for it at /consensus/groups/%s", g.Name)
	case m == Optimistic && !t.Reversible:
		return refused("optimistic consensus is for actions that can be undone: say reversible, or choose another mechanism")
	case m == Leader && !t.RevealBy.IsZero():
		return refused("a leader decides with the votes before it: reveal_by does not go with the mechanism leader")
	case g.Deadlock == Random && t.Resource != "" && t.Nonce == "":
		return refused("nonce_hash is required: deadlocks of the group %q are broken by a draw", g.Name)
	}
	return nil
}

func sameMembers(ids []ect.Identity, table []Member) bool {
	want := make([]ect.Identity, len(table))
	for i, m := range table {
		want[i] = m.ID
	}
	return slices.Equal(slices.Sorted(slices.Values(ids)), slices.Sorted(slices.Values(want)))
}

// attempt is how often a proposal is submitted with this time, or why it cannot be submitted now.
func (o Opening) attempt() (int, error) {
	related := slices.Clone(o.Related)
	slices.SortFunc(related, func(a, b Related) int { return a.Rank.Opened.Compare(b.Rank.Opened) })
	attempt, preferred, until := 1, "", time.Time{}
	var last Related
	for _, other := range related {
		if other.Phase == Drawing {
			return 0, &RefusedError{Reason: "a draw says soon which proposal about this goes first", Again: max(other.Deadlock.Until.Sub(o.Now), time.Second)}
		}
		if n := other.Deadlock.Preferred; n != "" {
			preferred, until = n, other.Outcome.Decided.Add(TurnFor)
		} else if other.Proposal == preferred {
			preferred = "" // it had its turn
		}
		if other.Proposal != o.Proposal.ID {
			continue
		}
		if attempt, last = attempt+1, other; !other.Phase.Decided() {
			return 0, &RefusedError{Reason: "a round of this proposal is not over yet"}
		}
	}
	if preferred != "" && preferred != o.Proposal.ID && o.Now.Before(until) {
		return 0, &RefusedError{Reason: "this is deadlocked, and the proposal " + preferred + " goes first", Again: Backoff}
	}
	return attempt, o.again(attempt, last)
}

// again judges whether a proposal may be submitted again (Timeout Semantics).
func (o Opening) again(attempt int, last Related) error {
	if attempt == 1 {
		return nil
	}
	pause := Backoff << (attempt - 2)
	wait := last.Outcome.Decided.Add(pause).Sub(o.Now)
	switch {
	case last.Proposer != o.Proposal.Proposer:
		return &RefusedError{Reason: "proposal_id is that of a proposal of " + string(last.Proposer) + ": choose another one"}
	case last.Outcome.Result == Commit || last.Outcome.Reason == HumanDecided:
		return &RefusedError{Reason: "the proposal is decided: " + string(last.Outcome.Result)}
	case last.Outcome.Reason == Superseded:
		return &RefusedError{Reason: "another proposal about the same was accepted"}
	case attempt > MaxRetries+1:
		return &RefusedError{Reason: fmt.Sprintf("a proposal is submitted again %d times at most", MaxRetries)}
	case wait > 0:
		return &RefusedError{Reason: "it is too soon to submit the proposal again", Again: wait}
	}
	return nil
}

// Topic names what rounds are about, so that they are related: the resource, else the proposal.
func (p Proposal) Topic() string {
	if p.Terms.Resource != "" {
		return ect.Hash([]byte(strings.Join([]string{"resource", p.Terms.Group, p.Terms.Resource}, "\n")))
	}
	return ect.Hash([]byte(strings.Join([]string{"proposal", p.Terms.Group, p.ID}, "\n")))
}
