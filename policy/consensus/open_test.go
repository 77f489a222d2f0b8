package consensus

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// TestOpen_Refuses: a proposal that a group does not allow makes no round.
func TestOpen_Refuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mechanism Mechanism
		edit      func(o *Opening)
		words     string // empty: it is opened
	}{
		"as it should be":                 {Majority, func(*Opening) {}, ""},
		"proposer without authority":      {Majority, func(o *Opening) { o.Proposal.Proposer = idOf(2) }, "may not propose"},
		"mechanism of another group":      {Weighted, func(o *Opening) { o.Group.Mechanisms = []Mechanism{Majority} }, "does not decide by"},
		"a member is missing":             {Majority, func(o *Opening) { o.Proposal.Participants = o.Proposal.Participants[1:] }, "participants"},
		"an outsider":                     {Majority, func(o *Opening) { o.Proposal.Participants[0] = idOf(9) }, "participants"},
		"members in another order":        {Majority, func(o *Opening) { slices.Reverse(o.Proposal.Participants) }, ""},
		"timeout now":                     {Majority, func(o *Opening) { o.Proposal.Timeout = At(opened) }, "timeout"},
		"timeout of the longest":          {Majority, func(o *Opening) { o.Proposal.Timeout = At(opened.Add(DefaultLongest)) }, ""},
		"timeout beyond the longest":      {Majority, func(o *Opening) { o.Proposal.Timeout = At(opened.Add(DefaultLongest + time.Second)) }, "timeout"},
		"timeout beyond that of a group":  {Majority, func(o *Opening) { o.Group.Longest = 59 * time.Second }, "timeout"},
		"revealing beyond the longest":    {Majority, func(o *Opening) { o.Proposal.RevealBy = At(opened.Add(DefaultLongest + time.Second)) }, "timeout"},
		"quorum under half":               {Majority, func(o *Opening) { o.Proposal.Quorum = 2 }, "quorum"},
		"quorum of all":                   {Majority, func(o *Opening) { o.Proposal.Quorum = 5 }, ""},
		"quorum of more than all":         {Majority, func(o *Opening) { o.Proposal.Quorum = 6 }, "quorum"},
		"quorum under 2f+1":               {Majority, func(o *Opening) { o.Group.MaxFaulty, o.Proposal.Quorum = 2, 4 }, "quorum"},
		"weight under half":               {Weighted, func(o *Opening) { o.Proposal.Quorum = 249 }, "quorum"},
		"half of the weight":              {Weighted, func(o *Opening) { o.Proposal.Quorum = 250 }, ""},
		"all of the weight":               {Weighted, func(o *Opening) { o.Proposal.Quorum = 500 }, ""},
		"more than the weight":            {Weighted, func(o *Opening) { o.Proposal.Quorum = 501 }, "quorum"},
		"a leader with sealed votes":      {Leader, func(o *Opening) { o.Proposal.RevealBy = At(opened.Add(2 * time.Minute)) }, "reveal_by"},
		"no nonce where a draw may come":  {Majority, func(o *Opening) { o.Group.Deadlock, o.Proposal.Resource = Random, "db" }, "nonce_hash"},
		"a nonce where a draw may come":   {Majority, func(o *Opening) { o.Group.Deadlock, o.Proposal.Resource, o.Proposal.Nonce = Random, "db", "n" }, ""},
		"no nonce without a resource":     {Majority, func(o *Opening) { o.Group.Deadlock = Random }, ""},
		"weights of ages that were wrong": {Weighted, func(o *Opening) { o.Since = func(ect.Identity) time.Time { return time.Time{} } }, "quorum"},
	} {
		o := openingOf(groupOf(5), c.mechanism)
		c.edit(&o)
		switch r, err := Open(o); {
		case c.words == "" && (err != nil || r.Phase != Voting || r.Term != 1 || r.Attempt != 1 || r.Form != Form || r.Opened != opened):
			t.Errorf("%s: %+v, %v; expected a round", name, r, err)
		case c.words != "":
			refusedFor(t, c.words, o)
		}
	}
}

