package breaker_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/lifecycle/breaker"
)

// steps are how many random steps the twins go: those of the environment variable
// AEPB_STEPS, as make chaos sets it, or enough for each test run.
func steps(t *testing.T) int {
	t.Helper()
	if text := os.Getenv("AEPB_STEPS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("AEPB_STEPS: %v, want a number of steps", err)
		}
		return n
	}
	return 50_000
}

// episode is one breaker, its twin, and what an onlooker without either must hold.
type episode struct {
	t      *testing.T
	random *rand.Rand
	c      breaker.Config
	b      breaker.Breaker
	twin   twin
	at     time.Time
	mood   int              // of ten calls, how many fail
	past   []breaker.Shared // of this replica and of others
	other  breaker.Breaker  // another replica
	trace  [24]moment       // the newest steps
	steps  int

	latest   time.Time // of all times so far
	probing  bool      // a probe of ours is under way, or was lost
	probeAt  time.Time
	sampleAt time.Time // of the newest call that counted; zero: not yet
}

// moment is one step of the trace.
type moment struct {
	at      time.Time
	name    string
	outcome breaker.Outcome
	isProbe bool
	shared  breaker.Shared
}

// TestBreaker_Twin goes random steps with the breaker and its dumb twin: states, verdicts
// and changes are equal, and the promises of watch hold, after each.
func TestBreaker_Twin(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(33, 59))
	seen := map[breaker.Change]int{}
	for left := steps(t); left > 0; {
		e := newEpisode(t, random)
		for range min(left, 10+random.IntN(90)) {
			change := e.step()
			seen[breaker.Change{From: change.From, To: change.To}]++
			left--
		}
	}
	for from := breaker.Closed; from <= breaker.HalfOpen; from++ {
		for to := breaker.Closed; to <= breaker.HalfOpen; to++ {
			if seen[breaker.Change{From: from, To: to}] == 0 {
				t.Errorf("never from %s to %s: the steps are too few or too tame", from, to)
			}
		}
	}
}

