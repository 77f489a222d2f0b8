package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/ect"
	waits "github.com/aepb/aepb-gateway/gateway/schedule"
	"github.com/aepb/aepb-gateway/lifecycle/schedule"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counts are metrics.
type counts struct {
	mu     sync.Mutex
	places map[string]int // calls without a place, by reason
	waited []time.Duration
}

func (c *counts) Waited(_ string, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waited = append(c.waited, d)
}

func (c *counts) NoPlace(_, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.places[reason]++
}

func newScheduler(t *testing.T, places int) (*waits.Scheduler, *counts) {
	t.Helper()
	c := &counts{places: map[string]int{}}
	s, err := waits.New(waits.Deps{Now: time.Now, Metrics: c})
	if err != nil {
		t.Fatal(err)
	}
	s.Configure(ofPlaces(places))
	return s, c
}

func ofPlaces(n int) waits.Rules {
	return waits.Rules{Agents: map[string]schedule.Config{"a": {Places: n}}}
}

func call(class schedule.Class) waits.Call {
	return waits.Call{Agent: "a", Caller: "c", Class: class}
}

// enter takes a place that is free.
func enter(t *testing.T, s *waits.Scheduler) (leave func()) {
	t.Helper()
	leave, waited, err := s.Enter(t.Context(), call(schedule.Normal))
	if err != nil || waited != 0 {
		t.Fatalf("a free place took %s (%v)", waited, err)
	}
	return leave
}

// idle demands that no call of the agent waits and that its places are free.
func idle(t *testing.T, s *waits.Scheduler, places int) {
	t.Helper()
	if n := s.Waiting()["a"]; n != 0 {
		t.Errorf("%v calls wait", n)
	}
	for range places {
		defer enter(t, s)()
	}
}

// TestScheduler_NeverMoreThanItsPlaces: of many calls, some of which leave while they wait, never more than the places run
// at once, each gets a place unless it leaves, and in the end all places are free.
func TestScheduler_NeverMoreThanItsPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := newScheduler(t, 4)
		var running, most, ran, left atomic.Int64
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 1))
				<-time.After(time.Duration(r.IntN(2000)) * time.Millisecond)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i%3 == 0 {
					time.AfterFunc(time.Duration(r.IntN(1000))*time.Millisecond, cancel)
				}
				c := call(schedule.Class(1 + r.IntN(3)))
				c.Caller = fmt.Sprint(i)
				leave, _, err := s.Enter(ctx, c)
				if err != nil {
					if i%3 != 0 || !errors.Is(err, context.Canceled) {
						if _, full := errors.AsType[*schedule.FullError](err); !full {
							t.Errorf("call %d: %v", i, err)
						}
					}
					left.Add(1)
					return
				}
				if n := running.Add(1); n > most.Load() {
					most.Store(n)
				}
				<-time.After(50 * time.Millisecond)
				running.Add(-1)
				ran.Add(1)
				leave()
				leave() // changes nothing
			})
		}
		all.Wait()
		if most.Load() != 4 || ran.Load()+left.Load() != 200 || ran.Load() < 100 {
			t.Errorf("%d ran at once, %d in all, %d left", most.Load(), ran.Load(), left.Load())
		}
		idle(t, s, 4)
	})
}

// TestScheduler_CanceledCallLeavesTheQueue: a call whose caller leaves while it waits has no place and no place in the queue.
func TestScheduler_CanceledCallLeavesTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := newScheduler(t, 1)
		leave := enter(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, waited, err := s.Enter(ctx, call(schedule.High))
		if !errors.Is(err, context.DeadlineExceeded) || waited != time.Second {
			t.Errorf("waited %s, %v", waited, err)
		}
		if n := s.Waiting()["a"]; n != 0 {
			t.Errorf("%v calls wait", n)
		}
		leave()
		idle(t, s, 1)
	})
}

// TestScheduler_CriticalGivesUp: critical work without a place gives up after 60 s, and is counted (ATD, Unsatisfiable
// Resource Hints); a full queue refuses, and says whether its caller fills it.
func TestScheduler_CriticalGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := newScheduler(t, 1)
		leave := enter(t, s)
		_, waited, err := s.Enter(t.Context(), call(schedule.Critical))
		if gave, ok := errors.AsType[*schedule.ExhaustedError](err); !ok || gave.Agent != "a" || waited != time.Minute {
			t.Errorf("after %s: %v", waited, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() { _, _, _ = s.Enter(ctx, call(schedule.Normal)) })
		}
		synctest.Wait()
		_, _, err = s.Enter(t.Context(), call(schedule.Critical))
		if full, ok := errors.AsType[*schedule.FullError](err); !ok || !full.Own {
			t.Errorf("of a caller that fills its share: %v", err)
		}
		cancel()
		all.Wait()
		leave()
		idle(t, s, 1)
		if c.places[waits.ReasonExhausted] != 1 || c.places[waits.ReasonCaller] != 1 {
			t.Errorf("counted: %v", c.places)
		}
	})
}

// TestScheduler_Configure: more places, or no bound any more, hold at once for calls that wait; fewer places end no call.
func TestScheduler_Configure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := newScheduler(t, 1)
		first := enter(t, s)
		leaves := make(chan func(), 3)
		for range 3 {
			go func() {
				leave, _, err := s.Enter(t.Context(), call(schedule.Normal))
				if err != nil {
					t.Error(err)
				}
				leaves <- leave
			}()
		}
		expect := func(rules waits.Rules, waiting float64) {
			t.Helper()
			s.Configure(rules)
			synctest.Wait()
			if n := s.Waiting()["a"]; n != waiting {
				t.Errorf("%v calls wait, want %v", n, waiting)
			}
		}
		synctest.Wait()
		expect(ofPlaces(2), 2)
		expect(ofPlaces(1), 2)
		first()
		expect(ofPlaces(1), 2)
		expect(waits.Rules{}, 0)
		for range 3 {
			(<-leaves)()
		}
		s.Configure(ofPlaces(1))
		idle(t, s, 1)
	})
}

// TestScheduler_Due: one thing of one agent is reported at most once in 20 s, with how often it happened.
func TestScheduler_Due(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := newScheduler(t, 1)
		reports, total := 0, uint64(0)
		for range 61 {
			if count, due := s.Due("a", "degraded"); due {
				reports, total = reports+1, total+count
			}
			<-time.After(time.Second)
		}
		if reports != 4 || total != 61 {
			t.Errorf("%d reports of %d in a minute, want 4 of 61", reports, total)
		}
	})
}

// TestRules_Ceiling: the first priority that matches gives the class; callers without an identity match no pattern.
func TestRules_Ceiling(t *testing.T) {
	t.Parallel()
	r := waits.Rules{Priorities: []waits.Priority{
		{Callers: []ect.Identity{"spiffe://example.com/batch/*"}, Class: schedule.Low},
		{Callers: []ect.Identity{"spiffe://example.com/ops"}, Agents: []string{"pager"}, Class: schedule.Critical},
		{Agents: []string{"archive"}, Class: schedule.High},
	}}
	for _, c := range []struct {
		caller    ect.Identity
		anonymous bool
		agent     string
		want      schedule.Class
	}{
		{"spiffe://example.com/batch/1", false, "pager", schedule.Low},
		{"spiffe://example.com/batch/1", true, "pager", schedule.Normal},
		{"spiffe://example.com/ops", false, "pager", schedule.Critical},
		{"spiffe://example.com/ops", false, "other", schedule.Normal},
		{"spiffe://example.com/ops", true, "archive", schedule.High},
	} {
		if got := r.Ceiling(c.caller, c.anonymous, c.agent); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
}
