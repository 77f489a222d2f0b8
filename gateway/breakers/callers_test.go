package breakers_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

const (
	eve     = ect.Identity("spiffe://example.org/eve")
	mallory = ect.Identity("spiffe://example.org/mallory")
	bob     = ect.Identity("spiffe://example.org/bob")
)

// ill is a failure that a message may have caused.
var ill = transport.BadStatus(transport.Endpoint{Agent: "calculator"}, "status", 500, nil)

// failsFor is an agent that is ill for some callers, and answers all others.
func failsFor(takes time.Duration, bad ...ect.Identity) func(context.Context, *outbound.Call) (outbound.Reply, error) {
	return func(ctx context.Context, call *outbound.Call) (outbound.Reply, error) {
		if slices.Contains(bad, call.Endpoint.Caller) {
			time.Sleep(takes)
			return outbound.Reply{}, ill
		}
		return good(ctx, call)
	}
}

// alone reports whether an error refuses this caller for its own failures.
func alone(err error) bool {
	open, ok := errors.AsType[*problem.CircuitOpenError](err)
	return ok && open.Own
}

// opened are the changes and escalations that were signed.
func (r *replica) opened() []string {
	return slices.DeleteFunc(r.evidence.take(), func(token string) bool { return strings.HasPrefix(token, "atd:circuit_close") })
}

// TestAttack_OneCallerOpensAFreshBreaker: one caller whose calls fail at an agent that no other has asked yet is
// refused alone, for longer and longer; others are served at each moment, and no human is called.
func TestAttack_OneCallerOpensAFreshBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &agent{}
		a.is(failsFor(0, eve))
		r := fleet(t, a, "one")[0]
		for second := range 3600 {
			err := r.call(t.Context(), eve)
			switch second {
			case 4:
				if refused(err) != 0 {
					t.Errorf("the fifth call was refused: %v", err)
				}
			case 5:
				if refused(err) == 0 || !alone(err) {
					t.Errorf("after five failures: %v", err)
				}
			}
			if second >= 600 && r.call(t.Context(), ann) != nil {
				t.Fatalf("another caller in second %d", second)
			}
			time.Sleep(time.Second)
		}
		if n := a.calls.Load() - 3000; n > 25 {
			t.Errorf("the agent was asked %d times by a caller that always fails", n)
		}
		if tokens := r.opened(); len(tokens) > 0 {
			t.Errorf("signed were %q", tokens)
		}
	})
}

// TestAttack_OneCallerHoldsABreakerOpen: an agent was down, and answers again: one caller who fails with each
// probe, and takes as long as it can, keeps no other one out, and calls no human.
func TestAttack_OneCallerHoldsABreakerOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &agent{}
		a.is(down)
		r := fleet(t, a, "one")[0]
		r.times(t, 5)
		a.is(failsFor(59*time.Second, eve))
		done := time.Now().Add(20 * time.Minute)
		end := make(chan struct{})
		go func() {
			defer close(end)
			for time.Now().Before(done) {
				_ = r.call(t.Context(), eve)
				time.Sleep(500 * time.Millisecond)
			}
		}()
		time.Sleep(10 * time.Minute)
		refusals := 0
		for range 500 {
			if r.call(t.Context(), ann) != nil {
				refusals++
			}
			time.Sleep(time.Second)
		}
		<-end
		if refusals > 10 {
			t.Errorf("%d of 500 calls of another caller were refused", refusals)
		}
		if slices.ContainsFunc(r.metrics.take(), func(s string) bool { return strings.HasPrefix(s, "escalated") }) {
			t.Error("a human was called")
		}
	})
}

// TestAttack_TwoCallersOpenABreaker: two callers who fail together at an agent that answers another one are
// refused, and the other one loses nothing, also where it fails itself now and then; where it has not called
// yet, its first call closes what they have opened, and they do not open it again.
func TestAttack_TwoCallersOpenABreaker(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]time.Duration{"before": 0, "while it is open": 10 * time.Second, "when it is tried": 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			a := &agent{}
			healthy := failsFor(40*time.Second, eve, mallory)
			var number atomic.Int64
			a.is(func(ctx context.Context, call *outbound.Call) (outbound.Reply, error) {
				if call.Endpoint.Caller == ann {
					if number.Add(1)%10 == 0 {
						return outbound.Reply{}, ill
					}
				}
				return healthy(ctx, call)
			})
			r := fleet(t, a, "one")[0]
			ctx, cancel := context.WithCancel(t.Context())
			for _, bad := range []ect.Identity{eve, mallory, eve, mallory} {
				go func() {
					for first == 0 && ctx.Err() == nil && number.Load() == 0 {
						time.Sleep(time.Second)
					}
					for ctx.Err() == nil {
						_ = r.call(ctx, bad)
						time.Sleep(500 * time.Millisecond)
					}
				}()
			}
			time.Sleep(first)
			refusals := 0
			for range 1000 {
				if refused(r.call(t.Context(), ann)) > 0 {
					refusals++
				}
				time.Sleep(3 * time.Second)
			}
			cancel()
			synctest.Wait()
			if refusals > 0 {
				t.Errorf("%s: %d of 1000 calls were refused", name, refusals)
			}
			time.Sleep(time.Minute)
		})
	}
}

