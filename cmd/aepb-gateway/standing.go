package main

import (
	"context"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/breakers"
	agentlife "github.com/aepb/aepb-gateway/gateway/lifecycle"
	"github.com/aepb/aepb-gateway/policy"
)

// newBreakers makes the circuit breakers of all that is sent. Nothing is sent before the
// gateway that signs for them is built.
func (out *service) newBreakers(state kept) (*breakers.Set, error) {
	now := out.settings.clock
	if now == nil {
		now = time.Now
	}
	return breakers.New(breakers.Deps{
		Entries: state.entries, Metrics: out.metrics.Agents(), Replica: string(ect.NewID()), Now: now, Logger: out.logger,
		Sign: func(ctx context.Context, act ect.Act, ext ect.Ext) (string, error) {
			return out.road.Parts().Evidence.State(ctx, attest.Statement{Act: act, Ext: ext})
		},
	})
}

// parts are those of the gateway that are made before it.
type parts struct {
	breakers *breakers.Set
	lives    *agentlife.Service
}

// newLifecycle makes what knows how agents stand.
func (out *service) newLifecycle(state kept) (*agentlife.Service, error) {
	return agentlife.New(agentlife.Deps{
		Entries: state.entries, Metrics: out.metrics.Agents(), Replica: string(ect.NewID()), Now: time.Now, Logger: out.logger,
		Evidence: func() agentlife.Evidence { return out.road.Parts().Evidence },
		Identity: func(agent string) ect.Identity {
			if agent == "" {
				return out.road.Self()
			}
			listed, _ := out.directory.Find(agent)
			return listed.ID
		},
	})
}

// follow keeps what is known of lifecycles fresh until the service is closed, and ends the
// streams of those who watch breakers when it stops.
func (out *service) follow() {
	out.drain = append(out.drain, out.road.Breakers.EndWatches)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { out.road.Lifecycle.Run(ctx) })
	out.close = append(out.close, func() error {
		cancel()
		group.Wait()
		return nil
	})
}

// watches reports whether an identity may watch circuit breakers: an operator, or a
// gateway that is a peer.
func (out *service) watches(id ect.Identity) bool {
	who, ok := out.operator(id)
	_, peer := (*out.peers.Load())[string(id)]
	return ok && who.May(policy.RoleViewer) || peer
}
