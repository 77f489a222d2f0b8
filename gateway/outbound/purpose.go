package outbound

import (
	"context"

	"github.com/aepb/aepb-gateway/gateway/transport/egress"
)

// Purposes is the stage that says for which agent, and on whose behalf, requests are sent, so that the exit can show
// the agent's credential. What goes to other gateways, webhooks and callbacks has none. A description serves all
// callers, so the gateway asks for it in its own name; where an agent is called in the names of callers (exchanges), in
// a session of its own too.
func Purposes(exchanges func(agent string) bool) Stage {
	return func(next Sender) Sender {
		return SendFunc(func(ctx context.Context, call *Call) (Reply, error) {
			purpose := egress.Purpose{Agent: call.Endpoint.Agent, Caller: call.Endpoint.Caller}
			switch {
			case call.Kind == Message, call.Kind == Rollback:
				return next.Send(egress.WithPurpose(ctx, purpose), call)
			case call.Kind != Description || call.Beyond:
				return next.Send(ctx, call)
			}
			purpose.Own = call.Endpoint.Session == ""
			ctx = egress.WithPurpose(ctx, purpose)
			if !purpose.Own || !exchanges(purpose.Agent) {
				return next.Send(ctx, call)
			}
			own := *call
			own.Endpoint.Caller = ""
			reply, err := next.Send(ctx, &own)
			if reply.Endpoint != nil {
				reply.Endpoint.Caller = purpose.Caller
			}
			return reply, err
		})
	}
}
