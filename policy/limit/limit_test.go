package limit_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/policy/limit"
)

func newLimiter(tb testing.TB, config limit.Config) *limit.Limiter {
	tb.Helper()
	l, err := limit.New(config, limit.Deps{})
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// take asks n times and counts what passes.
func take(l *limit.Limiter, key string, n int) (passed int) {
	for range n {
		if l.Allow(key).OK {
			passed++
		}
	}
	return passed
}

// AEPB-42: one source floods, the other is unaffected.
func TestAllow_OneSourceDoesNotStarveAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, limit.Config{Rate: 10, Burst: 5})
		flood, calm := limit.Identity("spiffe://a.test/flood"), limit.Identity("spiffe://a.test/calm")
		if got := take(l, flood, 1000); got != 5 {
			t.Errorf("the flood got %d requests through, want its burst of 5", got)
		}
		if got := take(l, calm, 5); got != 5 {
			t.Errorf("the calm source got %d of its 5", got)
		}
	})
}

func TestAllow_RateAndBurst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, limit.Config{Rate: 10, Burst: 5})
		key := limit.Identity("spiffe://a.test/x")
		passed := 0
		for range 100 { // ten seconds, asked twice as often as allowed and more
			passed += take(l, key, 3)
			time.Sleep(100 * time.Millisecond)
		}
		if want := 5 + 10*10; passed < want-2 || passed > want {
			t.Errorf("passed %d in 10 s, want rate×T + burst = %d", passed, want)
		}
	})
}

func TestAllow_RetryAfterIsExact(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, limit.Config{Rate: 0.5, Burst: 1})
		key := limit.Identity("spiffe://a.test/x")
		if d := l.Allow(key); !d.OK || d.Err() != nil {
			t.Fatalf("first request: %+v", d)
		}
		d := l.Allow(key)
		if d.OK || d.Scope != limit.ScopeIdentity {
			t.Fatalf("second request: %+v", d)
		}
		var exceeded *limit.ExceededError
		if !errors.As(d.Err(), &exceeded) || exceeded.RetryAfter != d.RetryAfter || exceeded.Scope != d.Scope {
			t.Errorf("Err: %v", d.Err())
		}
		if d.RetryAfter < 1999*time.Millisecond || d.RetryAfter > 2*time.Second {
			t.Errorf("retry after %v, want 2s", d.RetryAfter)
		}
		time.Sleep(d.RetryAfter - time.Millisecond)
		if l.Allow(key).OK {
			t.Error("passed before the announced time")
		}
		time.Sleep(2 * time.Millisecond)
		if !l.Allow(key).OK {
			t.Error("still refused after the announced time")
		}
	})
}

// Refused requests must not push the wait further out.
func TestAllow_RefusalsCostNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, limit.Config{Rate: 1, Burst: 1})
		key := limit.Address("192.0.2.1:5000")
		take(l, key, 500)
		time.Sleep(1001 * time.Millisecond)
		if !l.Allow(key).OK {
			t.Error("refused requests used up tokens")
		}
	})
}

func TestAllow_FullTableOverflows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, limit.Config{Rate: 1, Burst: 2, MaxSources: 3, Idle: time.Minute})
		for i := range 3 {
			take(l, limit.Address(fmt.Sprintf("192.0.2.%d", i)), 2)
		}
		invented := 0
		for i := range 1000 {
			d := l.Allow(limit.Address(fmt.Sprintf("2001:db8:0:%x::1", i)))
			if d.Scope != limit.ScopeOverflow {
				t.Fatalf("scope %s, want overflow", d.Scope)
			}
			if d.OK {
				invented++
			}
		}
		if invented != 2 {
			t.Errorf("1000 invented sources got %d through, want one burst of 2", invented)
		}
		if d := l.Allow(limit.Address("192.0.2.1")); d.OK || d.Scope != limit.ScopeAddress {
			t.Errorf("a remembered source was forgotten while active: %+v", d)
		}
		if d := l.Allow(limit.Identity("spiffe://a.test/x")); !d.OK || d.Scope != limit.ScopeIdentity {
			t.Errorf("a storm of addresses hit an identity: %+v", d)
		}
		if ids, addrs := l.Sources(); ids != 1 || addrs != 3 {
			t.Errorf("remembered %d identities and %d addresses, want 1 and 3", ids, addrs)
		}
	})
}

// A source is forgotten only when its bucket is full again, whatever Idle says.
func TestAllow_OnlyFullBucketsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, limit.Config{Rate: 1, Burst: 60, MaxSources: 1, Idle: time.Second})
		first := limit.Identity("spiffe://a.test/first")
		if got := take(l, first, 100); got != 60 {
			t.Fatalf("burst %d", got)
		}
		time.Sleep(30 * time.Second)
		if d := l.Allow(limit.Identity("spiffe://a.test/second")); d.Scope != limit.ScopeOverflow {
			t.Fatalf("second source displaced a half-empty bucket: %+v", d)
		}
		if got := take(l, first, 100); got < 29 || got > 30 {
			t.Errorf("after 30 s the first got %d through, want 30", got)
		}
		time.Sleep(60 * time.Second)
		if d := l.Allow(limit.Identity("spiffe://a.test/second")); d.Scope != limit.ScopeIdentity {
			t.Errorf("an idle source was not forgotten: %+v", d)
		}
	})
}

