package quota_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/aepb/aepb-gateway/policy/quota"
)

func newPool(t *testing.T, total, per int64) *quota.Pool {
	t.Helper()
	p, err := quota.New(quota.Config{Resource: "units", Total: total, PerHolder: per})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func wantExceeded(t *testing.T, err error, own bool) {
	t.Helper()
	exceeded, ok := errors.AsType[*quota.ExceededError](err)
	if !ok || exceeded.Own != own {
		t.Fatalf("error %v, want an ExceededError with Own %v", err, own)
	}
}

func TestPool_HolderAtItsLimitIsRefusedAndOthersAreNot(t *testing.T) {
	t.Parallel()
	p := newPool(t, 100, 10)
	grant, err := p.Take("a", 10)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Take("a", 1)
	wantExceeded(t, err, true)
	wantExceeded(t, grant.Grow(1), true)
	if _, err := p.Take("b", 10); err != nil {
		t.Errorf("another holder is refused: %v", err)
	}
	grant.Release()
	grant.Release()
	if _, err := p.Take("a", 10); err != nil {
		t.Errorf("after a release: %v", err)
	}
	if u := p.Usage(); u.Used != 20 || u.Holders != 2 {
		t.Errorf("usage %+v, want 20 units of 2 holders", u)
	}
}

func TestPool_LastQuarterIsKeptForHoldersOfLittle(t *testing.T) {
	t.Parallel()
	p := newPool(t, 128, 32)
	for i := range 3 {
		if _, err := p.Take(fmt.Sprint("large", i), 32); err != nil {
			t.Fatal(err)
		}
	}
	_, err := p.Take("fourth", 32)
	wantExceeded(t, err, false)
	for i := range 8 {
		if _, err := p.Take(fmt.Sprint("small", i), 4); err != nil {
			t.Errorf("a holder of little is refused: %v", err)
		}
	}
	_, err = p.Take("late", 1)
	wantExceeded(t, err, false)
}

func TestPool_ReleasedGrantDoesNotGrow(t *testing.T) {
	t.Parallel()
	p := newPool(t, 10, 10)
	grant, err := p.Take("a", 1)
	if err != nil {
		t.Fatal(err)
	}
	grant.Release()
	wantExceeded(t, grant.Grow(1), true)
	if u := p.Usage(); u.Used != 0 || u.Holders != 0 {
		t.Errorf("usage %+v, want nothing held", u)
	}
}

func TestPool_NegativeAndHugeSharesAreRefused(t *testing.T) {
	t.Parallel()
	p := newPool(t, 10, 10)
	_, err := p.Take("a", -1)
	wantExceeded(t, err, true)
	_, err = p.Take("a", 1<<62)
	wantExceeded(t, err, true)
}

func TestPool_BoundsHoldUnderConcurrency(t *testing.T) {
	t.Parallel()
	p := newPool(t, 64, 16)
	var all sync.WaitGroup
	for worker := range 16 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 1))
			for range 2000 {
				grant, err := p.Take(fmt.Sprint(worker%6), random.Int64N(9))
				if err != nil {
					continue
				}
				_ = grant.Grow(random.Int64N(4))
				if u := p.Usage(); u.Used > u.Total || u.Used < 0 {
					t.Errorf("used %d of %d", u.Used, u.Total)
				}
				grant.Release()
			}
		})
	}
	all.Wait()
	if u := p.Usage(); u.Used != 0 || u.Holders != 0 {
		t.Errorf("usage %+v, want nothing held", u)
	}
}

func TestPool_GrantOfNothing(t *testing.T) {
	t.Parallel()
	p := newPool(t, 64, 16)
	grant, err := p.Take("a", 0)
	if err != nil {
		t.Fatal(err)
	}
	if u := p.Usage(); u.Holders != 0 {
		t.Errorf("usage %+v, want no holder", u)
	}
	grant.Release()
	if u := p.Usage(); u.Used != 0 || u.Holders != 0 {
		t.Errorf("usage %+v afterwards, want nothing held", u)
	}
}

func TestConfig_BoundsThatBoundNothingAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []quota.Config{{Total: 1}, {Resource: "units"}, {Resource: "units", Total: 1, PerHolder: 2}, {Resource: "units", Total: 1, PerHolder: -1}} {
		if _, err := quota.New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

func TestPool_NewBoundsHoldFromNowOn(t *testing.T) {
	t.Parallel()
	p := newPool(t, 10, 10)
	grant, err := p.Take("a", 5)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Reconfigure(quota.Config{Resource: "units", Total: 8, PerHolder: 4}); err != nil {
		t.Fatal(err)
	}
	if err := p.Reconfigure(quota.Config{Resource: "units"}); err == nil {
		t.Error("bounds that bound nothing are taken")
	}
	wantExceeded(t, grant.Grow(1), true)
	grant.Shrink(2)
	if u := p.Usage(); u.Used != 3 || u.Total != 8 {
		t.Errorf("usage %+v, want 3 of 8", u)
	}
	if err := grant.Grow(1); err != nil {
		t.Errorf("below the new limit: %v", err)
	}
	grant.Shrink(100)
	grant.Shrink(-1)
	grant.Release()
	grant.Shrink(1)
	if u := p.Usage(); u.Used != 0 || u.Holders != 0 {
		t.Errorf("usage %+v, want nothing held", u)
	}
}

// Each refusal is counted, of Take and of Grow, and nothing else is.
func TestPool_CountsRefusals(t *testing.T) {
	t.Parallel()
	p, err := quota.New(quota.Config{Resource: "things", Total: 8, PerHolder: 2})
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	p.OnRefusal(func() { refused++ })
	g, err := p.Take("a", 1)
	if err != nil || refused != 0 {
		t.Fatalf("%v, %d refusals", err, refused)
	}
	if g.Grow(2) == nil || refused != 1 {
		t.Errorf("growing too far: %d refusals", refused)
	}
	if _, err := p.Take("a", 2); err == nil || refused != 2 {
		t.Errorf("taking too much: %v, %d refusals", err, refused)
	}
}
