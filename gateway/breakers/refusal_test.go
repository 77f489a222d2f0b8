package breakers_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/transport"
)

// TestRefusal_LeavesTheProbe: what is refused early is what the stage would refuse; after the
// cool-down nothing is, and the question uses up no probe.
func TestRefusal_LeavesTheProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &agent{}
		a.is(down)
		r := fleet(t, a, "one")[0]
		target := breakers.Target{Kind: outbound.Message, Endpoint: transport.Endpoint{Agent: calculator.Agent}}
		if err := r.Refusal(target); err != nil || r.Count() != 0 {
			t.Errorf("before the first call: %v, and there are %d breakers", err, r.Count())
		}
		r.times(t, 5)
		if err := r.Refusal(target); refused(err) != 30*time.Second {
			t.Errorf("open: %v", err)
		}
		time.Sleep(29 * time.Second)
		if err := r.Refusal(target); refused(err) != time.Second {
			t.Errorf("a second before: %v", err)
		}
		time.Sleep(time.Second)
		for range 3 {
			if err := r.Refusal(target); err != nil {
				t.Errorf("after the cool-down: %v", err)
			}
		}
		a.is(good)
		if err := r.call(t.Context(), ann); err != nil || a.calls.Load() != 6 {
			t.Errorf("the probe: %v, asked %d times", err, a.calls.Load())
		}
		if err := r.Refusal(target); err != nil {
			t.Errorf("closed: %v", err)
		}
		if err := (*breakers.Set)(nil).Refusal(target); err != nil {
			t.Errorf("without breakers: %v", err)
		}
	})
}

// admitted is a message as the gateway takes it: what is refused early does not come to the stage.
func (r *replica) admitted(t *testing.T) error {
	t.Helper()
	if err := r.Refusal(breakers.Target{Kind: outbound.Message, Endpoint: transport.Endpoint{Agent: calculator.Agent}}); err != nil {
		return err
	}
	return r.call(t.Context(), ann)
}

// TestRefusal_ProbeOfAnotherReplica: a replica that met the probe of another one, and had nothing to
// send until its time was over, asks the agent again.
func TestRefusal_ProbeOfAnotherReplica(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &agent{}
		a.is(down)
		all := fleet(t, a, "one", "two")
		for _, r := range all {
			r.times(t, 5)
		}
		time.Sleep(31 * time.Second)
		a.is(func(ctx context.Context, c *outbound.Call) (outbound.Reply, error) {
			time.Sleep(10 * time.Second)
			return good(ctx, c)
		})
		probe := make(chan error)
		go func() { probe <- all[0].admitted(t) }()
		time.Sleep(time.Second)
		if err := all[1].admitted(t); refused(err) == 0 {
			t.Fatalf("while another probes: %v", err)
		}
		if err := <-probe; err != nil {
			t.Fatalf("the probe: %v", err)
		}
		a.is(good)
		time.Sleep(2 * time.Minute)
		var err error
		for range 3 {
			if err = all[1].admitted(t); err == nil {
				return
			}
			time.Sleep(time.Second)
		}
		t.Errorf("minutes after the other's probe: %v", err)
	})
}

// TestRefusal_ProbeThatIsLost: a probe of which nothing is reported, and one that was left to a
// message that never came, keep no one out for longer than a probe may take and its cool-down.
func TestRefusal_ProbeThatIsLost(t *testing.T) {
	t.Parallel()
	for _, kind := range []outbound.Kind{outbound.Message, outbound.Description} {
		synctest.Test(t, func(t *testing.T) {
			a := &agent{}
			a.is(down)
			r := fleet(t, a, "one")[0]
			r.times(t, 5)
			time.Sleep(31 * time.Second)
			a.is(good)
			if _, err := r.sender.Send(t.Context(), &outbound.Call{Kind: kind, Endpoint: calculator, Agent: "calculator"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			for range 65 {
				if r.admitted(t) == nil {
					return
				}
				time.Sleep(time.Second)
			}
			t.Errorf("kind %d: minutes later the agent is still left alone", kind)
		})
	}
}
