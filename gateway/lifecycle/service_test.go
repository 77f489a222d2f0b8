package lifecycle_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/lifecycle"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	states "github.com/aepb/aepb-gateway/lifecycle"
)

// evidence signs with the act and a number, and keeps what was recorded.
type evidence struct {
	mu       sync.Mutex
	signed   int
	recorded []string
	fail     func(what string) error
}

func (e *evidence) Sign(context.Context, attest.Statement) (attest.Signed, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.fail("sign"); err != nil {
		return attest.Signed{}, err
	}
	e.signed++
	return attest.Signed{}, nil
}

func (e *evidence) Record(context.Context, attest.Signed) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fail("record")
}

func (e *evidence) Keep(_ context.Context, compact string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recorded = append(e.recorded, compact)
	return e.fail("keep")
}

type metrics struct{}

func (metrics) Lifecycles(map[string]int) {}

// store is one that all replicas share, which fails when it is told to.
type store struct {
	*state.Entries

	fail func(what string) error
	old  []state.Entry // what is listed in place of what there is; nil: that
}

func (s *store) List(ctx context.Context, kind, group, after string, limit int) ([]state.Entry, error) {
	if kind == lifecycle.KindLifecycle && s.old != nil {
		return s.old, nil
	}
	return s.Entries.List(ctx, kind, group, after, limit)
}

func (s *store) Swap(ctx context.Context, key state.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	if key.Kind == lifecycle.KindLifecycle {
		if err := s.fail("before swap"); err != nil {
			return 0, false, err
		}
	}
	revision, ok, err := s.Entries.Swap(ctx, key, old, value, until)
	if key.Kind == lifecycle.KindLifecycle && err == nil {
		err = s.fail("after swap")
	}
	return revision, ok, err
}

func never(string) error { return nil }

// anyone may be a successor.
func anyone(context.Context, string, string) error { return nil }

