package transport

import (
	"context"

	"github.com/aepb/aepb-gateway/ect/identity"
)

type callerKey struct{}

type arrival struct {
	caller  identity.Caller
	address string
}

// WithCaller marks a request's context with the authenticated caller and its
// remote address. Only the listener that authenticated it calls this.
func WithCaller(ctx context.Context, caller identity.Caller, address string) context.Context {
	return context.WithValue(ctx, callerKey{}, arrival{caller, address})
}

// CallerFrom is the authenticated caller; the zero Caller: nobody.
func CallerFrom(ctx context.Context) identity.Caller {
	a, _ := ctx.Value(callerKey{}).(arrival)
	return a.caller
}

// AddressFrom is the remote address without its port; empty: unknown.
func AddressFrom(ctx context.Context) string {
	a, _ := ctx.Value(callerKey{}).(arrival)
	return a.address
}