func newEpisode(t *testing.T, random *rand.Rand) *episode {
	t.Helper()
	second := func(list ...int) time.Duration { return time.Duration(list[random.IntN(len(list))]) * time.Second }
	c := breaker.Config{
		Threshold:   []int{1, 333, 500, 500, 500, 750, 1000}[random.IntN(7)],
		Window:      second(1, 7, 60, 60, 3600),
		MinSamples:  []int{1, 5, 5, 20}[random.IntN(4)],
		Cooldown:    second(1, 30, 30, 300),
		MaxCooldown: second(300, 300, 300),
		ProbeLimit:  second(1, 60, 3600),
	}
	if random.IntN(3) == 0 {
		c.MaxCooldown = c.Cooldown + second(0, 1, 45)
		c.MaxCooldown = min(c.MaxCooldown, 300*time.Second)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	at := start.Add(time.Duration(random.Int64N(int64(time.Hour))))
	return &episode{t: t, random: random, c: c, twin: twin{c: c}, at: at, latest: at}
}

// tick lets time pass: mostly little, sometimes to the nanosecond at which something is
// due, sometimes back.
func (e *episode) tick() {
	r := e.random
	switch r.IntN(20) {
	case 0, 1, 2, 3, 4, 5:
	case 6, 7, 8, 9, 10:
		e.at = e.at.Add(time.Duration(r.Int64N(int64(2 * time.Second))))
	case 11, 12:
		e.at = e.at.Add(time.Duration(r.Int64N(int64(e.c.Window))))
	case 13:
		e.at = e.at.Add(e.c.Window/60 + time.Duration(r.IntN(3)-1))
	case 14, 15, 16:
		if until := e.b.Shared().Until; until.After(e.at) {
			e.at = until.Add(time.Duration(r.IntN(3) - 1))
		}
	case 17:
		e.at = e.at.Add(time.Duration(r.Int64N(int64(10 * time.Minute))))
	case 18:
		e.at = e.at.Add(-time.Duration(r.IntN(3)))
	case 19:
		if r.IntN(4) == 0 {
			e.at = e.at.Add(-time.Duration(r.Int64N(int64(2 * e.c.Window))))
		}
	}
	if r.IntN(12) == 0 {
		e.mood = r.IntN(11)
	}
}

// step does one thing to both.
func (e *episode) step() breaker.Change {
	e.tick()
	before := e.b
	var verdict, twinVerdict breaker.Verdict
	var change, twinChange breaker.Change
	now := moment{at: e.at}
	switch n := e.random.IntN(20); {
	case n < 7:
		now.name = "ask"
		e.b, verdict, change = e.b.Ask(e.c, e.at)
		twinVerdict, twinChange = e.twin.ask(e.at)
	case n < 18:
		o := breaker.Success
		if e.random.IntN(10) < e.mood {
			o = breaker.Failure
		}
		if e.random.IntN(8) == 0 {
			o = breaker.Unknown
		}
		isProbe := e.probing && e.random.IntN(3) == 0 || e.random.IntN(40) == 0
		now.name, now.outcome, now.isProbe = "report", o, isProbe
		e.b, change = e.b.Report(e.c, e.at, o, isProbe)
		twinChange = e.twin.report(e.at, o, isProbe)
		e.watchReport(before, change, o, isProbe)
	case n == 18:
		now.name = "slow"
		e.b = e.b.Slow(e.c, e.at)
		e.twin.slow(e.at)
		change = breaker.Change{From: before.State(), To: e.b.State()}
		twinChange = change
		e.must(!change.Happened() && e.b.Slow(e.c, e.at) == e.b, "it slows once, and the state stays")
		e.must(e.b.State() == breaker.Closed || e.b.Shared().Cooldown == e.c.MaxCooldown, "what is slow waits longest")
	default:
		s := e.elsewhere()
		now.name, now.shared = "adopt", s
		e.b, change = e.b.Adopt(e.c, e.at, s)
		twinChange = e.twin.adopt(e.at, s)
		e.watchAdopt(before, s)
	}
	e.trace[e.steps%len(e.trace)] = now
	e.steps++
	e.past = append(e.past, e.b.Shared())
	if got, want := e.b.Shared(), e.twin.shared(); got != want || e.b.State() != want.State || verdict != twinVerdict || change != twinChange {
		e.fail("breaker %+v %+v %+v\ntwin    %+v %+v %+v", got, verdict, change, want, twinVerdict, twinChange)
	}
	e.watch(before, verdict, change)
	if e.at.After(e.latest) {
		e.latest = e.at
	}
	return change
}

// elsewhere is what another replica knows: it has adopted what we know, perhaps long
// ago, and gone on by itself; or it is news of the past.
func (e *episode) elsewhere() breaker.Shared {
	if n := len(e.past); n > 0 && e.random.IntN(3) == 0 {
		return e.past[e.random.IntN(n)]
	}
	if e.random.IntN(2) == 0 {
		e.other, _ = e.other.Adopt(e.c, e.at, e.b.Shared())
	}
	for range 6 {
		at := e.at.Add(time.Duration(e.random.Int64N(int64(2*e.c.Cooldown))) - e.c.Cooldown)
		var v breaker.Verdict
		e.other, v, _ = e.other.Ask(e.c, at)
		if e.random.IntN(3) > 0 {
			e.other, _ = e.other.Report(e.c, at, breaker.Outcome(e.random.IntN(3)), v.Probe)
		}
	}
	return e.other.Shared()
}

// watch knows nothing of the twin: these are the promises in words.
func (e *episode) watch(before breaker.Breaker, v breaker.Verdict, change breaker.Change) {
	was, is := before.Shared(), e.b.Shared()
	e.must(change.From == was.State && change.To == is.State, "a change says where it came from and went to")
	e.must(!is.At.Before(was.At) && (!change.Happened() || is.At.After(was.At) || is.At.Equal(was.At) && was.State != breaker.Open),
		"a change is newer than the one before")
	e.must(is.Cooldown <= e.c.MaxCooldown, "the cool-down is never above its maximum")
	e.must((is.State == breaker.Closed) == (is.Cooldown == 0), "a cool-down is there unless it is closed")
	e.must(v.Wait <= max(e.c.MaxCooldown, e.c.ProbeLimit), "a refusal asks for no more than the longest wait")
	e.must(v.Wait%time.Second == 0, "a wait is whole seconds")
	e.must(!v.Pass || v.Wait == 0, "what passes does not wait")
	e.must(!v.Probe || v.Pass && was.State == breaker.Open && is.State == breaker.HalfOpen, "a probe passes, and makes it half open")
	e.must(!v.Pass || v.Probe || was.State == breaker.Closed, "no call but the probe passes unless it is closed")
	if !e.at.Before(e.latest) {
		e.must(!v.Pass || was.State == breaker.Closed || !e.at.Before(was.Until), "no call passes while open before its time")
	}
	e.must(!v.Probe || !e.probing || !e.at.Before(e.probeAt.Add(e.c.ProbeLimit)) || e.at.Before(e.latest),
		"there is one probe at a time")
	if is.State != breaker.Closed {
		e.sampleAt = time.Time{}
	}
	switch {
	case v.Probe:
		e.probing, e.probeAt = true, e.at
	case is.State != breaker.HalfOpen:
		e.probing = false
	}
}

func (e *episode) watchReport(before breaker.Breaker, change breaker.Change, o breaker.Outcome, isProbe bool) {
	if change.To == breaker.Open && change.From == breaker.Closed {
		e.must(change.Samples >= e.c.MinSamples, "too few samples never open")
		e.must(change.Failures*1000 > e.c.Threshold*change.Samples, "it opens strictly above the threshold")
		e.must(change.Failures <= change.Samples && change.Failures > 0, "it opens by failures")
	}
	if before.State() != breaker.Closed && e.b.State() == breaker.Closed {
		e.must(o == breaker.Success && isProbe && before.State() == breaker.HalfOpen, "a probe that succeeded closes, and nothing else")
	}
	if before.State() != breaker.Closed && !isProbe {
		e.must(!change.Happened(), "a call from before it opened changes nothing")
	}
	if before.State() == breaker.Closed && o != breaker.Unknown {
		e.must(!e.at.Before(e.sampleAt) || !change.Happened(), "time that goes back opens nothing")
		e.sampleAt = e.at
	}
	if o == breaker.Unknown && before.State() == breaker.Closed {
		e.must(before == e.b, "what taught nothing counts nothing")
	}
}

func (e *episode) watchAdopt(before breaker.Breaker, s breaker.Shared) {
	if s.At.Before(before.Shared().At) {
		e.must(e.b.State() == before.State() && e.b.Shared().At.Equal(before.Shared().At), "what is older is not adopted")
	}
	if e.b.Shared().At.After(before.Shared().At) || e.b.State() != before.State() {
		e.must(e.b.State() == s.State, "what is adopted is what the other knows")
		e.probing = false // another replica decides now
	}
}

func (e *episode) must(holds bool, promise string) {
	if !holds {
		e.fail("broken: %s", promise)
	}
}

func (e *episode) fail(format string, args ...any) {
	e.t.Helper()
	e.t.Errorf(format, args...)
	for i := range e.trace {
		e.t.Logf("%+v", e.trace[(e.steps+i)%len(e.trace)])
	}
	e.t.Fatalf("settings %+v", e.c)
}
