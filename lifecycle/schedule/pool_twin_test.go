package schedule_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/lifecycle/schedule"
)

// twin finds out what begins by the rules as doc.go has them: it counts and sorts all jobs afresh each time.
type twin struct {
	config schedule.Config
	jobs   []twinJob // that wait or run, the oldest first
}

type twinJob struct {
	schedule.Job

	runs bool
}

func (w *twin) count(holds func(twinJob) bool) (n int) {
	for _, j := range w.jobs {
		if holds(j) {
			n++
		}
	}
	return n
}

func (w *twin) running() int { return w.count(func(j twinJob) bool { return j.runs }) }

// beside is how many jobs run that share with a job.
func (w *twin) beside(job twinJob) int {
	return w.count(func(j twinJob) bool {
		return j.runs && j.Workflow == job.Workflow && (job.Workflow != "" || j.Caller == job.Caller)
	})
}

// ofCaller is how many jobs of the caller of a job run.
func (w *twin) ofCaller(job twinJob) int {
	return w.count(func(j twinJob) bool { return j.runs && j.Caller == job.Caller })
}

func (w *twin) remove(id schedule.ID) {
	w.jobs = slices.DeleteFunc(w.jobs, func(j twinJob) bool { return j.ID == id })
}

// tick ends what gives up, and begins what has a place, one job after the other.
func (w *twin) tick(now time.Time) (out schedule.Effects) {
	for _, j := range slices.Clone(w.jobs) {
		if !j.runs && j.Class == schedule.Critical && !now.Before(j.Came.Add(60*time.Second)) {
			out.Exhausted = append(out.Exhausted, j.ID)
			w.remove(j.ID)
		}
	}
	for w.running() < w.config.Places {
		waiting := slices.DeleteFunc(slices.Clone(w.jobs), func(j twinJob) bool { return j.runs })
		if len(waiting) == 0 {
			break
		}
		slices.SortStableFunc(waiting, func(a, b twinJob) int {
			lateA, lateB := !now.Before(a.Came.Add(w.config.Longest)), !now.Before(b.Came.Add(w.config.Longest))
			switch {
			case lateA && lateB:
				return 0
			case lateA:
				return -1
			case lateB:
				return 1
			case a.Class != b.Class:
				return int(b.Class) - int(a.Class)
			}
			return cmp.Or(w.beside(a)-w.beside(b), w.ofCaller(a)-w.ofCaller(b))
		})
		at := slices.IndexFunc(w.jobs, func(j twinJob) bool { return j.ID == waiting[0].ID })
		w.jobs[at].runs = true
		out.Begin = append(out.Begin, waiting[0].ID)
	}
	return out
}

func (w *twin) submit(job schedule.Job, now time.Time) schedule.Effects {
	out := w.tick(now)
	queue := min(max(32*w.config.Places, 64), 4096)
	waits := w.count(func(j twinJob) bool { return !j.runs })
	ofCaller := w.count(func(j twinJob) bool { return !j.runs && j.Caller == job.Caller })
	switch {
	case w.running() < w.config.Places:
	case ofCaller >= queue/4:
		out.Refused = schedule.CallerFull
		return out
	case waits >= queue:
		id, found := w.lowest(job.Class, now)
		if !found {
			out.Refused = schedule.QueueFull
			return out
		}
		out.Displaced = append(out.Displaced, id)
		w.remove(id)
	}
	w.jobs = append(w.jobs, twinJob{Job: job})
	more := w.tick(now)
	out.Begin = append(out.Begin, more.Begin...)
	return out
}

// lowest is the job that gives way to one of a class in a full queue.
func (w *twin) lowest(class schedule.Class, now time.Time) (schedule.ID, bool) {
	may := slices.DeleteFunc(slices.Clone(w.jobs), func(j twinJob) bool {
		return j.runs || j.Class >= class || !now.Before(j.Came.Add(w.config.Longest))
	})
	if len(may) == 0 {
		return 0, false
	}
	slices.SortStableFunc(may, func(a, b twinJob) int { return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(b.ID, a.ID)) })
	return may[0].ID, true
}

