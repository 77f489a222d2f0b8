package consensus

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/sample"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/statetest/failover"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/membership"
)

const self = ect.Identity("spiffe://prod.example/gateway")

// seat is an identity with a key. The seats of a test are made once, since keys cost time.
type seat struct {
	*ecttest.Party
	signer *ect.Signer
}

// seats makes the gateway, n members and two outsiders, in this order.
func seats(t testing.TB, n int) []*seat {
	t.Helper()
	all := make([]*seat, n+3)
	for i := range all {
		id := self
		if i > 0 {
			id = ect.Identity(fmt.Sprintf("spiffe://prod.example/agent/%02d", i))
		}
		p := ecttest.NewEdwardsParty(t, id)
		all[i] = &seat{p, p.Signer(t, time.Now)}
	}
	return all
}

var (
	errKilled = errors.New("the process is gone")
	errLost   = errors.New("the message is lost")
)

// event is what happens at a moment of a simulated world.
type event struct {
	at     time.Time
	serial int
	do     func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].serial < e[j].serial
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *events) Push(x any) { *e = append(*e, x.(event)) }

// Pop implements heap.Interface.
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// world is replicas of a coordinator, a store that loses its master, and participants, in virtual time. A seed decides all that
// happens, so it replays a failure.
type world struct {
	t        testing.TB
	rng      *rand.Rand
	shards   [2]*failover.Store // of a cluster: each loses its master alone
	evidence *evidenceStore
	attest   *attest.Service
	verifier *ect.Verifier
	real     bool // signatures are verified, and not looked up
	seats    []*seat
	signers  map[string]ect.Identity // who signed a message, by its signature
	group    consensus.Group
	replicas []*process
	queue    events
	serial   int
	depth    int // of events within an operation of the store
	calm     bool
	cut      map[ect.Identity]time.Time // until when a participant is cut off
	humans   map[string]answer
	actions  map[string]map[ect.ID]int // what agents have got, by round and agent
	rounds   []*played
	problems []string
}

// process is a replica. It ends at an operation of the store, and does nothing more then.
type process struct {
	w    *world
	name string
	skew time.Duration
	left int // operations; below 0: it does not end
	svc  *Service
}

func (p *process) shard(kind string) *failover.Store {
	if kind == KindOpen || kind == KindMessage {
		return p.w.shards[1]
	}
	return p.w.shards[0]
}

func (p *process) step() error {
	p.w.slow()
	p.w.interleave()
	if p.left == 0 {
		return errKilled
	}
	if p.left > 0 {
		p.left--
	}
	return nil
}

func (p *process) Get(ctx context.Context, key state.EntryKey) (e state.Entry, ok bool, err error) {
	if err = p.step(); err == nil {
		e, ok, err = p.shard(key.Kind).Get(ctx, key)
	}
	return e, ok, errors.Join(err, p.step())
}

func (p *process) Swap(ctx context.Context, key state.EntryKey, old uint64, value []byte, until time.Time) (rev uint64, ok bool, err error) {
	if err = p.step(); err == nil {
		rev, ok, err = p.shard(key.Kind).Swap(ctx, key, old, value, until)
	}
	return rev, ok, errors.Join(err, p.step())
}

func (p *process) Confirm(ctx context.Context, key state.EntryKey, revision uint64) (ok bool, err error) {
	if err = p.step(); err == nil {
		ok, err = p.shard(key.Kind).Confirm(ctx, key, revision)
	}
	return ok, errors.Join(err, p.step())
}

func (p *process) Delete(ctx context.Context, key state.EntryKey) error {
	if err := p.step(); err != nil {
		return err
	}
	return errors.Join(p.shard(key.Kind).Delete(ctx, key), p.step())
}

func (p *process) List(ctx context.Context, kind, group, after string, limit int) ([]state.Entry, error) {
	if err := p.step(); err != nil {
		return nil, err
	}
	all, err := p.shard(kind).List(ctx, kind, group, after, limit)
	return all, errors.Join(err, p.step())
}

