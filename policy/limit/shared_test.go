package limit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/policy/limit"
)

// bucket is a fake of the shared buckets, on the clock of package time.
type bucket struct {
	mu      sync.Mutex
	sources map[string]*level
	request atomic.Int64
	away    atomic.Bool
	slow    atomic.Int64 // how long it takes, in nanoseconds
}

// level is how full one bucket is; less than nothing: what it earns is leased already.
type level struct {
	tokens float64
	at     time.Time
}

func (b *bucket) Lease(ctx context.Context, source string, perSecond float64, burst, want int) (int, time.Duration, error) {
	b.request.Add(1)
	if slow := time.Duration(b.slow.Load()); slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
	}
	if b.away.Load() {
		return 0, 0, errors.New("away")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	l := b.sources[source]
	if l == nil {
		if b.sources == nil {
			b.sources = map[string]*level{}
		}
		l = &level{tokens: float64(burst), at: now}
		b.sources[source] = l
	}
	l.tokens, l.at = min(float64(burst), l.tokens+now.Sub(l.at).Seconds()*perSecond), now
	granted, wait := min(want, int(math.Floor(l.tokens+1e-9))), time.Duration(0)
	if granted < 1 {
		granted = max(0, min(want, int(math.Floor(l.tokens+limit.LeaseAhead.Seconds()*perSecond))))
		wait = time.Duration(math.Ceil((float64(max(granted, 1)) - l.tokens) / perSecond * 1e9))
	}
	l.tokens -= float64(granted)
	return granted, wait, nil
}

func replicas(t testing.TB, b limit.Bucket, n int, config limit.Config) []*limit.Limiter {
	t.Helper()
	config.Replicas = n
	all := make([]*limit.Limiter, n)
	for i := range all {
		l, err := limit.New(config, limit.Deps{Bucket: b})
		if err != nil {
			t.Fatal(err)
		}
		all[i] = l
	}
	return all
}

// R19: over any T seconds all replicas admit at most rate×T + burst + replicas×batch,
// and not much less when all of it is asked for.
func TestReplicas_ShareABucket(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rate            float64
		burst, replicas int
	}{{1000, 100, 3}, {300, 10, 5}, {5, 2, 3}, {10, 1, 2}} {
		t.Run(fmt.Sprintf("%v per second, %d replicas", tc.rate, tc.replicas), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const seconds = 10
				all := replicas(t, &bucket{}, tc.replicas, limit.Config{Rate: tc.rate, Burst: tc.burst})
				key := limit.Identity("spiffe://a.test/x")
				total, steps := 0, seconds*200
				perSecond := make([]int, seconds)
				for step := range steps {
					got := take(all[step%tc.replicas], key, int(tc.rate/50)+2)
					total += got
					perSecond[step/200] += got
					time.Sleep(time.Second / 200)
				}
				batch := max(1, int(tc.rate*0.1/float64(tc.replicas)))
				bound := func(seconds float64) int { return int(tc.rate*seconds) + tc.burst + tc.replicas*batch }
				if total > bound(seconds) || float64(total) < tc.rate*seconds*0.9 {
					t.Errorf("%d admitted in %d s, want at most %d", total, seconds, bound(seconds))
				}
				for i, got := range perSecond {
					if got > bound(1) {
						t.Errorf("%d admitted in second %d, want at most %d", got, i, bound(1))
					}
				}
			})
		})
	}
}

// arrivals are requests at one replica, some of them so close that they are at once,
// until the end of the test. They count what passes after from.
func arrivals(l *limit.Limiter, random *rand.Rand, perSecond float64, from, end time.Time) (passed int) {
	key := limit.Identity("spiffe://a.test/x")
	for time.Now().Before(end) {
		if l.Allow(key).OK && !time.Now().Before(from) {
			passed++
		}
		time.Sleep(time.Duration(random.ExpFloat64() / perSecond * 1e9))
	}
	return passed
}

