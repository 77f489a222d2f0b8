package schedule_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/lifecycle/schedule"
)

var start = time.Unix(1_800_000_000, 0)

// TestParseClass_FourClasses: a priority is one of four texts (ATD, Priority Levels).
func TestParseClass_FourClasses(t *testing.T) {
	t.Parallel()
	for i, text := range schedule.Classes() {
		if c, ok := schedule.ParseClass(text); !ok || c != schedule.Critical-schedule.Class(i) || c.String() != text {
			t.Errorf("%s is %d (%v)", text, c, ok)
		}
	}
	for _, text := range []string{"", "Critical", "urgent", "low ", "0"} {
		if c, ok := schedule.ParseClass(text); ok || c != 0 {
			t.Errorf("%q is the class %s", text, c)
		}
	}
}

// TestEffective_HintsOnlyLower: no hint raises a class, and what is no class changes nothing.
func TestEffective_HintsOnlyLower(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ceiling schedule.Class
		hints   []schedule.Class
		want    schedule.Class
	}{
		{schedule.Normal, nil, schedule.Normal},
		{schedule.Normal, []schedule.Class{schedule.Critical}, schedule.Normal},
		{schedule.High, []schedule.Class{schedule.Normal, schedule.Low}, schedule.Low},
		{schedule.Critical, []schedule.Class{0, schedule.High}, schedule.High},
		{schedule.Critical, []schedule.Class{0}, schedule.Critical},
	} {
		if got := schedule.Effective(c.ceiling, c.hints...); got != c.want {
			t.Errorf("%s with %v is %s, want %s", c.ceiling, c.hints, got, c.want)
		}
	}
}

// TestPool_LowBeginsUnderEndlessCriticalLoad: low work begins within 300 s and the next free place, though critical work
// always waits (ATD, Fair-Share Scheduling item 3).
func TestPool_LowBeginsUnderEndlessCriticalLoad(t *testing.T) {
	t.Parallel()
	pool := schedule.NewPool(schedule.Config{Places: 2})
	running, began, id := []schedule.ID{}, time.Time{}, schedule.ID(1)
	note := func(e schedule.Effects, now time.Time) {
		running = append(running, e.Begin...)
		if slices.Contains(e.Begin, 1000) {
			began = now
		}
	}
	for second := range 400 {
		now := start.Add(time.Duration(second) * time.Second)
		for range 3 { // more than the agent does in a second
			note(pool.Submit(schedule.Job{ID: id, Caller: "many", Class: schedule.Critical, Came: now}, now), now)
			if id++; id == 1000 {
				id++
			}
		}
		if second == 10 {
			note(pool.Submit(schedule.Job{ID: 1000, Caller: "one", Class: schedule.Low, Came: now}, now), now)
		}
		note(pool.Done(running[0], now), now)
		running = running[1:]
	}
	if waited := began.Sub(start.Add(10 * time.Second)); began.IsZero() || waited != schedule.DefaultLongest {
		t.Errorf("low work began after %s, want %s", waited, schedule.DefaultLongest)
	}
}

// TestPool_EqualSharesOfWorkflows: a workflow with many jobs and one with few have equal shares of the places, and the
// first has the rest when the other one needs no more (ATD, Fair-Share Scheduling items 1 and 2).
func TestPool_EqualSharesOfWorkflows(t *testing.T) {
	t.Parallel()
	pool, of := schedule.NewPool(schedule.Config{Places: 4}), map[schedule.ID]string{}
	for i := range 20 {
		w := "many"
		if i >= 17 {
			w = "few"
		}
		of[schedule.ID(i)] = w
		pool.Submit(schedule.Job{ID: schedule.ID(i), Workflow: w, Caller: w, Class: schedule.Normal, Came: start}, start)
	}
	var order []string
	for i := range 16 {
		for _, id := range pool.Done(schedule.ID(i), start.Add(time.Second)).Begin {
			order = append(order, of[id])
		}
	}
	if want := []string{"few", "few", "many", "many"}; len(order) != 16 || !slices.Equal(order[:4], want) || order[15] != "few" {
		t.Errorf("began in the order %v, want %v first, and few once more", order, want)
	}
}

// TestPool_CallersShareOfTheQueue: a caller that fills its share of the queue is refused, and others are not.
func TestPool_CallersShareOfTheQueue(t *testing.T) {
	t.Parallel()
	pool := schedule.NewPool(schedule.Config{Places: 1})
	id, refused := schedule.ID(0), map[string]int{}
	for _, caller := range []string{"a", "a", "b", "c", "d", "e"} {
		for range 17 {
			id++
			if e := pool.Submit(schedule.Job{ID: id, Caller: caller, Class: schedule.Normal, Came: start}, start); e.Refused != 0 {
				refused[caller+strconv.Itoa(int(e.Refused))]++
			}
		}
	}
	want := map[string]int{"a2": 17, "b2": 1, "c2": 1, "d2": 1, "e1": 17}
	for key, n := range want {
		if refused[key] != n {
			t.Errorf("%s: %d refusals, want %d (all: %v)", key, refused[key], n, refused)
		}
	}
}

// TestPool_CriticalGivesUp: a critical job that has waited for 60 s leaves the queue, and one of another class does not
// (ATD, Unsatisfiable Resource Hints).
func TestPool_CriticalGivesUp(t *testing.T) {
	t.Parallel()
	pool := schedule.NewPool(schedule.Config{Places: 1})
	for id, class := range []schedule.Class{schedule.Normal, schedule.Critical, schedule.High} {
		pool.Submit(schedule.Job{ID: schedule.ID(id), Caller: "a", Class: class, Came: start}, start)
	}
	if e := pool.Tick(start.Add(schedule.GiveUp - 1)); len(e.Exhausted) != 0 {
		t.Errorf("gave up early: %v", e.Exhausted)
	}
	if e := pool.Tick(start.Add(schedule.GiveUp)); !slices.Equal(e.Exhausted, []schedule.ID{1}) || len(e.Begin) != 0 {
		t.Errorf("after 60 s: %+v, want that job 1 gives up", e)
	}
	if e := pool.Done(0, start.Add(schedule.GiveUp)); !slices.Equal(e.Begin, []schedule.ID{2}) {
		t.Errorf("the free place went to %v, want job 2", e.Begin)
	}
}

// TestConfig_QueueIsBounded: 32 jobs per place, at least 64 and at most 4096.
func TestConfig_QueueIsBounded(t *testing.T) {
	t.Parallel()
	for places, want := range map[int]int{1: 64, 2: 64, 4: 128, 5: 160, 128: 4096, 10_000: 4096} {
		if total, perCaller := (schedule.Config{Places: places}).Queue(); total != want || perCaller != want/4 {
			t.Errorf("%d places: a queue of %d, %d of one caller", places, total, perCaller)
		}
	}
}

func BenchmarkPool_FullQueue(b *testing.B) {
	pool, id := schedule.NewPool(schedule.Config{Places: 256}), schedule.ID(0)
	submit := func() {
		id++
		text := strconv.Itoa(int(id % 512))
		pool.Submit(schedule.Job{ID: id, Workflow: text, Caller: text, Class: schedule.Normal, Came: start}, start)
	}
	for range 256 + 4096 {
		submit()
	}
	b.ReportAllocs()
	runs := schedule.ID(0)
	for b.Loop() {
		runs++
		pool.Withdraw(runs, start)
		submit()
	}
}