// evidenceStore keeps evidence. As in a cluster, a record is noted in its workflow after it is kept, and a process may end in between.
// The same bytes once more complete it.
type evidenceStore struct {
	*ecttest.Store
	half map[ect.ID]bool // not noted in their workflow
}

func (e *evidenceStore) Put(ctx context.Context, r ect.Record) error {
	err := e.Store.Put(ctx, r)
	if err == nil {
		delete(e.half, r.ID)
	}
	return err
}

func (e *evidenceStore) Workflow(ctx context.Context, wid, after string, limit int) ([]ect.Record, string, error) {
	records, next, err := e.Store.Workflow(ctx, wid, after, limit)
	return slices.DeleteFunc(records, func(r ect.Record) bool { return e.half[r.ID] }), next, err
}

// evidenceOf is the evidence as a process sees it: what has ended records nothing.
type evidenceOf struct {
	p *process
	attest.Statements
}

func (e evidenceOf) Record(ctx context.Context, signed attest.Signed) error {
	if err := e.p.step(); err != nil {
		return attest.Recording(err)
	}
	return errors.Join(e.Statements.Record(ctx, signed), e.ended())
}

func (e evidenceOf) Keep(ctx context.Context, compact string) error {
	if err := e.p.step(); err != nil {
		return attest.Recording(err)
	}
	return errors.Join(e.Statements.Keep(ctx, compact), e.ended())
}

func (e evidenceOf) Complete(ctx context.Context, workflow string, id ect.ID) error {
	if err := e.p.step(); err != nil {
		return attest.Recording(err)
	}
	return errors.Join(e.Statements.Complete(ctx, workflow, id), e.ended())
}

func (e evidenceOf) State(ctx context.Context, st attest.Statement) (string, error) {
	if err := e.p.step(); err != nil {
		return "", attest.Recording(err)
	}
	compact, err := e.Statements.State(ctx, st)
	if err == nil && e.p.left > 0 && e.p.w.rng.IntN(50) == 0 {
		e.p.left, e.p.w.evidence.half[st.ID] = 0, true
	}
	return compact, errors.Join(err, e.ended())
}

func (e evidenceOf) ended() error {
	if err := e.p.step(); err != nil {
		return attest.Recording(err)
	}
	return nil
}

// Authentic implements [signed.Verifier] by a look-up, which costs less than a signature.
func (w *world) Authentic(ctx context.Context, n ect.Note, issuer ect.Identity, at time.Time) error {
	if w.real {
		return w.verifier.Authentic(ctx, n, issuer, at)
	}
	if w.signers[n.Compact()] != issuer {
		return &ect.InvalidError{Reason: ect.ReasonInvalidSignature}
	}
	return nil
}

// Ended, Anomaly: the metrics of a world count nothing.
func (w *world) Ended(string, string, time.Duration) {}

// Anomaly implements [Metrics].
func (w *world) Anomaly(string) {}

type answer struct {
	at      time.Time
	granted bool
}

// Ask implements [Humans]: a human answers after a while.
func (w *world) Ask(_ context.Context, q approval.Question) error {
	if _, there := w.humans[q.ID]; !there {
		w.humans[q.ID] = answer{time.Now().Add(time.Duration(w.rng.IntN(60)) * time.Second), w.rng.IntN(2) == 0}
	}
	return nil
}

// Answer implements [Humans].
func (w *world) Answer(_ context.Context, id string) (granted, over bool, err error) {
	a, there := w.humans[id]
	if !there {
		return false, false, notAsked()
	}
	return a.granted, !time.Now().Before(a.at), nil
}

// Find implements [Agents]: members with an even number are listed agents.
func (w *world) Find(id ect.Identity) (string, bool) {
	i := slices.IndexFunc(w.seats, func(s *seat) bool { return s.ID == id })
	return string(id), i > 0 && i%2 == 0
}

