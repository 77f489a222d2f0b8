package rounds

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/test/harness/fleet"
)

const signature = "the signed outcome"

// agreed is a round that two members approved, a third one voted on too late, and a fourth one forged a vote in.
func agreed() *round {
	r := newRound(plan{mechanism: consensus.Majority})
	now := time.Now()
	r.opened = view{Round: r.id, Opened: now, Deadline: now.Add(votesFor)}
	r.last = r.opened
	r.last.Phase, r.last.Proposed, r.last.Commit, r.last.Outcome = "committed", "propose", "commit", []byte("{}")
	r.votes = []sentVote{
		{voter: "a", hash: "1", taken: true}, {voter: "b", hash: "2", taken: true}, {voter: "c", hash: "3", why: "409"}, {voter: "a", hash: "4", forged: true, why: "403"},
	}
	r.sights = []sight{{0, -1, signature}, {1, 1, signature}}
	r.audit = audit{
		compact: signature, votes: map[string]ect.Identity{"1": "a", "2": "b"},
		outcome: consensus.Outcome{Result: consensus.Commit, Reason: consensus.Accepted, Mechanism: consensus.Majority, Votes: "messages", Decided: now.Add(time.Second)},
		evidence: evidence{
			all: 4, proposed: []ect.Claims{{ID: "propose"}}, votes: map[string]int{"1": 1, "2": 1},
			commits: []ect.Claims{{ID: "commit", InputHash: "messages", OutputHash: ect.Hash([]byte(signature))}},
		},
	}
	return r
}

// TestJudge_PlantedViolations: what may be, and each thing that must not be, planted alone.
func TestJudge_PlantedViolations(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		plant func(r *round)
		wrong string // empty: nothing
	}{
		"as it is to be":                {func(*round) {}, ""},
		"not opened":                    {func(r *round) { *r = *newRound(r.plan) }, ""},
		"not opened, and a forged one":  {func(r *round) { r.opened, r.votes[3].taken = view{}, true }, "must not be taken"},
		"open":                          {func(r *round) { r.last.Outcome, r.last.Phase = nil, "suspended" }, "does not end: it is suspended"},
		"two outcomes":                  {func(r *round) { r.sights[1].outcome = "another" }, "member 1 read another outcome at replica 1"},
		"refused by aepbctl":            {func(r *round) { r.audit.refused = "FAILED tally" }, "FAILED tally"},
		"found while it was played":     {func(r *round) { r.say("a round that was told is gone") }, "is gone"},
		"taken, and not there":          {func(r *round) { delete(r.audit.votes, "2"); delete(r.audit.evidence.votes, "2") }, "vote of b was taken, and is not among"},
		"there, and its voter not told": {func(r *round) { r.votes[0].taken = false }, ""},
		"forged, and taken":             {func(r *round) { r.votes[3].taken = true }, "must not be taken"},
		"forged, and there":             {func(r *round) { r.audit.votes["4"] = "a"; r.audit.evidence.votes["4"] = 1 }, "did not send in time"},
		"sent by nobody":                {func(r *round) { r.audit.votes["9"] = "a"; r.audit.evidence.votes["9"] = 1 }, "did not send in time"},
		"of another voter":              {func(r *round) { r.audit.votes["1"] = "b" }, "a vote of b counts"},
		"two commits on record": {func(r *round) {
			r.audit.evidence.commits = append(r.audit.evidence.commits, r.audit.evidence.commits[0])
		}, "2 consensus_commit"},
		"another commit on record":         {func(r *round) { r.audit.evidence.commits[0].ID = "other" }, "about another outcome"},
		"a commit of other messages":       {func(r *round) { r.audit.evidence.commits[0].InputHash = "other" }, "about another outcome"},
		"a commit of another signature":    {func(r *round) { r.audit.evidence.commits[0].OutputHash = "other" }, "about another outcome"},
		"another proposal on record":       {func(r *round) { r.audit.evidence.proposed[0].ID = "other" }, "not the one that the round names"},
		"a vote on record that counts not": {func(r *round) { r.audit.evidence.votes["3"] = 1 }, "the vote counts: false"},
		"a vote twice on record":           {func(r *round) { r.audit.evidence.votes["1"] = 2 }, "there 2 times"},
		"no commit on record":              {func(r *round) { r.audit.evidence.commits = nil }, "missing"},
		"no proposal on record":            {func(r *round) { r.audit.evidence.proposed = nil }, "missing"},
		"a vote is not on record":          {func(r *round) { delete(r.audit.evidence.votes, "1") }, "missing"},
		"a token does not verify":          {func(r *round) { r.audit.evidence.unverified = []string{"signature"} }, "does not verify"},
		"something else on record":         {func(r *round) { r.audit.evidence.strays = []string{"translate"} }, "the evidence has translate"},
	} {
		r := agreed()
		tc.plant(r)
		found := r.judge()
		if r.audit.refused == "" && r.last.decided() {
			more, missing := r.judgeEvidence()
			if found = append(found, more...); missing {
				found = append(found, "missing")
			}
		}
		wrong := strings.Join(found, "; ")
		if (wrong == "") != (tc.wrong == "") || !strings.Contains(wrong, tc.wrong) {
			t.Errorf("%s: %q, expected %q", name, wrong, tc.wrong)
		}
	}
}

