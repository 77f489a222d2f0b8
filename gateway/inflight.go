package gateway

import (
	"context"
	"encoding/json"
	"sync"
)

// inflight is the requests of sessions that are under way here, so that their
// clients can stop them.
type inflight struct {
	mu    sync.Mutex
	stops map[string]context.CancelFunc
}

func inflightKey(session string, id json.RawMessage) string { return session + "\x00" + string(id) }

// enter lists a request until leave is called. Without a session nothing can
// name it.
func (f *inflight) enter(ctx context.Context, session string, id json.RawMessage) (_ context.Context, leave func()) {
	ctx, cancel := context.WithCancel(ctx)
	if session == "" || len(id) == 0 {
		return ctx, cancel
	}
	key := inflightKey(session, id)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stops == nil {
		f.stops = map[string]context.CancelFunc{}
	}
	f.stops[key] = cancel
	return ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.stops, key)
		cancel()
	}
}

// stop ends a request; false: it is not under way here.
func (f *inflight) stop(session string, id json.RawMessage) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	stop, ok := f.stops[inflightKey(session, id)]
	if ok {
		stop()
	}
	return ok
}
