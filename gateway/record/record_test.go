package record_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// round is a record that ends once, with one of many outcomes.
type round struct {
	Term    uint64
	Outcome string // empty: it is open
	Token   string
}

func encode(r round) ([]byte, error)          { return json.Marshal(r) }
func decode(text []byte) (r round, err error) { return r, json.Unmarshal(text, &r) }
func token(r round) string                    { return r.Token }
func sealed(r round, compact string) round    { r.Token = compact; return r }
func roundKey(id string) state.EntryKey {
	return state.EntryKey{Kind: "round", Group: "rounds", ID: id}
}
func statement(outcome string) *attest.Statement { return &attest.Statement{Holder: outcome} }

var (
	errUnconfirmed = errors.New("too few replicas have it")
	errKilled      = errors.New("the process is gone")
)

// failingStore is a store of a master and one copy of it. While they are apart, what is written is read, but
// not confirmed, and a failover forgets it.
type failingStore struct {
	mu           sync.Mutex
	master, copy map[state.EntryKey]state.Entry
	apart        bool
	serial       uint64
}

func newFailingStore() *failingStore {
	return &failingStore{master: map[state.EntryKey]state.Entry{}, copy: map[state.EntryKey]state.Entry{}}
}

// failover makes the copy the master.
func (s *failingStore) failover() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.master = maps.Clone(s.copy)
	s.apart = false
}

func (s *failingStore) separate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apart = true
}

// rejoin lets the copy catch up.
func (s *failingStore) rejoin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copy = maps.Clone(s.master)
	s.apart = false
}

// lasts is the round that no failover takes back.
func (s *failingStore) lasts(key state.EntryKey) round {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, _ := decode(s.copy[key].Value)
	return r
}

func (s *failingStore) confirm(key state.EntryKey) error {
	if s.apart {
		return errUnconfirmed
	}
	s.copy[key] = s.master[key]
	return nil
}

func (s *failingStore) Get(_ context.Context, key state.EntryKey) (state.Entry, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry, ok := s.master[key]
	return entry, ok, nil
}

func (s *failingStore) Swap(_ context.Context, key state.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.master[key].Revision != old {
		return 0, false, nil
	}
	s.serial++
	s.master[key] = state.Entry{Key: key, Revision: s.serial, Value: value, Until: until}
	if err := s.confirm(key); err != nil {
		return 0, false, err
	}
	return s.serial, true, nil
}

func (s *failingStore) Confirm(_ context.Context, key state.EntryKey, revision uint64) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.master[key].Revision != revision {
		return false, nil
	}
	return true, s.confirm(key)
}

func (s *failingStore) List(_ context.Context, _, _, after string, _ int) ([]state.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []state.Entry
	for _, entry := range s.master {
		if entry.Key.ID > after {
			all = append(all, entry)
		}
	}
	return all, nil
}

// world is what outlives the replicas: the store, the evidence, and what was announced.
type world struct {
	store *failingStore

	mu        sync.Mutex
	signed    int
	recorded  []string
	announced map[string][]round // by key, in the order of their telling
	wrong     []string
}

// replica is one process. It ends at a step, and does nothing more then.
type replica struct {
	*world

	mu   sync.Mutex
	left int // steps; below 0: it does not end
}

// step is an error when the process has ended.
func (r *replica) step() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left == 0 {
		return errKilled
	}
	r.left--
	return nil
}

// Each operation has a step before it and one after it: a process can end before it knows what became of it.
func (r *replica) Get(ctx context.Context, key state.EntryKey) (entry state.Entry, ok bool, err error) {
	if err = r.step(); err == nil {
		entry, ok, err = r.store.Get(ctx, key)
	}
	return entry, ok, errors.Join(err, r.step())
}

func (r *replica) Swap(ctx context.Context, key state.EntryKey, old uint64, value []byte, until time.Time) (revision uint64, ok bool, err error) {
	if err = r.step(); err == nil {
		revision, ok, err = r.store.Swap(ctx, key, old, value, until)
	}
	return revision, ok, errors.Join(err, r.step())
}

