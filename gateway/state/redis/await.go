package redis

import (
	"context"
	"errors"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/worker"
)

// How often a wait reads the entry itself: seldom while changes are announced, often while they are
// not.
const (
	pollListening = 5 * time.Second
	pollDeaf      = 300 * time.Millisecond
	// patience is for how long Redis may be away during a wait.
	patience = 10 * time.Second
	// pingEvery is how often a silent subscription is tried.
	pingEvery = 3 * time.Second
)

// watches are who waits for which key.
type watches struct {
	mu        sync.Mutex
	byKey     map[string]*watch
	listening bool
}

type watch struct {
	changed chan struct{} // closed by the next change
	waiting int
}

// join is what to wait on for a key, and how long at most.
func (w *watches) join(key string) (*watch, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.byKey[key]
	if one == nil {
		one = &watch{changed: make(chan struct{})}
		w.byKey[key] = one
	}
	one.waiting++
	if w.listening {
		return one, pollListening
	}
	return one, pollDeaf
}

func (w *watches) leave(key string, one *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one.waiting--; one.waiting == 0 && w.byKey[key] == one {
		delete(w.byKey, key)
	}
}

func (w *watches) wake(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one, ok := w.byKey[key]; ok {
		close(one.changed)
		delete(w.byKey, key)
	}
}

// setListening notes whether changes are announced to us. Either way everybody looks
// once: something may have been missed.
func (w *watches) setListening(listening bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listening == listening && !listening {
		return
	}
	w.listening = listening
	w.nudge()
}

// nudge, called locked, lets everybody look.
func (w *watches) nudge() {
	for key, one := range w.byKey {
		close(one.changed)
		delete(w.byKey, key)
	}
}

func (w *watches) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nudge()
}

// Await waits for an entry, as [state.Entries.Await] does. It bears that Redis is
// away for ten seconds.
func (e *Entries) Await(ctx context.Context, key state.EntryKey, after uint64) (state.Entry, bool, error) {
	name, away := e.keys(key)[0], time.Time{}
	for {
		one, most := e.watches.join(name)
		found, ok, err := e.Get(ctx, key)
		gone := (*state.UnavailableError)(nil)
		switch {
		case ctx.Err() != nil:
			e.watches.leave(name, one)
			return state.Entry{}, false, ctx.Err()
		case errors.As(err, &gone) && (away.IsZero() || time.Since(away) < patience) && e.store.ctx.Err() == nil:
			most = pollDeaf
			if away.IsZero() {
				away = time.Now()
			}
		case err != nil || !ok || found.Revision > after:
			e.watches.leave(name, one)
			return found, ok, err
		default:
			away = time.Time{}
			most = min(most, max(time.Until(found.Until)+time.Millisecond, time.Millisecond))
		}
		e.pause(ctx, one, most)
		e.watches.leave(name, one)
	}
}

func (e *Entries) pause(ctx context.Context, one *watch, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-one.changed:
	case <-timer.C:
	case <-ctx.Done():
	case <-e.store.ctx.Done():
	}
}

func (s *Store) channel() string { return s.config.Prefix + "changes" }

// listen passes on what other replicas announce, until the store is closed.
func (e *Entries) listen() {
	s := e.store
	for s.ctx.Err() == nil {
		message, err := s.changes.ReceiveTimeout(s.ctx, pingEvery)
		switch m := message.(type) {
		case *goredis.Subscription:
			e.watches.setListening(true)
		case *goredis.Message:
			e.watches.wake(m.Payload)
		}
		if err == nil {
			continue
		}
		if timeout := (interface{ Timeout() bool })(nil); errors.As(err, &timeout) && timeout.Timeout() && s.changes.Ping(s.ctx) == nil {
			continue // only silent
		}
		e.watches.setListening(false)
		worker.Pause(s.ctx, pollDeaf)
	}
}