// fleet makes replicas over one store.
func fleet(t *testing.T, e *evidence, fail func(string) error, names ...string) []*lifecycle.Service {
	t.Helper()
	memory, err := state.New(state.Config{}, state.Deps{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	e.fail = fail
	all := make([]*lifecycle.Service, len(names))
	for i, name := range names {
		if all[i], err = lifecycle.New(lifecycle.Deps{
			Entries: &store{memory.Entries(), fail, nil}, Evidence: func() lifecycle.Evidence { return e }, Metrics: metrics{},
			Identity: func(string) ect.Identity { return "spiffe://example.org/agent" }, Successor: anyone, Replica: name, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// order is one that waits neither for the notice nor for the grace.
func order(to states.Status) states.Order {
	return states.Order{
		To: to, Reason: "replaced", By: "ann", Successor: "https://example.org/next", At: time.Now(), Force: true, Now: to == states.Draining || to == states.Retired,
	}
}

// step lets every replica look at the records once.
func step(t *testing.T, all []*lifecycle.Service) {
	t.Helper()
	for _, s := range all {
		if err := s.Step(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestService_GracefulEnd: an agent that drains is retired when nothing is under way at any replica, in
// the order of the draft; then it stays retired.
func TestService_GracefulEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &evidence{}
		all := fleet(t, e, never, "one", "two")
		if _, warning, err := all[0].Change(t.Context(), "pricing", order(states.Draining)); err != nil || warning == "" {
			t.Fatalf("%q, %v", warning, err)
		}
		if got := all[0].Of("pricing"); got.Status != directory.Draining || got.Successor != "https://example.org/next" || got.SunsetAt.IsZero() {
			t.Errorf("where it was ordered: %+v", got)
		}
		leave := all[1].Enter("pricing")
		var steps []string
		look := func(seconds int) {
			for range seconds {
				step(t, all)
				time.Sleep(time.Second)
				for _, s := range all {
					r := s.Record("pricing")
					if now := string(r.Status) + " " + r.Step.String(); !slices.Contains(steps, now) {
						steps = append(steps, now)
					}
				}
			}
		}
		look(30)
		if r := all[0].Record("pricing"); r.Status != states.Draining || r.Step != states.Refusing || e.signed != 1 {
			t.Errorf("it is %s, %s, with %d tokens signed, while another replica works for it", r.Status, r.Step, e.signed)
		}
		leave()
		leave()
		look(30)
		if want := "draining announced, draining refusing, draining finished, draining ended, retired ended"; strings.Join(steps, ", ") != want {
			t.Errorf("it went through %q, want %q", strings.Join(steps, ", "), want)
		}
		if e.signed != 3 {
			t.Errorf("%d tokens were signed, want those of draining, of the shutdown and of retired", e.signed)
		}
		if _, _, err := all[1].Change(t.Context(), "pricing", order(states.Active)); err == nil {
			t.Error("a retired agent was made active")
		}
	})
}

// TestService_Grace: an agent that has finished is retired ten minutes later. Until then all replicas name the same
// moment, also one that has just started, and any of them takes the drain back.
func TestService_Grace(t *testing.T) {
	t.Parallel()
	for _, takenBack := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e := &evidence{}
			all := fleet(t, e, never, "one", "two")
			o := order(states.Draining)
			o.Now = false
			if _, _, err := all[0].Change(t.Context(), "pricing", o); err != nil {
				t.Fatal(err)
			}
			for range 10 {
				step(t, all)
				time.Sleep(time.Second)
			}
			finished := all[0].Record("pricing")
			if left := time.Until(finished.FinalAt); finished.Step != states.Finished || left < 9*time.Minute || left > states.Grace || all[1].Record("pricing") != finished {
				t.Fatalf("%+v and %+v, with %v left", finished, all[1].Record("pricing"), left)
			}
			time.Sleep(time.Until(finished.FinalAt) - time.Second)
			step(t, all)
			if r := all[1].Record("pricing"); r != finished || e.signed != 1 {
				t.Fatalf("a second before: %+v", r)
			}
			want := states.Retired
			if takenBack {
				want = states.Active
				if _, _, err := all[1].Change(t.Context(), "pricing", order(states.Active)); err != nil {
					t.Fatal(err)
				}
			}
			for range 5 {
				time.Sleep(time.Second)
				step(t, all)
			}
			if r := all[0].Record("pricing"); r.Status != want || r != all[1].Record("pricing") {
				t.Errorf("%+v, want %s", r, want)
			}
		})
	}
}

var errCut = errors.New("the process ends here")

// TestService_EndsAtEveryStep: a replica that ends at any point of a transition leaves either the old state or
// the new one; another replica announces what was written, records its evidence, and goes on.
func TestService_EndsAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"sign", "before swap", "after swap", "record"} {
		synctest.Test(t, func(t *testing.T) {
			cut := true
			e := &evidence{}
			all := fleet(t, e, func(what string) error {
				if cut && what == at {
					return errCut
				}
				return nil
			}, "one", "two")
			_, _, _ = all[0].Change(t.Context(), "pricing", order(states.Draining))
			cut = false
			written := at == "after swap" || at == "record"
			if err := all[1].Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := all[1].Record("pricing"); (got.Status == states.Draining) != written || written && got.Term != 1 {
				t.Errorf("%s: the other replica knows %+v", at, got)
			}
			for range 12 {
				if err := all[1].Step(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
			if got := all[1].Record("pricing"); (got.Status == states.Retired) != written {
				t.Errorf("%s: afterwards it is %+v", at, got)
			}
		})
	}
}

// TestService_OneOfManyOrders: of orders at the same time at several replicas, each is a transition after the
// one before it, or refused: the terms have no gap, and all replicas know the same in the end.
func TestService_OneOfManyOrders(t *testing.T) {
	t.Parallel()
	e := &evidence{}
	all := fleet(t, e, never, "one", "two", "three")
	var group sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for i := range 30 {
		group.Go(func() {
			to := []states.Status{states.Deprecated, states.Active}[i%2]
			if _, _, err := all[i%3].Change(t.Context(), "pricing", order(to)); err == nil {
				mu.Lock()
				made++
				mu.Unlock()
			}
		})
	}
	group.Wait()
	for _, s := range all {
		if err := s.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r := s.Record("pricing"); r.Term != uint64(made) || made == 0 {
			t.Errorf("term %d after %d transitions", r.Term, made)
		}
	}
}

// TestService_Configure: what a configuration orders is done once, however many replicas read
// it; it takes back its own deprecation alone, and what cannot be done yet is said.
func TestService_Configure(t *testing.T) {
	t.Parallel()
	e := &evidence{}
	all := fleet(t, e, never, "one", "two", "three")
	configured := func(to states.Status) map[string]states.Order {
		return map[string]states.Order{"pricing": {To: to, Reason: "replaced", By: states.Configuration}}
	}
	follow := func(to states.Status) (errs []error) {
		var group sync.WaitGroup
		var mu sync.Mutex
		for _, s := range all {
			group.Go(func() {
				if err := s.Configure(t.Context(), configured(to)); err != nil {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, err)
				}
			})
		}
		group.Wait()
		return errs
	}
	stands := func(status states.Status, term uint64) {
		t.Helper()
		for _, s := range all {
			if err := s.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			if r := s.Record("pricing"); r.Status != status || r.Term != term {
				t.Errorf("%s in term %d, expected %s in term %d", r.Status, r.Term, status, term)
			}
		}
	}
	if errs := follow(states.Deprecated); errs != nil {
		t.Errorf("deprecated: %v", errs)
	}
	stands(states.Deprecated, 1)
	if errs := follow(states.Draining); len(errs) != len(all) || !errors.As(errs[0], new(*states.TooSoonError)) || !strings.Contains(errs[0].Error(), `"pricing"`) {
		t.Errorf("draining before the notice is over: %v", errs)
	}
	if errs := follow(states.Active); errs != nil {
		t.Errorf("active: %v", errs)
	}
	stands(states.Active, 2)
	if _, _, err := all[0].Change(t.Context(), "pricing", order(states.Deprecated)); err != nil {
		t.Fatal(err)
	}
	if errs := follow(states.Active); errs != nil {
		t.Errorf("what an operator ordered: %v", errs)
	}
	stands(states.Deprecated, 3)
	if _, _, err := all[0].Change(t.Context(), "pricing", order(states.Draining)); err != nil {
		t.Fatal(err)
	}
	for _, to := range []states.Status{states.Active, states.Deprecated, states.Draining} {
		if errs := follow(to); errs != nil {
			t.Errorf("%s while an operator drains: %v", to, errs)
		}
	}
	stands(states.Draining, 4)
}

// TestService_ConfigureLeavesOperators: what an operator ordered is not changed by a configuration
// that is read again, also where this replica does not know of it yet.
func TestService_ConfigureLeavesOperators(t *testing.T) {
	t.Parallel()
	all := fleet(t, &evidence{}, never, "one", "two")
	orders := map[string]states.Order{"pricing": {To: states.Deprecated, Reason: "replaced", By: states.Configuration}}
	if err := all[0].Configure(t.Context(), orders); err != nil {
		t.Fatal(err)
	}
	if _, _, err := all[0].Change(t.Context(), "pricing", order(states.Active)); err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if err := s.Configure(t.Context(), orders); err != nil {
			t.Error(err)
		}
		step(t, all)
		if r := s.Record("pricing"); r.Status != states.Active || r.Term != 2 {
			t.Errorf("%s in term %d by %s", r.Status, r.Term, r.By)
		}
	}
}

// TestService_ConfiguredDrain: a drain that the configuration orders comes when the notice is over, and
// not before.
func TestService_ConfiguredDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fleet(t, &evidence{}, never, "one")[0]
		for _, to := range []states.Status{states.Deprecated, states.Draining} {
			_ = s.Configure(t.Context(), map[string]states.Order{"pricing": {To: to, Reason: "replaced", By: states.Configuration}})
		}
		for _, c := range []struct {
			after time.Duration
			want  states.Status
		}{{23 * time.Hour, states.Deprecated}, {2 * time.Hour, states.Retired}} {
			ctx, cancel := context.WithTimeout(t.Context(), c.after)
			s.Run(ctx)
			cancel()
			if r := s.Record("pricing"); r.Status != c.want {
				t.Errorf("after %v more: %s, expected %s", c.after, r.Status, c.want)
			}
		}
	})
}

