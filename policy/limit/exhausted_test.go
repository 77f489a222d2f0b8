package limit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/policy/limit"
)

// Exhausted asks without taking: a source that asks a thousand times has what it had.
func TestExhausted_TakesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, limit.Config{Rate: 1, Burst: 2})
		key := limit.Address("192.0.2.1")
		for range 1000 {
			if d := l.Exhausted(key); !d.OK {
				t.Fatalf("an unknown source is exhausted: %+v", d)
			}
		}
		if _, addresses := l.Sources(); addresses != 0 {
			t.Errorf("%d addresses are remembered, want none", addresses)
		}
		if got := take(l, key, 3); got != 2 {
			t.Errorf("%d requests passed, want the burst of 2", got)
		}
		d := l.Exhausted(key)
		if d.OK || d.Scope != limit.ScopeAddress || d.RetryAfter <= 0 || d.RetryAfter > time.Second || d.Err() == nil {
			t.Errorf("an empty bucket: %+v", d)
		}
		if d := l.Exhausted(limit.Identity("spiffe://a.test/x")); !d.OK || d.Err() != nil {
			t.Errorf("another source: %+v", d)
		}
		time.Sleep(time.Second)
		if d := l.Exhausted(key); !d.OK {
			t.Errorf("after a second: %+v", d)
		}
	})
}

// With buckets that replicas share, the last answer counts until it may have changed.
func TestExhausted_BelievesTheSharedBucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := replicas(t, &bucket{}, 2, limit.Config{Rate: 1, Burst: 3})[0]
		key := limit.Address("192.0.2.1")
		if got := take(l, key, 4); got != 3 {
			t.Fatalf("%d requests passed, want the burst of 3", got)
		}
		if d := l.Exhausted(key); d.OK || d.RetryAfter <= 0 {
			t.Errorf("an empty bucket: %+v", d)
		}
		time.Sleep(2 * time.Second)
		if d := l.Exhausted(key); !d.OK {
			t.Errorf("after two seconds: %+v", d)
		}
	})
}

// A Pass comes with a request that was taken, by an own bucket or a shared one, and with
// nothing else.
func TestPass_OnlyOfARequestThatWasTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		config := limit.Config{Rate: 1, Burst: 1}
		for name, l := range map[string]*limit.Limiter{"own": newLimiter(t, config), "shared": replicas(t, &bucket{}, 1, config)[0]} {
			key := limit.Address("192.0.2.1")
			if d := l.Exhausted(key); !d.OK || d.Pass.Valid() {
				t.Errorf("%s, only asked about: %+v", name, d)
			}
			if d := l.Allow(key); !d.OK || !d.Pass.Valid() {
				t.Errorf("%s, taken: %+v", name, d)
			}
			if d := l.Allow(key); d.OK || d.Pass.Valid() {
				t.Errorf("%s, refused: %+v", name, d)
			}
		}
	})
	if (limit.Pass{}).Valid() || (limit.Decision{OK: true}).Pass.Valid() {
		t.Error("a Pass from nowhere is valid")
	}
}
