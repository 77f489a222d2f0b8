package plain

import (
	"context"
	"log/slog"
	"sync"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/session"
)

// ServeSession answers the messages of one session until it ends, and closes
// it. first was read from it already. The handler sends JSON-RPC messages of its
// own making, errors too; one that it returns is only logged. When too many
// calls run, reading waits, and so does whoever sends them. Errors: the
// session's, the context's.
func ServeSession(ctx context.Context, s *session.Session, first session.Message, handler rpc.Handler, logger *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	defer s.Close()
	slots := make(chan struct{}, maxCalls)
	for m := first; ; {
		if _, ok := peek(m.Blob); ok {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case slots <- struct{}{}:
			}
			call := rpc.Call{Request: rpc.Request{Metadata: m.Metadata, Body: m.Blob}, From: m.From, Subject: s.Subject()}
			calls.Go(func() {
				defer func() { <-slots }()
				if err := handler.Serve(ctx, call, responder{s}); err != nil {
					logger.WarnContext(ctx, "a SLIM message failed", slog.Any("error", err))
				}
			})
		}
		var err error
		if m, err = s.Receive(ctx); err != nil {
			return err
		}
	}
}

type responder struct{ session *session.Session }

func (r responder) Send(ctx context.Context, f rpc.Frame) error {
	return r.session.Send(ctx, session.Message{Type: payloadType, Blob: f.Body, Metadata: f.Metadata})
}