// TestTwin_PoolFollowsItsRules: over random events the pool does what its twin does; never more jobs run than there are
// places, no job is lost or begins twice, no place is free while a job waits, and a job that is late begins before every
// younger one. AEPB_STEPS is the number of sequences.
func TestTwin_PoolFollowsItsRules(t *testing.T) {
	t.Parallel()
	sequences := 50_000
	if n, err := strconv.Atoi(os.Getenv("AEPB_STEPS")); err == nil {
		sequences = max(n, sequences)
	}
	seen := map[string]int{}
	for seed := range sequences {
		play(t, rand.New(rand.NewPCG(uint64(seed), 7)), seen)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for _, what := range []string{"begins after a wait", "exhausted", "withdrawn", "refused 1", "refused 2", "late", "displaced", "share counts", "reconfigured"} {
		if seen[what] < 50 {
			t.Errorf("%q came to pass %d times only: expected at least 50", what, seen[what])
		}
	}
}

// play plays one sequence.
func play(t *testing.T, r *rand.Rand, seen map[string]int) {
	t.Helper()
	config := schedule.Config{Places: 1 + r.IntN(5), Longest: time.Duration(1+r.IntN(120)) * time.Second}
	pool, w := schedule.NewPool(config), &twin{config: config}
	now, last, state := time.Unix(1_800_000_000, 0), schedule.ID(0), map[schedule.ID]string{}
	callers, steps := 1+r.IntN(8), 10+r.IntN(30)
	if r.IntN(200) == 0 {
		steps = 400 // so that queues fill
	}
	for range steps {
		now = now.Add(time.Duration(r.IntN(20)) * time.Second / time.Duration(1+r.IntN(20)))
		var got, want schedule.Effects
		late, job := w.late(now), schedule.Job{}
		pick := func() schedule.ID {
			if len(w.jobs) == 0 {
				return last + 1
			}
			return w.jobs[r.IntN(len(w.jobs))].ID
		}
		switch n := r.IntN(20); {
		case n < 13 || steps == 400 && n < 18:
			last++
			job = schedule.Job{
				ID: last, Workflow: []string{"", "v", "w", "x"}[r.IntN(4)], Caller: fmt.Sprint("c", r.IntN(callers)), Class: schedule.Class(1 + r.IntN(4)), Came: now,
			}
			got, want = pool.Submit(job, now), w.submit(job, now)
			state[last] = "waits"
			if got.Refused != 0 {
				state[last] = "refused"
				seen[fmt.Sprint("refused ", got.Refused)]++
			}
		case n < 15:
			id := pick()
			got = pool.Withdraw(id, now)
			w.remove(id)
			want = w.tick(now)
			state[id] = "over"
			seen["withdrawn"]++
		case n < 18:
			id := pick()
			runs := slices.ContainsFunc(w.jobs, func(j twinJob) bool { return j.ID == id && j.runs })
			got = pool.Done(id, now)
			if runs {
				w.remove(id)
				state[id] = "over"
			}
			want = w.tick(now)
		case n < 19:
			w.config.Places = 1 + r.IntN(5)
			got, want = pool.Configure(w.config, now), w.tick(now)
			seen["reconfigured"]++
		default:
			got, want = pool.Tick(now), w.tick(now)
		}
		if !slices.Equal(got.Begin, want.Begin) || !slices.Equal(got.Exhausted, want.Exhausted) || !slices.Equal(got.Displaced, want.Displaced) || got.Refused != want.Refused {
			t.Errorf("got %+v, want %+v", got, want)
			return
		}
		for _, id := range got.Begin {
			if state[id] != "waits" {
				t.Errorf("job %d, which %s, begins", id, state[id])
			}
			if state[id] = "runs"; id != job.ID {
				seen["begins after a wait"]++
			}
			if i := slices.Index(late, id); i > 0 {
				t.Errorf("late job %d begins before the older late job %d", id, late[0])
			} else if i == 0 {
				late = late[1:]
				seen["late"]++
			} else if len(late) > 0 && !slices.Contains(got.Exhausted, late[0]) {
				t.Errorf("job %d begins before job %d, which has waited for the longest wait", id, late[0])
			}
		}
		for _, id := range got.Displaced {
			state[id] = "over"
			seen["displaced"]++
		}
		for _, id := range got.Exhausted {
			state[id] = "over"
			seen["exhausted"]++
		}
		judge(t, pool, w, seen)
	}
}

// late are the jobs that have waited for the longest wait and do not give up now, the oldest first.
func (w *twin) late(now time.Time) (ids []schedule.ID) {
	for _, j := range w.jobs {
		if waited := now.Sub(j.Came); !j.runs && waited >= w.config.Longest && (j.Class != schedule.Critical || waited < schedule.GiveUp) {
			ids = append(ids, j.ID)
		}
	}
	return ids
}

// judge checks what holds after every event.
func judge(t *testing.T, pool *schedule.Pool, w *twin, seen map[string]int) {
	t.Helper()
	waiting, running := pool.Len()
	if running != w.running() || waiting != len(w.jobs)-running {
		t.Errorf("%d jobs wait and %d run, want %d and %d", waiting, running, len(w.jobs)-w.running(), w.running())
	}
	if waiting > 0 && running < w.config.Places {
		t.Errorf("%d jobs wait and only %d of %d places are taken", waiting, running, w.config.Places)
	}
	if _, perCaller := w.config.Queue(); waiting > perCaller {
		seen["share counts"]++
	}
}