// Send implements [Agents]: sometimes the agent gets an action and its answer is lost.
func (w *world) Send(_ context.Context, o Order) error {
	if !w.calm && w.rng.IntN(4) == 0 {
		return errLost
	}
	key := o.Lineage.Workflow + " " + o.Agent
	if w.actions[key] == nil {
		w.actions[key] = map[ect.ID]int{}
	}
	w.actions[key][o.ID]++
	if !w.calm && w.rng.IntN(4) == 0 {
		return errLost
	}
	return nil
}

func newWorld(t testing.TB, seed uint64, mechanism consensus.Mechanism, all []*seat) *world {
	t.Helper()
	memory, err := state.New(state.Config{}, state.Deps{Now: time.Now})
	fatal(t, err)
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 53)), shards: [2]*failover.Store{failover.New(memory.Entries()), failover.New(memory.Entries())}, evidence: &evidenceStore{ecttest.NewStore(), map[ect.ID]bool{}}, real: seed%100 == 0,
		seats: all, signers: map[string]ect.Identity{}, cut: map[ect.Identity]time.Time{}, humans: map[string]answer{}, actions: map[string]map[ect.ID]int{},
	}
	w.verify()
	w.group = consensus.Group{
		Name: "ops", Proposers: map[ect.Identity]int{}, Mechanisms: []consensus.Mechanism{mechanism},
		Deadlock: consensus.Strategies()[w.rng.IntN(3)], Threshold: 30 + w.rng.IntN(40),
	}
	n := 1 + w.rng.IntN(len(all)-3)
	for i, s := range all[1 : n+1] {
		w.group.Members = append(w.group.Members, consensus.Member{ID: s.ID, Weight: int64(1 + w.rng.IntN(9))})
		if i < 3 {
			w.group.Proposers[s.ID] = w.rng.IntN(4)
		}
	}
	if mechanism == consensus.Leader && w.rng.IntN(2) == 0 {
		w.group.Leader = w.group.Members[w.rng.IntN(n)].ID
	}
	if n >= 3 && w.rng.IntN(4) == 0 {
		w.group.MaxFaulty = 1
	}
	for i := range 3 {
		w.replicas = append(w.replicas, w.start(fmt.Sprintf("replica-%d", i)))
	}
	return w
}

// verify makes what signs and verifies evidence.
func (w *world) verify() {
	gateway, parties := w.seats[0], []*ecttest.Party{}
	for _, s := range w.seats {
		parties = append(parties, s.Party)
	}
	var err error
	w.verifier, err = ect.NewVerifier(ect.VerifierDeps{Keys: ecttest.KeysOf(parties...), Replay: ecttest.NewReplay(), Audience: []string{string(self)}, Now: time.Now})
	fatal(w.t, err)
	dialects, err := ect.NewDialects(ect.DialectsDeps{})
	fatal(w.t, err)
	recorder, err := ect.NewRecorder(ect.RecorderDeps{Store: w.evidence})
	fatal(w.t, err)
	members, err := membership.New(membership.Deps{Store: w.evidence, Self: self})
	fatal(w.t, err)
	refusals, err := sample.New(sample.Config{}, sample.Deps{Now: time.Now})
	fatal(w.t, err)
	w.attest, err = attest.New(attest.Deps{
		Signer: gateway.signer, Dialects: dialects, Verifier: w.verifier, Recorder: recorder, Evidence: w.evidence, Members: members, Refusals: refusals,
		Metrics: noMetrics{}, Logger: slog.New(slog.DiscardHandler), NewID: func() string { return string(ect.NewID()) }, Version: func() string { return "1.0.0" },
	})
	fatal(w.t, err)
}

