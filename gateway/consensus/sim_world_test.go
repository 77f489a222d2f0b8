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
func (w *world) Ask(_ context.Context, q Question) error {
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