// TestOpen_FreezesRules: the quorum of a proposal is raised by the group, never lowered; max_faulty asks for 2f+1 votes.
func TestOpen_FreezesRules(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mechanism Mechanism
		faulty    int
		quorum    int64 // of the proposal; zero: the smallest
		want      Rules
	}{
		"majority":                {Majority, 0, 0, Rules{Quorum: 4, Connected: 4}},
		"majority, raised":        {Majority, 0, 6, Rules{Quorum: 6, Connected: 4}},
		"majority of one faulty":  {Majority, 1, 0, Rules{Quorum: 4, Connected: 4}},
		"majority, three faulty":  {Majority, 3, 0, Rules{Quorum: 7, Connected: 7}},
		"weighted":                {Weighted, 0, 0, Rules{Quorum: 350, Connected: 4}},
		"weighted, raised":        {Weighted, 0, 400, Rules{Quorum: 400, Connected: 4}},
		"weighted, two faulty":    {Weighted, 2, 0, Rules{Quorum: 350, Connected: 5, Voters: 5}},
		"leader":                  {Leader, 0, 0, Rules{Connected: 4}},
		"leader, two faulty":      {Leader, 2, 0, Rules{Connected: 5}},
		"optimistic":              {Optimistic, 0, 0, Rules{Connected: 4}},
		"optimistic, two faulty":  {Optimistic, 2, 0, Rules{Connected: 5}},
		"optimistic, none faulty": {Optimistic, 0, 0, Rules{Connected: 4}},
	} {
		g := groupOf(7)
		g.MaxFaulty = c.faulty
		o := openingOf(g, c.mechanism)
		o.Proposal.Quorum = max(c.quorum, o.Proposal.Quorum)
		got := mustOpen(t, o).Rules
		if got.Quorum != c.want.Quorum || got.Connected != c.want.Connected || got.Voters != c.want.Voters || got.Threshold != DefaultThreshold || got.Deadlock != Escalate || got.Authority != 1 {
			t.Errorf("%s: %+v, expected %+v", name, got, c.want)
		}
	}
	g := groupOf(4)
	g.Threshold, g.Deadlock = 70, ""
	if got := mustOpen(t, openingOf(g, Weighted)).Rules; got.Threshold != 70 || got.Deadlock != Escalate {
		t.Errorf("threshold %d and deadlock %q, expected 70 and escalate", got.Threshold, got.Deadlock)
	}
}

// TestMaxFaulty_Weighted: weight alone does not outvote the number of voters that max_faulty asks for.
func TestMaxFaulty_Weighted(t *testing.T) {
	t.Parallel()
	g := groupOf(5)
	g.Members[0].Weight, g.MaxFaulty = 100, 1
	r := mustOpen(t, openingOf(g, Weighted))
	ended(t, "two voters", lookLate(t, r, votesOf(r, "aa---")), Aborted, NoQuorum)
	ended(t, "three voters", lookLate(t, r, votesOf(r, "aar--")), Committed, Accepted)
}