func (r *replica) Confirm(ctx context.Context, key state.EntryKey, revision uint64) (ok bool, err error) {
	if err = r.step(); err == nil {
		ok, err = r.store.Confirm(ctx, key, revision)
	}
	return ok, errors.Join(err, r.step())
}

func (r *replica) List(ctx context.Context, kind, group, after string, limit int) ([]state.Entry, error) {
	if err := r.step(); err != nil {
		return nil, err
	}
	return r.store.List(ctx, kind, group, after, limit)
}

func (r *replica) Sign(context.Context, attest.Statement) (attest.Signed, error) {
	return attest.Signed{}, r.step()
}

func (r *replica) Record(context.Context, attest.Signed) error { return r.gone(r.step()) }

func (r *replica) Keep(_ context.Context, compact string) error {
	err := r.step()
	if err == nil {
		r.world.mu.Lock()
		r.recorded = append(r.recorded, compact)
		r.world.mu.Unlock()
	}
	return r.gone(errors.Join(err, r.step()))
}

// gone is an error of the evidence store that can be tried again.
func (r *replica) gone(err error) error {
	if err == nil {
		return nil
	}
	return &problem.RecordingError{Err: err}
}

// announce tells a value to the outside, unless the process has ended. The twin of it all is the copy of the
// store: what is announced must be what no failover takes back, or an earlier term of it.
func (r *replica) announce(_ context.Context, key state.EntryKey, value round) error {
	if err := r.step(); err != nil {
		return err
	}
	lasts := r.store.lasts(key)
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	r.announced[key.ID] = append(r.announced[key.ID], value)
	if value.Term > lasts.Term || value.Term == lasts.Term && value != lasts {
		r.wrong = append(r.wrong, fmt.Sprintf("%s: announced was %+v, and what lasts is %+v", key.ID, value, lasts))
	}
	return nil
}

// machine starts a process that ends after some steps; below 0: never.
func (w *world) machine(t *testing.T, steps int) *record.Machine[round] {
	t.Helper()
	r := &replica{world: w, left: steps}
	m, err := record.New(record.Kind[round]{Encode: encode, Decode: decode, Life: time.Hour, Token: token, Sealed: w.sealed, Announce: r.announce},
		record.Deps{Entries: r, Evidence: func() record.Evidence { return r }, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// sealed gives each signature its own token, as a signer does.
func (w *world) sealed(r round, _ string) round {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.signed++
	return sealed(r, fmt.Sprintf("token-%d", w.signed))
}

// end closes a round with an outcome, unless it is closed.
func end(outcome string) record.Step[round] {
	return func(before record.Found[round]) (round, *attest.Statement, error) {
		if before.Value.Outcome != "" {
			return before.Value, nil, record.ErrUnchanged
		}
		return round{Term: before.Value.Term + 1, Outcome: outcome}, statement(outcome), nil
	}
}

// vote counts one more term of an open round.
func vote(before record.Found[round]) (round, *attest.Statement, error) {
	if before.Value.Outcome != "" {
		return before.Value, nil, record.ErrUnchanged
	}
	return round{Term: before.Value.Term + 1, Token: before.Value.Token}, nil, nil
}

// TestMachine_OneOutcome: three replicas that end at any step, and begin again, decide rounds on a store that
// fails over and forgets what it did not confirm. No two outcomes of a round are ever announced, no value is
// announced that a failover takes back, and in the end each round has the one outcome that lasts, with its
// evidence.
func TestMachine_OneOutcome(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		w := &world{store: newFailingStore(), announced: map[string][]round{}}
		var group sync.WaitGroup
		for i := range 3 {
			group.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(i)))
				for life := range 4 {
					m := w.machine(t, random.IntN(30))
					for range 4 {
						key := roundKey(fmt.Sprintf("round-%d", random.IntN(2)))
						switch random.IntN(7) {
						case 0, 1:
							_, _, _ = m.Decide(t.Context(), key, end(fmt.Sprintf("of replica %d, life %d", i, life)))
						case 2:
							_, _, _ = m.Decide(t.Context(), key, vote)
						case 3:
							_ = m.Look(t.Context(), "round", "rounds")
						case 4:
							w.store.separate()
						case 5:
							w.store.failover()
						case 6:
							w.store.rejoin()
						}
					}
				}
			})
		}
		group.Wait()
		w.store.failover()
		last := w.machine(t, -1)
		for n := range 2 {
			if _, _, err := last.Decide(t.Context(), roundKey(fmt.Sprintf("round-%d", n)), end("at last")); err != nil {
				t.Fatal(err)
			}
		}
		if err := last.Look(t.Context(), "round", "rounds"); err != nil {
			t.Fatal(err)
		}
		w.judge(t, seed)
		if t.Failed() {
			return
		}
	}
}

