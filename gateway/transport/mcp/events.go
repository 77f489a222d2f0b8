package mcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

const (
	writeWithin  = 30 * time.Second // for a client to take one event
	longestStand = 10 * time.Minute // of a stream on which nothing is said
	maxStanding  = 4096             // of those, in all
)

// events writes a stream of server-sent events.
type events struct {
	w http.ResponseWriter
	c *http.ResponseController
}

func (v *visit) events() *events { return &events{v.w, http.NewResponseController(v.w)} }

// open sends the header. closing: an ECT will follow the last event.
func (e *events) open(evidence []string, closing bool) error {
	h := e.w.Header()
	h.Set("Content-Type", mediaEvents)
	for _, token := range evidence {
		h.Add(ect.HeaderName, token)
	}
	if closing {
		h.Set("Trailer", ect.HeaderName)
	}
	e.w.WriteHeader(http.StatusOK)
	return e.flush()
}

func (e *events) flush() error {
	_ = e.c.SetWriteDeadline(time.Now().Add(writeWithin)) // not every writer has one
	return e.c.Flush()
}

// send writes one event and waits until it is on its way.
func (e *events) send(body []byte) error {
	out := append([]byte("event: message\ndata: "), bytes.ReplaceAll(bytes.ReplaceAll(body, []byte("\r"), nil), []byte("\n"), []byte("\ndata: "))...)
	_ = e.c.SetWriteDeadline(time.Now().Add(writeWithin))
	if _, err := e.w.Write(append(out, "\n\n"...)); err != nil {
		return err
	}
	return e.flush()
}

// tell answers with a stream, one event after the other. A client that does not
// take streams gets the reply alone.
func (v *visit) tell(ctx context.Context, answer transport.Answer) {
	defer func() { _ = answer.Events.Close() }()
	if !accepts(v.r.Header.Values("Accept"), mediaEvents) || v.quiet {
		v.last(ctx, answer.Events)
		return
	}
	out := v.events()
	if err := out.open(answer.Evidence, true); err != nil {
		return
	}
	replied := false
	for {
		event, err := answer.Events.Next(ctx)
		switch {
		case errors.Is(err, io.EOF) && replied:
			return
		case err != nil:
			v.broken(ctx, out, err, replied)
			return
		}
		if len(event.Wire.Body) > 0 {
			if err := out.send(event.Wire.Body); err != nil {
				return // the client went away
			}
			replied = replied || !event.Wire.Event
			if env, err := parse(event.Wire.Body); err == nil && env.Method == "" {
				replied = true
			}
		}
		if len(event.Evidence) > 0 {
			h := v.w.Header()
			h.Del(ect.HeaderName) // what opened the stream has gone out
			for _, token := range event.Evidence {
				h.Add(ect.HeaderName, token)
			}
		}
	}
}

// broken ends a stream that broke off: in words if the reply is still owed, else
// so that the client sees it. A client that seems to be gone may still read: it
// must not take the half for the whole.
func (v *visit) broken(ctx context.Context, out *events, cause error, replied bool) {
	if !replied && ctx.Err() == nil {
		if body, err := v.failure(cause); err == nil && out.send(body) == nil {
			return
		}
	}
	panic(http.ErrAbortHandler) // the one way to end a response visibly
}

// last waits for the reply of a stream.
func (v *visit) last(ctx context.Context, stream transport.Events) {
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
		v.issued = append(v.issued, event.Evidence...)
		if env, err := parse(event.Wire.Body); err == nil && env.Method == "" {
			reply = &event
		}
	}
	v.write(reply.Wire, reply.Wire.Status)
}

// failure is an error in MCP's words.
func (v *visit) failure(err error) ([]byte, error) {
	wire, encodeErr := v.encodeFailure(problem.Native(err))
	return wire.Body, encodeErr
}
