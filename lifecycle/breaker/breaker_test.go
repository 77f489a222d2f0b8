package breaker_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/lifecycle/breaker"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// after is a moment of a test.
func after(d time.Duration) time.Time { return start.Add(d) }

// report plays calls that were let through: s succeeds, f fails, u teaches nothing.
func report(c breaker.Config, b breaker.Breaker, at time.Time, calls string) (breaker.Breaker, breaker.Change) {
	var change breaker.Change
	for _, call := range calls {
		o := map[rune]breaker.Outcome{'s': breaker.Success, 'f': breaker.Failure, 'u': breaker.Unknown}[call]
		b, change = b.Report(c, at, o, false)
	}
	return b, change
}

// opened is a breaker that opened at the start.
func opened(t *testing.T, c breaker.Config) breaker.Breaker {
	t.Helper()
	b, change := report(c, breaker.Breaker{}, start, "fffff")
	if b.State() != breaker.Open || !change.Happened() {
		t.Fatalf("five failures: %s, want open", b.State())
	}
	return b
}

// probing is a breaker whose probe began as soon as it could.
func probing(t *testing.T, c breaker.Config) (breaker.Breaker, time.Time) {
	t.Helper()
	at := after(c.Cooldown)
	b, v, _ := opened(t, c).Ask(c, at)
	if !v.Probe || b.State() != breaker.HalfOpen {
		t.Fatalf("after the cool-down: %+v, %s, want a probe", v, b.State())
	}
	return b, at
}

// ATD-34: strictly above the threshold, and not before there are enough samples (R21).
func TestReport_Opens(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		threshold, least int
		calls            string
		failures, want   int // want: samples when it opens; 0: it stays closed
	}{
		"half":                    {500, 5, "ssssfffff"[:8], 0, 0},
		"half, then one failure":  {500, 5, "ssssfffff", 5, 9},
		"too few":                 {500, 5, "ffff", 0, 0},
		"enough":                  {500, 5, "fffff", 5, 5},
		"enough by a success":     {500, 5, "ffffs", 4, 5},
		"unknown is no sample":    {500, 5, "ffffuuuu", 0, 0},
		"the draft's letter":      {500, 1, "f", 1, 1},
		"a tenth":                 {100, 5, "sssssssssff", 2, 11},
		"a tenth, not above":      {100, 5, "sssssssssf", 0, 0},
		"one in a thousand":       {1, 5, "ssssf", 1, 5},
		"all, and may":            {1000, 5, "ffffffffff", 0, 0},
		"successes alone":         {1, 1, "ssssssssss", 0, 0},
		"a thousandth makes more": {333, 3, "ssf", 1, 3},
		"a thousandth less":       {334, 3, "ssf", 0, 0},
	} {
		c := breaker.Defaults()
		c.Threshold, c.MinSamples = row.threshold, row.least
		b, change := report(c, breaker.Breaker{}, start, row.calls)
		want := breaker.Change{}
		if row.want > 0 {
			want = breaker.Change{To: breaker.Open, Failures: row.failures, Samples: row.want, Window: c.Window, Cooldown: c.Cooldown}
		}
		if change != want || b.State() != want.To {
			t.Errorf("%s: %s, %+v, want %+v", name, b.State(), change, want)
		}
	}
}

// ATD-34: a sample counts for a window, less one sixtieth at most.
func TestReport_WindowSlides(t *testing.T) {
	t.Parallel()
	for _, size := range []time.Duration{time.Second, 7 * time.Second, time.Minute, time.Hour} {
		c := breaker.Defaults()
		c.Window = size
		for age, want := range map[time.Duration]breaker.State{
			0:                          breaker.Open,
			size / 2:                   breaker.Open,
			size - size/60 - 60:        breaker.Open, // a window is 60 buckets of whole nanoseconds
			size:                       breaker.Closed,
			size + 1:                   breaker.Closed,
			2 * size:                   breaker.Closed,
			200 * 365 * 24 * time.Hour: breaker.Closed,
		} {
			b, _ := report(c, breaker.Breaker{}, start, "ffff")
			if b, _ = report(c, b, after(age), "f"); b.State() != want {
				t.Errorf("window %s, four failures %s ago: %s, want %s", size, age, b.State(), want)
			}
		}
	}
}

