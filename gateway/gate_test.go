package gateway

import (
	"context"
	"errors"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/gateway/destination"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/transport"
)

type unmeasured struct{}

func (unmeasured) BreakerChanged(string, string) {}
func (unmeasured) BreakerEscalated(string)       {}

// TestGate_LeftAlone: the breaker that is asked is that of whom the message goes to: of the agent, or of
// the other gateway.
func TestGate_LeftAlone(t *testing.T) {
	t.Parallel()
	memory, err := state.New(state.Config{}, state.Deps{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	set, err := breakers.New(breakers.Deps{
		Entries: memory.Entries(), Sign: func(context.Context, string, ect.Act, ect.Ext) (string, error) { return "", nil },
		Metrics: unmeasured{}, Escalate: func(context.Context, breakers.Event) {}, Replica: "one", Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	const peer = "spiffe://example.org/gateway"
	down := outbound.NewChain(outbound.SendFunc(func(context.Context, *outbound.Call) (outbound.Reply, error) {
		return outbound.Reply{}, &transport.UnreachableError{Agent: "down", Err: syscall.ECONNREFUSED}
	}), set.Stage)
	for range 5 {
		_, _ = down.Send(t.Context(), &outbound.Call{Kind: outbound.Peer, Endpoint: transport.Endpoint{Agent: "far", ID: peer}})
		_, _ = down.Send(t.Context(), &outbound.Call{Kind: outbound.Message, Endpoint: transport.Endpoint{Agent: "near", ID: "spiffe://example.org/near"}})
	}
	g := gate{&Gateway{Deps: Deps{Breakers: set}}}
	for name, c := range map[string]struct {
		to   destination.Destination
		open bool
	}{
		"agent":                    {destination.Destination{Agent: directory.Agent{Name: "near"}}, true},
		"another agent":            {destination.Destination{Agent: directory.Agent{Name: "far"}}, false},
		"through the peer":         {destination.Destination{Agent: directory.Agent{Name: "other"}, Via: &destination.PeerRoute{Peer: directory.Peer{ID: peer}}}, true},
		"the agent through a peer": {destination.Destination{Agent: directory.Agent{Name: "near"}, Via: &destination.PeerRoute{Peer: directory.Peer{ID: peer + "2"}}}, false},
		"translation alone":        {destination.Destination{}, false},
	} {
		if err := g.CircuitOpen("spiffe://example.org/ann", c.to); errors.As(err, new(*problem.CircuitOpenError)) != c.open {
			t.Errorf("%s: %v", name, err)
		}
	}
}
