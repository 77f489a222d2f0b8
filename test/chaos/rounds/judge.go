package rounds

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/consensus"
)

// Kind is how the rounds of one group under one mechanism went.
type Kind struct {
	Name                                       string
	All, Opened, Committed, Aborted, Suspended int
	Open                                       int // they did not end
}

// Violation is something that must not happen.
type Violation struct{ Kind, Key, What, Why string }

// Report is what came of the act.
type Report struct {
	Kinds      []Kind
	Violations []Violation
	Kills      map[string]int // by group
	Ends       map[string]int // by group, mechanism and reason; of rounds that were not opened by what was said
	Votes      map[string]int // by group and what became of them
	Evidence   int            // ECTs that were verified
	Unsaved    int            // rounds of which evidence went down with a gateway over a file
	Log        string
}

func (r *Report) add(other Report) {
	r.Kinds = append(r.Kinds, other.Kinds...)
	slices.SortFunc(r.Kinds, func(a, b Kind) int { return cmp.Compare(a.Name, b.Name) })
	r.Violations = append(r.Violations, other.Violations...)
	r.Evidence, r.Unsaved, r.Log = r.Evidence+other.Evidence, r.Unsaved+other.Unsaved, r.Log+other.Log
	r.Kills, r.Ends, r.Votes = sum(r.Kills, other.Kills), sum(r.Ends, other.Ends), sum(r.Votes, other.Votes)
}

func sum(a, b map[string]int) map[string]int {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]int{}
	}
	for name, n := range b {
		all[name] += n
	}
	return all
}

// early reports whether a round ended by an objection or a leader before its deadline. Of a voter that contradicts itself,
// one vote may end the round then, while the other one is on its way and need not count.
func (a audit) early(deadline time.Time) bool {
	o := a.outcome
	return (o.Reason == consensus.Objected || o.Mechanism == consensus.Leader) && o.Decided.Before(deadline)
}

// judge says what is wrong with a round.
func (r *round) judge() (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	wrong = append(wrong, r.wrong...)
	for _, c := range r.votes {
		if c.forged && c.taken {
			say("a vote in the name of %s that must not be taken was taken", c.voter)
		}
	}
	if r.opened.Round == "" {
		return wrong
	}
	if !r.last.decided() {
		say("the round does not end: it is %s", r.last.Phase)
		return wrong
	}
	for _, s := range r.sights {
		if s.outcome != r.audit.compact {
			say("member %d read another outcome at replica %d", s.member, s.replica)
		}
	}
	if r.audit.refused != "" {
		say("%s", r.audit.refused)
		return wrong
	}
	return append(append(wrong, r.judgeVotes()...), r.judgeRival()...)
}

// judgeVotes says which votes are missing among the messages, and which must not be there.
func (r *round) judgeVotes() (wrong []string) {
	legitimate, sent := map[string]ect.Identity{}, map[ect.Identity]int{}
	for _, c := range r.votes {
		if !c.forged {
			sent[c.voter]++
		}
	}
	for _, c := range r.votes {
		_, there := r.audit.votes[c.hash]
		if !c.forged {
			legitimate[c.hash] = c.voter
		}
		if c.taken && !c.forged && !there && (sent[c.voter] < 2 || !r.audit.early(r.last.Deadline)) {
			wrong = append(wrong, fmt.Sprintf("a vote of %s was taken, and is not among the messages", c.voter))
		}
	}
	for hash, voter := range r.audit.votes {
		if legitimate[hash] != voter {
			wrong = append(wrong, "a vote of "+string(voter)+" counts that it did not send in time")
		}
	}
	return wrong
}

// judgeRival says whether two rounds about the same resource were accepted. Their votes were cast when both were open.
func (r *round) judgeRival() []string {
	other := r.rival
	if other == nil || other.id < r.id || r.audit.outcome.Result != consensus.Commit || other.audit.outcome.Result != consensus.Commit ||
		r.opened.Opened.After(other.last.Deadline) || other.opened.Opened.After(r.last.Deadline) {
		return nil
	}
	return []string{"two rounds about one resource commit, the other one is " + other.id}
}

