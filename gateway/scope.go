package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// scope is what one request takes while it is under way, and gives back once.
type scope struct {
	began   time.Time
	release func()             // counts the request out; nil: it is part of another request
	once    sync.Once          // release and forget are called once
	stopped context.Context    //nolint:containedctx // ends when the caller cancels its request; nil: it cannot any more
	worker  *quota.Grant       // of the background work that the message may begin; nil: it was not reserved, or is in use
	forget  context.CancelFunc // takes the request out of the registry; nil: it is not in it
}

// close calls finish, and then gives back what the request took. Later calls do
// nothing.
func (s *scope) close(finish func()) {
	s.once.Do(func() {
		finish()
		if s.release != nil {
			s.release()
		}
		if s.forget != nil {
			s.forget()
		}
	})
}

// releaseWorker gives back the share of background work, unless work that goes on has it.
func (s *scope) releaseWorker() {
	if s.worker != nil {
		s.worker.Release()
		s.worker = nil
	}
}

// isCanceled reports whether the caller canceled its request.
func (s *scope) isCanceled() bool {
	return s.stopped != nil && errors.Is(context.Cause(s.stopped), errCanceled)
}

// requests counts the requests that are under way. Once it drains, the gateway takes no
// new work.
type requests struct {
	mu       sync.Mutex
	count    int
	draining bool
	idle     chan struct{} // closed when no request is under way; nil: drain does not wait
}

// enter counts a request until leave is called.
func (r *requests) enter() (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	return r.leave
}

func (r *requests) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count--; r.count == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// drain stops new work, and waits until no request is under way or ctx ends.
func (r *requests) drain(ctx context.Context) {
	r.mu.Lock()
	r.draining = true
	if r.count == 0 {
		r.mu.Unlock()
		return
	}
	if r.idle == nil {
		r.idle = make(chan struct{})
	}
	idle := r.idle
	r.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

func (r *requests) isIdle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count == 0
}

func (r *requests) isDraining() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draining
}

// cancelRegistry holds the requests of sessions that are under way in this process, so
// that their clients can cancel them, and no two requests of a session have one id.
type cancelRegistry struct {
	watchers *worker.Group // watch whether other replicas cancel a request that is under way here

	mu      sync.Mutex
	cancels map[string]context.CancelFunc
}

func cancelKeyOf(session string, id json.RawMessage) string { return session + "\x00" + string(id) }

// errInUse: an id names one request of a session (MCP, "Requests"). A cancellation could
// mean either of two requests with the same id.
var errInUse = &canonical.Error{
	Code: canonical.CodeInvalidRequest, Message: "a request with this id is under way in this session",
}

// register adds a request until release is called. Its error is errInUse.
func (r *cancelRegistry) register(ctx context.Context, session string, id json.RawMessage) (_ context.Context, release func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	key := cancelKeyOf(session, id)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancels == nil {
		r.cancels = map[string]context.CancelFunc{}
	}
	if r.cancels[key] != nil {
		cancel(nil)
		return nil, nil, errInUse
	}
	r.cancels[key] = func() { cancel(errCanceled) }
	return ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.cancels, key)
		cancel(nil)
	}, nil
}

// cancel cancels a request. It reports whether the request is under way here.
func (r *cancelRegistry) cancel(session string, id json.RawMessage) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	cancel, ok := r.cancels[cancelKeyOf(session, id)]
	if ok {
		cancel()
	}
	return ok
}

// register adds the message's request to the registry until its scope closes. A request
// without a session cannot be named, so it is not added.
func (g *Gateway) register(ctx context.Context, x *exchange) (context.Context, error) {
	x.scope.stopped = g.lifetime(ctx, x)
	session := x.in.Call.Session
	if session == "" || len(x.in.WireID) == 0 {
		return x.scope.stopped, nil
	}
	ctx, cancel := context.WithCancelCause(x.scope.stopped)
	ctx, release, err := g.cancels.register(ctx, session, x.in.WireID)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	key := x.cancelKey(x.in.WireID)
	// Most requests are over before it is worth a write to the store.
	watch := time.AfterFunc(grace, func() {
		_ = g.cancels.watchers.GoFor(key.OwnerOf(), 0, func(life context.Context) {
			ctx, end := context.WithCancel(ctx)
			defer end()
			defer context.AfterFunc(life, end)()
			g.tasks.WatchCancel(ctx, key, func() { cancel(errCanceled) })
		})
	})
	x.scope.stopped, x.scope.forget = ctx, func() { watch.Stop(); release(); cancel(nil) }
	return ctx, nil
}

// stopCause tells an error that came of the end of this process, or of the caller's own
// cancellation, from other errors.
func (g *Gateway) stopCause(x *exchange, err error) error {
	switch {
	case !errors.Is(err, context.Canceled):
		return err
	case g.workers.Context().Err() != nil:
		return errStopped
	case x.scope.isCanceled():
		return errCanceled
	}
	return err
}

func (x *exchange) cancelKey(id json.RawMessage) store.EntryKey {
	return store.CancelKey(x.owner(), x.in.Call.Session, id)
}

// cancel cancels a request of a session at whichever replica it is under way. It
// reports whether a replica has said that it is.
func (g *Gateway) cancel(ctx context.Context, x *exchange, id json.RawMessage) (bool, error) {
	session := x.in.Call.Session
	if g.cancels.cancel(session, id) {
		return true, nil
	}
	if session == "" || len(id) == 0 {
		return false, nil
	}
	return g.tasks.Cancel(ctx, x.cancelKey(id))
}
