package breakers_test

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/transport"
)

// seedsEnv is how many worlds are simulated; the chaos lane asks for more.
const seedsEnv = "AEPB_SEEDS"

// world is one random agent and its callers.
type world struct {
	random    *rand.Rand
	begin     time.Time
	from, to  time.Time // the agent is down
	reachable bool      // it takes connections while it is down
	hostile   []ect.Identity
	honest    []ect.Identity
	takes     time.Duration // an answer
	slow      time.Duration // what hostile callers have it take
	reached   atomic.Int64  // calls of honest callers while it was down
}

func newWorld(seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 21))
	w := &world{random: r, begin: time.Now(), reachable: r.IntN(2) == 0, takes: time.Duration(r.IntN(200)) * time.Millisecond}
	switch r.IntN(4) {
	case 0: // down for a time
		w.from = w.begin.Add(10 * time.Minute)
		w.to = w.from.Add(time.Duration(1+r.IntN(600)) * time.Second)
	case 1: // down for good
		w.from, w.to = w.begin, w.begin.Add(24*time.Hour)
	case 2: // slow
		w.takes = 5 * time.Second
	default:
	}
	w.slow = []time.Duration{0, time.Second, 30 * time.Second, 59 * time.Second}[r.IntN(4)]
	w.hostile = []ect.Identity{eve, mallory}[:r.IntN(3)]
	w.honest = []ect.Identity{ann, bob, "spiffe://example.org/cid"}[:1+r.IntN(3)]
	return w
}

func (w *world) down() bool { return !time.Now().Before(w.from) && time.Now().Before(w.to) }

// Send is what the agent does.
func (w *world) Send(ctx context.Context, call *outbound.Call) (outbound.Reply, error) {
	hostile := slices.Contains(w.hostile, call.Endpoint.Caller)
	if w.down() {
		if !hostile {
			w.reached.Add(1)
		}
		if !w.reachable {
			return down(ctx, call)
		}
		return outbound.Reply{}, ill
	}
	if hostile {
		time.Sleep(w.slow)
		return outbound.Reply{}, &transport.TimeoutError{Agent: "calculator", After: w.slow}
	}
	time.Sleep(w.takes)
	return good(ctx, call)
}

// simulate plays one world: no honest caller of an agent that works loses more than one call in fifty, but for
// the cool-downs after a time when it did not; and few calls reach an agent that is down.
func simulate(t *testing.T, seed uint64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(seed)
		a := &agent{}
		a.is(w.Send)
		r := fleet(t, a, "one")[0]
		ctx, cancel := context.WithCancel(t.Context())
		for _, bad := range w.hostile {
			go func() {
				for ctx.Err() == nil {
					_ = r.call(ctx, bad)
					time.Sleep(5 * time.Second)
				}
			}()
		}
		first := time.Duration(w.random.IntN(3)) * 10 * time.Second
		every := time.Duration(2000+w.random.IntN(4000)) * time.Millisecond
		for i, good := range w.honest {
			go func() {
				time.Sleep(first + time.Duration(i)*time.Millisecond)
				calls, failed := 0, 0
				for range 600 {
					works := time.Now().Before(w.from) || time.Now().After(w.to.Add(6*time.Minute))
					err := r.call(ctx, good)
					if works && !w.down() {
						if calls++; err != nil {
							failed++
						}
					}
					time.Sleep(every)
				}
				if failed*50 > calls {
					t.Errorf("seed %d: %s lost %d of %d calls of an agent that works, beside %d hostile ones", seed, good, failed, calls, len(w.hostile))
				}
			}()
		}
		time.Sleep(first + 600*(every+w.takes) + time.Minute)
		cancel()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if limit := 30 * int64(len(w.honest)); w.reached.Load() > limit {
			t.Errorf("seed %d: %d calls reached an agent that was down, want at most %d", seed, w.reached.Load(), limit)
		}
	})
}

// TestSimulation_HonestCallersAreServed plays random worlds of honest callers, of callers who fail by their own
// requests alone or as a pair, and of agents that are healthy, slow, down for a time or for good.
func TestSimulation_HonestCallersAreServed(t *testing.T) {
	t.Parallel()
	seeds := 300
	if text := os.Getenv(seedsEnv); text != "" {
		var err error
		if seeds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for seed := range seeds {
		simulate(t, uint64(seed))
	}
}
