package consensus

import (
	"container/heap"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// played is a round as its participants see it.
type played struct {
	proposal  consensus.Proposal
	text      []byte
	opened    bool
	since     time.Time       // when its proposer was told first that it is open
	acked     map[string]bool // hashes of votes that a replica took while votes were received
	sent      map[string]*attempt
	early     bool   // it may end before all votes that were taken are counted
	announced string // the signed outcome that a participant got first
	token     string
	wid       string
}

type noMetrics struct{}

func (noMetrics) Issued(string, ect.Level)                 {}
func (noMetrics) Verified(ect.Level, string)               {}
func (noMetrics) CountLoss(string, string, string, string) {}

func notAsked() error { return &problem.NotFoundError{What: "approval"} }

// roundsOfWorld is how many rounds a world has; several are about the same.
const roundsOfWorld = 10

// TestSimulation_OneOutcome plays rounds of each mechanism with everything that can go wrong, and judges what was announced. A seed that
// fails is replayed with AEPB_SEED.
func TestSimulation_OneOutcome(t *testing.T) {
	t.Parallel()
	if seed := number("AEPB_SEED", 0); seed > 0 {
		simulate(t, roundsOfWorld, seed)
		return
	}
	simulate(t, 50, 0)
}

// TestSimulation_ManyRounds does the same with 1,000 rounds of each mechanism, 100 with -short, or AEPB_ROUNDS. One goroutine plays all
// of a world, so the race detector would find nothing in it.
func TestSimulation_ManyRounds(t *testing.T) {
	t.Parallel()
	rounds := 1000
	if testing.Short() {
		rounds = 100
	}
	simulate(t, number("AEPB_ROUNDS", rounds), 1000)
}

// simulate plays rounds of each mechanism, in worlds whose seeds begin with first.
func simulate(t *testing.T, rounds, first int) {
	t.Helper()
	all := seats(t, 7)
	for _, mechanism := range consensus.Mechanisms() {
		t.Run(string(mechanism), func(t *testing.T) {
			t.Parallel()
			ends := map[consensus.Phase]int{}
			for i := range uint64(rounds / roundsOfWorld) {
				seed := uint64(first) + i
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, seed, mechanism, all)
					w.play()
					w.judge(ends)
					for _, p := range w.problems {
						t.Errorf("%s, AEPB_SEED=%d: %s", mechanism, seed, p)
					}
				})
				if t.Failed() {
					return
				}
			}
			if rounds >= 1000 && (ends[consensus.Committed] < rounds/20 || ends[consensus.Aborted] < rounds/20) {
				t.Errorf("of %d rounds ended as %v: expected at least %d of each, or the simulation shows nothing", rounds, ends, rounds/20)
			}
		})
	}
}