// TestJudge_EndedEarly: of a voter that contradicts itself, a vote that was on its way when the leader decided, or a member
// objected, need not count. After the deadline it has to, and one of another voter in any case.
func TestJudge_EndedEarly(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(o *consensus.Outcome){
		"leader":    func(o *consensus.Outcome) { o.Mechanism = consensus.Leader },
		"objection": func(o *consensus.Outcome) { o.Mechanism, o.Reason = consensus.Optimistic, consensus.Objected },
	} {
		r := agreed()
		delete(r.audit.votes, "2")
		end(&r.audit.outcome)
		alone := r.judge()
		r.votes = append(r.votes, sentVote{voter: "b", hash: "5"})
		early := r.judge()
		r.audit.outcome.Decided = r.last.Deadline.Add(consensus.Grace)
		if onTime := r.judge(); len(alone) != 1 || len(early) != 0 || len(onTime) != 1 {
			t.Errorf("%s: %q of one vote, %q of two before the deadline, %q after it", name, alone, early, onTime)
		}
	}
}

// TestJudge_Rivals: of two rounds about one resource, one commits.
func TestJudge_Rivals(t *testing.T) {
	t.Parallel()
	a, b := agreed(), agreed()
	a.rival, b.rival = b, a
	if got := append(a.judge(), b.judge()...); len(got) != 1 || !strings.Contains(got[0], "two rounds about one resource commit") {
		t.Errorf("both commit: %q", got)
	}
	b.opened.Opened = a.last.Deadline.Add(time.Second)
	if got := append(a.judge(), b.judge()...); len(got) != 0 {
		t.Errorf("one was opened after the deadline of the other: %q", got)
	}
	b.opened.Opened, b.audit.outcome.Result = a.opened.Opened, consensus.Abort
	if got := append(a.judge(), b.judge()...); len(got) != 0 {
		t.Errorf("one gives way: %q", got)
	}
}

// launched is a group that never ran.
func launched() *group {
	return &group{Fleet: &fleet.Fleet{Group: fleet.Group{Name: "one", Replicas: 2}}}
}

// TestReport_ProvesSomething: rounds that all end alike prove nothing.
func TestReport_ProvesSomething(t *testing.T) {
	t.Parallel()
	aborted := agreed()
	aborted.audit.outcome.Result = consensus.Abort
	for name, tc := range map[string]struct {
		played []*round
		want   int
	}{
		"both":        {[]*round{agreed(), aborted}, 0},
		"all commit":  {[]*round{agreed()}, 1},
		"all abort":   {[]*round{aborted}, 1},
		"none opened": {[]*round{newRound(plan{})}, 1},
	} {
		if rep := launched().judge(tc.played); len(rep.Violations) != tc.want {
			t.Errorf("%s: %+v", name, rep.Violations)
		}
	}
}

// TestReport_Kinds: rounds are counted by mechanism and by how they ended.
func TestReport_Kinds(t *testing.T) {
	t.Parallel()
	aborted, open := agreed(), agreed()
	aborted.audit.outcome.Result, aborted.suspended = consensus.Abort, true
	open.last.Outcome, open.plan.mechanism = nil, consensus.Leader
	rep := launched().judge([]*round{agreed(), aborted, open, newRound(plan{mechanism: consensus.Leader})})
	want := []Kind{{Name: "one leader", All: 2, Opened: 1, Open: 1}, {Name: "one majority", All: 2, Opened: 2, Committed: 1, Aborted: 1, Suspended: 1}}
	if len(rep.Kinds) != 2 || rep.Kinds[0] != want[0] || rep.Kinds[1] != want[1] || rep.Evidence != 8 || len(rep.Violations) != 1 {
		t.Errorf("%+v, expected %+v; %d ECTs, %+v", rep.Kinds, want, rep.Evidence, rep.Violations)
	}
}

// TestPlan_CoversEachMechanism: of each mechanism there is a round that all approve, and one that all reject; rivals share a resource.
func TestPlan_CoversEachMechanism(t *testing.T) {
	t.Parallel()
	batches, approved, rejected, rivals := planned(rand.New(rand.NewPCG(1, 2)), 100), map[consensus.Mechanism]int{}, map[consensus.Mechanism]int{}, 0
	roles := map[role]int{}
	for _, batch := range batches {
		for _, r := range batch {
			same := true
			for _, p := range r.plan.parts {
				roles[p.role]++
				same = same && p.role == honest && p.decision == r.plan.parts[0].decision
			}
			if same && r.plan.parts[0].decision == consensus.Approve {
				approved[r.plan.mechanism]++
			}
			if same && r.plan.parts[0].decision == consensus.Reject {
				rejected[r.plan.mechanism]++
			}
			if len(batch) == 2 && (r.plan.resource == "" || r.rival == nil || r.rival.rival != r || r.rival.plan.resource != r.plan.resource) || len(batch) == 1 && r.plan.resource != "" {
				t.Errorf("round %+v of a batch of %d", r.plan, len(batch))
			}
		}
		rivals += len(batch) - 1
	}
	if len(approved) != 4 || len(rejected) != 4 || rivals < 5 || len(roles) != 6 {
		t.Errorf("approved %v, rejected %v, %d rivals, roles %v", approved, rejected, rivals, roles)
	}
}
