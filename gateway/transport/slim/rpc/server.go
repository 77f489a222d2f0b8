package rpc

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/session"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// Call is a request that came in.
type Call struct {
	Request
	From    name.Name // of the caller's instance
	Subject string    // whom its token speaks for
	Session uint32    // that it came in; among those of From
}

// Responder takes the responses of a call.
type Responder interface {
	// Send waits until the session's window has space for the response. Errors: the session's,
	// the context's.
	Send(ctx context.Context, f Frame) error
}

// Handler answers calls. Safe for concurrent use.
type Handler interface {
	// Serve sends any number of responses and returns. A *StatusError tells the
	// caller how the call failed; of any other error it learns nothing but that
	// it is internal. The context ends at the call's deadline, or with its session.
	Serve(ctx context.Context, call Call, out Responder) error
}

// Counter is a Handler that is told of each call until its answer, with its status, was
// handed to the session.
type Counter interface {
	Enter() (leave func())
}

// Entered tells a handler of a call, if it wants to know.
func Entered(h Handler) (leave func()) {
	if counter, ok := h.(Counter); ok {
		return counter.Enter()
	}
	return func() {}
}

// ServeSession answers the calls on one session until it ends, and closes it.
// first was read from it already. Errors: the session's, the context's.
func ServeSession(ctx context.Context, s *session.Session, first session.Message, handler Handler, pool *worker.Pool, calls *quota.Pool, logger *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	v := NewServer(s, handler, pool, calls, logger)
	v.alone = true
	defer v.Wait()
	defer cancel()
	defer s.Close()
	for m := first; ; {
		v.Receive(ctx, m)
		var err error
		if m, err = s.Receive(ctx); err != nil {
			return err
		}
	}
}

// Server is one session's calls. In a group each member has its own, and is
// answered alone.
type Server struct {
	session *session.Session
	handler Handler
	pool    *worker.Pool // does the calls
	shares  *quota.Pool  // of calls at once, by who calls
	logger  *slog.Logger
	calls   sync.WaitGroup
	alone   bool // there is one caller in the session

	mu      sync.Mutex
	running map[running]*quota.Grant
}

// running is a call: ids are their callers' choice.
type running struct {
	from name.Key
	id   string
}

// NewServer answers on a session that its caller reads. calls bounds those that
// run, of each caller and of all: several sessions may share it.
func NewServer(s *session.Session, handler Handler, pool *worker.Pool, calls *quota.Pool, logger *slog.Logger) *Server {
	return &Server{session: s, handler: handler, pool: pool, shares: calls, logger: logger, running: map[running]*quota.Grant{}}
}

// Wait waits for the calls that run, which end with the context of Receive.
func (v *Server) Wait() { v.calls.Wait() }

// Receive begins a call, if a message is the first of one. More requests of a
// call that has begun are not for methods with one request.
func (v *Server) Receive(ctx context.Context, m session.Message) {
	id := m.Metadata[keyID]
	call := Call{
		Request: Request{Service: m.Metadata[keyService], Method: m.Metadata[keyMethod], Metadata: visible(m.Metadata), Body: m.Blob},
		From:    m.From, Subject: m.Subject, Session: v.session.ID(),
	}
	if id == "" || len(id) > maxID || call.Service == "" || call.Method == "" || m.Metadata[keyDirection] != request {
		return
	}
	one := running{m.From.Key(), id}
	taken, status := v.begin(one, call)
	if status != nil {
		v.refuse(ctx, m.From, ending(id, status))
	}
	if !taken {
		return
	}
	deadline, ok := parseDeadline(m.Metadata[keyTimeout], time.Now())
	v.calls.Add(1)
	v.pool.Go(func() {
		defer v.calls.Done()
		defer v.finished(one)
		defer Entered(v.handler)()
		if !ok {
			v.reply(ctx, m.From, ending(id, &StatusError{InvalidArgument, "the deadline is no time"}))
			return
		}
		v.serve(ctx, id, call, deadline)
	})
}

// refuse tells a caller that its call was not taken on. In a session of one caller it waits
// until it can send. In a group it sends only if it need not wait: that would delay the others.
func (v *Server) refuse(ctx context.Context, to name.Name, m session.Message) {
	if !v.alone {
		once, cancel := context.WithCancel(ctx)
		cancel()
		ctx = once
	}
	v.reply(ctx, to, m)
}

// begin takes a call on; a status says why not. A call that runs already is not
// begun again, nor told anything: the answer would be taken for its own.
func (v *Server) begin(one running, call Call) (bool, *StatusError) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case len(call.Service) > maxText || len(call.Method) > maxText:
		return false, &StatusError{InvalidArgument, "the method's name is too long"}
	case v.running[one] != nil:
		return false, nil
	}
	grant, err := v.shares.Take(limit.Identity(call.Subject), 1)
	if err != nil {
		return false, &StatusError{ResourceExhausted, "too many calls at once"}
	}
	v.running[one] = grant
	return true, nil
}

func (v *Server) finished(one running) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.running[one].Release()
	delete(v.running, one)
}

func (v *Server) serve(ctx context.Context, id string, call Call, deadline time.Time) {
	limited, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	err := limited.Err()
	if err == nil {
		err = v.handler.Serve(limited, call, responder{v.session, call.From, id})
	}
	status := &StatusError{}
	switch {
	case err == nil:
	case errors.As(err, &status):
		if status.Code == OK {
			status = &StatusError{Unknown, status.Message}
		}
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		status = &StatusError{DeadlineExceeded, "the deadline has passed"}
	default:
		v.logger.WarnContext(ctx, "handler of a SLIM call failed", slog.Any("error", err))
		status = &StatusError{Internal, "internal error"}
	}
	v.reply(ctx, call.From, ending(id, status))
}

func (v *Server) reply(ctx context.Context, to name.Name, m session.Message) {
	if err := v.session.SendTo(ctx, to, m); err != nil {
		v.logger.DebugContext(ctx, "response end of a SLIM call not sent", slog.Any("error", err))
	}
}

type responder struct {
	session *session.Session
	to      name.Name
	id      string
}

func (r responder) Send(ctx context.Context, f Frame) error {
	return r.session.SendTo(ctx, r.to, response(r.id, f))
}

// Calls reports whether a message is one of SLIMRPC.
func Calls(first session.Message) bool { return first.Metadata[keyID] != "" }