// TestGroup_Check: what cannot be followed in a group is found.
func TestGroup_Check(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit  func(g *Group)
		words string
	}{
		"nothing":                 {func(*Group) {}, ""},
		"no name":                 {func(g *Group) { g.Name = "" }, "name"},
		"a name of two lines":     {func(g *Group) { g.Name = "a\nb" }, "name"},
		"no members":              {func(g *Group) { g.Members = nil }, "members"},
		"a member twice":          {func(g *Group) { g.Members[1] = g.Members[0] }, "members"},
		"a member without a name": {func(g *Group) { g.Members[1].ID = "" }, "members"},
		"501 members":             {func(g *Group) { *g = groupOf(501) }, "members"},
		"500 members":             {func(g *Group) { *g = groupOf(500) }, ""},
		"weight of zero":          {func(g *Group) { g.Members[1].Weight = 0 }, "weight"},
		"weight beyond":           {func(g *Group) { g.Members[1].Weight = MaxWeight + 1 }, "weight"},
		"largest weight":          {func(g *Group) { g.Members[1].Weight = MaxWeight }, ""},
		"no mechanism":            {func(g *Group) { g.Mechanisms = nil }, "mechanism"},
		"unknown mechanism":       {func(g *Group) { g.Mechanisms = []Mechanism{"dice"} }, "mechanism"},
		"threshold of 100":        {func(g *Group) { g.Threshold = 100 }, "threshold"},
		"negative threshold":      {func(g *Group) { g.Threshold = -1 }, "threshold"},
		"three faulty of five":    {func(g *Group) { g.MaxFaulty = 3 }, "max_faulty"},
		"two faulty of five":      {func(g *Group) { g.MaxFaulty = 2 }, ""},
		"negative faulty":         {func(g *Group) { g.MaxFaulty = -1 }, "max_faulty"},
		"no proposers":            {func(g *Group) { g.Proposers = nil }, "proposers"},
		"authority beyond":        {func(g *Group) { g.Proposers[idOf(0)] = MaxUrgency + 1 }, "authority"},
		"negative authority":      {func(g *Group) { g.Proposers[idOf(0)] = -1 }, "authority"},
		"unknown strategy":        {func(g *Group) { g.Deadlock = "wait" }, "deadlock"},
		"negative time":           {func(g *Group) { g.Longest = -1 }, "longest"},
	} {
		g := groupOf(5)
		c.edit(&g)
		err := g.Check()
		if (err != nil) != (c.words != "") || err != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, expected an error about %q", name, err, c.words)
		}
	}
}

// TestRank_TotalOrder: of random ranks, one of two goes first and never both, and the order has no circles. Urgency goes before
// authority, that before specificity, and an older round before a younger one.
func TestRank_TotalOrder(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var all []Rank
	for i := range 60 {
		all = append(all, Rank{random.IntN(2), random.IntN(2), random.IntN(2), opened.Add(time.Duration(random.IntN(2))), uuidOf(i)})
	}
	sign := func(n int) int { return max(-1, min(1, n)) }
	for _, a := range all {
		for _, b := range all {
			if sign(a.Compare(b)) != -sign(b.Compare(a)) || (a.Compare(b) == 0) != (a == b) {
				t.Fatalf("%+v and %+v: %d and %d", a, b, a.Compare(b), b.Compare(a))
			}
			for _, c := range all {
				if a.Compare(b) > 0 && b.Compare(c) > 0 && a.Compare(c) <= 0 {
					t.Fatalf("%+v, %+v and %+v are in a circle", a, b, c)
				}
			}
		}
	}
	for name, pair := range map[string][2]Rank{
		"urgency":     {{Urgency: 1}, {Authority: 3, Specificity: 9}},
		"authority":   {{Authority: 1}, {Specificity: 9}},
		"specificity": {{Specificity: 2, Opened: opened.Add(1)}, {Specificity: 1, Opened: opened}},
		"age":         {{Opened: opened, Round: uuidOf(2)}, {Opened: opened.Add(1), Round: uuidOf(1)}},
		"round":       {{Round: uuidOf(1)}, {Round: uuidOf(2)}},
	} {
		if pair[0].Compare(pair[1]) <= 0 {
			t.Errorf("%s: %+v does not go before %+v", name, pair[0], pair[1])
		}
	}
}

// TestRank_OfTheGroup: authority is that of the group, and urgency is at most the authority (CNS-27).
func TestRank_OfTheGroup(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		proposer        ect.Identity
		urgency         int
		action          string
		want, authority int
		specificity     int
	}{
		{idOf(0), 3, `{}`, 1, 1, 1}, {idOf(1), 3, `{"a":1}`, 2, 2, 2}, {idOf(1), 0, `{"a":{"b":[1,2]},"c":null}`, 0, 2, 4},
	} {
		o := openingOf(groupOf(3), Majority)
		o.Proposal.Proposer, o.Proposal.Urgency, o.Proposal.Action = c.proposer, c.urgency, []byte(c.action)
		want := Rank{c.want, c.authority, c.specificity, opened, uuidOf(2)}
		if r := mustOpen(t, o); r.Rank != want {
			t.Errorf("%+v, expected %+v", r.Rank, want)
		}
	}
}