// judge finds what must not be when all is over.
func (w *world) judge(t *testing.T, seed uint64) {
	t.Helper()
	for _, wrong := range w.wrong {
		t.Errorf("seed %d: %s", seed, wrong)
	}
	for n := range 2 {
		key := roundKey(fmt.Sprintf("round-%d", n))
		lasts, outcomes := w.store.lasts(key), map[string]bool{}
		for _, value := range w.announced[key.ID] {
			if value.Outcome != "" {
				outcomes[value.Outcome+" by "+value.Token] = true
			}
		}
		if len(outcomes) != 1 || !outcomes[lasts.Outcome+" by "+lasts.Token] {
			t.Errorf("seed %d: %s ended as %v, and what lasts is %+v", seed, key.ID, outcomes, lasts)
		}
	}
}

// TestMachine_AdoptsAfterAnUnconfirmedWrite: what a replica wrote and could not confirm is announced by the
// next that finds it, once it is confirmed, with the evidence of its bytes; a failover in between takes it
// back, and then another outcome is announced and that one alone.
func TestMachine_AdoptsAfterAnUnconfirmedWrite(t *testing.T) {
	t.Parallel()
	for name, forgotten := range map[string]bool{"it lasts": false, "a failover forgets it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{store: newFailingStore(), announced: map[string][]round{}}
			key := roundKey("round")
			w.store.separate()
			one, two := w.machine(t, -1), w.machine(t, -1)
			if _, changed, err := one.Decide(t.Context(), key, end("first")); changed || !errors.Is(err, errUnconfirmed) {
				t.Fatalf("without the copy: changed %v, %v", changed, err)
			}
			if v, _, err := two.Decide(t.Context(), key, end("second")); !errors.Is(err, errUnconfirmed) || v.Outcome != "first" {
				t.Errorf("a second decision while nothing can be confirmed: %+v, %v", v, err)
			}
			if err := two.Look(t.Context(), "round", "rounds"); err != nil {
				t.Error(err)
			}
			if len(w.announced) != 0 || len(w.recorded) != 0 {
				t.Fatalf("announced before it is confirmed: %v, recorded %v", w.announced, w.recorded)
			}
			want := []string{"first"}
			if forgotten {
				w.store.failover()
				want = []string{"second"}
			} else {
				w.store.rejoin()
			}
			v, changed, err := two.Decide(t.Context(), key, end("second"))
			if err != nil || changed != forgotten {
				t.Fatalf("changed %v, %v", changed, err)
			}
			if !forgotten && !slices.Equal(w.recorded, []string{v.Token}) {
				t.Errorf("recorded is %v, expected the token %q of the bytes that were found", w.recorded, v.Token)
			}
			var got []string
			for _, value := range w.announced["round"] {
				got = append(got, value.Outcome)
			}
			if !slices.Equal(got, want) {
				t.Errorf("announced %v, expected %v", got, want)
			}
		})
	}
}

