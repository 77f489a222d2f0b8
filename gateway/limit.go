package gateway

import (
	"context"
	"errors"
	"log/slog"
	"strconv"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/sample"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/limit"
)

// maxFlushed bounds how many sources have their own last sample at the end.
const maxFlushed = 64

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
	g.refuse(ctx, key, err)
	return err
}

// limited is Limit for a message whose door has not asked.
func (g *Gateway) limited(ctx context.Context, call transport.Call) error {
	if call.Limited {
		return nil
	}
	return g.Limit(ctx, transport.Inquiry{Agent: call.Agent, Caller: call.Caller, Address: call.Address, Binding: call.Wire.Binding})
}

// refuse leaves a sampled error ECT (architecture section 5): a flood of
// refusals must not become a flood of signatures.
func (g *Gateway) refuse(ctx context.Context, source string, cause error) {
	p := problem.From(cause)
	counted, due := g.refusals.Note(sample.Key{Source: source, Reason: p.Code})
	if due {
		_ = g.tell(ctx, counted) // logged, and counted again
	}
}

// tell records one sample. It testifies to no single message, so it has neither
// parents nor hashes nor a workflow.
func (g *Gateway) tell(ctx context.Context, s sample.Sample) error {
	ctx = context.WithoutCancel(ctx)
	ext := ect.Ext{
		ect.ExtRefusals:     strconv.AppendUint(nil, s.Count, 10),
		ect.ExtRefusedSince: strconv.AppendInt(nil, s.Since.Unix(), 10),
	}
	audience := []string{string(g.Self())}
	source, known := limit.IdentityOf(s.Key.Source)
	if known {
		ext.SetString(ect.ExtCaller, source)
		audience = append(audience, source)
	}
	ext.SetString(ect.ExtAgentVersion, g.settings.Load().Version)
	ext.SetString(ect.ExtGatewayID, string(g.Self()))
	ext.SetString(ect.ExtError, problem.ECTInternal)
	ext.SetString(ect.ExtDescription, "requests refused without further work")
	ext.SetString(ect.ExtRefusal, s.Key.Reason)
	token, err := g.Signer.Sign(ect.Claims{Act: ect.ActTranslateError, Audience: audience, Parents: []ect.ID{}, Ext: ext})
	if err == nil {
		_, err = g.Recorder.Record(ctx, token, ect.Filing{Holder: s.Key.Source})
	}
	if err != nil {
		g.refusals.Return(s)
		g.Logger.ErrorContext(ctx, "a sample of refusals could not be recorded", slog.Any("error", err))
		return err
	}
	g.Metrics.Issued(string(ect.ActTranslateError), ect.L2)
	g.Logger.WarnContext(ctx, "refused", slog.String("reason", s.Key.Reason), slog.String("source", s.Key.Source),
		slog.Uint64("count", s.Count), slog.String("jti", string(token.ID())))
	return nil
}

// Flush records what was counted and not told yet. Nothing is refused after it.
func (g *Gateway) Flush(ctx context.Context) error {
	var errs []error
	for _, s := range g.refusals.Flush(maxFlushed) {
		errs = append(errs, g.tell(ctx, s))
	}
	return errors.Join(errs...)
}

// holderOf is who is charged for what a caller does.
func holderOf(caller identity.Caller, address string) string {
	if caller.Anonymous || caller.ID == "" {
		return limit.Address(address)
	}
	return limit.Identity(string(caller.ID))
}
