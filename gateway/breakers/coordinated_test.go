package breakers_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/transport"
)

// downstream is an agent that other gateways know as well, and the gateways of the tests.
const (
	downstream = ect.Identity("spiffe://example.org/agent/down")
	gateway2   = ect.Identity("spiffe://two.example/gateway")
	gateway3   = ect.Identity("spiffe://three.example/gateway")
	gateway4   = ect.Identity("spiffe://four.example/gateway")
)

// callDown calls that agent.
func (r *replica) callDown(t *testing.T) error {
	t.Helper()
	call := &outbound.Call{Kind: outbound.Message, Endpoint: transport.Endpoint{Agent: "down", ID: downstream}}
	_, err := r.sender.Send(t.Context(), call)
	if err == nil {
		r.Report(t.Context(), breakers.Target{Kind: call.Kind, Endpoint: call.Endpoint}, nil)
	}
	return err
}

// openDown has its breaker open.
func (r *replica) openDown(t *testing.T) {
	t.Helper()
	for range 5 {
		if err := r.callDown(t); err == nil {
			t.Fatal("the agent that is down answers")
		}
	}
}

// escalations counts the calls for a human so far that gateways coordinate.
func (r *replica) escalations() int {
	n := 0
	for _, line := range r.metrics.take() {
		if line == "escalated coordinated" {
			n++
		}
	}
	return n
}

// TestPeerOpened_Escalates: breakers of three gateways for one agent within a minute call a human once; two
// do not, nor does one gateway that says it often, nor three of which one is too late.
func TestPeerOpened_Escalates(t *testing.T) {
	t.Parallel()
	type step struct {
		at      time.Duration
		gateway ect.Identity // empty: this one
	}
	const second = time.Second
	for name, row := range map[string]struct {
		steps []step
		want  int
	}{
		"this gateway and two others": {[]step{{0, ""}, {second, gateway2}, {second, gateway3}}, 1},
		"two others, then this one":   {[]step{{0, gateway2}, {second, gateway3}, {59 * second, ""}}, 1},
		"three others":                {[]step{{0, gateway2}, {0, gateway3}, {0, gateway4}}, 1},
		"four within a minute":        {[]step{{0, gateway2}, {0, gateway3}, {0, gateway4}, {60 * second, ""}}, 1},
		"two others":                  {[]step{{0, gateway2}, {0, gateway3}, {0, gateway2}, {0, gateway3}}, 0},
		"this gateway and another":    {[]step{{0, ""}, {0, gateway2}, {0, gateway2}}, 0},
		"too late":                    {[]step{{0, ""}, {0, gateway2}, {61 * second, gateway3}}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &agent{}
			a.is(down)
			r := fleet(t, a, "one")[0]
			start := time.Now()
			for _, s := range row.steps {
				time.Sleep(s.at - time.Since(start))
				if s.gateway == "" {
					r.openDown(t)
				} else {
					r.PeerOpened(t.Context(), downstream, s.gateway)
				}
			}
			signed := slices.Contains(r.evidence.take(), `atd:escalate "`+string(downstream)+`" "coordinated"`)
			if got := r.escalations(); got != row.want || signed != (row.want > 0) {
				t.Errorf("%s: %d escalations, signed: %t; want %d", name, got, signed, row.want)
			}
		})
	}
}

// TestPeerOpened_OncePerGateway: of three replicas that all see the same, one calls a human, and one token
// tells of it; a minute later that can happen again.
func TestPeerOpened_OncePerGateway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &agent{}
		a.is(down)
		all := fleetOver(t, a, 10*time.Millisecond, "one", "two", "three")
		for round := range 2 {
			done := make(chan struct{})
			for _, r := range all {
				go func() {
					for _, gateway := range []ect.Identity{gateway2, gateway3, gateway4} {
						r.PeerOpened(t.Context(), downstream, gateway)
					}
					done <- struct{}{}
				}()
			}
			escalated, signed := 0, 0
			for range all {
				<-done
			}
			for _, r := range all {
				escalated += r.escalations()
				signed += len(r.evidence.take())
			}
			if escalated != 1 || signed != 1 {
				t.Errorf("round %d: %d escalations, %d tokens, want one of each", round, escalated, signed)
			}
			time.Sleep(61 * time.Second)
		}
	})
}