// Finding F13: three replicas, of which callers ask for more than there is. Each admits
// its part of the whole within a fifth, over ten seconds, and nothing of the rate is
// lost, whatever rate and burst are, however fast the bucket answers, and whoever came
// first. Before, the first took it all for seconds, and a burst of 1 lost a sixth.
func TestReplicas_EachAdmitsItsFairPart(t *testing.T) {
	t.Parallel()
	const seconds, n = 10, 3
	for seed := range uint64(24) {
		random := rand.New(rand.NewPCG(seed, 13))
		perSecond := []float64{14, 20, 50, 200, 1000}[seed%5]
		burst := []int{1, 2, 10, int(perSecond) * 2}[seed%4]
		over := 1.5 + 3*random.Float64() // of what there is, in all
		synctest.Test(t, func(t *testing.T) {
			b := &bucket{}
			b.slow.Store(random.Int64N(int64(3 * time.Millisecond)))
			all := replicas(t, b, n, limit.Config{Rate: perSecond, Burst: burst})
			from := time.Now().Add(time.Duration(float64(burst)/(perSecond*(over-1))*1e9) + 5*time.Second) // the burst is used up
			end := from.Add(seconds * time.Second)
			var got [n]int
			var group sync.WaitGroup
			for i, l := range all {
				source := rand.New(rand.NewPCG(seed, uint64(i)))
				group.Go(func() {
					time.Sleep(time.Duration(i) * 300 * time.Millisecond)
					got[i] = arrivals(l, source, over*perSecond/n, from, end)
				})
			}
			group.Wait()
			total := got[0] + got[1] + got[2]
			batch := min(max(1, int(perSecond*0.1/n)), burst)
			if most, least := perSecond*seconds+n*float64(batch)+1, perSecond*seconds*0.95-n*float64(batch); float64(total) > most || float64(total) < least {
				t.Errorf("%v/s, burst %d, %.1f times over: %d admitted in %d s, want %.0f to %.0f", perSecond, burst, over, total, seconds, least, most)
			}
			for _, one := range got {
				if fair := float64(total) / n; math.Abs(float64(one)-fair) > fair/5+1 {
					t.Errorf("%v/s, burst %d, %.1f times over: %v admitted, want each within a fifth of %.0f", perSecond, burst, over, got, fair)
					break
				}
			}
		})
	}
}

// A replica that is asked for less than its part gets at least what it is asked for in
// the proportion of the whole, and what it leaves goes to the others.
func TestReplicas_LeasesFollowDemand(t *testing.T) {
	t.Parallel()
	for _, perSecond := range []float64{50, 1000} {
		synctest.Test(t, func(t *testing.T) {
			all := replicas(t, &bucket{}, 3, limit.Config{Rate: perSecond, Burst: 10})
			from := time.Now().Add(2 * time.Second)
			end := from.Add(10 * time.Second)
			demand := [3]float64{2 * perSecond, 2 * perSecond, perSecond / 10}
			var got [3]int
			var group sync.WaitGroup
			for i, l := range all {
				source := rand.New(rand.NewPCG(1, uint64(i)))
				group.Go(func() { got[i] = arrivals(l, source, demand[i], from, end) })
			}
			group.Wait()
			total := float64(got[0] + got[1] + got[2])
			if total < perSecond*10*0.97 || total > perSecond*10*1.02 {
				t.Errorf("%v/s: %v admitted in all, want %v", perSecond, total, perSecond*10)
			}
			if part := perSecond * 10 * demand[2] / (4.1 * perSecond); float64(got[2]) < part*0.8 || math.Abs(float64(got[0]-got[1])) > float64(got[0])/5 {
				t.Errorf("%v/s: %v admitted, want at least %.0f at the last and as much at each of the others", perSecond, got, part)
			}
		})
	}
}

