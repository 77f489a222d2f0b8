package consensus

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	json2 "github.com/go-json-experiment/json"

	"github.com/aepb/aepb-gateway/ect"
)

// MaxUrgency is the highest urgency of a proposal, and the highest authority of a proposer.
const MaxUrgency = 3

// DefaultThreshold is the part of the total weight, in percent, that approving weight has to exceed.
const DefaultThreshold = 50

// Strategy breaks a deadlock.
type Strategy string

// The strategies (Deadlock Detection and Breaking).
const (
	Oldest   Strategy = "oldest"   // the oldest of the proposals goes first
	Random   Strategy = "random"   // a draw of nonces to which the proposers committed says which goes first
	Escalate Strategy = "escalate" // a human decides
)

// Strategies lists them all.
func Strategies() []Strategy { return []Strategy{Oldest, Random, Escalate} }

// Group says who decides together, and how. It is an operator's: no member of it is taken from a proposal.
type Group struct {
	Name       string
	Members    []Member // Weight as configured; 1 to [MaxParticipants] of them
	Proposers  map[ect.Identity]int
	Mechanisms []Mechanism
	Leader     ect.Identity // empty: the members lead in turns, an hour each
	Threshold  int          // percent; zero: [DefaultThreshold]
	MaxFaulty  int          // how many members may be faulty: the quorum is 2f+1 at least
	Deadlock   Strategy     // empty: [Escalate]
	Longest    time.Duration
}

// Member is a participant and its weight.
type Member struct {
	ID     ect.Identity `json:"id"`
	Weight int64        `json:"weight"`
}

// Check finds what cannot be followed in a group.
func (g Group) Check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("consensus: group %q: "+format, append([]any{g.Name}, args...)...)
	}
	ids := make([]ect.Identity, len(g.Members))
	for i, m := range g.Members {
		if ids[i] = m.ID; !within(m.Weight, 1, MaxWeight) {
			return bad("the weight of %s is a number from 1 to %d", m.ID, MaxWeight)
		}
	}
	if err := g.checkMembers(ids, bad); err != nil {
		return err
	}
	for id, authority := range g.Proposers {
		if !within(authority, 0, MaxUrgency) {
			return bad("the authority of %s is a number from 0 to %d", id, MaxUrgency)
		}
	}
	for _, m := range g.Mechanisms {
		if !slices.Contains(Mechanisms(), m) {
			return bad("%q is no mechanism, expected majority, weighted, leader or optimistic", m)
		}
	}
	if g.Deadlock != "" && !slices.Contains(Strategies(), g.Deadlock) {
		return bad("%q breaks no deadlock, expected oldest, random or escalate", g.Deadlock)
	}
	return nil
}

// checkMembers finds a group that could not decide with the members that it has.
func (g Group) checkMembers(ids []ect.Identity, bad func(format string, args ...any) error) error {
	switch {
	case !isText(g.Name):
		return bad("a name is one line of at most %d bytes", MaxText)
	case !within(len(ids), 1, MaxParticipants) || !areDistinct(ids):
		return bad("it has 1 to %d members, each once", MaxParticipants)
	case len(g.Mechanisms) == 0:
		return bad("it needs a mechanism")
	case !within(g.Threshold, 0, 99):
		return bad("threshold is a number of percent from 1 to 99")
	case g.MaxFaulty < 0 || 2*g.MaxFaulty+1 > len(ids):
		return bad("max_faulty of %d needs %d members, expected at most %d of %d", g.MaxFaulty, 2*g.MaxFaulty+1, (len(ids)-1)/2, len(ids))
	case len(g.Proposers) == 0:
		return bad("it has no proposers, so nothing can be proposed")
	case g.Longest < 0:
		return bad("the longest time of a round is not negative")
	}
	return nil
}