// TestReport_ManySamples: the rate decides however many samples there are at one time: half
// that fail open nothing, and more do.
func TestReport_ManySamples(t *testing.T) {
	t.Parallel()
	c := breaker.Defaults()
	var b breaker.Breaker
	for range 100_000 {
		if b, _ = report(c, b, start, "sf"); b.State() != breaker.Closed {
			t.Fatal("half of the samples failed, which opened it")
		}
	}
	var change breaker.Change
	for range 100 {
		if b, change = b.Report(c, start, breaker.Failure, false); b.State() == breaker.Open {
			break
		}
	}
	if b.State() != breaker.Open || change.Failures*2 <= change.Samples || change.Samples < 10_000 {
		t.Errorf("%s with %d failures of %d", b.State(), change.Failures, change.Samples)
	}
}

func TestReport_NewWindowBeginsAnew(t *testing.T) {
	t.Parallel()
	c := breaker.Defaults()
	b, _ := report(c, breaker.Breaker{}, start, "ffff")
	c.Window = 30 * time.Second
	if b, _ = report(c, b, start, "ffff"); b.State() != breaker.Closed {
		t.Error("samples of another window opened it")
	}
	if b, _ = report(c, b, start, "f"); b.State() != breaker.Open {
		t.Error("five failures of the new window did not open it")
	}
}

// ATD-35, ATD-37: nothing passes before the cool-down is over, and then one call does.
func TestAsk_OneProbe(t *testing.T) {
	t.Parallel()
	c := breaker.Defaults()
	b := opened(t, c)
	for at, wait := range map[time.Duration]time.Duration{
		0: 30 * time.Second, 1: 30 * time.Second, time.Second: 29 * time.Second,
		29 * time.Second: time.Second, 30*time.Second - 1: time.Second,
	} {
		same, v, change := b.Ask(c, after(at))
		if want := (breaker.Verdict{Wait: wait}); v != want || change.Happened() || same != b {
			t.Errorf("%s after it opened: %+v, want %+v", at, v, want)
		}
	}
	b, at := probing(t, c)
	for range 99 {
		var v breaker.Verdict
		if b, v, _ = b.Ask(c, at); v != (breaker.Verdict{Wait: c.ProbeLimit}) {
			t.Fatalf("beside the probe: %+v", v)
		}
	}
}

// ATD-38: a probe that succeeds closes, and nothing of before counts any more.
func TestReport_ProbeSucceeds(t *testing.T) {
	t.Parallel()
	c := breaker.Defaults()
	b, at := probing(t, c)
	b, change := b.Report(c, at.Add(time.Second), breaker.Success, true)
	if want := (breaker.Change{From: breaker.HalfOpen, To: breaker.Closed, Cooldown: 30 * time.Second}); change != want {
		t.Errorf("got %+v, want %+v", change, want)
	}
	if b, _ = report(c, b, at.Add(time.Second), "ffff"); b.State() != breaker.Closed {
		t.Error("four failures after it closed opened it")
	}
	if _, change = report(c, b, at.Add(time.Second), "f"); change.Cooldown != 30*time.Second || change.FailedProbes != 0 {
		t.Errorf("it opened again with %+v, want the first cool-down", change)
	}
}

