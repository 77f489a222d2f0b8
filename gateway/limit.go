package gateway

import (
	"context"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/limit"
)

// Limit is steps 2 and 3: who it is, and whether that source asks too often
// (AEPB, Gateway Requirements item 6). A source is the verified identity, or
// the address of a caller who has none.
func (g *Gateway) Limit(ctx context.Context, q transport.Inquiry) error {
	if err := transport.Refusal(ctx); err != nil {
		if _, silent := err.(*problem.UnauthenticatedError); silent { //nolint:errorlint // one that wraps another was counted when its credential was judged
			if over := g.FailedAuthentication(ctx, "", q.Address); over != nil {
				return over
			}
		}
		return err
	}
	key := holderOf(q.Caller, q.Address)
	return g.count(ctx, g.Limiter.Allow(key), key)
}

// MayAuthenticate refuses an address without requests left before the credentials
// of its callers are judged: that is work which only a refusal pays for.
func (g *Gateway) MayAuthenticate(ctx context.Context, address string) error {
	key := limit.Address(address)
	return g.count(ctx, g.Limiter.Exhausted(key), key)
}

// FailedAuthentication takes a request whose credentials were refused from the
// share of the identity that its connection has proved, or without one from that
// of its address. An error refuses it instead.
func (g *Gateway) FailedAuthentication(ctx context.Context, proved ect.Identity, address string) error {
	key := limit.Address(address)
	if proved != "" {
		key = limit.Identity(string(proved))
	}
	return g.count(ctx, g.Limiter.Allow(key), key)
}

// count makes a decision of the limiter known.
func (g *Gateway) count(ctx context.Context, d limit.Decision, key string) error {
	if d.OK {
		return nil
	}
	g.Metrics.RateLimited(d.Scope)
	err := d.Err()
	g.attest.Refusal(ctx, key, err)
	return err
}

// limited is Limit for a message whose door has not asked.
func (g *Gateway) limited(ctx context.Context, call transport.Call) error {
	if call.Limited {
		return nil
	}
	return g.Limit(ctx, transport.Inquiry{Agent: call.Agent, Caller: call.Caller, Address: call.Address, Binding: call.Wire.Binding})
}

// Flush records the refusals that were counted and not recorded yet. Nothing is refused
// after it.
func (g *Gateway) Flush(ctx context.Context) error { return g.attest.Flush(ctx) }

// holderOf is who is charged for what a caller does.
func holderOf(caller identity.Caller, address string) string {
	if caller.Anonymous || caller.ID == "" {
		return limit.Address(address)
	}
	return limit.Identity(string(caller.ID))
}