// TestService_ConfiguredDates: a sunset that is over is now, and other dates of what was announced are
// refused in words.
func TestService_ConfiguredDates(t *testing.T) {
	t.Parallel()
	s := fleet(t, &evidence{}, never, "one")[0]
	past := states.Order{To: states.Deprecated, Reason: "replaced", By: states.Configuration, Sunset: time.Now().Add(-time.Hour)}
	for range 2 {
		if err := s.Configure(t.Context(), map[string]states.Order{"pricing": past}); err != nil {
			t.Error(err)
		}
	}
	if r := s.Record("pricing"); r.Status != states.Deprecated || time.Since(r.SunsetAt) > time.Minute {
		t.Errorf("%s with sunset %v", r.Status, r.SunsetAt)
	}
	later := past
	later.Sunset = time.Now().Add(time.Hour)
	if err := s.Configure(t.Context(), map[string]states.Order{"pricing": later}); err == nil || !strings.Contains(err.Error(), "sunset_at stay as they were said") {
		t.Errorf("another date: %v", err)
	}
}

// TestService_WorkOfAReplicaThatWasLate: a replica that has work and did not look at the records for some
// seconds keeps the agent from being retired.
func TestService_WorkOfAReplicaThatWasLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := fleet(t, &evidence{}, never, "one", "two")
		defer all[1].Enter("pricing")()
		if _, _, err := all[0].Change(t.Context(), "pricing", order(states.Draining)); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			step(t, all[:1])
			time.Sleep(time.Second)
		}
		step(t, all[1:])
		for range 10 {
			step(t, all[:1])
			time.Sleep(time.Second)
		}
		if r := all[0].Record("pricing"); r.Status != states.Draining {
			t.Errorf("it is %s", r.Status)
		}
	})
}