// start makes a replica, which ends at some operation unless the world is calm. Its clock is wrong.
func (w *world) start(name string) *process {
	p := &process{w: w, name: name, left: -1, skew: time.Duration(w.rng.IntN(1200)-600) * time.Second}
	if !w.calm && w.rng.IntN(3) > 0 {
		p.left = w.rng.IntN(2000)
	}
	svc, err := New(Deps{
		Entries: p, Evidence: evidenceOf{p, w.attest.Statements()}, Signer: func() *ect.Signer { return w.seats[0].signer }, Verifier: w,
		Belongs: func(context.Context, string, ect.Identity) (bool, error) { return false, nil }, Agents: w, Humans: w, Metrics: w,
		Clock: func(context.Context) (time.Time, error) { return time.Now(), p.step() },
		Now:   func() time.Time { return time.Now().Add(p.skew) },
		Go: func(_ string, work func(context.Context)) error {
			w.after(0, func() { work(w.t.Context()) })
			return nil
		},
		Logger: slog.New(slog.DiscardHandler), Replica: fmt.Sprint(name, w.serial),
	})
	fatal(w.t, err)
	svc.Configure([]consensus.Group{w.group})
	p.svc = svc
	return p
}

// after has something happen later.
func (w *world) after(d time.Duration, do func()) {
	w.serial++
	heap.Push(&w.queue, event{time.Now().Add(d), w.serial, do})
}

// interleave lets something else that is due happen within an operation, as another goroutine would.
func (w *world) interleave() {
	if w.depth > 2 || len(w.queue) == 0 || w.rng.IntN(8) > 0 || w.queue[0].at.After(time.Now()) {
		return
	}
	w.depth++
	defer func() { w.depth-- }()
	next := heap.Pop(&w.queue).(event)
	next.do()
}

// turns has each replica look at its rounds, and starts those that have ended anew.
func (w *world) turns(each time.Duration, until time.Time) {
	for i := range w.replicas {
		var turn func()
		n := 0
		turn = func() {
			if w.replicas[i].left == 0 {
				w.replicas[i] = w.start(fmt.Sprintf("replica-%d", i))
			}
			w.replicas[i].svc.Step(w.t.Context(), n%2 == 0 || w.calm)
			if n++; time.Now().Add(each).Before(until) {
				w.after(each, turn)
			}
		}
		w.after(time.Duration(w.rng.IntN(250))*time.Millisecond, turn)
	}
}

// faults cuts links, loses masters, ends replicas and cuts participants off, now and then.
func (w *world) faults(until time.Time) {
	var next func()
	next = func() {
		switch w.rng.IntN(4) {
		case 0:
			shard := w.shards[w.rng.IntN(2)]
			shard.Separate()
			w.after(time.Duration(w.rng.IntN(10_000))*time.Millisecond, func() {
				if w.rng.IntN(2) == 0 {
					shard.Rejoin()
				} else if err := shard.Failover(w.t.Context()); err != nil {
					w.problem("failover: %v", err)
				}
			})
		case 1:
			w.replicas[w.rng.IntN(len(w.replicas))].left = w.rng.IntN(100)
		default:
			m := w.group.Members[w.rng.IntN(len(w.group.Members))].ID
			w.cut[m] = time.Now().Add(time.Duration(w.rng.IntN(60)) * time.Second)
		}
		if d := time.Duration(w.rng.IntN(20_000)) * time.Millisecond; time.Now().Add(d).Before(until) {
			w.after(d, next)
		}
	}
	w.after(time.Duration(w.rng.IntN(5_000))*time.Millisecond, next)
}

