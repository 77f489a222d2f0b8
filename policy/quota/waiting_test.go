package quota_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/policy/quota"
)

func evenPool(t *testing.T, total, per int64) *quota.Pool {
	t.Helper()
	p, err := quota.New(quota.Config{Resource: "units", Total: total, PerHolder: per, Even: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// most is how much a holder gets at once.
func most(t *testing.T, p *quota.Pool, holder string) int64 {
	t.Helper()
	for n := int64(2720); n > 0; n-- {
		if _, err := p.Take(holder, n); err == nil {
			return n
		}
	}
	return 0
}

// TestPool_Even: whatever others hold, the next holder gets a part of what is left.
func TestPool_Even(t *testing.T) {
	t.Parallel()
	p := evenPool(t, 320, 170)
	for i, want := range []int64{170, 79, 37, 18, 8} {
		if got := most(t, p, fmt.Sprint(i)); got != want {
			t.Errorf("holder %d gets %d, expected %d", i, got, want)
		}
	}
}

// TestGrant_GrowWithinTakesTurns: of a holder that waits many times and one that waits once, each is
// served in its turn, and a large share comes although small ones are asked for all the time.
func TestGrant_GrowWithinTakesTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := evenPool(t, 320, 170)
		hold := func(holder string, n int64) time.Duration {
			began := time.Now()
			g, err := p.Take(holder, 0)
			if err == nil {
				err = g.GrowWithin(t.Context(), n)
			}
			if err != nil {
				t.Error(err)
			}
			waited := time.Since(began)
			time.Sleep(time.Second)
			g.Release()
			return waited
		}
		for range 100 {
			go hold("many", 120)
		}
		synctest.Wait()
		go func() {
			for range 500 {
				time.Sleep(10 * time.Millisecond)
				if g, err := p.Take("small", 60); err == nil {
					go func() { time.Sleep(time.Second); g.Release() }()
				}
			}
		}()
		if waited := hold("once", 120); waited > 2*time.Second {
			t.Errorf("a holder that asks once waited for %v behind one that asks a hundred times", waited)
		}
		time.Sleep(3 * time.Minute)
		if u := p.Usage(); u.Used != 0 {
			t.Errorf("%d units are still held", u.Used)
		}
	})
}

// TestGrant_GrowWithinEnds: who waits no more gets nothing, and what can never be granted is refused at once.
func TestGrant_GrowWithinEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := evenPool(t, 100, 50)
		first, err := p.Take("a", 50)
		if err != nil {
			t.Fatal(err)
		}
		second, err := p.Take("a", 0)
		if err != nil {
			t.Fatal(err)
		}
		wantExceeded(t, second.GrowWithin(t.Context(), 51), true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := second.GrowWithin(ctx, 10); !errors.Is(err, context.DeadlineExceeded) || p.Waiting("a") != 0 {
			t.Errorf("the error is %v, and %d wait", err, p.Waiting("a"))
		}
		go func() { time.Sleep(time.Second); first.Release() }()
		if err := second.GrowWithin(t.Context(), 50); err != nil || second.Current() != 50 {
			t.Errorf("it holds %d: %v", second.Current(), err)
		}
		second.Release()
		wantExceeded(t, second.GrowWithin(t.Context(), 1), true)
		if u := p.Usage(); u.Used != 0 || u.Holders != 0 {
			t.Errorf("usage %+v after all was released", u)
		}
	})
}

// TestPool_HolderOfMuchGetsLittle: nothing and little are granted to a holder that has more than its part,
// also while others wait.
func TestPool_HolderOfMuchGetsLittle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := evenPool(t, 5120, 2720)
		if _, err := p.Take("a", 2700); err != nil {
			t.Fatal(err)
		}
		if most(t, p, "b") == 0 {
			t.Fatal("another holder gets nothing")
		}
		waits, err := p.Take("c", 0)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = waits.GrowWithin(ctx, 2700) }()
		synctest.Wait()
		for _, n := range []int64{0, 1, 10} {
			if _, err := p.Take("a", n); err != nil {
				t.Errorf("%d units: %v", n, err)
			}
		}
		if _, err := p.Take("a", 1000); err == nil {
			t.Error("a holder of much gets much more while another waits")
		}
		cancel()
		synctest.Wait()
		if err := p.Reconfigure(quota.Config{Resource: "units", Total: 100, PerHolder: 50, Even: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Take("a", 0); err != nil {
			t.Errorf("nothing: %v", err)
		}
	})
}
