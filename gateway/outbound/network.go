package outbound

import (
	"context"
	"errors"
	"fmt"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Network is what dials: the end of a chain.
type Network struct {
	Agents     map[canonical.Binding]transport.Dialer
	Rollbacks  map[canonical.Binding]transport.Dialer // by the protocols whose agents take them apart from their endpoint
	Peers      transport.Dialer                       // nil: there are no other gateways
	Pushers    map[canonical.Binding]transport.Pusher // by the protocol of whom is told
	Callbacks  transport.Callbacks                    // nil: decisions have no callbacks
	Describers map[canonical.Binding]transport.Describer
	Beyond     transport.Describer // asks other gateways about agents behind them; nil: nothing does
}

var _ Sender = (*Network)(nil)

// ErrUnserved: a call has no dialer. The caller of Send asks first what this gateway speaks.
var ErrUnserved = errors.New("outbound: the call has no dialer: expected a kind and a protocol that this gateway speaks")

// Send implements Sender. [ErrUnserved]: the call has no dialer.
func (n *Network) Send(ctx context.Context, call *Call) (Reply, error) {
	binding := call.Endpoint.Binding
	switch call.Kind {
	case Webhook:
		if pusher := n.Pushers[binding]; pusher != nil {
			return Reply{}, pusher.Push(ctx, call.Endpoint.Caller, call.Webhook, call.Sealed)
		}
	case Callback:
		if n.Callbacks != nil {
			return Reply{}, n.Callbacks.Tell(ctx, call.Endpoint.Caller, call.Decision)
		}
	case Description:
		describer := n.Describers[binding]
		if call.Beyond {
			describer = n.Beyond
		}
		if describer != nil {
			description, endpoint, err := describer.Describe(ctx, call.Endpoint)
			return Reply{Description: description, Endpoint: &endpoint}, err
		}
	default:
		if dialer := n.dialer(call.Kind, binding); dialer != nil {
			reply, err := dialer.Dial(ctx, call.Endpoint, call.Sealed)
			return Reply{Reply: reply}, err
		}
	}
	return Reply{}, fmt.Errorf("%w: kind %d, %q", ErrUnserved, call.Kind, binding)
}

func (n *Network) dialer(kind Kind, binding canonical.Binding) transport.Dialer {
	switch kind {
	case Message:
		return n.Agents[binding]
	case Rollback:
		return n.Rollbacks[binding]
	default:
		return n.Peers
	}
}

// Framer gives messages of a protocol the bytes that travel; nil: its codec does.
func (n *Network) Framer(binding canonical.Binding) transport.WireFormat {
	framer, _ := n.Agents[binding].(transport.WireFormat)
	return framer
}

// Stamper names this gateway and its agents in a protocol; nil: it names no sender.
func (n *Network) Stamper(binding canonical.Binding) transport.Addresser {
	stamper, _ := n.Agents[binding].(transport.Addresser)
	return stamper
}
