package transport

import (
	"context"
	"net"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

type requestKey struct{}

// WithRequestID marks the context of a request with its id, which its answer and its
// lines in the log have in common.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestKey{}, id)
}

// RequestID is the id of a request; empty: it has none.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}

// Share is what one request holds of the bytes in flight.
type Share interface {
	// Answer is that of an [egress.Budget], for an answer of this agent.
	Answer(ctx context.Context, agent string, n int64, whole bool) error
	// Crowded is why no agent is asked; nil: it may be.
	Crowded() error
	Ended() bool
	End()
}

type shareKey struct{}

// WithShare marks the context of a request with what it holds.
func WithShare(ctx context.Context, share Share) context.Context {
	return context.WithValue(ctx, shareKey{}, share)
}

// ShareFrom is what the request of a context holds; nil: it counts elsewhere.
func ShareFrom(ctx context.Context) Share {
	share, _ := ctx.Value(shareKey{}).(Share)
	return share
}

type callerKey struct{}

type arrival struct {
	caller  identity.Caller
	address string
	refusal error
}

// WithCaller marks a request's context with the authenticated caller and its
// remote address, and with the end of the token that the caller showed, which ends
// its streams ([identity.Bound]). Only the listener that authenticated it calls this.
func WithCaller(ctx context.Context, caller identity.Caller, address string) context.Context {
	if !caller.Until.IsZero() {
		ctx = identity.WithUntil(ctx, caller.Until)
	}
	return context.WithValue(ctx, callerKey{}, arrival{caller: caller, address: address})
}

// WithoutCaller returns the context of a request whose caller has no valid identity, and
// why. A step that needs an identity refuses the request with that error.
func WithoutCaller(ctx context.Context, refusal error, address string) context.Context {
	return context.WithValue(ctx, callerKey{}, arrival{refusal: refusal, address: address})
}

// Refusal returns why there is no caller; nil: there is one, or no identity was checked.
func Refusal(ctx context.Context) error {
	a, _ := ctx.Value(callerKey{}).(arrival)
	return a.refusal
}

// CallInfoFrom is the CallInfo of a request.
func CallInfoFrom(ctx context.Context, agent string, server canonical.Binding) CallInfo {
	return CallInfo{Agent: agent, Binding: server, Caller: CallerFrom(ctx), Address: AddressFrom(ctx)}
}

// With is the inquiry of a request that has its Pass.
func (q CallInfo) With(pass limit.Pass) CallInfo {
	q.Pass = pass
	return q
}

// CallerFrom returns the authenticated caller; the zero Caller: there is none.
func CallerFrom(ctx context.Context) identity.Caller {
	a, _ := ctx.Value(callerKey{}).(arrival)
	return a.caller
}

type subjectKey struct{}

type subject struct{ token, kind string }

// WithSubjectToken marks the context of a request with the OAuth token that its caller showed, and its type (RFC 8693,
// section 3). It goes to the token endpoint that exchanges it for an agent, and nowhere else. Only the listener that
// verified the token calls this.
func WithSubjectToken(ctx context.Context, token, kind string) context.Context {
	return context.WithValue(ctx, subjectKey{}, subject{token, kind})
}

// SubjectToken is the OAuth token that the caller of a request showed, and its type; false: it showed none.
func SubjectToken(ctx context.Context) (token, kind string, ok bool) {
	s, ok := ctx.Value(subjectKey{}).(subject)
	return s.token, s.kind, ok && s.token != ""
}

// OnBehalf gives a context with a life of its own what another one says of the agent that requests go to, and of the
// caller.
func OnBehalf(own, of context.Context) context.Context {
	if purpose, ok := egress.PurposeFrom(of); ok {
		own = egress.WithPurpose(own, purpose)
	}
	if token, kind, ok := SubjectToken(of); ok {
		own = WithSubjectToken(own, token, kind)
	}
	return own
}

// Host is a remote address without its port.
func Host(remote string) string {
	if host, _, err := net.SplitHostPort(remote); err == nil {
		return host
	}
	return remote
}

// AddressFrom is the remote address without its port; empty: unknown.
func AddressFrom(ctx context.Context) string {
	a, _ := ctx.Value(callerKey{}).(arrival)
	return a.address
}