// WithDefaults is the group with what it does not say.
func (g Group) WithDefaults() Group {
	g.Threshold = cmp.Or(g.Threshold, DefaultThreshold)
	g.Deadlock = cmp.Or(g.Deadlock, Escalate)
	g.Longest = cmp.Or(g.Longest, DefaultLongest)
	return g
}

// How long identities are new.
const (
	NewFor     = 24 * time.Hour
	YoungFor   = 7 * 24 * time.Hour
	scoreNew   = 25
	scoreYoung = 50
	scoreFull  = 100
)

// Score is what the weight of a member counts, in percent, that the coordinator knows since then (Sybil Resistance). The zero
// time: it does not know it yet.
func Score(since, now time.Time) int64 {
	switch age := now.Sub(since); {
	case since.IsZero() || age < NewFor:
		return scoreNew
	case age < YoungFor:
		return scoreYoung
	default:
		return scoreFull
	}
}

// Weigh is the table of weights of a group now: each is the configured one times its score, in hundredths.
func (g Group) Weigh(since func(ect.Identity) time.Time, now time.Time) []Member {
	out := make([]Member, len(g.Members))
	for i, m := range g.Members {
		out[i] = Member{m.ID, m.Weight * Score(since(m.ID), now)}
	}
	return out
}

// LeaderAt is who leads a round that is opened now.
func (g Group) LeaderAt(now time.Time) ect.Identity {
	if g.Leader != "" {
		return g.Leader
	}
	return g.Members[int(now.Unix()/3600)%len(g.Members)].ID
}

// WeightsHash names a table of weights.
func WeightsHash(table []Member) string {
	text, _ := json2.Marshal(table, json2.Deterministic(true)) // texts and numbers can always be written
	return ect.Hash(text)
}

// Rules are what a round is decided by. They are fixed when it is opened.
type Rules struct {
	Members   []Member     `json:"members"`   // with weights in hundredths
	Quorum    int64        `json:"quorum"`    // votes, under weighted weight in hundredths; zero: none
	Voters    int          `json:"voters"`    // votes at least, whatever their weight
	Connected int          `json:"connected"` // participants with a signed message that a commit needs
	Threshold int64        `json:"threshold"` // percent
	Leader    ect.Identity `json:"leader,omitempty"`
	Deadlock  Strategy     `json:"deadlock"`
	Authority int          `json:"authority"` // of the proposer
}

// Hash names rules.
func (r Rules) Hash() string {
	text, _ := json2.Marshal(r, json2.Deterministic(true))
	return ect.Hash(text)
}

// Total is the weight of all members.
func (r Rules) Total() (sum int64) {
	for _, m := range r.Members {
		sum += m.Weight
	}
	return sum
}

// IsMember reports whether an identity votes.
func (r Rules) IsMember(id ect.Identity) bool {
	return slices.ContainsFunc(r.Members, func(m Member) bool { return m.ID == id })
}

// Floor is the smallest quorum that a proposal may ask for.
func (g Group) Floor(m Mechanism, table []Member) int64 {
	rules := Rules{Members: table}
	switch m {
	case Majority:
		return max(int64(len(table)+1)/2, int64(2*g.MaxFaulty+1))
	case Weighted:
		return (rules.Total() + 1) / 2
	default:
		return 0
	}
}

// freeze makes the rules of a round out of a proposal that was judged.
func (g Group) freeze(p Proposal, table []Member, now time.Time) Rules {
	g = g.WithDefaults()
	r := Rules{
		Members: table, Quorum: max(p.Quorum, g.Floor(p.Mechanism, table)), Connected: max(len(table)/2+1, 2*g.MaxFaulty+1),
		Threshold: int64(g.Threshold), Deadlock: g.Deadlock, Authority: g.Proposers[p.Proposer],
	}
	if p.Mechanism == Leader {
		r.Leader = g.LeaderAt(now)
	}
	if p.Mechanism == Weighted && g.MaxFaulty > 0 {
		r.Voters = 2*g.MaxFaulty + 1
	}
	return r
}
