package transport

import (
	"context"
	"errors"
	"net"

	"github.com/aepb/aepb-gateway/gateway/transport/egress"
)

// CallError is why a call over HTTP has no response: *egress.DeniedError, a
// *[TimeoutError], a *[UnreachableError], or the context's error where the caller went
// away, which is not the agent's fault.
func CallError(ctx context.Context, e Endpoint, err error) error {
	var denied *egress.DeniedError
	var network net.Error
	switch {
	case errors.As(err, &denied):
		return denied
	case errors.Is(ctx.Err(), context.DeadlineExceeded), ctx.Err() == nil && errors.As(err, &network) && network.Timeout():
		return &TimeoutError{Agent: e.Agent, After: e.Timeout}
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return &UnreachableError{Agent: e.Agent, Err: err}
	}
}
