package outbound

import (
	"context"
	"time"
)

// Meter measures how long agents take.
type Meter interface {
	// Sent notes how long an agent took to answer a caller of a protocol.
	Sent(agent, from, to string, took time.Duration)
}

// Metrics is the stage that measures the calls that a message answers.
func Metrics(m Meter, now func() time.Time) Stage {
	return func(next Sender) Sender {
		return SendFunc(func(ctx context.Context, call *Call) (Reply, error) {
			began := now()
			reply, err := next.Send(ctx, call)
			if call.Kind <= Peer {
				m.Sent(call.Agent, string(call.From), string(call.Endpoint.Binding), now().Sub(began))
			}
			return reply, err
		})
	}
}