// TestService_LostRace: an order that another was faster than is not announced, not even here, and is
// judged once more after the other.
func TestService_LostRace(t *testing.T) {
	t.Parallel()
	var all []*lifecycle.Service
	faster := false
	e := &evidence{}
	all = fleet(t, e, func(what string) error {
		if what != "before swap" || faster {
			return nil
		}
		faster = true
		_, _, err := all[1].Change(t.Context(), "pricing", order(states.Draining))
		return err
	}, "one", "two")
	refused, _, err := all[0].Change(t.Context(), "pricing", order(states.Deprecated))
	if _, ok := errors.AsType[*states.TransitionError](err); !ok || refused.Status != states.Draining {
		t.Errorf("the slower order came to %+v, %v", refused, err)
	}
	if got := all[0].Record("pricing"); got.Status == states.Deprecated {
		t.Errorf("it is announced as %+v", got)
	}
}

// TestService_OldRecord: what a replica of the store has not heard of yet takes nothing back.
func TestService_OldRecord(t *testing.T) {
	t.Parallel()
	memory, err := state.New(state.Config{}, state.Deps{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	entries := &store{memory.Entries(), never, nil}
	s, err := lifecycle.New(lifecycle.Deps{
		Entries: entries, Evidence: func() lifecycle.Evidence { return &evidence{fail: never} }, Metrics: metrics{},
		Identity: func(string) ect.Identity { return "" }, Successor: anyone, Replica: "one", Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []states.Status{states.Deprecated, states.Draining} {
		if _, _, err := s.Change(t.Context(), "pricing", order(to)); err != nil {
			t.Fatal(err)
		}
		if entries.old == nil {
			if entries.old, err = memory.Entries().List(t.Context(), lifecycle.KindLifecycle, "agents", "", 10); err != nil || len(entries.old) != 1 {
				t.Fatalf("%v, %v", entries.old, err)
			}
		}
	}
	if err := s.Refresh(t.Context()); err != nil || s.Record("pricing").Status != states.Draining {
		t.Errorf("after an old list it is %s, %v", s.Record("pricing").Status, err)
	}
}

// TestService_HandOver: a replica that finds a transition which another one signed, and did not come to record,
// records its token, also if that fails at first, and once; then it takes the agent to its end.
func TestService_HandOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory, err := state.New(state.Config{}, state.Deps{Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		failing := true
		e := &evidence{fail: func(what string) error {
			if failing && what == "keep" {
				return &problem.RecordingError{Err: errCut}
			}
			return nil
		}}
		s, err := lifecycle.New(lifecycle.Deps{
			Entries: &store{memory.Entries(), never, nil}, Evidence: func() lifecycle.Evidence { return e }, Metrics: metrics{},
			Identity: func(string) ect.Identity { return "" }, Successor: anyone, Replica: "two", Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		record, _, err := states.Record{Agent: "pricing"}.Apply(order(states.Draining))
		if err != nil {
			t.Fatal(err)
		}
		record.Token = "signed.by.another"
		value, err := record.Encode()
		if err != nil {
			t.Fatal(err)
		}
		key := state.EntryKey{Kind: lifecycle.KindLifecycle, Group: "agents", ID: "agent pricing"}
		if _, ok, err := memory.Entries().Swap(t.Context(), key, 0, value, time.Now().Add(time.Hour)); !ok || err != nil {
			t.Fatal(ok, err)
		}
		for n := range 3 {
			failing = n == 0
			if err := s.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if want := []string{record.Token, record.Token}; !slices.Equal(e.recorded, want) {
			t.Errorf("recorded were %q, want one attempt that fails and one that does not", e.recorded)
		}
		for range 12 {
			step(t, []*lifecycle.Service{s})
			time.Sleep(time.Second)
		}
		if r := s.Record("pricing"); r.Status != states.Retired || e.signed != 2 {
			t.Errorf("it is %s, with %d tokens signed", r.Status, e.signed)
		}
	})
}

// TestService_OwnEnd: the gateway itself drains to its end as an agent does, when no work is left at any
// replica, for an agent or for a translation alone.
func TestService_OwnEnd(t *testing.T) {
	t.Parallel()
	for _, agent := range []string{"", "pricing"} {
		synctest.Test(t, func(t *testing.T) {
			e := &evidence{}
			all := fleet(t, e, never, "one", "two")
			if _, _, err := all[0].Change(t.Context(), "", order(states.Draining)); err != nil {
				t.Fatal(err)
			}
			leave := all[1].Enter(agent)
			look := func(status states.Status, at states.Step, signed int) {
				t.Helper()
				for range 30 {
					step(t, all)
					time.Sleep(time.Second)
				}
				for _, s := range all {
					if r := s.Record(""); r.Status != status || r.Step != at || e.signed != signed {
						t.Errorf("work for %q: the gateway is %s, %s, with %d tokens signed", agent, r.Status, r.Step, e.signed)
					}
				}
			}
			look(states.Draining, states.Refusing, 1)
			leave()
			look(states.Retired, states.Ended, 3)
		})
	}
}

// TestService_OwnRecord: the gateway itself has a record, which is not that of an agent.
func TestService_OwnRecord(t *testing.T) {
	t.Parallel()
	s := fleet(t, &evidence{}, never, "one")[0]
	if _, _, err := s.Change(t.Context(), "", order(states.Draining)); err != nil {
		t.Fatal(err)
	}
	if s.Record("").Admits().NewWork || !s.Record("pricing").Admits().NewWork || s.Of("pricing") != (directory.Lifecycle{}) {
		t.Errorf("own %+v, other %+v", s.Record(""), s.Record("pricing"))
	}
	var nothing *lifecycle.Service
	nothing.Enter("pricing")()
	if !nothing.Record("").Admits().NewWork {
		t.Error("without a service this gateway takes no work")
	}
}

// TestNew_IncompleteDeps: every dependency is required.
func TestNew_IncompleteDeps(t *testing.T) {
	t.Parallel()
	if _, err := lifecycle.New(lifecycle.Deps{}); err == nil {
		t.Error("a service without anything was made")
	}
}