func (w *world) problem(format string, args ...any) {
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// attempt is a vote as its voter sent it.
type attempt struct {
	voter   ect.Identity
	first   time.Time // when it came to a replica first
	refused bool      // as late, before the deadline
	doubled bool      // refused as a different vote of a voter
}

// decidedInTime: a round ends at a moment of the store, after its deadline or with all votes, and with the votes that came until then.
func (w *world) decidedInTime(round *played, r consensus.Round, box consensus.Box) {
	at, voters := r.End.Outcome.Decided, voters(box)
	if at.After(time.Now()) || at.Before(r.Opened) || r.Opened.After(time.Now()) {
		w.problem("the outcome says that it was decided at %v, and the round was open from %v to %v: the moment is not the store's", at, r.Opened, time.Now())
	}
	if r.End.Outcome.Reason != consensus.HumanDecided && !round.early && at.Before(r.Deadline()) && len(voters) < len(r.Rules.Members) {
		w.problem("the round was decided %v before its deadline, with the votes of %d of %d members", r.Deadline().Sub(at), len(voters), len(r.Rules.Members))
	}
	if o := r.End.Outcome; o.Reason == consensus.HumanDecided {
		if human, there := w.humans[o.Approval]; !there || at.Before(human.at) || human.granted != (o.Result == consensus.Commit) {
			w.problem("the outcome is %s by a human at %v, and the human has said %v at %v", o.Result, at, human.granted, human.at)
		}
	}
	for hash, vote := range round.sent {
		if vote.first.After(r.Deadline()) && slices.Contains(r.End.Counted, hash) {
			w.problem("a vote of %s counts that came %v after the deadline", vote.voter, vote.first.Sub(r.Deadline()))
		}
		if vote.refused && !round.early && round.votesOf(vote.voter) == 1 {
			w.problem("the vote of %s was refused as late before the deadline", vote.voter)
		}
	}
}

// takenOnce: of a voter with different votes, one at most is taken.
func (w *world) takenOnce(round *played, who ect.Identity, hash string) {
	for other, vote := range round.sent {
		if other != hash && vote.voter == who && round.acked[other] {
			w.problem("two different votes of %s were taken, and neither counts", who)
		}
	}
}

// hasEvidence: different votes of one voter are on record as evidence.
func (w *world) hasEvidence(round *played) {
	all, err := w.replicas[0].svc.archive.messages(w.t.Context(), round.proposal.Round)
	fatal(w.t, err)
	for hash, vote := range round.sent {
		there := slices.ContainsFunc(all, func(m stored) bool { return ect.Hash([]byte(m.Compact)) == hash })
		if vote.doubled && !there {
			w.problem("a second vote of %s was refused and is not kept as evidence", vote.voter)
		}
	}
}

func (p *played) votesOf(voter ect.Identity) (n int) {
	for _, vote := range p.sent {
		if vote.voter == voter {
			n++
		}
	}
	return n
}

func voters(box consensus.Box) map[ect.Identity][]consensus.Decision {
	all := map[ect.Identity][]consensus.Decision{}
	for _, b := range box.Ballots {
		all[b.Vote.Voter] = append(all[b.Vote.Voter], b.Vote.Decision)
	}
	return all
}

// recounts counts the votes of an outcome in a way of its own, which shares nothing with the coordinator: of members alone, of a voter
// with two votes neither, and a commit needs the connectivity to a majority of members and the approval that its mechanism demands.
func (w *world) recounts(r consensus.Round, box consensus.Box) {
	count, weight, total, doubled := map[consensus.Decision]int{}, map[consensus.Decision]int64{}, int64(0), 0
	connected := map[ect.Identity]bool{}
	for _, receipt := range box.Receipts {
		connected[receipt.Ack.Participant] = true
	}
	all := voters(box)
	for _, m := range r.Rules.Members {
		total += m.Weight
		if len(all[m.ID]) > 0 {
			connected[m.ID] = true
		}
		if len(all[m.ID]) == 1 && m.ID != r.Rules.Leader {
			count[all[m.ID][0]]++
			weight[all[m.ID][0]] += m.Weight
		}
	}
	for voter, decisions := range all {
		if len(decisions) > 1 {
			doubled++
		}
		if !r.Rules.IsMember(voter) && voter != r.Rules.Leader {
			w.problem("a vote of %s counts, which is no participant", voter)
		}
	}
	approve, reject, tally := count[consensus.Approve], count[consensus.Reject], r.End.Outcome.Tally
	if tally.Approve != approve || tally.Reject != reject || tally.Doubled != doubled {
		w.problem("the tally is %+v, and its messages have %d that approve, %d that reject and %d voters with two votes, of which neither counts", tally, approve, reject, doubled)
	}
	if r.End.Outcome.Result != consensus.Commit || r.End.Outcome.Reason == consensus.HumanDecided {
		return
	}
	if 2*len(connected) <= len(r.Rules.Members) {
		w.problem("the round is committed, and %d of %d members are connected: expected a majority", len(connected), len(r.Rules.Members))
	}
	lead := all[r.Rules.Leader]
	holds := map[consensus.Mechanism]bool{
		consensus.Majority:   approve > reject && 2*(approve+reject) >= len(r.Rules.Members),
		consensus.Weighted:   weight[consensus.Approve]*100 > r.Rules.Threshold*total,
		consensus.Leader:     len(lead) == 1 && lead[0] == consensus.Approve,
		consensus.Optimistic: reject == 0,
	}
	if !holds[r.Proposal.Mechanism] {
		w.problem("the round is committed by %s, and its votes do not approve: %v, of the leader %v", r.Proposal.Mechanism, count, lead)
	}
}

// notRecordedYet: until a round is decided, no evidence has its votes.
func (w *world) notRecordedYet(r consensus.Round) {
	entry, found, err := w.shards[0].Get(w.t.Context(), roundKey(r.Proposal.Round, ""))
	fatal(w.t, err)
	if !found {
		return
	}
	now, err := consensus.DecodeRound(entry.Value)
	fatal(w.t, err)
	if n := w.acts(r.Workflow)[ect.ActConsensusVote]; n > 0 && !now.Phase.Decided() {
		w.problem("the evidence has %d votes of a round that is %s: votes are recorded after the tally, once the outcome lasts", n, now.Phase)
	}
}

// onRecord: an outcome is announced after its token is on record.
func (w *world) onRecord(r consensus.Round) {
	found, err := w.evidence.Get(w.t.Context(), ect.Ref{Workflow: r.Workflow, ID: tokenID(r.Token), Issuer: self})
	if err != nil || len(found) == 0 || len(found[0]) == 0 {
		w.problem("an outcome is announced and its token is not on record: %v", err)
	}
}

// acts counts the tokens of a workflow by what they are about.
func (w *world) acts(workflow string) map[ect.Act]int {
	records, _, err := w.evidence.Workflow(w.t.Context(), workflow, "", 100)
	fatal(w.t, err)
	acts := map[ect.Act]int{}
	for _, rec := range records {
		claims, err := ect.ParseRecorded(rec.Compact)
		fatal(w.t, err)
		acts[claims.Act]++
	}
	return acts
}

// givesWay: of two rounds about the same whose votes accept, the one of the lower rank gives way.
func (w *world) givesWay(ended []consensus.Round) {
	open := map[string]time.Time{} // since when others find a round
	for _, p := range w.rounds {
		if !p.since.IsZero() {
			open[p.proposal.Round] = p.since
		}
	}
	for _, low := range ended {
		if o := low.End.Outcome; o.Result != consensus.Commit || o.Reason != consensus.Accepted {
			continue
		}
		for _, high := range ended {
			o := high.End.Outcome
			related := high.Proposal.Topic() == low.Proposal.Topic() && high.Rank.Compare(low.Rank) > 0
			since, known := open[high.Proposal.Round]
			meet := known && since.Before(low.End.Outcome.Decided) && !high.Opened.After(low.Deadline()) && !o.Decided.Before(low.Opened)
			if related && meet && o.Result == consensus.Commit && o.Reason == consensus.Accepted {
				w.problem("two rounds about the same are committed at once: the one of the lower rank gives way to the other")
			}
		}
	}
}
