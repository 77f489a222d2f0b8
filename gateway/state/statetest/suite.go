package statetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// Driver is what the gateway asks of its state. Its methods are those of
// [state.Memory], where they are explained.
type Driver interface {
	ecttest.ListingStore
	ect.ReplayCache
	Answers
	Conversations
	Gauge
}

// Answers keeps answers for byte-identical repetitions (R6).
type Answers interface {
	Finish(ctx context.Context, key ect.ReplayKey, answer []byte, until time.Time)
	Load(ctx context.Context, key ect.ReplayKey) ([]byte, bool)
}

// Conversations remembers where each conversation stands (R3).
type Conversations interface {
	Last(ctx context.Context, key string) (workflow string, id ect.ID, ok bool, err error)
	Remember(ctx context.Context, key, workflow string, id ect.ID)
}

// Gauge says how full a driver is, and since when it has seen every use of a token.
type Gauge interface {
	UsageOf(kind state.Kind) state.Usage
	Epoch() time.Time
}

// Harness makes drivers.
type Harness struct {
	// Open makes empty state on the clock of package time, whose epoch is now,
	// or the beginning of this second. It registers its own end with t.
	Open func(t testing.TB, config state.Config) Driver
	// Reopen ends a driver in good order and starts another over what it left,
	// with the same bounds. Nil: a driver that leaves nothing.
	Reopen func(t testing.TB, d Driver) Driver
}

// Run holds a driver to the contract.
func Run(t *testing.T, h Harness) {
	t.Helper()
	t.Run("ect.Store", func(t *testing.T) {
		t.Parallel()
		ecttest.StoreSuite(t, func() ect.Store { return h.Open(t, state.Config{}) })
	})
	t.Run("ect.ReplayCache", func(t *testing.T) {
		t.Parallel()
		ecttest.ReplaySuite(t, func() ect.ReplayCache { return h.Open(t, state.Config{}) })
	})
	t.Run("shares", func(t *testing.T) {
		t.Parallel()
		RunShares(t, func(t testing.TB, bounds state.Config) ect.Store {
			t.Helper()
			return h.Open(t, bounds)
		})
	})
	cases := []map[string]func(*testing.T, Harness){tokens, replays, answers, conversations, together}
	if h.Reopen != nil {
		cases = append(cases, restarts)
	}
	lists := map[string]func(*testing.T, Harness){}
	for name, test := range ecttest.ListerCases() {
		lists[name] = func(t *testing.T, h Harness) { test(t, h.Open(t, state.Config{})) }
	}
	cases = append(cases, lists)
	for _, group := range cases {
		for name, test := range group {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { test(t, h) })
			})
		}
	}
}

// pass moves the clock of the bubble that every case runs in, once whatever the
// driver was doing is done.
func pass(d time.Duration) {
	synctest.Wait()
	time.Sleep(d)
}

var together = map[string]func(*testing.T, Harness){
	"everything at once": everythingAtOnce,
}

// everythingAtOnce is for the race detector and for the bounds.
func everythingAtOnce(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{MaxTokens: 50, MaxAnswers: 50, MaxConversations: 50})
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for n := range 300 {
				oneOfEach(t.Context(), d, worker*1000+n)
			}
		})
	}
	group.Wait()
	for _, kind := range []state.Kind{state.KindToken, state.KindAnswer, state.KindConversation} {
		if u := d.UsageOf(kind); u.Entries > 50 {
			t.Errorf("%s: %+v", kind, u)
		}
	}
	if u := d.UsageOf(state.KindReplay); u.Entries == 0 || u.Evicted != 0 {
		t.Errorf("replays: %+v", u)
	}
}

func oneOfEach(ctx context.Context, d Driver, n int) {
	r := record(n, fmt.Sprint(n%5), time.Duration(n%7)*time.Millisecond)
	key := ect.ReplayKey{ID: r.ID}
	_, _ = d.Claim(ctx, key, ect.ReplayUse{Token: "t", Issued: time.Now(), Until: r.Until})
	_ = d.Put(ctx, r)
	_, _ = d.Get(ctx, ect.Ref{ID: r.ID})
	_, _, _ = d.Workflow(ctx, r.Workflow, "", 10)
	d.Finish(ctx, key, []byte("x"), r.Until)
	_, _ = d.Load(ctx, key)
	d.Remember(ctx, fmt.Sprint(n%300), "w", r.ID)
	_, _, _, _ = d.Last(ctx, fmt.Sprint(n%300))
}
