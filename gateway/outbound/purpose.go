package outbound

import (
	"context"

	"github.com/aepb/aepb-gateway/gateway/transport/egress"
)

// Purposes is the stage that says for which agent, and on whose behalf, requests are sent, so that the exit can show
// the agent's credential. What goes to other gateways, webhooks and callbacks has none. A description serves all
// callers, so the gateway asks for it in its own name.
func Purposes(next Sender) Sender {
	return SendFunc(func(ctx context.Context, call *Call) (Reply, error) {
		switch {
		case call.Kind == Message, call.Kind == Rollback:
			ctx = egress.WithPurpose(ctx, egress.Purpose{Agent: call.Endpoint.Agent, Caller: call.Endpoint.Caller})
		case call.Kind == Description && !call.Beyond:
			ctx = egress.WithPurpose(ctx, egress.Purpose{Agent: call.Endpoint.Agent, Caller: call.Endpoint.Caller, Own: call.Endpoint.Session == ""})
		}
		return next.Send(ctx, call)
	})
}