// TestMachine_Races: of many decisions at once each is a step after the one before it.
func TestMachine_Races(t *testing.T) {
	t.Parallel()
	w := &world{store: newFailingStore(), announced: map[string][]round{}}
	var group sync.WaitGroup
	var mu sync.Mutex
	made := uint64(0)
	for range 8 {
		group.Go(func() {
			m := w.machine(t, -1)
			for range 10 {
				_, changed, err := m.Decide(t.Context(), roundKey("round"), vote)
				if _, conflict := errors.AsType[*problem.ConflictError](err); err != nil && !conflict {
					t.Error(err)
				}
				mu.Lock()
				if changed {
					made++
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if got := w.store.lasts(roundKey("round")); got.Term != made || made < 10 {
		t.Errorf("term %d after %d steps", got.Term, made)
	}
}

// overtaken is a store in which other replicas change the record a few times between a list and the confirmation.
type overtaken struct {
	*failingStore
	changes uint64
}

func (o *overtaken) Confirm(ctx context.Context, key state.EntryKey, revision uint64) (bool, error) {
	if o.changes > 0 {
		o.changes--
		before, _, _ := o.failingStore.Get(ctx, key)
		r, _ := decode(before.Value)
		r.Term++
		value, _ := encode(r)
		if _, _, err := o.Swap(ctx, key, before.Revision, value, time.Now().Add(time.Hour)); err != nil {
			return false, err
		}
	}
	return o.failingStore.Confirm(ctx, key, revision)
}

// TestMachine_LookWhileOthersChangeIt: one Look makes a record known that other replicas take further meanwhile.
func TestMachine_LookWhileOthersChangeIt(t *testing.T) {
	t.Parallel()
	store, key := &overtaken{newFailingStore(), 3}, roundKey("round")
	value, err := encode(round{Term: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := store.Swap(t.Context(), key, 0, value, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	var announced []round
	m, err := record.New(record.Kind[round]{Encode: encode, Decode: decode, Life: time.Hour, Announce: func(_ context.Context, _ state.EntryKey, r round) error {
		announced = append(announced, r)
		return nil
	}}, record.Deps{Entries: store, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Look(t.Context(), "round", "rounds"); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(announced, []round{{Term: 4}}) {
		t.Errorf("after one Look is known %+v, expected the record at term 4", announced)
	}
}

// TestNew_Incomplete: a machine that could not do its work is refused when it is made.
func TestNew_Incomplete(t *testing.T) {
	t.Parallel()
	if _, err := record.New(record.Kind[round]{}, record.Deps{}); err == nil {
		t.Error("a machine without anything was made")
	}
}

// forgetful is evidence that is away when the first statement is to be recorded.
type forgetful struct {
	statements int
	recorded   []string
}

func (f *forgetful) Sign(context.Context, attest.Statement) (attest.Signed, error) {
	f.statements++
	return attest.Signed{}, nil
}

func (f *forgetful) Record(context.Context, attest.Signed) error {
	if f.statements == 1 {
		return &problem.RecordingError{Err: errUnconfirmed}
	}
	return nil
}

func (f *forgetful) Keep(_ context.Context, compact string) error {
	f.recorded = append(f.recorded, compact)
	return nil
}

// TestMachine_KeepsEvidenceBeforeItIsWrittenOver: evidence that could not be recorded when its value was written is
// recorded before the next value takes its place.
func TestMachine_KeepsEvidenceBeforeItIsWrittenOver(t *testing.T) {
	t.Parallel()
	evidence := &forgetful{}
	m, err := record.New(record.Kind[round]{
		Encode: encode, Decode: decode, Life: time.Hour, Token: token,
		Sealed: func(r round, _ string) round { return sealed(r, fmt.Sprintf("token-%d", evidence.statements)) },
	}, record.Deps{
		Entries: newFailingStore(), Evidence: func() record.Evidence { return evidence }, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	next := func(before record.Found[round]) (round, *attest.Statement, error) {
		return round{Term: before.Value.Term + 1, Outcome: "more"}, statement("more"), nil
	}
	key := roundKey("one")
	if _, _, err := m.Decide(t.Context(), key, next); err == nil {
		t.Fatal("evidence that is not recorded is no error")
	}
	if _, _, err := m.Decide(t.Context(), key, next); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(evidence.recorded, []string{"token-1"}) {
		t.Errorf("recorded later are %v, expected the token of the first value", evidence.recorded)
	}
}
