package admission

import (
	"context"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/limit"
)

// Limits takes requests from the share of their source (AEPB, Gateway Requirements item 6):
// the verified identity, or the address of a caller who has none.
type Limits struct {
	limiter *limit.Limiter
	limited func(limit.Scope)
	attest  *attest.Service
}

// NewLimits makes limits whose refusals are counted by limited and recorded by attest.
func NewLimits(limiter *limit.Limiter, limited func(limit.Scope), attest *attest.Service) *Limits {
	return &Limits{limiter, limited, attest}
}

// Limit is steps 2 and 3: who the caller is, and whether its source asks too often. Its errors
// are why there is no caller ([transport.Refusal]) and a *[limit.ExceededError].
func (l *Limits) Limit(ctx context.Context, q transport.CallInfo) (limit.Pass, error) {
	if err := transport.Refusal(ctx); err != nil {
		if _, silent := err.(*problem.UnauthenticatedError); silent { //nolint:errorlint // one that wraps another was counted when its credential was judged
			if over := l.FailedAuthentication(ctx, "", q.Address); over != nil {
				return limit.Pass{}, over
			}
		}
		return limit.Pass{}, err
	}
	key, _ := limit.KeyOf(q.Caller, q.Address)
	d := l.limiter.Allow(key)
	return d.Pass, l.count(ctx, d, key)
}

// MayAuthenticate refuses an address without requests left before the credentials
// of its callers are judged: that is work which only a refusal pays for.
func (l *Limits) MayAuthenticate(ctx context.Context, address string) error {
	key := limit.Address(address)
	return l.count(ctx, l.limiter.Exhausted(key), key)
}

// FailedAuthentication takes a request whose credentials were refused from the
// share of the identity that its connection has proved, or without one from that
// of its address. An error refuses it instead.
func (l *Limits) FailedAuthentication(ctx context.Context, proved ect.Identity, address string) error {
	key, _ := limit.KeyOf(identity.Caller{Peer: ect.Peer{ID: proved}}, address)
	return l.count(ctx, l.limiter.Allow(key), key)
}

// count makes a decision of the limiter known.
func (l *Limits) count(ctx context.Context, d limit.Decision, key string) error {
	if d.OK {
		return nil
	}
	l.limited(d.Scope)
	err := d.Err()
	l.attest.Refusal(ctx, key, err)
	return err
}