// TestStage_SeveralCallersFail: two callers who fail, while no other has an answer, open the breaker with
// evidence; a third caller is the probe at once, and its answer closes it.
func TestStage_SeveralCallersFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &agent{}
		a.is(failsFor(0, eve, mallory))
		r := fleet(t, a, "one")[0]
		for range 3 {
			_, _ = r.call(t.Context(), eve), r.call(t.Context(), mallory)
		}
		if err := r.call(t.Context(), eve); refused(err) == 0 || alone(err) {
			t.Errorf("two callers have failed three times each: %v", err)
		}
		if err := r.Refusal(breakers.Target{Kind: outbound.Message, Endpoint: calculator}); err != nil {
			t.Errorf("a third caller: %v", err)
		}
		if err := errors.Join(r.call(t.Context(), ann), r.call(t.Context(), ann)); err != nil {
			t.Errorf("a third caller: %v", err)
		}
		if err := r.call(t.Context(), eve); refused(err) > 0 {
			t.Errorf("after the answer to another: %v", err)
		}
		if tokens := r.evidence.take(); len(tokens) != 2 || !strings.HasPrefix(tokens[0], "atd:circuit_open") || !strings.HasPrefix(tokens[1], "atd:circuit_close") {
			t.Errorf("signed were %q", tokens)
		}
	})
}

// TestStage_CallersWithoutEnd: of more callers than are remembered, the one that was here least recently is
// forgotten, and not one who fails still.
func TestStage_CallersWithoutEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &agent{}
		a.is(failsFor(0, eve))
		r := fleet(t, a, "one")[0]
		for range 5 {
			_ = r.call(t.Context(), eve)
		}
		for i := range 200 {
			time.Sleep(time.Millisecond)
			_ = r.call(t.Context(), ect.Identity("spiffe://example.org/"+strconv.Itoa(i)))
		}
		if err := r.call(t.Context(), eve); !alone(err) {
			t.Errorf("a caller who fails was forgotten: %v", err)
		}
		for i := range 2000 {
			time.Sleep(time.Millisecond)
			_ = r.call(t.Context(), ect.Identity("spiffe://example.org/"+strconv.Itoa(i)))
		}
		if n := r.Callers("calculator"); n != 256 {
			t.Errorf("%d callers are remembered", n)
		}
	})
}

// TestAttack_WebhooksOfOneCallerStopAnothers: posts that fail at a host, of one caller, keep no post of another to
// that host; a 4xx says nothing of the host.
func TestAttack_WebhooksOfOneCallerStopAnothers(t *testing.T) {
	t.Parallel()
	for _, kind := range []outbound.Kind{outbound.Webhook, outbound.Callback} {
		a := &agent{}
		status := 404
		a.is(func(ctx context.Context, call *outbound.Call) (outbound.Reply, error) {
			if call.Endpoint.Caller == eve {
				return outbound.Reply{}, transport.BadStatus(transport.Endpoint{Agent: "hooks.example"}, "status", status, nil)
			}
			return good(ctx, call)
		})
		r := fleet(t, a, "one")[0]
		post := func(as ect.Identity) error {
			_, err := r.sender.Send(t.Context(), &outbound.Call{
				Kind: kind, Endpoint: transport.Endpoint{Caller: as}, Webhook: canonical.PushConfig{URL: "https://hooks.example/" + string(as)},
				Decision: transport.Decision{URL: "https://hooks.example/x"},
			})
			return err
		}
		for range 100 {
			if err := post(eve); refused(err) > 0 {
				t.Fatalf("kind %d: a URL that is not there, and the host is left alone: %v", kind, err)
			}
		}
		status = 503
		for range 100 {
			_ = post(eve)
		}
		if err := post(eve); refused(err) == 0 {
			t.Errorf("kind %d: the host fails for its caller: %v", kind, err)
		}
		if err := post(bob); err != nil {
			t.Errorf("kind %d: another caller's post: %v", kind, err)
		}
	}
}

// TestStage_CallsThatEndAtOnce: many calls of one caller that are cut at the same moment are one failure: an
// agent that starts again at once is asked at once.
func TestStage_CallsThatEndAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &agent{}
		a.is(failsFor(time.Second, eve))
		r := fleet(t, a, "one")[0]
		for range 2 {
			for range 20 {
				go func() { _ = r.call(t.Context(), eve) }()
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
		}
		a.is(good)
		if err := r.call(t.Context(), eve); err != nil {
			t.Errorf("the next call ends with %v", err)
		}
	})
}
