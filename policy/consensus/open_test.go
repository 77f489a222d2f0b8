package consensus

import (
	"crypto/sha256"
	"encoding/binary"
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
		"as it should be":                {Majority, func(*Opening) {}, ""},
		"proposer without authority":     {Majority, func(o *Opening) { o.Proposal.Proposer = idOf(2) }, "may not propose"},
		"mechanism of another group":     {Weighted, func(o *Opening) { o.Group.Mechanisms = []Mechanism{Majority} }, "does not decide by"},
		"a member is missing":            {Majority, func(o *Opening) { o.Proposal.Participants = o.Proposal.Participants[1:] }, "participants"},
		"an outsider":                    {Majority, func(o *Opening) { o.Proposal.Participants[0] = idOf(9) }, "participants"},
		"members in another order":       {Majority, func(o *Opening) { slices.Reverse(o.Proposal.Participants) }, ""},
		"timeout now":                    {Majority, func(o *Opening) { o.Proposal.Timeout = At(opened) }, "timeout"},
		"timeout of the longest":         {Majority, func(o *Opening) { o.Proposal.Timeout = At(opened.Add(DefaultLongest)) }, ""},
		"timeout beyond the longest":     {Majority, func(o *Opening) { o.Proposal.Timeout = At(opened.Add(DefaultLongest + time.Second)) }, "timeout"},
		"timeout beyond that of a group": {Majority, func(o *Opening) { o.Group.Longest = 59 * time.Second }, "timeout"},
		"revealing beyond the longest":   {Majority, func(o *Opening) { o.Proposal.Terms.RevealBy = At(opened.Add(DefaultLongest + time.Second)) }, "timeout"},
		"quorum under half":              {Majority, func(o *Opening) { o.Proposal.Quorum = 2 }, "quorum"},
		"quorum of all":                  {Majority, func(o *Opening) { o.Proposal.Quorum = 5 }, ""},
		"quorum of more than all":        {Majority, func(o *Opening) { o.Proposal.Quorum = 6 }, "quorum"},
		"quorum under 2f+1":              {Majority, func(o *Opening) { o.Group.MaxFaulty, o.Proposal.Quorum = 2, 4 }, "quorum"},
		"weight under half":              {Weighted, func(o *Opening) { o.Proposal.Quorum = 249 }, "quorum"},
		"half of the weight":             {Weighted, func(o *Opening) { o.Proposal.Quorum = 250 }, ""},
		"all of the weight":              {Weighted, func(o *Opening) { o.Proposal.Quorum = 500 }, ""},
		"more than the weight":           {Weighted, func(o *Opening) { o.Proposal.Quorum = 501 }, "quorum"},
		"a leader with sealed votes":     {Leader, func(o *Opening) { o.Proposal.Terms.RevealBy = At(opened.Add(2 * time.Minute)) }, "reveal_by"},
		"no nonce where a draw may come": {Majority, func(o *Opening) { o.Group.Deadlock, o.Proposal.Terms.Resource = Random, "db" }, "nonce_hash"},
		"a nonce where a draw may come": {Majority, func(o *Opening) {
			o.Group.Deadlock, o.Proposal.Terms.Resource, o.Proposal.Terms.Nonce = Random, "db", "n"
		}, ""},
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
		o.Proposal.Proposer, o.Proposal.Terms.Urgency, o.Proposal.Action = c.proposer, c.urgency, []byte(c.action)
		want := Rank{c.want, c.authority, c.specificity, opened, uuidOf(2)}
		if r := mustOpen(t, o); r.Rank != want {
			t.Errorf("%+v, expected %+v", r.Rank, want)
		}
	}
}

// TestTopic_OfRounds: rounds of one group about one resource are related, and those without a resource by their proposal.
func TestTopic_OfRounds(t *testing.T) {
	t.Parallel()
	a := Proposal{ID: uuidOf(1), Terms: Terms{Group: "ops", Resource: "db"}}
	b := a
	b.ID = uuidOf(2)
	if a.Topic() != b.Topic() {
		t.Error("two proposals about one resource have different topics")
	}
	distinct := []Proposal{a, {ID: uuidOf(1), Terms: Terms{Group: "ops"}}, {ID: uuidOf(2), Terms: Terms{Group: "ops"}}, {ID: uuidOf(1), Terms: Terms{Group: "dev"}}, {Terms: Terms{Group: "dev", Resource: "db"}}, {Terms: Terms{Group: "ops", Resource: uuidOf(1)}}}
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
	escalated := running
	escalated.Phase = Escalated
	foreign := earlier(1, long, NoQuorum)
	foreign.Proposer = idOf(1)
	for words, other := range map[string]Related{
		"decided": earlier(1, long, Accepted), "decided: abort": earlier(1, long, HumanDecided), "another proposal": earlier(1, long, Superseded),
		"not over": running, "not over yet": escalated, "choose another": foreign,
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

// rival is a round about the same as r, of another proposal that goes before or after it.
func rival(r Round, before bool, phase Phase) Related {
	out := Related{Candidate: Candidate{uuidOf(50), idOf(1), opened, ""}, Rank: r.Rank, Phase: phase, Attempt: 1, Signed: ect.Hash([]byte("rival"))}
	out.Rank.Round = uuidOf(50)
	if out.Rank.Urgency++; !before {
		out.Rank.Urgency -= 2
	}
	if phase == Committed {
		out.Outcome = Outcome{Result: Commit, Reason: Accepted, Decided: opened.Add(time.Second)}
	}
	if phase == Aborted || phase == Drawing {
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
			if rec.Rival = "rival"; got.End.Outcome.Rival != ect.Hash([]byte("rival")) || Check(rec) != nil {
				t.Errorf("%s: the rival is %s: %v", name, got.End.Outcome.Rival, Check(rec))
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
	r.Rules.Deadlock, r.Proposal.Terms.Nonce = Random, ect.Hash([]byte("mine"))
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
		if got.Deadlock.Preferred != c.first || got.End.Outcome != r.End.Outcome {
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
	escalated := lookLate(t, r, box)
	if escalated.End.Outcome.Tally != (Tally{Participants: 3, Approve: 1, Abstain: 2, Connected: 3}) || len(escalated.End.Counted) != 3 || !escalated.Due().IsZero() || len(escalated.End.Anomalies) != 1 {
		t.Errorf("a human decides with %+v, %v, %v", escalated.End.Outcome.Tally, escalated.End.Counted, escalated.End.Anomalies)
	}
	var state *StateError
	if _, err := escalated.Next(Event{Kind: Look, At: opened, Box: votesOf(r, "aaa")}); !errors.As(err, &state) {
		t.Errorf("a late quorum: %v, expected a StateError", err)
	}
	escalated.Human.Approval = "approval"
	for granted, phase := range map[bool]Phase{true: Committed, false: Aborted} {
		at := r.Deadline().Add(time.Hour)
		got, err := escalated.Next(Event{Kind: Decide, At: at, Granted: granted})
		if err != nil {
			t.Fatal(err)
		}
		ended(t, "a human", got, phase, HumanDecided)
		if (got.End.Outcome.Result == Commit) != granted || got.End.Outcome.Approval != "approval" || got.End.Outcome.Decided != at || got.End.Outcome.Tally != escalated.End.Outcome.Tally || got.Term != escalated.Term+1 {
			t.Errorf("%+v", got.End.Outcome)
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