// ATD-39, ATD-59: 30, 60, 120, 240, 300, 300, and the third probe escalates, once.
func TestReport_ProbesFail(t *testing.T) {
	t.Parallel()
	c := breaker.Defaults()
	b, at := opened(t, c), start
	for i, seconds := range []int{30, 60, 120, 240, 300, 300, 300} {
		cooldown := time.Duration(seconds) * time.Second
		if got := b.Shared(); got.Cooldown != cooldown || !got.Until.Equal(at.Add(cooldown)) || got.FailedProbes != i {
			t.Fatalf("after %d probes: %+v, want %s from %s", i, got, cooldown, at)
		}
		_, early, _ := b.Ask(c, at.Add(cooldown-1))
		at = at.Add(cooldown)
		var v breaker.Verdict
		if b, v, _ = b.Ask(c, at); early.Pass || !v.Probe {
			t.Fatalf("probe %d: %+v before %s, %+v then", i+1, early, cooldown, v)
		}
		var change breaker.Change
		b, change = b.Report(c, at, breaker.Failure, true)
		want := breaker.Change{
			From: breaker.HalfOpen, To: breaker.Open, Failures: 1, Samples: 1, Window: c.Window,
			Cooldown: min(2*cooldown, c.MaxCooldown), FailedProbes: i + 1,
		}
		if change != want || breaker.Escalates(change) != (i == 2) {
			t.Errorf("probe %d: %+v, escalates %t, want %+v", i+1, change, breaker.Escalates(change), want)
		}
	}
}

// A probe that taught nothing is no failure, and no reason for one call after another.
func TestReport_ProbeUnknown(t *testing.T) {
	t.Parallel()
	c := breaker.Defaults()
	b, at := probing(t, c)
	b, change := b.Report(c, at, breaker.Unknown, true)
	if want := (breaker.Change{From: breaker.HalfOpen, To: breaker.Open, Cooldown: c.Cooldown}); change != want {
		t.Errorf("got %+v, want %+v", change, want)
	}
	if _, _, ok := change.Claims("spiffe://example.com/agent/b"); ok {
		t.Error("it has a token: a failure is claimed that there was not")
	}
	if _, v, _ := b.Ask(c, at.Add(time.Second-1)); v != (breaker.Verdict{Wait: time.Second}) {
		t.Errorf("within a second: %+v", v)
	}
	b, v, _ := b.Ask(c, at.Add(time.Second))
	if !v.Probe {
		t.Errorf("after a second: %+v, want the next probe", v)
	}
	if b, _ = b.Report(c, at.Add(time.Second), breaker.Failure, true); b.Shared().Cooldown != 2*c.Cooldown {
		t.Errorf("the next failure: %+v, want the first doubling", b.Shared())
	}
}

// A probe that is lost, or ends too late, has failed.
func TestAsk_ProbeLost(t *testing.T) {
	t.Parallel()
	c := breaker.Defaults()
	b, at := probing(t, c)
	limit := at.Add(c.ProbeLimit)
	if _, v, change := b.Ask(c, limit.Add(-1)); v.Pass || change.Happened() {
		t.Errorf("within the limit: %+v, %+v", v, change)
	}
	want := breaker.Change{
		From: breaker.HalfOpen, To: breaker.Open, Failures: 1, Samples: 1, Window: c.Window,
		Cooldown: 2 * c.Cooldown, FailedProbes: 1,
	}
	next, v, change := b.Ask(c, limit)
	if v != (breaker.Verdict{Wait: 2 * c.Cooldown}) || change != want {
		t.Errorf("at the limit: %+v, %+v, want %+v", v, change, want)
	}
	for _, o := range []breaker.Outcome{breaker.Success, breaker.Failure, breaker.Unknown} {
		want := want
		if o == breaker.Unknown { // its caller had left
			want = breaker.Change{From: breaker.HalfOpen, To: breaker.Open, Cooldown: c.Cooldown}
		}
		if _, change := b.Report(c, limit, o, true); change != want {
			t.Errorf("outcome %d at the limit: %+v, want %+v", o, change, want)
		}
		if same, change := next.Report(c, limit, o, true); same != next || change.Happened() {
			t.Errorf("outcome %d after it was given up: %+v", o, change)
		}
	}
}

// Calls that were let through before it opened say nothing about the agent of now.
func TestReport_Stragglers(t *testing.T) {
	t.Parallel()
	c := breaker.Defaults()
	half, at := probing(t, c)
	for _, b := range []breaker.Breaker{opened(t, c), half} {
		if same, change := report(c, b, at, "sssssffffffuuuuu"); same != b || change.Happened() {
			t.Errorf("%s: %+v", b.State(), change)
		}
	}
}