// judgeEvidence says what is wrong with the evidence of a round, and whether some is missing.
func (r *round) judgeEvidence() (wrong []string, missing bool) {
	e := r.audit.evidence
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for _, text := range e.unverified {
		say("a token does not verify: %s", text)
	}
	for _, text := range e.strays {
		say("the evidence has %s", text)
	}
	if len(e.proposed) > 1 || len(e.commits) > 1 {
		say("the evidence has %d consensus_propose and %d consensus_commit, expected one of each", len(e.proposed), len(e.commits))
	}
	for _, c := range e.proposed {
		if c.ID != r.last.Proposed {
			say("the consensus_propose is not the one that the round names")
		}
	}
	for _, c := range e.commits {
		if c.ID != r.last.Commit || c.InputHash != r.audit.outcome.Votes || c.OutputHash != ect.Hash([]byte(r.audit.compact)) {
			say("the consensus_commit is about another outcome than the one that was told")
		}
	}
	for hash, n := range e.votes {
		if _, there := r.audit.votes[hash]; !there || n > 1 {
			say("a consensus_vote is there %d times, and the vote counts: %t", n, there)
		}
	}
	return wrong, !e.whole(r.audit.votes)
}

// lasts is how long after the outcome votes are recorded at the latest.
const lasts = 40 * time.Second

// judge judges all rounds of a group.
func (g *group) judge(played []*round) (rep Report) {
	rep.Kills, rep.Ends, rep.Votes = g.Struck(), map[string]int{}, map[string]int{}
	if g.masters > 0 {
		rep.Kills[g.Name+" masters of Redis"] = g.masters
	}
	kinds, total := map[string]*Kind{}, Kind{}
	for _, r := range played {
		wrong := r.judge()
		if r.audit.refused == "" && r.last.decided() {
			more, missing := r.judgeEvidence()
			wrong = append(wrong, more...)
			switch e := r.audit.evidence; {
			case missing && g.WasUnsaved(r.opened.Opened, r.last.Changed.Add(lasts)):
				rep.Unsaved++
			case missing:
				wrong = append(wrong, fmt.Sprintf("evidence is missing: %d consensus_propose, %d consensus_commit, and consensus_vote of %d of %d votes",
					len(e.proposed), len(e.commits), len(e.votes), len(r.audit.votes)))
			}
			rep.Evidence += r.audit.evidence.all
		}
		name := g.Name + " " + string(r.plan.mechanism)
		if kinds[name] == nil {
			kinds[name] = &Kind{Name: name}
		}
		for _, what := range wrong {
			rep.Violations = append(rep.Violations, Violation{name, r.id, what, r.description()})
		}
		kinds[name].count(r)
		total.count(r)
		rep.Ends[name+" "+r.end()]++
		for _, c := range r.votes {
			rep.Votes[g.Name+" "+r.fate(c)]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		rep.Kinds = append(rep.Kinds, *kinds[name])
	}
	if total.Committed == 0 || total.Aborted == 0 {
		rep.Violations = append(rep.Violations, Violation{g.Name, "", fmt.Sprintf("%d rounds commit and %d abort: nothing is proved", total.Committed, total.Aborted), ""})
	}
	return rep
}

func (k *Kind) count(r *round) {
	k.All++
	if r.opened.Round == "" {
		return
	}
	k.Opened++
	if r.suspended {
		k.Suspended++
	}
	switch {
	case !r.last.decided():
		k.Open++
	case r.audit.outcome.Result == consensus.Commit:
		k.Committed++
	default:
		k.Aborted++
	}
}

// end is how a round ended, in words.
func (r *round) end() string {
	switch {
	case r.opened.Round == "":
		return "not opened: " + r.refusal
	case !r.last.decided():
		return "open"
	default:
		return string(r.audit.outcome.Reason)
	}
}

// fate is what became of a vote, in words.
func (r *round) fate(c sentVote) string {
	_, there := r.audit.votes[c.hash]
	switch {
	case c.forged:
		return "forged or late"
	case c.taken && there:
		return "counted"
	case c.taken:
		return "taken and not counted"
	case there:
		return "counted, and its voter does not know that"
	default:
		return "refused"
	}
}

// description says how a round went, for a violation.
func (r *round) description() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s, opened %s, deadline %s, changed %s", r.last.Phase, r.end(), clock(r.opened.Opened), clock(r.last.Deadline), clock(r.last.Changed))
	for _, c := range r.votes {
		if !c.taken {
			b.WriteString("; not taken: " + c.why)
		}
	}
	return b.String()
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }
