package plain

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/session"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// ServeSession answers the messages of one session until it ends, and closes
// it. first was read from it already. The handler sends JSON-RPC messages of its
// own making, errors too; one that it returns is only logged. When too many
// calls run, reading waits, and so does their sender. Errors: the
// session's, the context's.
func ServeSession(ctx context.Context, s *session.Session, first session.Message, handler rpc.Handler, pool *worker.Pool, calls *quota.Pool, logger *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	v := NewServer(s, handler, pool, calls, logger)
	defer v.Wait()
	defer cancel()
	defer s.Close()
	for m := first; ; {
		if err := v.receive(ctx, m); err != nil {
			return err
		}
		var err error
		if m, err = s.Receive(ctx); err != nil {
			return err
		}
	}
}

// Server is one session's messages. In a group each member is answered alone.
type Server struct {
	session *session.Session
	handler rpc.Handler
	pool    *worker.Pool // does the calls
	shares  *quota.Pool  // of calls at once, by who calls
	logger  *slog.Logger
	slots   chan struct{} // of a session with one caller
	calls   sync.WaitGroup
}

// NewServer answers on a session that its caller reads. calls bounds those that
// run, of each caller and of all: several sessions may share it.
func NewServer(s *session.Session, handler rpc.Handler, pool *worker.Pool, calls *quota.Pool, logger *slog.Logger) *Server {
	return &Server{session: s, handler: handler, pool: pool, shares: calls, logger: logger, slots: make(chan struct{}, maxCalls)}
}

// Wait waits for the calls that run, which end with the context of theirs.
func (v *Server) Wait() { v.calls.Wait() }

// receive handles a message as soon as fewer calls run than may.
func (v *Server) receive(ctx context.Context, m session.Message) error {
	e, ok := peek(m.Blob)
	if !ok {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case v.slots <- struct{}{}:
		v.begin(ctx, m, e.ID, func() { <-v.slots })
		return nil
	}
}

// Request handles a message if it is a request, and never waits: there are
// others in the session. One too many is answered so. What is said to all and
// asks for nothing, and what members answer each other, is not for us.
func (v *Server) Request(ctx context.Context, m session.Message) {
	e, ok := peek(m.Blob)
	if !ok || e.Method == nil || e.ID == nil {
		return
	}
	v.begin(ctx, m, e.ID, func() {})
}

const busy = `,"error":{"code":-32603,"message":"too many calls at once"}}`

func (v *Server) busy(ctx context.Context, m session.Message, id json.RawMessage) {
	answer := append(append([]byte(`{"jsonrpc":"2.0","id":`), id...), busy...)
	ctx, cancel := context.WithCancel(ctx)
	cancel() // sends only if the window has space: other members do not wait for this one
	if err := v.session.SendTo(ctx, m.From, session.Message{Type: payloadType, Blob: answer}); err != nil {
		v.logger.DebugContext(ctx, "message on a SLIM node not refused", slog.Any("error", err))
	}
}

// begin handles a message, within its caller's share. done is called in the end.
func (v *Server) begin(ctx context.Context, m session.Message, id json.RawMessage, done func()) {
	grant, err := v.shares.Take(limit.Identity(m.Subject), 1)
	if err != nil {
		if id != nil {
			v.busy(ctx, m, id)
		}
		done()
		return
	}
	call := rpc.Call{Request: rpc.Request{Metadata: m.Metadata, Body: m.Blob}, From: m.From, Subject: m.Subject, Session: v.session.ID()}
	v.calls.Add(1)
	v.pool.Go(func() {
		defer v.calls.Done()
		defer done()
		defer grant.Release()
		defer rpc.Entered(v.handler)()
		if err := v.handler.Serve(ctx, call, responder{v.session, m.From}); err != nil {
			v.logger.WarnContext(ctx, "handler of a SLIM message failed", slog.Any("error", err))
		}
	})
}

type responder struct {
	session *session.Session
	to      name.Name
}

func (r responder) Send(ctx context.Context, f rpc.Frame) error {
	return r.session.SendTo(ctx, r.to, session.Message{Type: payloadType, Blob: f.Body, Metadata: f.Metadata})
}