// TestTopic_OfRounds: rounds of one group about one resource are related, and those without a resource by their proposal.
func TestTopic_OfRounds(t *testing.T) {
	t.Parallel()
	a := Proposal{ID: uuidOf(1), Group: "ops", Resource: "db"}
	b := a
	b.ID = uuidOf(2)
	if a.Topic() != b.Topic() {
		t.Error("two proposals about one resource have different topics")
	}
	distinct := []Proposal{a, {ID: uuidOf(1), Group: "ops"}, {ID: uuidOf(2), Group: "ops"}, {ID: uuidOf(1), Group: "dev"}, {Group: "dev", Resource: "db"}, {Group: "ops", Resource: uuidOf(1)}}
	seen := map[string]bool{}
	for _, p := range distinct {
		seen[p.Topic()] = true
	}
	if len(seen) != len(distinct) {
		t.Errorf("%d topics of %d", len(seen), len(distinct))
	}
}

// earlier is a round of a proposal that ended.
func earlier(proposal int, decided time.Time, reason Reason) Related {
	out := Related{
		Candidate: Candidate{uuidOf(proposal), idOf(0), decided.Add(-time.Minute), ""}, Rank: Rank{Opened: decided.Add(-time.Minute), Round: uuidOf(100 + proposal)},
		Phase: Aborted, Attempt: 1, Outcome: Outcome{Result: Abort, Reason: reason, Decided: decided},
	}
	if reason == Accepted {
		out.Phase, out.Outcome.Result = Committed, Commit
	}
	return out
}

// TestResubmission_Pauses: a proposal is submitted again after 10, 20 and 40 seconds, and no fourth time.
func TestResubmission_Pauses(t *testing.T) {
	t.Parallel()
	var before []Related
	ends := opened.Add(-time.Hour)
	for n, pause := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
		before = append(before, earlier(1, ends.Add(time.Duration(n)*5*time.Minute), Objected))
		last := before[n].Outcome.Decided
		o := openingOf(groupOf(3), Majority)
		o.Related, o.Now = slices.Clone(before), last.Add(pause-time.Millisecond)
		slices.Reverse(o.Related) // in any order
		o.Proposal.Timeout = At(o.Now.Add(time.Minute))
		var refused *RefusedError
		if _, err := Open(o); !errors.As(err, &refused) || refused.Again != time.Millisecond {
			t.Errorf("a millisecond too early the %d. time: %v, expected a refusal for a millisecond", n+1, err)
		}
		o.Now = last.Add(pause)
		if r := mustOpen(t, o); r.Attempt != n+2 {
			t.Errorf("attempt %d, expected %d", r.Attempt, n+2)
		}
	}
	o := openingOf(groupOf(3), Majority)
	o.Related = append(before, earlier(1, opened.Add(-10*time.Minute), Objected))
	refusedFor(t, "3 times at most", o)
}

// TestResubmission_Refused: a proposal that is decided, or not over, or of another proposer is not submitted again.
func TestResubmission_Refused(t *testing.T) {
	t.Parallel()
	long := opened.Add(-time.Hour)
	running := earlier(1, long, "")
	running.Phase, running.Outcome = Suspended, Outcome{}
	asked := running
	asked.Phase = Escalated
	foreign := earlier(1, long, NoQuorum)
	foreign.Proposer = idOf(1)
	for words, other := range map[string]Related{
		"decided": earlier(1, long, Accepted), "decided: abort": earlier(1, long, HumanDecided), "another proposal": earlier(1, long, Superseded),
		"not over": running, "not over yet": asked, "choose another": foreign,
	} {
		o := openingOf(groupOf(3), Majority)
		o.Related = []Related{other}
		refusedFor(t, words, o)
	}
	o := openingOf(groupOf(3), Majority)
	o.Related = []Related{earlier(2, long, Accepted)}
	if r := mustOpen(t, o); r.Attempt != 1 {
		t.Errorf("after another proposal it is attempt %d", r.Attempt)
	}
}
