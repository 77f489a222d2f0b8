package outbound_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// dialer, pusher and callbacks note that they were called.
type dialer struct {
	transport.Dialer

	name   string
	called *[]string
}

func (d dialer) Dial(context.Context, transport.Endpoint, transport.Sealed) (transport.Reply, error) {
	*d.called = append(*d.called, d.name)
	return transport.Reply{}, nil
}

type pusher struct {
	transport.Pusher

	called *[]string
}

func (p pusher) Push(_ context.Context, c canonical.PushConfig, _ transport.Sealed) error {
	*p.called = append(*p.called, "webhook "+c.URL)
	return nil
}

type callbacks struct {
	transport.Callbacks

	called *[]string
}

func (c callbacks) Tell(_ context.Context, d transport.Decision) error {
	*c.called = append(*c.called, "callback "+d.URL)
	return nil
}

// TestNetwork_EachKindHasItsDialer: and a call without one is refused.
func TestNetwork_EachKindHasItsDialer(t *testing.T) {
	t.Parallel()
	var called []string
	dials := func(name string) map[canonical.Binding]transport.Dialer {
		return map[canonical.Binding]transport.Dialer{"mcp-v1": dialer{name: name, called: &called}}
	}
	whole := &outbound.Network{
		Agents: dials("agent"), Rollbacks: dials("rollback"), Peers: dialer{name: "peer", called: &called},
		Pushers:   map[canonical.Binding]transport.Pusher{"mcp-v1": pusher{called: &called}},
		Callbacks: callbacks{called: &called},
	}
	at := transport.Endpoint{Binding: "mcp-v1"}
	for _, call := range []outbound.Call{
		{Kind: outbound.Message, Endpoint: at},
		{Kind: outbound.Rollback, Endpoint: at},
		{Kind: outbound.Peer, Endpoint: at},
		{Kind: outbound.Webhook, Endpoint: at, Webhook: canonical.PushConfig{URL: "https://hook"}},
		{Kind: outbound.Callback, Decision: transport.Decision{URL: "https://waits"}},
	} {
		if _, err := whole.Send(t.Context(), call); err != nil {
			t.Errorf("kind %d: %v", call.Kind, err)
		}
		if _, err := (&outbound.Network{}).Send(t.Context(), call); !errors.Is(err, outbound.ErrUnserved) {
			t.Errorf("kind %d without a dialer: %v", call.Kind, err)
		}
	}
	if want := []string{"agent", "rollback", "peer", "webhook https://hook", "callback https://waits"}; !slices.Equal(called, want) {
		t.Errorf("the calls were %v, want %v", called, want)
	}
}

// meter notes what it is told.
type meter []string

func (m *meter) Sent(agent, from, to string, took time.Duration) {
	*m = append(*m, agent+" "+from+" "+to+" "+took.String())
}

// TestChain_StagesInOrder: the first stage is outermost, each call passes all of them, and
// the time of calls with a reply is measured, also when they fail.
func TestChain_StagesInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var passed []string
		failure := errors.New("unreachable")
		stage := func(name string) outbound.Stage {
			return func(next outbound.Sender) outbound.Sender {
				return outbound.SendFunc(func(ctx context.Context, c outbound.Call) (transport.Reply, error) {
					passed = append(passed, name)
					return next.Send(ctx, c)
				})
			}
		}
		dial := outbound.SendFunc(func(context.Context, outbound.Call) (transport.Reply, error) {
			passed = append(passed, "dial")
			time.Sleep(time.Second)
			return transport.Reply{}, failure
		})
		var measured meter
		chain := outbound.NewChain(dial, stage("outer"), outbound.Metrics(&measured, time.Now), stage("inner"))
		for _, kind := range []outbound.Kind{outbound.Message, outbound.Webhook} {
			call := outbound.Call{Kind: kind, Agent: "calculator", From: "a2a-v1", Endpoint: transport.Endpoint{Binding: "mcp-v1"}}
			if _, err := chain.Send(t.Context(), call); !errors.Is(err, failure) {
				t.Errorf("kind %d: %v", kind, err)
			}
		}
		if want := []string{"outer", "inner", "dial", "outer", "inner", "dial"}; !slices.Equal(passed, want) {
			t.Errorf("passed %v, want %v", passed, want)
		}
		if want := []string{"calculator a2a-v1 mcp-v1 1s"}; !slices.Equal(measured, want) {
			t.Errorf("measured %v, want %v", measured, want)
		}
	})
}

// TestLifetime_Ends: with the time limit, which is said, or with the caller who waits;
// what is kept goes on until it is closed.
func TestLifetime_Ends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := func(l *outbound.Lifetime) bool {
			synctest.Wait()
			return l.Context().Err() != nil
		}
		late := outbound.NewLifetime(t.Context(), "calculator", time.Minute)
		defer late.Close()
		if end, ok := late.Context().Deadline(); !ok || time.Until(end) != time.Minute {
			t.Errorf("a dialer is told %v, %v", end, ok)
		}
		waits, leave := context.WithCancel(t.Context())
		left := outbound.NewLifetime(waits, "calculator", time.Hour)
		defer left.Close()
		lasting := outbound.NewLifetime(waits, "calculator", time.Minute)
		lasting.Keep()
		time.Sleep(time.Minute)
		synctest.Wait()
		timeout, _ := errors.AsType[*transport.TimeoutError](late.Judge(context.Canceled))
		if !ended(late) || timeout == nil || timeout.Agent != "calculator" || timeout.After != time.Minute {
			t.Errorf("after its limit: %+v", timeout)
		}
		if leave(); !ended(left) || !errors.Is(left.Judge(context.Canceled), context.Canceled) {
			t.Error("its caller left, and it goes on, or it is judged late")
		}
		if ended(lasting) {
			t.Error("it was kept, and has ended")
		}
		if lasting.Close(); !ended(lasting) {
			t.Error("it was closed, and goes on")
		}
	})
}
