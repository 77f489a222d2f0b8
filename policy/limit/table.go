package limit

import (
	"container/list"
	"time"

	"golang.org/x/time/rate"
)

// table remembers the buckets of at most max sources, the most recently seen
// in front. The caller holds the limiter's lock.
type table struct {
	max    int
	idle   time.Duration
	fresh  func() *rate.Limiter
	byKey  map[string]*list.Element
	recent *list.List // of *source
}

type source struct {
	key    string
	bucket *rate.Limiter
	lease  lease // of a shared bucket
	seen   time.Time
}

func newTable(size int, idle time.Duration, fresh func() *rate.Limiter) *table {
	return &table{max: size, idle: idle, fresh: fresh, byKey: make(map[string]*list.Element), recent: list.New()}
}

// find returns a source. If the table is full it evicts an idle one. It returns false if
// every source in the table is active.
func (t *table) find(key string, now time.Time) (*source, bool) {
	if found, ok := t.byKey[key]; ok {
		t.recent.MoveToFront(found)
		s := found.Value.(*source)
		s.seen = now
		return s, true
	}
	t.forget(now)
	if t.recent.Len() >= t.max {
		return nil, false
	}
	s := &source{key: key, bucket: t.fresh(), seen: now}
	t.byKey[key] = t.recent.PushFront(s)
	return s, true
}

// forget drops up to two idle sources. Two for every new one: the table
// shrinks after a peak, and no single request pays for a whole sweep.
func (t *table) forget(now time.Time) {
	for range 2 {
		oldest := t.recent.Back()
		if oldest == nil {
			return
		}
		s := oldest.Value.(*source)
		if now.Sub(s.seen) < t.idle {
			return
		}
		t.recent.Remove(oldest)
		delete(t.byKey, s.key)
	}
}

// each visits every bucket.
func (t *table) each(visit func(*rate.Limiter)) {
	for e := t.recent.Front(); e != nil; e = e.Next() {
		if s, ok := e.Value.(*source); ok {
			visit(s.bucket)
		}
	}
}