func TestKey_SameAndDifferentSources(t *testing.T) {
	t.Parallel()
	long := "spiffe://a.test/" + strings.Repeat("a", 5000)
	for name, tc := range map[string]struct {
		a, b string
		same bool
	}{
		"port":         {limit.Address("192.0.2.1:80"), limit.Address("192.0.2.1:81"), true},
		"no port":      {limit.Address("192.0.2.1:80"), limit.Address("192.0.2.1"), true},
		"mapped":       {limit.Address("[::ffff:192.0.2.1]:80"), limit.Address("192.0.2.1"), true},
		"one /64":      {limit.Address("[2001:db8:1:2:3:4:5:6]:80"), limit.Address("2001:db8:1:2::1"), true},
		"zone":         {limit.Address("[fe80::1%eth0]:80"), limit.Address("fe80::1%eth1"), true},
		"unreadable":   {limit.Address("@"), limit.Address("pipe"), true},
		"empty":        {limit.Address(""), limit.Address("pipe"), true},
		"hosts":        {limit.Address("192.0.2.1"), limit.Address("192.0.2.2"), false},
		"networks":     {limit.Address("2001:db8:1:2::1"), limit.Address("2001:db8:1:3::1"), false},
		"identities":   {limit.Identity("spiffe://a.test/a"), limit.Identity("spiffe://a.test/b"), false},
		"kinds":        {limit.Identity("192.0.2.1"), limit.Address("192.0.2.1"), false},
		"disguise":     {limit.Identity("ip:192.0.2.1"), limit.Address("192.0.2.1"), false},
		"long":         {limit.Identity(long + "1"), limit.Identity(long + "2"), false},
		"case matters": {limit.Identity("spiffe://a.test/a"), limit.Identity("spiffe://a.test/A"), false},
	} {
		if (tc.a == tc.b) != tc.same {
			t.Errorf("%s: %q and %q, want same: %v", name, tc.a, tc.b, tc.same)
		}
	}
	if n := len(limit.Identity(long)); n > 300 {
		t.Errorf("a key of %d bytes", n)
	}
}

func TestConfig_Refuses(t *testing.T) {
	t.Parallel()
	if _, err := limit.New(limit.Config{}, limit.Deps{}); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	for name, config := range map[string]limit.Config{
		"negative rate":  {Rate: -1},
		"too slow":       {Rate: 1e-9},
		"too fast":       {Rate: 1e12},
		"negative burst": {Burst: -1},
		"no sources":     {MaxSources: -1},
		"negative idle":  {Idle: -1},
	} {
		if _, err := limit.New(config, limit.Deps{}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Idle means since the last request, not since the first.
func TestAllow_ActiveSourcesStay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, limit.Config{Rate: 10, Burst: 10, MaxSources: 1, Idle: time.Minute})
		for range 5 {
			take(l, limit.Identity("spiffe://a.test/steady"), 1)
			time.Sleep(40 * time.Second)
		}
		if d := l.Allow(limit.Identity("spiffe://a.test/new")); d.Scope != limit.ScopeOverflow {
			t.Errorf("a source seen 40 s ago was forgotten: %+v", d)
		}
	})
}

// Under contention no token is spent twice.
func TestAllow_ConcurrentCallersShareOneBucket(t *testing.T) {
	t.Parallel()
	frozen := time.Unix(1_700_000_000, 0)
	l, err := limit.New(limit.Config{Rate: 1, Burst: 100}, limit.Deps{Now: func() time.Time { return frozen }})
	if err != nil {
		t.Fatal(err)
	}
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { passed.Add(int64(take(l, limit.Identity("spiffe://a.test/x"), 50))) })
	}
	wg.Wait()
	if got := passed.Load(); got != 100 {
		t.Errorf("%d passed, want exactly the burst of 100", got)
	}
}

// BenchmarkAllow_LocalBucket is the measurement behind the single lock (doc.go).
func BenchmarkAllow_LocalBucket(b *testing.B) {
	for _, sources := range []int{1, 1000} {
		b.Run(fmt.Sprintf("sources=%d", sources), func(b *testing.B) {
			l := newLimiter(b, limit.Config{Rate: 1e6, Burst: 1 << 20})
			keys := make([]string, sources)
			for i := range keys {
				keys[i] = limit.Identity(fmt.Sprintf("spiffe://a.test/agent/%d", i))
			}
			var next atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					l.Allow(keys[int(next.Add(1))%sources])
				}
			})
		})
	}
}

func TestReconfigure_KnownSource(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	l, err := limit.New(limit.Config{Rate: 1, Burst: 1}, limit.Deps{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	key := limit.Identity("spiffe://example.com/a")
	if !l.Allow(key).OK || l.Allow(key).OK {
		t.Fatal("burst of one")
	}
	if err := l.Reconfigure(limit.Config{Rate: 10, Burst: 5}); err != nil {
		t.Fatal(err)
	}
	now = now.Add(500 * time.Millisecond)
	for i := range 5 {
		if !l.Allow(key).OK {
			t.Errorf("request %d of a known source is refused at the new rate", i+1)
		}
	}
	if d := l.Allow(key); d.OK || d.RetryAfter > 100*time.Millisecond {
		t.Errorf("got %+v, want a refusal of at most 100 ms", d)
	}
	if err := l.Reconfigure(limit.Config{Rate: -1, Burst: 5}); err == nil {
		t.Error("a negative rate is accepted")
	}
	for i := range 5 {
		if !l.Allow(limit.Identity("spiffe://example.com/new")).OK {
			t.Errorf("request %d of a new source is refused after a bad change", i+1)
		}
	}
}
