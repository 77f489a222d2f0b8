package sample_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/gateway/sample"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a sampler on a clock that stands until it is moved.
type fixture struct {
	*sample.Sampler
	now time.Time
}

func newFixture(t testing.TB, config sample.Config) *fixture {
	t.Helper()
	b := &fixture{now: time.Unix(1_800_000_000, 0)}
	var err error
	if b.Sampler, err = sample.New(config, sample.Deps{Now: func() time.Time { return b.now }}); err != nil {
		t.Fatal(err)
	}
	return b
}

// flood notes n events and returns what was told.
func (b *fixture) flood(key sample.Key, n int) (notified []sample.Sample) {
	for range n {
		if s, ok := b.Note(key); ok {
			notified = append(notified, s)
		}
	}
	return notified
}

func key(source string) sample.Key { return sample.Key{Source: source, Reason: "rate"} }

// The first event is told at once, the flood behind it once per interval, and
// the sum is exact.
func TestSampler_OneSamplePerInterval(t *testing.T) {
	t.Parallel()
	b := newFixture(t, sample.Config{})
	if notified := b.flood(key("a"), 1000); len(notified) != 1 || notified[0].Count != 1 {
		t.Fatalf("the first second: %v", notified)
	}
	began := b.now
	b.now = b.now.Add(time.Second - time.Nanosecond)
	if notified := b.flood(key("a"), 1); notified != nil {
		t.Fatalf("too early: %v", notified)
	}
	b.now = b.now.Add(time.Nanosecond)
	notified := b.flood(key("a"), 10)
	if len(notified) != 1 || notified[0].Count != 1001 || !notified[0].Since.Equal(began) || notified[0].Key != key("a") {
		t.Fatalf("the second second: %+v", notified)
	}
	if left := b.Flush(9); len(left) != 1 || left[0].Count != 9 {
		t.Fatalf("left: %+v", left)
	}
	if left := b.Flush(9); left != nil {
		t.Fatalf("told twice: %+v", left)
	}
}

func TestSampler_SeparatesSourcesAndReasons(t *testing.T) {
	t.Parallel()
	b := newFixture(t, sample.Config{})
	for _, k := range []sample.Key{key("a"), key("b"), {Source: "a", Reason: "draining"}} {
		if notified := b.flood(k, 5); len(notified) != 1 || notified[0].Key != k {
			t.Errorf("%v: %v", k, notified)
		}
	}
}

// Many sources together get no more samples than the bound, however many there are.
func TestSampler_GlobalBound(t *testing.T) {
	t.Parallel()
	b := newFixture(t, sample.Config{Most: 4, MaxKeys: 10})
	notified := 0
	for i := range 1000 {
		notified += len(b.flood(key(fmt.Sprint(i)), 3))
	}
	if notified != 4 {
		t.Errorf("%d samples in one interval", notified)
	}
	b.now = b.now.Add(time.Second)
	if notified := b.flood(key("new"), 1); len(notified) != 1 {
		t.Error("no sample in the next interval")
	}
}

// A full table: newcomers share a row; one that is quiet makes room, and its
// count is not lost.
func TestSampler_FullTableSharesARow(t *testing.T) {
	t.Parallel()
	b := newFixture(t, sample.Config{MaxKeys: 2})
	b.flood(key("a"), 11) // one is told, ten wait
	b.flood(key("b"), 1)
	if notified := b.flood(key("c"), 1); len(notified) != 1 || notified[0].Key != key("") {
		t.Fatalf("the third source: %v", notified)
	}
	b.now = b.now.Add(time.Second)
	if notified := b.flood(key("c"), 1); len(notified) != 1 || notified[0].Key != key("c") {
		t.Fatalf("the third source, later: %v", notified)
	}
	left := b.Flush(9)
	if len(left) != 1 || left[0].Key != key("") || left[0].Count != 10 {
		t.Fatalf("what the first had counted: %v", left)
	}
}

// What could not be told is told with the next sample.
func TestReturn_CountedInNextSample(t *testing.T) {
	t.Parallel()
	b := newFixture(t, sample.Config{})
	notified := b.flood(key("a"), 3)
	began := b.now
	b.now = b.now.Add(time.Second)
	b.Return(notified[0])
	notified = b.flood(key("a"), 1)
	if len(notified) != 1 || notified[0].Count != 4 || !notified[0].Since.Equal(began) {
		t.Errorf("got %+v", notified)
	}
}

// The end tells everything, in few samples.
func TestFlush_AllCountsInFewSamples(t *testing.T) {
	t.Parallel()
	b := newFixture(t, sample.Config{Most: 1})
	sum := uint64(0)
	for i := range 100 {
		for _, s := range b.flood(key(fmt.Sprint(i)), 2) {
			sum += s.Count
		}
	}
	left := b.Flush(10)
	for _, s := range left {
		sum += s.Count
	}
	if len(left) != 11 || sum != 200 {
		t.Errorf("%d samples, %d events", len(left), sum)
	}
}

// Whatever happens and however many do it at once: every event is in exactly
// one sample.
func TestSampler_EveryEventInOneSample(t *testing.T) {
	t.Parallel()
	var clock atomic.Int64
	s, err := sample.New(sample.Config{Most: 3, MaxKeys: 5}, sample.Deps{Now: func() time.Time { return time.Unix(0, clock.Load()) }})
	if err != nil {
		t.Fatal(err)
	}
	const workers, each = 8, 5000
	var notified atomic.Uint64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(w)))
			for range each {
				clock.Add(int64(r.IntN(int(time.Millisecond))))
				got, ok := s.Note(key(fmt.Sprint(r.IntN(20))))
				switch {
				case ok && r.IntN(4) == 0:
					s.Return(got)
				case ok:
					notified.Add(got.Count)
				}
			}
		})
	}
	wg.Wait()
	for _, left := range s.Flush(2) {
		notified.Add(left.Count)
	}
	if notified.Load() != workers*each {
		t.Errorf("%d of %d", notified.Load(), workers*each)
	}
}

func TestNew_RefusesNegativeBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []sample.Config{{Every: -1}, {Most: -1}, {MaxKeys: -1}} {
		if _, err := sample.New(c, sample.Deps{}); err == nil {
			t.Errorf("accepted %+v", c)
		}
	}
}

// A flood costs a map look-up for each event and no memory.
func TestSampler_FloodAllocatesNothing(t *testing.T) {
	b := newFixture(t, sample.Config{})
	k := key("a")
	b.Note(k)
	if got := testing.AllocsPerRun(1000, func() { b.Note(k) }); got != 0 {
		t.Errorf("%v allocations for each event", got)
	}
}