// TestPeerOpened_ProbesSeldom: after the escalation probes are 300 seconds apart, at all replicas, also where
// the breaker opens after it, and until it has closed.
func TestPeerOpened_ProbesSeldom(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"opens before", "opens after"} {
		synctest.Test(t, func(t *testing.T) {
			a := &agent{}
			a.is(down)
			all := fleet(t, a, "one", "two")
			start := time.Now()
			peersOpen := func() {
				for _, gateway := range []ect.Identity{gateway2, gateway3, gateway4} {
					all[0].PeerOpened(t.Context(), downstream, gateway)
				}
			}
			if order == "opens after" {
				peersOpen()
			}
			all[0].openDown(t)
			if order == "opens before" {
				peersOpen()
			}
			all[1].openDown(t) // which reads what is shared by its next probe
			var probes []time.Duration
			before := a.calls.Load()
			for range 1000 {
				time.Sleep(time.Second)
				_ = all[0].callDown(t)
				if n := a.calls.Load(); n != before {
					probes, before = append(probes, time.Since(start)), n
				}
				_ = all[1].callDown(t)
			}
			want := []time.Duration{300 * time.Second, 600 * time.Second, 900 * time.Second}
			if diff := cmp.Diff(want, probes); diff != "" {
				t.Errorf("%s: %s", order, diff)
			}
			a.is(good)
			time.Sleep(300 * time.Second)
			if err := all[0].callDown(t); err != nil {
				t.Errorf("%s: the probe of an agent that is back: %v", order, err)
			}
			a.is(down)
			all[0].openDown(t)
			time.Sleep(30 * time.Second)
			before = a.calls.Load()
			if _ = all[0].callDown(t); a.calls.Load() == before {
				t.Errorf("%s: after it closed, the first cool-down is not 30 s", order)
			}
		})
	}
}

// TestAttack_PeersOpenABreaker: gateways that lie, as often as they like, open no breaker and close none.
func TestAttack_PeersOpenABreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &agent{}
		a.is(good)
		r := fleet(t, a, "one")[0]
		if err := r.callDown(t); err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			for _, gateway := range []ect.Identity{gateway2, gateway3, gateway4} {
				r.PeerOpened(t.Context(), downstream, gateway)
			}
		}
		if err := r.callDown(t); err != nil || r.escalations() != 1 {
			t.Errorf("the agent answers, but: %v", err)
		}
		a.is(down)
		r.openDown(t)
		r.PeerOpened(t.Context(), downstream, gateway2)
		a.is(good)
		if err := r.callDown(t); err == nil {
			t.Error("a breaker that is open lets a call through")
		}
		for range 299 {
			time.Sleep(time.Second)
			r.PeerOpened(t.Context(), downstream, gateway2)
			r.PeerOpened(t.Context(), downstream, gateway3)
		}
		time.Sleep(time.Second)
		if err := r.callDown(t); err != nil {
			t.Errorf("the probe is put off for more than the longest cool-down: %v", err)
		}
	})
}

// TestAttack_PeersFillTheMemory: openings of ever other agents are forgotten after a minute, and are not counted
// where there are too many.
func TestAttack_PeersFillTheMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := fleet(t, &agent{}, "one")[0]
		for i := range 10_000 {
			r.PeerOpened(t.Context(), ect.Identity(strconv.Itoa(i)), gateway2)
		}
		if got := r.Coordinated(); got > 1024 {
			t.Errorf("%d agents are remembered, want at most 1024", got)
		}
		time.Sleep(61 * time.Second)
		for _, gateway := range []ect.Identity{gateway2, gateway3, gateway4} {
			r.PeerOpened(t.Context(), downstream, gateway)
		}
		if got := r.Coordinated(); got != 1 || r.escalations() != 1 {
			t.Errorf("after a minute, %d agents are remembered, want one that escalates", got)
		}
	})
}

// away is a store that cannot be asked.
type away struct{ breakers.Entries }

var errAway = errors.New("the store is away")

// Get implements breakers.Entries.
func (away) Get(context.Context, state.EntryKey) (state.Entry, bool, error) {
	return state.Entry{}, false, errAway
}

// Swap implements breakers.Entries.
func (away) Swap(context.Context, state.EntryKey, uint64, []byte, time.Time) (uint64, bool, error) {
	return 0, false, errAway
}

// TestPeerOpened_WithoutAStore: an escalation that cannot be shared is said all the same.
func TestPeerOpened_WithoutAStore(t *testing.T) {
	t.Parallel()
	var r replica
	set, err := breakers.New(breakers.Deps{
		Entries: away{}, Sign: r.evidence.sign, Metrics: &r.metrics, Escalate: r.escalated, Replica: "one", Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, gateway := range []ect.Identity{gateway2, gateway3, gateway4} {
		set.PeerOpened(t.Context(), downstream, gateway)
	}
	if got := r.metrics.take(); !slices.Contains(got, "escalated coordinated") {
		t.Errorf("noted is %v", got)
	}
}
