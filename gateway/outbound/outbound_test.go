package outbound_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
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

func (p pusher) Push(_ context.Context, _ ect.Identity, c canonical.PushConfig, _ transport.Sealed) error {
	*p.called = append(*p.called, "webhook "+c.URL)
	return nil
}

type callbacks struct {
	transport.Callbacks

	called *[]string
}

func (c callbacks) Tell(_ context.Context, _ ect.Identity, d transport.Decision) error {
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
		Pushers:    map[canonical.Binding]transport.Pusher{"mcp-v1": pusher{called: &called}},
		Callbacks:  callbacks{called: &called},
		Describers: map[canonical.Binding]transport.Describer{"mcp-v1": describer{name: "description", called: &called}},
		Beyond:     describer{name: "beyond", called: &called},
	}
	at := transport.Endpoint{Binding: "mcp-v1"}
	for _, call := range []outbound.Call{
		{Kind: outbound.Message, Endpoint: at},
		{Kind: outbound.Rollback, Endpoint: at},
		{Kind: outbound.Peer, Endpoint: at},
		{Kind: outbound.Webhook, Endpoint: at, Webhook: canonical.PushConfig{URL: "https://hook"}},
		{Kind: outbound.Callback, Decision: transport.Decision{URL: "https://waits"}},
		{Kind: outbound.Description, Endpoint: at},
		{Kind: outbound.Description, Endpoint: at, Beyond: true},
	} {
		if _, err := whole.Send(t.Context(), &call); err != nil {
			t.Errorf("kind %d: %v", call.Kind, err)
		}
		if _, err := (&outbound.Network{}).Send(t.Context(), &call); !errors.Is(err, outbound.ErrUnserved) {
			t.Errorf("kind %d without a dialer: %v", call.Kind, err)
		}
	}
	if want := []string{"agent", "rollback", "peer", "webhook https://hook", "callback https://waits", "description", "beyond"}; !slices.Equal(called, want) {
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
				return outbound.SendFunc(func(ctx context.Context, c *outbound.Call) (outbound.Reply, error) {
					passed = append(passed, name)
					return next.Send(ctx, c)
				})
			}
		}
		dial := outbound.SendFunc(func(context.Context, *outbound.Call) (outbound.Reply, error) {
			passed = append(passed, "dial")
			time.Sleep(time.Second)
			return outbound.Reply{}, failure
		})
		var measured meter
		chain := outbound.NewChain(dial, stage("outer"), outbound.Metrics(&measured, time.Now), stage("inner"))
		for _, kind := range []outbound.Kind{outbound.Message, outbound.Webhook, outbound.Description} {
			call := &outbound.Call{Kind: kind, Agent: "calculator", From: "a2a-v1", Endpoint: transport.Endpoint{Binding: "mcp-v1"}}
			if _, err := chain.Send(t.Context(), call); !errors.Is(err, failure) {
				t.Errorf("kind %d: %v", kind, err)
			}
		}
		if want := slices.Repeat([]string{"outer", "inner", "dial"}, 3); !slices.Equal(passed, want) {
			t.Errorf("passed %v, want %v", passed, want)
		}
		if want := []string{"calculator a2a-v1 mcp-v1 1s"}; !slices.Equal(measured, want) {
			t.Errorf("measured %v, want %v", measured, want)
		}
	})
}

// events is a stream that says whether it was closed.
type events struct {
	transport.Events

	closed bool
}

func (e *events) Close() error { e.closed = true; return nil }

// TestDeadline_Ends: a call ends with its time limit, which is said, or with the caller who
// waits, and a stream with neither.
func TestDeadline_Ends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen context.Context
		stream := &events{}
		chain := outbound.NewChain(outbound.SendFunc(func(ctx context.Context, c *outbound.Call) (outbound.Reply, error) {
			if seen = ctx; c.Agent == "streams" {
				return outbound.Reply{Reply: transport.Reply{Events: stream}}, nil
			}
			<-ctx.Done()
			return outbound.Reply{}, ctx.Err()
		}), outbound.Deadline)
		call := &outbound.Call{Endpoint: transport.Endpoint{Agent: "calculator"}, Limit: time.Minute}
		began := time.Now()
		_, err := chain.Send(t.Context(), call)
		timeout, _ := errors.AsType[*transport.TimeoutError](err)
		if timeout == nil || timeout.Agent != "calculator" || timeout.After != time.Minute || time.Since(began) != time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if end, ok := seen.Deadline(); !ok || end.Sub(began) != time.Minute {
			t.Errorf("a dialer is told %v, %v", end, ok)
		}
		waits, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		if _, err := chain.Send(waits, call); !errors.Is(err, context.Canceled) {
			t.Errorf("its caller left: %v", err)
		}
		call.Agent = "streams"
		waits, leave = context.WithCancel(t.Context())
		reply, err := chain.Send(waits, call)
		if err != nil {
			t.Fatal(err)
		}
		leave()
		time.Sleep(time.Hour)
		if seen.Err() != nil || stream.closed {
			t.Error("a stream ended with its caller, or with the time limit")
		}
		if _ = reply.Events.Close(); seen.Err() == nil || !stream.closed {
			t.Error("a stream was closed, and its call goes on")
		}
		call.Limit = 0
		waits, leave = context.WithCancel(t.Context())
		defer leave()
		if _, _ = chain.Send(waits, call); seen != waits {
			t.Error("a call without a limit has another context than that of its sender")
		}
	})
}
