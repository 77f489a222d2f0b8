package transport

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// Client is the one way to the network: *egress.Guard is one. It sends a request to a
// server that must prove the expected SPIFFE id (empty: its host name) and hands
// redirects back as they are.
type Client interface {
	DoAs(request *http.Request, expected ect.Identity) (*http.Response, error)
}

var _ Client = (*egress.Guard)(nil)

// FieldReversible is the header field of an answer that says whether what was done can be undone: true or false. It follows from the atd:checkpoint
// in Execution-Context (ATD, Checkpoint ECT Format; R22). Without a checkpoint it is absent.
const FieldReversible = "Aepb-Reversible"

// AddEvidence puts compact ECTs into a header, and says what a checkpoint among them says.
func AddEvidence(h http.Header, tokens []string) {
	for _, token := range tokens {
		h.Add(ect.HeaderName, token)
	}
	if len(tokens) < withCheckpoint {
		return
	}
	for _, token := range tokens {
		claims, _, err := ect.ParseUnverified(token) // ours
		if err != nil || claims.Act != ect.ActCheckpoint {
			continue
		}
		if reversible, ok := claims.Ext.Bool(ect.ExtReversible); ok {
			h.Set(FieldReversible, strconv.FormatBool(reversible))
		}
	}
}

// withCheckpoint is how many tokens an answer has at least that has a checkpoint: those of request, checkpoint and reply.
const withCheckpoint = 3

// BrokenError is what it means that a request or its answer broke off: an
// *egress.DeniedError, a *[CredentialError], a *[TimeoutError], the context's error or an *[UnreachableError].
func BrokenError(ctx context.Context, e Endpoint, err error) error {
	if denied, ok := errors.AsType[*egress.DeniedError](err); ok {
		return denied
	}
	if missing, ok := errors.AsType[*CredentialError](err); ok {
		return missing
	}
	if exceeded, ok := errors.AsType[*quota.ExceededError](err); ok {
		return exceeded // the caller's own doing, or that of others, but not the agent's
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return &TimeoutError{Agent: e.Agent, After: e.Timeout, Connecting: connecting(err)}
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return &UnreachableError{Agent: e.Agent, Err: err}
	}
}

// CallError is why a call over HTTP has no response: *egress.DeniedError, a *[CredentialError], a
// *[TimeoutError], a *[UnreachableError], or the context's error where the caller went
// away, which is not the agent's fault.
func CallError(ctx context.Context, e Endpoint, err error) error {
	var denied *egress.DeniedError
	var missing *CredentialError
	var network net.Error
	switch {
	case errors.As(err, &denied):
		return denied
	case errors.As(err, &missing):
		return missing
	case errors.Is(ctx.Err(), context.DeadlineExceeded), ctx.Err() == nil && errors.As(err, &network) && network.Timeout():
		return &TimeoutError{Agent: e.Agent, After: e.Timeout, Connecting: connecting(err)}
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return &UnreachableError{Agent: e.Agent, Err: err}
	}
}

// connecting reports whether an error is one of a connection that did not come about.
func connecting(err error) bool {
	failed, ok := errors.AsType[*net.OpError](err)
	return ok && failed.Op == "dial"
}
