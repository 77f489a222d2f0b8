package evidence

import (
	"errors"
	"math"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// tail is what was taken since the other tables were.
type tail struct {
	since time.Time
	bytes int // of records
}

// The other tables are taken when they, or the records since then, have so many bytes, or
// after tablesEvery.
const (
	maxTableBytes = 4 << 20
	maxTailBytes  = 32 << 20
	tablesEvery   = 10 * time.Second
)

// Take ends the changes until now, with what an earlier one took and could not be
// written, and passes them on in the order of their keys, table by table. A value that is
// nil leaves. As a rule it takes the records that came, from which Open makes the other
// tables again: those wait until there are more changes of each part of them, or for all.
// [Store.Wrote] has to follow when they are on disk; one at a time.
func (s *Store) Take(all bool) func(each func(t Table, key Key, value []byte) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes.bytes > 0 {
		taken := s.changes.records()
		s.tail.bytes += taken.bytes
		now := s.deps.Now()
		if all || s.changes.bytes >= maxTableBytes || s.tail.bytes >= maxTailBytes || now.Sub(s.tail.since) >= tablesEvery {
			s.tail = tail{since: now}
			s.headers.save(s.changes)
			t := s.totals
			s.changes.set(Totals, Key{}, numbers(t.serial, t.records, t.apart, t.bytes, t.begun, t.onHold, t.holds, t.ordered))
			taken.add(s.changes)
			s.changes = newLayer()
		}
		if s.written != nil {
			s.written.add(taken)
		} else if taken.bytes > 0 {
			s.written = taken
		}
	}
	if s.written == nil {
		return nil
	}
	return s.written.each
}

// Wrote says that what Take passed on is on disk.
func (s *Store) Wrote() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written = nil
}

// restore adds the records again that were written after the other tables, in the order of their
// arrival. It drops none of them: that is left to later writes, so that it is known who began a
// workflow, and no record is dropped in favour of an expired one.
func (s *Store) restore(v *view) error {
	defer s.tell(0)
	defer func(bounds Bounds) { s.bounds = bounds }(s.bounds)
	s.bounds = Bounds{Records: math.MaxUint64, Bytes: math.MaxUint64}
	first := s.totals.serial + 1
	for key, _, found := v.disk.Next(Records, Key{A: first}); found; key, _, found = v.disk.Next(Records, key.next()) {
		s.totals.serial = key.A
	}
	for last := s.totals.serial; first <= last; first++ {
		key, value, found := v.disk.Next(Records, Key{A: first})
		if !found {
			return nil
		}
		r, err := s.headers.decode(value, key.A)
		if err != nil {
			return err
		}
		first = key.A
		v.remove(Records, key)
		r.ByIssuer = true // a holder that it had moved to stays
		if err := s.put(v, &stored{Record: r.Record, again: true}, 1); err != nil && !errors.As(err, new(*ect.ForeignRootError)) {
			return err
		}
	}
	return nil
}
