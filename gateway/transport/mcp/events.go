package mcp

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// open begins a stream; closing: an ECT will follow the last event.
func (v *serverCall) open(evidence []string, closing bool) *sse.Writer {
	transport.AddEvidence(v.w.Header(), evidence)
	trailer := ""
	if closing {
		trailer = ect.HeaderName
	}
	out := sse.NewWriter(v.w, trailer)
	out.Name("message")
	return out
}

// errNoReply is a fault of the gateway: a stream of the pipeline ends with the reply or an error.
var errNoReply = errors.New("mcp: the stream of the exchange ended before its reply")

// tell answers with a stream, one event after the other. A client that does not
// take streams gets the reply alone.
func (v *serverCall) tell(ctx context.Context, answer transport.Answer) {
	defer func() { _ = answer.Events().Close() }()
	if !accepts(v.r.Header.Values("Accept"), mediaEvents) || v.quiet {
		v.last(ctx, answer.Events())
		return
	}
	ctx, leave := identity.Bound(ctx)
	defer leave()
	out := v.open(answer.Evidence, true)
	defer out.Stop()
	replied := false
	for {
		event, err := answer.Events().Next(ctx)
		switch {
		case errors.Is(err, io.EOF) && replied:
			return
		case errors.Is(err, io.EOF):
			v.broken(ctx, out, errNoReply, replied)
			return
		case err != nil:
			v.broken(ctx, out, err, replied)
			return
		}
		if len(event.Wire.Body) > 0 {
			if err := out.Send(event.Wire.Body); err != nil {
				return // the client went away
			}
			replied = replied || !event.Wire.Event
			if env, err := parse(event.Wire.Body); err == nil && env.Method == "" {
				replied = true
			}
		}
		if len(event.Evidence) > 0 {
			out.Close(event.Evidence)
		}
	}
}

// broken ends a stream that broke off: in words if the reply is still owed, else
// so that the client sees it. A client that seems to be gone may still read: it
// must not take the half for the whole.
func (v *serverCall) broken(ctx context.Context, out *sse.Writer, cause error, replied bool) {
	if !replied && ctx.Err() == nil {
		if body, err := v.failure(cause); err == nil && out.Send(body) == nil {
			return
		}
	}
	panic(http.ErrAbortHandler) // the one way to end a response visibly
}

// last waits for the reply of a stream.
func (v *serverCall) last(ctx context.Context, stream transport.Events) {
	var reply *transport.Event
	for {
		event, err := stream.Next(ctx)
		if errors.Is(err, io.EOF) && reply != nil {
			break
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = &canonical.Error{Code: canonical.CodeBadUpstream, Message: "the stream ended before its last event"}
			}
			v.fail(err)
			return
		}
		v.issue(event.Evidence)
		if env, err := parse(event.Wire.Body); err == nil && env.Method == "" {
			reply = &event
		}
	}
	v.write(reply.Wire, reply.Wire.Status)
}

// failure is an error in MCP's words.
func (v *serverCall) failure(err error) ([]byte, error) {
	v.logInternal(err)
	wire, encodeErr := v.encodeFailure(problem.NativeFor(v.knows, err))
	return wire.Body, encodeErr
}
