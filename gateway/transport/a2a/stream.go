package a2a

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// streamHints are what a request that is answered with a stream must hold
// somewhere, in its body or its path.
var streamHints = []string{"SendStreamingMessage", "SubscribeToTask", "message/stream", "tasks/resubscribe", ":stream", ":subscribe"}

// holds reports whether a hint is in the path or in the body of a request.
func holds(wire translators.Wire, hints []string) bool {
	return slices.ContainsFunc(hints, func(hint string) bool {
		return strings.Contains(wire.Path, hint) || wire.Form != form.FormHTTP && bytes.Contains(wire.Body, []byte(hint))
	})
}

// streaming reports whether a request asks for a stream. Most do not, and are
// not read for it.
func streaming(codec translators.Translator, wire translators.Wire) bool {
	if !holds(wire, streamHints) {
		return false
	}
	m, _ := codec.Decode(wire)
	return m != nil && m.Phase == canonical.PhaseRequest && (m.Preferences.Stream || m.Op == canonical.OpTaskSubscribe)
}

// tell answers with a stream: one event at a time, the next one asked for when
// the last was taken. It ends with the evidence for all of it in a trailer.
func (d *Server) tell(w http.ResponseWriter, r *http.Request, call transport.Call, events transport.Events) {
	defer func() { _ = events.Close() }()
	ctx, leave := identity.Bound(r.Context())
	defer leave()
	s := sse.NewWriter(w, ect.HeaderName)
	defer s.Stop()
	for {
		event, err := events.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return
		case ctx.Err() != nil:
			panic(http.ErrAbortHandler) // tells a caller that still reads that the stream is incomplete
		case err != nil:
			wire, _, _ := d.failure(ctx, call.Wire, err)
			_ = s.Send(wire.Body)
			return
		}
		if len(event.Evidence) > 0 {
			s.Close(event.Evidence)
		}
		if len(event.Wire.Body) == 0 {
			continue
		}
		if s.Send(event.Wire.Body) != nil {
			return
		}
	}
}

// single answers a request for a stream with the one message that there is.
func single(w http.ResponseWriter, wire translators.Wire) {
	s := sse.NewWriter(w, ect.HeaderName)
	defer s.Stop()
	_ = s.Send(wire.Body)
}

// cardHints are what a question for the extended card must hold.
var cardHints = []string{"ExtendedAgentCard", "ExtendedCard", "/extendedAgentCard", "/v1/card"}

// asksCard is the request for the extended card, decoded; nil: it is another request.
func asksCard(codec translators.Translator, wire translators.Wire) *canonical.Message {
	if !holds(wire, cardHints) {
		return nil
	}
	m, err := codec.Decode(wire)
	if err != nil || m.Op != canonical.OpNative {
		return nil
	}
	return m
}

// failure is an error in the words of the request: its form, its version, and
// its id as far as they could be read.
func (d *Server) failure(ctx context.Context, request translators.Wire, cause error) (translators.Wire, problem.Problem, error) {
	p := problem.From(cause)
	m := &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseError, Body: problem.NativeFor(problem.Knows(ctx), cause)}
	target := translators.Target{Form: request.Form}
	if decoded, _ := d.deps.Form.Decode(request); decoded != nil {
		m.Correlation.WireID, target.Version = decoded.Correlation.WireID, decoded.Origin.Version
	}
	if target.Form == form.FormHTTP {
		target.Version = request.Version // its place says it, whatever else does
	}
	wire, _, err := d.deps.Form.Encode(m, target)
	return wire, p, err
}