// The pipeline asks once per lease, and not at all while the bucket is known to be empty.
func TestLease_SavesRoundTrips(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bucket{}
		l := replicas(t, b, 2, limit.Config{Rate: 1000, Burst: 1000})[0] // batches of 50
		key := limit.Identity("spiffe://a.test/x")
		if got := take(l, key, 200); got != 200 || b.request.Load() > 9 { // 2, 4, 8, 16, 32, then batches
			t.Errorf("%d passed with %d questions, want 200 with 9 at most", got, b.request.Load())
		}
		take(l, key, 5000)
		if requests := b.request.Load(); requests > 9+16+1 {
			t.Errorf("a source that floods an empty bucket asked %d times", requests)
		}
		if d := l.Allow(key); d.OK || d.RetryAfter <= 0 || d.Scope != limit.ScopeIdentity {
			t.Errorf("got %+v", d)
		}
	})
}

func TestLease_ExpiresAfterASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bucket{}
		l := replicas(t, b, 1, limit.Config{Rate: 100, Burst: 100})[0] // batches of 10
		key := limit.Identity("spiffe://a.test/x")
		take(l, key, 1)
		time.Sleep(999 * time.Millisecond)
		take(l, key, 1)
		if b.request.Load() != 1 {
			t.Error("a lease did not last")
		}
		time.Sleep(time.Millisecond)
		take(l, key, 1)
		if b.request.Load() != 2 {
			t.Error("a lease outlived its second")
		}
	})
}

// Without the shared buckets each replica admits its share, and a bucket that
// hangs costs the pipeline a tenth of a second once a second.
func TestReplicas_LocalShareWithoutSharedBucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bucket{}
		b.slow.Store(int64(time.Hour))
		all := replicas(t, b, 4, limit.Config{Rate: 40, Burst: 8})
		key := limit.Identity("spiffe://a.test/x")
		began := time.Now()
		passed := take(all[0], key, 50)
		if took := time.Since(began); passed != 2 || took != 100*time.Millisecond {
			t.Errorf("%d passed in %v, want 2 in 100ms", passed, took)
		}
		b.slow.Store(0)
		b.away.Store(true)
		passed = 0
		for range 100 { // ten seconds
			for _, l := range all {
				passed += take(l, key, 5)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if passed < 380 || passed > 408 {
			t.Errorf("%d admitted in 10 s by all replicas, want about 400", passed)
		}
		b.away.Store(false)
		time.Sleep(time.Second)
		before := b.request.Load()
		if take(all[0], key, 1); b.request.Load() == before {
			t.Error("buckets that are back are not asked again")
		}
	})
}

func TestReconfigure_SharedBucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := replicas(t, &bucket{}, 1, limit.Config{Rate: 1, Burst: 1})[0]
		if err := l.Reconfigure(limit.Config{Rate: 1000, Burst: 10, Replicas: 1}); err != nil {
			t.Fatal(err)
		}
		if got := take(l, limit.Identity("spiffe://a.test/x"), 20); got != 10 {
			t.Errorf("%d passed, want the new burst of 10", got)
		}
	})
	if err := (limit.Config{Replicas: -1}).WithDefaults().Validate(); err == nil {
		t.Error("fewer than one replica")
	}
}

// Sources without a table of their own share one bucket, and so do their replicas.
func TestReplicas_ShareTheOverflowBucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := replicas(t, &bucket{}, 2, limit.Config{Rate: 1, Burst: 3, MaxSources: 1})
		passed := 0
		for i, l := range all {
			l.Allow(limit.Address("192.0.2.1"))
			for n := range 20 {
				d := l.Allow(limit.Address(fmt.Sprintf("198.51.100.%d", i*20+n)))
				if d.Scope != limit.ScopeOverflow {
					t.Fatalf("scope %s", d.Scope)
				}
				if d.OK {
					passed++
				}
			}
		}
		if passed != 3 {
			t.Errorf("invented sources got %d through two replicas, want one burst of 3", passed)
		}
	})
}

// BenchmarkAllow_SharedBucket is BenchmarkAllow_LocalBucket with a lease that is seldom used up.
func BenchmarkAllow_SharedBucket(b *testing.B) {
	l := replicas(b, &bucket{}, 3, limit.Config{Rate: 1e8, Burst: 1 << 30})[0]
	key := limit.Identity("spiffe://a.test/agent")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.Allow(key)
		}
	})
}
