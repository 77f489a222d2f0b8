package stdio

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/policy/quota"
)

// placeWithin is how long a caller waits for a place that others have.
const placeWithin = time.Second

// waiting is a process that waits for its place.
type waiting struct {
	process *Process
	place   *quota.Place
	done    chan struct{} // closed: it has its place
}

// take takes a place for a process. While others have them all it waits, up to a second, for
// the first that is free and that it may have: who has few comes before who has more (the last
// quarter of [quota.Places]), and of those the one who came first.
func (h *Host) take(ctx context.Context, p *Process) (*quota.Place, error) {
	place, err := h.places.Take(p.holder, true, p.giveWay)
	if exceeded, ok := errors.AsType[*quota.ExceededError](err); !ok || exceeded.Own {
		return place, err
	}
	mine := &waiting{process: p, done: make(chan struct{})}
	h.mu.Lock()
	h.queue = append(h.queue, mine)
	h.mu.Unlock()
	h.freed() // one may have been since
	timer := time.NewTimer(placeWithin)
	defer timer.Stop()
	select {
	case <-mine.done:
	case <-timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queue = slices.DeleteFunc(h.queue, func(one *waiting) bool { return one == mine })
	if mine.place != nil {
		return mine.place, nil
	}
	return nil, err
}

// freed gives places that have become free, or are not in use any more, to those who wait.
func (h *Host) freed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queue = slices.DeleteFunc(h.queue, func(one *waiting) bool {
		place, err := h.places.Take(one.process.holder, true, one.process.giveWay)
		if err != nil {
			return false
		}
		one.place = place
		close(one.done)
		return true
	})
}
