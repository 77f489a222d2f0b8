package outbound

import (
	"context"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Describers are what stands for those of a network: each asks through a chain that ends
// there, and has the capabilities of the one that it stands for; nil stands for nil.
func Describers(sender Sender, n *Network) (agents map[canonical.Binding]transport.Describer, beyond transport.Describer) {
	agents = make(map[canonical.Binding]transport.Describer, len(n.Describers))
	for binding, own := range n.Describers {
		agents[binding] = inPlaceOf(own, describer{sender: sender})
	}
	return agents, inPlaceOf(n.Beyond, describer{sender: sender, beyond: true})
}

// describer asks through a chain.
type describer struct {
	sender Sender
	beyond bool
}

// Describe implements transport.Describer.
func (d describer) Describe(ctx context.Context, e transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	reply, err := d.sender.Send(ctx, &Call{Kind: Description, Endpoint: e, Agent: e.Agent, Beyond: d.beyond})
	if reply.Endpoint == nil || err != nil && reply.Endpoint.Agent == "" {
		return reply.Description, e, err // a stage has refused it, and the agent was not asked
	}
	return reply.Description, *reply.Endpoint, err
}

// byCapabilities is one whose agents look at what a client can be asked.
type byCapabilities struct{ describer }

// ByCapabilities implements transport.ByCapabilities.
func (byCapabilities) ByCapabilities() {}

// inPlaceOf gives d the capabilities of the one that it stands for.
func inPlaceOf(own transport.Describer, d describer) transport.Describer {
	_, capable := own.(transport.ByCapabilities)
	revised, revises := own.(transport.ByRevision)
	switch {
	case own == nil:
		return nil
	case capable && revises:
		return struct {
			byCapabilities
			transport.ByRevision
		}{byCapabilities{d}, revised}
	case capable:
		return byCapabilities{d}
	case revises:
		return struct {
			describer
			transport.ByRevision
		}{d, revised}
	default:
		return d
	}
}