func number(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// play lets a world go on for two minutes with faults, then for two days without.
func (w *world) play() {
	begin := time.Now()
	stormy, calm := begin.Add(2*time.Minute), begin.Add(50*time.Hour)
	w.turns(500*time.Millisecond, stormy)
	w.faults(stormy)
	for range roundsOfWorld {
		w.after(time.Duration(w.rng.IntN(60_000))*time.Millisecond, w.propose)
	}
	w.run(stormy)
	w.calm = true
	w.shards[0].Rejoin()
	w.shards[1].Rejoin()
	clear(w.cut)
	for i := range w.replicas {
		w.replicas[i] = w.start(fmt.Sprintf("replica-%d", i))
	}
	w.turns(2*time.Second, stormy.Add(3*time.Minute))
	w.run(stormy.Add(3 * time.Minute))
	w.turns(20*time.Minute, calm)
	w.run(calm)
}

// run lets everything happen until a moment.
func (w *world) run(until time.Time) {
	for len(w.queue) > 0 && !w.queue[0].at.After(until) {
		next := heap.Pop(&w.queue).(event)
		if d := time.Until(next.at); d > 0 {
			time.Sleep(d)
		}
		next.do()
	}
	if d := time.Until(until); d > 0 {
		time.Sleep(d)
	}
}

func (w *world) uuid() string {
	return fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", w.rng.Uint32(), w.rng.IntN(1<<16), w.rng.IntN(1<<12), w.rng.IntN(1<<12), w.rng.Int64N(1<<48))
}

// send signs a message and notes whose it is.
func send[M signed.Content](w *world, by *seat, m M) (signed.Message[M], []byte) {
	out, err := signed.Sign(by.signer, m)
	fatal(w.t, err)
	w.signers[out.Compact] = by.ID
	text, err := out.MarshalJSON()
	fatal(w.t, err)
	return out, text
}

func (w *world) seat(id ect.Identity) *seat {
	return w.seats[slices.IndexFunc(w.seats, func(s *seat) bool { return s.ID == id })]
}

// call has a participant call some replica. The call or its answer may be lost, and the call may come twice.
func (w *world) call(who ect.Identity, do func(*Service) error) error {
	if w.cut[who].After(time.Now()) || !w.calm && w.rng.IntN(10) == 0 {
		return errLost
	}
	err := do(w.replicas[w.rng.IntN(len(w.replicas))].svc)
	if !w.calm && w.rng.IntN(10) == 0 {
		_ = do(w.replicas[w.rng.IntN(len(w.replicas))].svc)
	}
	if !w.calm && w.rng.IntN(10) == 0 {
		return errLost
	}
	return err
}

// repeat calls again until the answer is neither lost nor trouble of the store.
func (w *world) repeat(who ect.Identity, tries int, do func(*Service) error) {
	err := w.call(who, do)
	_, away := errors.AsType[*problem.RecordingError](err)
	_, race := errors.AsType[*problem.ConflictError](err)
	if tries > 0 && (errors.Is(err, errLost) || away || race || errors.Is(err, errKilled)) {
		w.after(time.Duration(500+w.rng.IntN(1000))*time.Millisecond, func() { w.repeat(who, tries-1, do) })
	}
}

// propose submits a proposal, a fresh one or one of before.
func (w *world) propose() {
	g, now := w.group, time.Now()
	since := func(ect.Identity) time.Time { return now }
	table := g.Weigh(since, now)
	p := consensus.Proposal{
		ID: w.uuid(), Round: w.uuid(), Mechanism: g.Mechanisms[0], Subject: "restart the router", Action: []byte(`{"tool":"restart","arguments":{"id":7}}`),
		Timeout: consensus.At(now.Add(time.Duration(5+w.rng.IntN(40)) * time.Second)), Quorum: g.Floor(g.Mechanisms[0], table),
		Terms: consensus.Terms{Group: g.Name, Urgency: w.rng.IntN(4), Reversible: true, Timestamp: now.UTC(), Weights: consensus.WeightsHash(table), Nonce: ect.Hash([]byte("nonce"))},
	}
	for _, m := range g.Members {
		p.Participants = append(p.Participants, m.ID)
	}
	if w.rng.IntN(2) == 0 {
		p.Terms.Resource = fmt.Sprintf("router-%d", w.rng.IntN(2))
	}
	if w.rng.IntN(4) == 0 && p.Mechanism != consensus.Leader {
		p.Terms.RevealBy = consensus.At(p.Timeout.Add(15 * time.Second))
	}
	by := g.Members[w.rng.IntN(min(3, len(g.Members)))].ID
	if again := w.again(); again != nil {
		p.ID, p.Terms.Resource, p.Action, by = again.proposal.ID, again.proposal.Terms.Resource, again.proposal.Action, again.proposal.Proposer
	}
	p.Proposer = by
	round := &played{proposal: p, acked: map[string]bool{}, sent: map[string]*attempt{}, early: p.Mechanism == consensus.Leader || p.Mechanism == consensus.Optimistic}
	_, round.text = send(w, w.seat(by), p)
	w.rounds = append(w.rounds, round)
	w.repeat(by, 8, func(s *Service) error {
		_, err := s.Propose(w.t.Context(), by, round.text)
		if err == nil && round.since.IsZero() {
			round.since = time.Now()
		}
		return err
	})
	for _, m := range g.Members {
		w.join(round, m.ID)
	}
	if g.Leader != "" && !slices.Contains(p.Participants, g.Leader) {
		w.join(round, g.Leader)
	}
	w.lie(round)
}

// again is a proposal that is submitted again, or nil.
func (w *world) again() *played {
	if len(w.rounds) == 0 || w.rng.IntN(3) > 0 {
		return nil
	}
	return w.rounds[w.rng.IntN(len(w.rounds))]
}

// join has a member take part in a round: it looks for it, acknowledges it, votes, and looks for the outcome. Some are silent.
func (w *world) join(round *played, who ect.Identity) {
	id := round.proposal.Round
	if w.rng.IntN(8) > 0 {
		_, ack := send(w, w.seat(who), consensus.Ack{Proposal: round.proposal.ID, Round: id, Participant: who, Kind: consensus.Received, Timestamp: time.Now().UTC()})
		w.after(w.soon(20), func() {
			w.repeat(who, 10, func(s *Service) error {
				_, err := s.Acknowledge(w.t.Context(), who, id, ack)
				return err
			})
		})
	}
	if w.rng.IntN(6) > 0 {
		w.vote(round, who)
	}
	w.after(time.Duration(60+w.rng.IntN(120))*time.Second, func() { w.hear(round, who, 40) })
	w.after(w.soon(120), func() { w.peek(round, who) })
}

func (w *world) soon(seconds int) time.Duration {
	return time.Duration(w.rng.IntN(seconds*1000)) * time.Millisecond
}

// ballot is a vote of a member, with some decision.
func (w *world) ballot(round *played, who ect.Identity, bias int) consensus.Vote {
	d := []consensus.Decision{consensus.Approve, consensus.Approve, consensus.Approve, consensus.Reject, consensus.Abstain}[w.rng.IntN(5)]
	if w.rng.IntN(bias) > 0 {
		d = consensus.Approve
	}
	return consensus.Vote{
		Proposal: round.proposal.ID, Round: round.proposal.Round, Voter: who, Decision: d, Rationale: "as seen by " + string(who), Weights: round.proposal.Terms.Weights,
		Timestamp: time.Now().UTC(),
	}
}

func (w *world) vote(round *played, who ect.Identity) {
	bias := 1
	if round.proposal.Mechanism == consensus.Optimistic {
		bias = 8
	}
	votes := []consensus.Vote{w.ballot(round, who, bias)}
	if w.rng.IntN(8) == 0 { // it lies
		votes = append(votes, w.ballot(round, who, bias))
		votes[1].Rationale += ", on second thoughts"
	}
	for _, v := range votes {
		m, text := send(w, w.seat(who), v)
		when := w.soon(40)
		if end := round.proposal.Terms.RevealBy; !end.IsZero() {
			_, ack := send(w, w.seat(who), consensus.Ack{Proposal: v.Proposal, Round: v.Round, Participant: who, Kind: consensus.Sealed, Vote: m.Hash, Timestamp: time.Now().UTC()})
			w.after(w.soon(5), func() {
				w.repeat(who, 6, func(s *Service) error {
					_, err := s.Acknowledge(w.t.Context(), who, v.Round, ack)
					return err
				})
			})
			when = time.Until(round.proposal.Timeout.Time) + w.soon(15)
		}
		w.after(when, func() { w.sendVote(round, who, m.Hash, text) })
	}
}

func (w *world) sendVote(round *played, who ect.Identity, hash string, text []byte) {
	w.repeat(who, 10, func(s *Service) error {
		if round.sent[hash] == nil {
			round.sent[hash] = &attempt{voter: who, first: time.Now()}
		}
		_, err := s.Vote(w.t.Context(), who, round.proposal.Round, text)
		if err == nil {
			round.acked[hash] = true
			w.takenOnce(round, who, hash)
		}
		if refused, ok := errors.AsType[*consensus.RefusedError](err); ok && refused.Doubled {
			round.sent[hash].doubled = true
		} else if ok && refused.Late && time.Now().Before(consensus.Round{Proposal: round.proposal}.Deadline()) {
			round.sent[hash].refused = true
		}
		return err
	})
}

// lie sends votes that must not count: forged ones, those of outsiders, and those of another round.
func (w *world) lie(round *played) {
	outsider, victim := w.seats[len(w.seats)-1], w.group.Members[0].ID
	w.after(w.soon(30), func() {
		_ = w.call(outsider.ID, func(s *Service) error {
			if _, err := s.Show(w.t.Context(), round.proposal.Round, outsider.ID); err == nil {
				w.problem("an outsider reads a round")
			}
			return nil
		})
	})
	try := func(what string, by *seat, as ect.Identity, v consensus.Vote) {
		_, text := send(w, by, v)
		w.after(w.soon(30), func() {
			err := w.call(as, func(s *Service) error {
				if _, err := s.Vote(w.t.Context(), as, round.proposal.Round, text); err == nil {
					w.problem("%s was taken", what)
				}
				return nil
			})
			_ = err // lost, as any message may be
		})
	}
	try("a vote of an outsider", outsider, outsider.ID, w.ballot(round, outsider.ID, 1))
	try("a vote that an outsider signed for a member, on the member's connection", outsider, victim, w.ballot(round, victim, 1))
	try("a vote that an outsider signed for a member", outsider, outsider.ID, w.ballot(round, victim, 1))
	if n := len(w.group.Members); n > 1 {
		try("a vote of a member that another member sent", w.seat(victim), w.group.Members[n-1].ID, w.ballot(round, victim, 1))
	}
	if before := w.again(); before != nil && before != round {
		try("a vote of another round", w.seat(victim), victim, w.ballot(before, victim, 1))
	}
}

// peek reads what a member may read before the tally: its own messages alone.
func (w *world) peek(round *played, who ect.Identity) {
	_ = w.call(who, func(s *Service) error {
		all, _, err := s.Messages(w.t.Context(), round.proposal.Round, who, 0, 100)
		if err != nil || round.announced != "" {
			return err
		}
		r, err := s.Show(w.t.Context(), round.proposal.Round, who)
		if err != nil || r.Phase.Decided() {
			return err
		}
		w.notRecordedYet(r)
		for _, m := range all {
			if m.Kind == kindVote && w.signers[m.Compact] != who && r.Rules.Leader != who {
				w.problem("%s reads a vote of %s before the tally", who, w.signers[m.Compact])
			}
		}
		return nil
	})
}

// hear looks for the outcome, checks it and keeps it. A member that has got another one before reports that.
func (w *world) hear(round *played, who ect.Identity, tries int) {
	id := round.proposal.Round
	err := w.call(who, func(s *Service) error {
		r, err := s.Show(w.t.Context(), id, who)
		if err != nil {
			return err
		}
		round.opened = true
		if r.Phase == consensus.Drawing && w.rng.IntN(2) == 0 {
			w.open(r, s)
		}
		if r.End.Signature == "" {
			return errLost // not yet
		}
		w.accept(round, r, s, who)
		return nil
	})
	if err != nil && tries > 0 {
		pause := 10 * time.Second
		if w.calm {
			pause = time.Duration(41-tries) * time.Minute
		}
		w.after(pause, func() { w.hear(round, who, tries-1) })
	}
}

// open opens the nonces of a draw.
func (w *world) open(r consensus.Round, s *Service) {
	for _, c := range r.Deadlock.Candidates {
		_, ack := send(w, w.seat(c.Proposer), consensus.Ack{
			Proposal: r.Proposal.ID, Round: r.Proposal.Round, Participant: c.Proposer, Kind: consensus.NonceOpen, Nonce: "nonce", Timestamp: time.Now().UTC(),
		})
		_, _ = s.Acknowledge(w.t.Context(), c.Proposer, r.Proposal.Round, ack)
	}
}

func (w *world) accept(round *played, r consensus.Round, s *Service, who ect.Identity) {
	first, err := signed.Accept(round.announced, r.End.Signature)
	if err != nil {
		w.problem("%s got two outcomes of one round: %v", who, err)
		return
	}
	if round.announced == "" {
		round.announced, round.token, round.wid = first, r.Token, r.Workflow
		w.onRecord(r)
		w.check(round, r, s, who)
	}
}

// check judges an outcome from its signed messages alone, as a participant does.
func (w *world) check(round *played, r consensus.Round, s *Service, who ect.Identity) {
	box := consensus.Box{}
	for after := 0; ; after += 100 {
		page, more, err := s.Messages(w.t.Context(), r.Proposal.Round, who, after, 100)
		if err != nil {
			return // a fault; another participant checks it
		}
		for _, m := range page {
			if !slices.Contains(r.End.Counted, ect.Hash([]byte(m.Compact))) {
				w.problem("%s reads a message of a decided round on which its outcome does not rest", who)
			}
			if m.Kind == kindVote {
				v, err := signed.Take[consensus.Vote](m.Compact)
				fatal(w.t, err)
				if w.signers[m.Compact] != v.Content.Voter {
					w.problem("a vote of %s counts that %s has signed", v.Content.Voter, w.signers[m.Compact])
				}
				box.Ballots = append(box.Ballots, consensus.Ballot{Vote: v.Content, Hash: v.Hash})
				continue
			}
			a, err := signed.Take[consensus.Ack](m.Compact)
			fatal(w.t, err)
			box.Receipts = append(box.Receipts, consensus.Receipt{Ack: a.Content, Hash: a.Hash})
		}
		if !more {
			break
		}
	}
	outcome, err := signed.Take[consensus.Outcome](r.End.Signature)
	fatal(w.t, err)
	if err := outcome.Verify(w.t.Context(), w.verifier); err != nil {
		w.problem("the outcome is not signed by the coordinator: %v", err)
	}
	if err := consensus.Check(consensus.Record{Proposal: r.Proposal, Signed: r.Signed, Rules: r.Rules, Box: box, Outcome: outcome.Content}); err != nil {
		text, _ := json.Marshal(r)
		w.problem("%v: %s", err, text)
	}
	w.recounts(r, box)
	w.decidedInTime(round, r, box)
}

// judge is what must hold once everything has ended.
func (w *world) judge(ends map[consensus.Phase]int) {
	s, ended := w.replicas[0].svc, []consensus.Round{}
	for _, round := range w.rounds {
		p := round.proposal
		r, err := s.Show(w.t.Context(), p.Round, p.Proposer)
		if _, missing := errors.AsType[*problem.NotFoundError](err); missing {
			if round.opened {
				w.problem("a round that was shown is gone")
			}
			continue // it was refused, or never came
		}
		fatal(w.t, err)
		if round.announced != "" && r.End.Signature == "" {
			w.problem("an outcome was announced and is forgotten: it was announced before it lasted")
		}
		if ends[r.Phase]++; !r.Phase.Over() {
			w.problem("two days later the round is %s: it never ends", r.Phase)
			w.notRecordedYet(r)
			continue
		}
		if round.announced != "" && round.announced != r.End.Signature {
			w.problem("announced was another outcome than the one on record")
		}
		w.check(round, r, s, p.Proposer)
		for hash := range round.acked {
			if !round.early && !slices.Contains(r.End.Counted, hash) {
				w.problem("a vote that was taken in time is not counted")
			}
		}
		w.proven(r)
		w.sent(r)
		w.hasEvidence(round)
		ended = append(ended, r)
	}
	w.givesWay(ended)
}

// proven: an ended round has its tokens, and no vote was recorded before its outcome.
func (w *world) proven(r consensus.Round) {
	acts, votes := w.acts(r.Workflow), 0
	box, err := w.replicas[0].svc.archive.box(w.t.Context(), r.Proposal.Round)
	fatal(w.t, err)
	for _, b := range box.Ballots {
		if slices.Contains(r.End.Counted, b.Hash) {
			votes++
		}
	}
	if acts[ect.ActConsensusPropose] < 1 || acts[ect.ActConsensusCommit] < 1 || acts[ect.ActConsensusVote] != votes {
		w.problem("the evidence of an ended round is not complete: it has %v, expected the proposal, the outcome and %d votes", acts, votes)
	}
	w.onRecord(r)
}

func tokenID(compact string) ect.ID {
	claims, err := ect.ParseRecorded(compact)
	if err != nil {
		return ""
	}
	return claims.ID
}

// sent: what was agreed was sent to each listed agent under one id, and what was not agreed was not sent.
func (w *world) sent(r consensus.Round) {
	for _, m := range r.Rules.Members {
		name, listed := w.Find(m.ID)
		got := w.actions[r.Workflow+" "+name]
		switch {
		case !listed:
		case len(got) > 1:
			w.problem("%s got what was agreed as %d different messages", m.ID, len(got))
		case r.Phase != consensus.Committed && len(got) > 0:
			w.problem("%s got what was not agreed", m.ID)
		case r.Phase == consensus.Committed && len(got) == 0:
			w.problem("%s did not get what was agreed", m.ID)
		}
	}
}

// slow has an operation of the store take up to six seconds, now and then, while other things happen: more than the grace of a round.
func (w *world) slow() {
	if w.calm || w.depth > 2 || w.rng.IntN(200) > 0 {
		return
	}
	time.Sleep(time.Duration(w.rng.IntN(6000)) * time.Millisecond)
	for range 40 {
		w.interleave()
	}
}

// slowStore is a store of which some operations take long, or fail.
type slowStore struct {
	Entries
	beforeWrite, afterList func() error // of signed messages
}

func (s *slowStore) Swap(ctx context.Context, key state.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	if key.Kind == KindMessage && s.beforeWrite != nil {
		if err := s.beforeWrite(); err != nil {
			return 0, false, err
		}
	}
	return s.Entries.Swap(ctx, key, old, value, until)
}

func (s *slowStore) List(ctx context.Context, kind, group, after string, limit int) ([]state.Entry, error) {
	all, err := s.Entries.List(ctx, kind, group, after, limit)
	if kind == KindMessage && s.afterList != nil {
		err = errors.Join(err, s.afterList())
	}
	return all, err
}

// slowReplica is one more replica, with a slow store. It does nothing after an outcome.
func (w *world) slowReplica(store *slowStore) *Service {
	deps := w.start("slow").svc.deps
	store.Entries, deps.Entries = deps.Entries, store
	deps.Go = func(string, func(context.Context)) error { return nil }
	svc, err := New(deps)
	fatal(w.t, err)
	svc.Configure([]consensus.Group{w.group})
	return svc
}

// TestVote_WrittenAtTheDeadline: a vote comes before the deadline, and a slow store writes it after it, while another replica looks at
// the round and decides it later with what it has read. A vote that is taken counts in each case.
func TestVote_WrittenAtTheDeadline(t *testing.T) {
	t.Parallel()
	all := seats(t, 4)
	away := errors.New("the store is away")
	for name, tc := range map[string]struct {
		members                int
		written, read, decided time.Duration // after the deadline
		fails                  error         // what the replica of the voter gets when it looks at the round
		refused                string
	}{
		"before the round may be decided":                     {3, 1500 * time.Millisecond, 1400 * time.Millisecond, 2100 * time.Millisecond, nil, ""},
		"after that, and its replica decides":                 {3, 3 * time.Second, 2500 * time.Millisecond, 5 * time.Second, nil, ""},
		"after that, and its replica finds the store away":    {3, 3 * time.Second, 2500 * time.Millisecond, 5 * time.Second, away, "cannot be recorded"},
		"before that, and its replica finds the store away":   {3, 1500 * time.Millisecond, 1400 * time.Millisecond, 2100 * time.Millisecond, away, ""},
		"after that, and its replica finds the round decided": {3, 4 * time.Second, 2500 * time.Millisecond, 3 * time.Second, nil, "time for votes is over"},
		"after that, and its replica suspends the round":      {4, 3 * time.Second, 2500 * time.Millisecond, 5 * time.Second, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1, consensus.Majority, all)
				w.calm, w.group.Members, w.group.MaxFaulty = true, nil, 0
				for _, s := range all[1 : tc.members+1] {
					w.group.Members = append(w.group.Members, consensus.Member{ID: s.ID, Weight: 1})
				}
				steady := w.slowReplica(&slowStore{})
				round := w.plain(steady)
				deadline := round.proposal.Timeout.Time
				_, first := send(w, all[1], w.approval(round, all[1].ID))
				_, err := steady.Vote(t.Context(), all[1].ID, round.proposal.Round, first)
				fatal(t, err)
				until := func(after time.Duration) func() error {
					return func() error { time.Sleep(time.Until(deadline.Add(after))); return nil }
				}
				voter := w.slowReplica(&slowStore{beforeWrite: until(tc.written), afterList: func() error { return tc.fails }})
				looker := w.slowReplica(&slowStore{afterList: until(tc.decided)})
				fatal(t, until(tc.read-tc.written-time.Second)())
				m, second := send(w, all[2], w.approval(round, all[2].ID))
				looked := make(chan error, 1)
				go func() {
					fatal(t, until(tc.read)())
					looked <- looker.visit(t.Context(), round.proposal.Round)
				}()
				_, err = voter.Vote(t.Context(), all[2].ID, round.proposal.Round, second)
				if (err == nil) != (tc.refused == "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("the vote is answered with %v, expected an error with %q", err, tc.refused)
				}
				fatal(t, <-looked)
				fatal(t, until(10*time.Second)())
				fatal(t, steady.visit(t.Context(), round.proposal.Round))
				r, showErr := steady.Show(t.Context(), round.proposal.Round, "")
				fatal(t, showErr)
				if counts := slices.Contains(r.End.Counted, m.Hash); r.Phase == consensus.Voting || counts != (err == nil) {
					t.Errorf("the round is %s, the vote counts: %v, and it was answered with %v: a vote that is taken counts", r.Phase, counts, err)
				}
				if !r.Phase.Decided() {
					return
				}
				fatal(t, steady.aftermath.recordVotes(t.Context(), r))
				if n := w.acts(r.Workflow)[ect.ActConsensusVote]; n != len(r.End.Counted) {
					t.Errorf("the evidence has %d votes, expected the %d on which the outcome rests", n, len(r.End.Counted))
				}
			})
		})
	}
}