// A clock that is set back opens nothing, and what is open stays so for no longer than
// a cool-down.
func TestReport_TimeGoesBack(t *testing.T) {
	t.Parallel()
	c := breaker.Defaults()
	c.MinSamples = 1
	for _, back := range []time.Duration{1, time.Second, c.Window, c.Window + 1, time.Hour, 290 * 365 * 24 * time.Hour} {
		b, _ := report(c, breaker.Breaker{}, start, "s")
		b, change := report(c, b, after(-back), "f")
		if b, again := report(c, b, after(-back-1), "f"); b.State() != breaker.Closed || change.Happened() || again.Happened() {
			t.Errorf("%s back: %s", back, b.State())
		}
		if b, _ = report(c, b, start, "f"); b.State() != breaker.Open {
			t.Errorf("%s back and on: %s, want open", back, b.State())
		}
	}
	c = breaker.Defaults()
	b, v, _ := opened(t, c).Ask(c, after(-time.Hour))
	if v.Wait != c.Cooldown {
		t.Errorf("an hour back: %+v, want a cool-down", v)
	}
	if _, v, _ = b.Ask(c, after(c.Cooldown-time.Hour)); !v.Probe {
		t.Errorf("a cool-down later: %+v, want a probe", v)
	}
	b, _ = probing(t, c)
	if b, v, _ = b.Ask(c, after(-time.Hour)); v.Wait != c.ProbeLimit {
		t.Errorf("an hour back beside a probe: %+v, want its limit", v)
	}
	if b, _, _ = b.Ask(c, after(c.ProbeLimit-time.Hour)); b.State() != breaker.Open {
		t.Errorf("its limit later: %s, want open", b.State())
	}
}

// Neither an unchecked setting nor a time that nanoseconds cannot count is a panic.
func TestBreaker_NeverPanics(t *testing.T) {
	t.Parallel()
	times := []time.Time{{}, start, time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)}
	var b breaker.Breaker
	for _, c := range []breaker.Config{{}, breaker.Defaults(), {Threshold: -1, Window: -1, MinSamples: -1, Cooldown: -1, MaxCooldown: -1, ProbeLimit: -1}} {
		for _, at := range append(times, times...) {
			for o := range breaker.Unknown + 2 {
				b, _, _ = b.Ask(c, at)
				b, _ = b.Report(c, at, o, o == breaker.Failure)
				b, _ = b.Adopt(c, at, breaker.Shared{State: breaker.State(o), FailedProbes: -1, Cooldown: -1, At: at})
			}
		}
	}
}

func TestBreaker_Size(t *testing.T) {
	t.Parallel()
	if size := reflect.TypeFor[breaker.Breaker]().Size(); size > 1024 {
		t.Errorf("%d bytes, at most 1024", size)
	}
	if !reflect.TypeFor[breaker.Breaker]().Comparable() {
		t.Error("two of them cannot be compared")
	}
}