// TestLook_MessagesThatMayNotLast: a vote was written and no replica of the store has acknowledged it. No outcome rests on it, also if a
// failover takes it back while a coordinator looks at the round.
func TestLook_MessagesThatMayNotLast(t *testing.T) {
	t.Parallel()
	all := seats(t, 3)
	for name, during := range map[string]bool{"the failover comes later": false, "the failover comes during a look": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1, consensus.Majority, all)
				w.calm, w.group.MaxFaulty = true, 0
				w.group.Members = []consensus.Member{{ID: all[1].ID, Weight: 1}, {ID: all[2].ID, Weight: 1}, {ID: all[3].ID, Weight: 1}}
				steady := w.slowReplica(&slowStore{})
				round := w.plain(steady)
				lose := func() error { return w.shards[1].Failover(t.Context()) }
				looker := steady
				if during {
					looker = w.slowReplica(&slowStore{afterList: lose})
				}
				var last []byte
				for i, s := range all[1:4] {
					if i == 2 {
						w.shards[1].Separate()
					}
					_, last = send(w, s, w.approval(round, s.ID))
					if _, err := steady.Vote(t.Context(), s.ID, round.proposal.Round, last); (err != nil) != (i == 2) {
						t.Fatalf("vote %d is answered with %v", i+1, err)
					}
				}
				if err := looker.visit(t.Context(), round.proposal.Round); err == nil {
					t.Error("the look at a round with a vote that may not last has no error")
				}
				fatal(t, lose())
				fatal(t, steady.visit(t.Context(), round.proposal.Round))
				if r, err := steady.Show(t.Context(), round.proposal.Round, ""); err != nil || r.Phase != consensus.Voting {
					t.Errorf("the round is %s, %v: its outcome rests on a vote that is gone", r.Phase, err)
				}
				_, err := steady.Vote(t.Context(), all[3].ID, round.proposal.Round, last)
				fatal(t, err)
				if r, err := steady.Show(t.Context(), round.proposal.Round, ""); err != nil || r.Phase != consensus.Committed {
					t.Errorf("with all votes the round is %s, %v", r.Phase, err)
				}
			})
		})
	}
}

// plain is a round that is open for ten seconds.
func (w *world) plain(s *Service) *played {
	p := consensus.Proposal{
		ID: w.uuid(), Round: w.uuid(), Mechanism: consensus.Majority, Subject: "restart the router", Action: []byte(`{"tool":"restart"}`), Proposer: w.group.Members[0].ID,
		Timeout: consensus.At(time.Now().Add(10 * time.Second)), Terms: consensus.Terms{Group: w.group.Name, Timestamp: time.Now().UTC()},
	}
	for _, m := range w.group.Members {
		p.Participants = append(p.Participants, m.ID)
	}
	p.Quorum = int64(len(p.Participants)+1) / 2
	_, text := send(w, w.seat(p.Proposer), p)
	_, err := s.Propose(w.t.Context(), p.Proposer, text)
	fatal(w.t, err)
	return &played{proposal: p}
}

func (w *world) approval(round *played, who ect.Identity) consensus.Vote {
	v := w.ballot(round, who, 1)
	v.Decision = consensus.Approve
	return v
}