func TestState_String(t *testing.T) {
	t.Parallel()
	var got []string
	for s := range breaker.HalfOpen + 2 {
		got = append(got, s.String())
	}
	if diff := cmp.Diff([]string{"closed", "open", "half_open", "unknown"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestOpen_Counted: what its owner has counted opens a closed breaker by the rules of samples, and no other.
func TestOpen_Counted(t *testing.T) {
	t.Parallel()
	c := breaker.Defaults()
	for _, counted := range []struct {
		failures, samples int
		opens             bool
	}{{4, 4, false}, {3, 6, false}, {4, 6, true}, {5, 5, true}} {
		b, change := breaker.Breaker{}.Open(c, start, counted.failures, counted.samples)
		if change.Happened() != counted.opens || counted.opens && (change.Failures != counted.failures || change.Cooldown != c.Cooldown) {
			t.Errorf("%d of %d: %+v", counted.failures, counted.samples, change)
		}
		if again, change := b.Open(c, start, 9, 9); counted.opens && (change.Happened() || again != b) {
			t.Errorf("it is open: %+v", change)
		}
	}
	c.Threshold = 1000
	if _, change := (breaker.Breaker{}).Open(c, start, 9, 9); change.Happened() {
		t.Errorf("a threshold that no rate exceeds: %+v", change)
	}
}

// TestClose_Answered: an answer that its owner knows of closes a breaker that is not, with what was waited.
func TestClose_Answered(t *testing.T) {
	t.Parallel()
	c := breaker.Defaults()
	open, _ := breaker.Breaker{}.Open(c, start, 5, 5)
	want := breaker.Change{From: breaker.Open, To: breaker.Closed, Cooldown: c.Cooldown}
	closed, change := open.Close(start.Add(time.Second))
	if change != want || closed.State() != breaker.Closed {
		t.Errorf("%+v, want %+v", change, want)
	}
	if adopted, _ := open.Adopt(c, start, closed.Shared()); adopted.State() != breaker.Closed {
		t.Error("another replica keeps it open")
	}
	if same, change := closed.Close(start); same != closed || change.Happened() {
		t.Errorf("closed again: %+v", change)
	}
}

// ATD-41: while slow, probes are as far apart as the longest cool-down, until one succeeds.
func TestSlow_ProbesAtTheLongestCooldown(t *testing.T) {
	t.Parallel()
	c := breaker.Defaults()
	open := opened(t, c)
	half, probeAt := probing(t, c)
	for name, row := range map[string]struct {
		b    breaker.Breaker
		slow time.Duration   // when it becomes slow
		want []time.Duration // when it probes, as each probe fails at once
	}{
		"closed":        {breaker.Breaker{}, 0, nil},
		"open":          {open, 10 * time.Second, []time.Duration{300 * time.Second, 600 * time.Second, 900 * time.Second}},
		"open, and due": {open, 30 * time.Second, []time.Duration{300 * time.Second, 600 * time.Second}},
		"its probe is under way": {half, c.Cooldown, []time.Duration{
			probeAt.Sub(start) + c.ProbeLimit + 300*time.Second, probeAt.Sub(start) + c.ProbeLimit + 600*time.Second,
		}},
	} {
		b := row.b.Slow(c, after(row.slow))
		var got []time.Duration
		for at := row.slow; len(got) < len(row.want); at += time.Second {
			var v breaker.Verdict
			b = b.Slow(c, after(at)) // said again and again, it puts nothing off
			if b, v, _ = b.Ask(c, after(at)); v.Probe {
				got = append(got, at)
				b, _ = b.Report(c, after(at), breaker.Failure, true)
			}
			if at > time.Hour {
				t.Fatalf("%s: probes at %v within an hour", name, got)
			}
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if row.want == nil && b != (breaker.Breaker{}) {
			t.Errorf("%s: it is %+v", name, b.Shared())
		}
	}
}

// TestSlow_EndsWithClosed: the cool-down after a success is the first one again.
func TestSlow_EndsWithClosed(t *testing.T) {
	t.Parallel()
	c := breaker.Defaults()
	b, at := probing(t, c)
	b, _ = b.Slow(c, at).Report(c, at, breaker.Success, true)
	b, change := report(c, b, at, "fffff")
	if change.Cooldown != c.Cooldown || !b.Shared().Until.Equal(at.Add(c.Cooldown)) {
		t.Errorf("after a success it waits %s, until %s", change.Cooldown, b.Shared().Until)
	}
}

// TestSlow_Replicas: another replica adopts it.
func TestSlow_Replicas(t *testing.T) {
	t.Parallel()
	c := breaker.Defaults()
	b := opened(t, c)
	slow := b.Slow(c, start)
	if other, _ := b.Adopt(c, start, slow.Shared()); other.Shared() != slow.Shared() {
		t.Errorf("another replica has %+v, want %+v", other.Shared(), slow.Shared())
	}
}
