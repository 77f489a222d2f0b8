package state

import (
	"container/heap"
	"container/list"
	"time"
)

// sweep bounds the expired entries that one write drops. More than one, so that their number falls.
const sweep = 4

// expiring is a map whose entries end at an instant of their own, bounded in
// number and bytes. It is not safe for concurrent use: its owner has the lock.
type expiring struct {
	kind       Kind
	maxEntries int
	maxBytes   int64 // 0: unbounded
	bytes      int64
	byKey      map[EntryKey]*entry
	ending     order[*entry]
	serial     uint64       // of the latest entry
	dropped    func(*entry) // called for everything that leaves; may be nil
	evicted    uint64       // entries that had to leave before their end
	journal    Journal      // told of everything that comes and leaves; may be nil
}

// entry is never changed once it is in the map, place and ended apart: a
// journal may read it at any time.
type entry struct {
	key    EntryKey
	value  []byte
	size   int64
	serial uint64
	until  time.Time     // alive up to and including this instant
	place  int           // in the heap
	ended  *list.Element // in its owner's account; nil: it stays until its end
}

func newExpiring(kind Kind, maxEntries int, maxBytes int64, journal Journal) *expiring {
	return &expiring{
		kind: kind, maxEntries: maxEntries, maxBytes: maxBytes, journal: journal,
		byKey: make(map[EntryKey]*entry),
	}
}

// get finds an entry that is alive.
func (x *expiring) get(key EntryKey, now time.Time) (*entry, bool) {
	e, ok := x.byKey[key]
	if !ok || e.until.Before(now) {
		return nil, false
	}
	return e, true
}

// add puts in an entry, in place of an earlier one with its key. It refuses an entry that does not
// fit beside the live ones: false.
func (x *expiring) add(key EntryKey, value []byte, size int64, until, now time.Time) bool {
	e := &entry{key: key, value: value, size: size, serial: x.serial + 1, until: until}
	x.clean(now, sweep)
	old := x.byKey[key.name()]
	if !x.insert(e, now, false) {
		return false
	}
	x.serial++
	x.note(e, e)
	if old != nil {
		x.note(old, nil) // after its heir: a journal cut short between the two still has one
	}
	return true
}

// restore puts back an entry of a journal with its serial. Later entries have larger serials. If
// the bounds are smaller than they were, the entries with the least time left are dropped.
func (x *expiring) restore(e *entry, now time.Time) bool {
	x.serial = max(x.serial, e.serial)
	if e.until.Before(now) {
		return false
	}
	old := x.byKey[e.key.name()]
	if !x.insert(e, now, true) {
		return false
	}
	if old != nil {
		x.note(old, nil)
	}
	return true
}

func (x *expiring) insert(e *entry, now time.Time, evict bool) bool {
	if x.maxBytes > 0 && e.size > x.maxBytes {
		return false
	}
	if old, ok := x.byKey[e.key.name()]; ok {
		x.remove(old)
	}
	for len(x.byKey) >= x.maxEntries || (x.maxBytes > 0 && x.bytes+e.size > x.maxBytes) {
		first := x.ending[0]
		if expired := first.until.Before(now); !expired && !evict {
			return false
		} else if !expired {
			x.evicted++
		}
		x.drop(first)
	}
	x.byKey[e.key.name()] = e
	x.bytes += e.size
	heap.Push(&x.ending, e)
	return true
}

// fits reports whether an entry of this key and size fits beside the live ones. It drops expired
// entries as far as needed.
func (x *expiring) fits(key EntryKey, size int64, now time.Time) bool {
	for {
		entries, bytes := len(x.byKey)+1, x.bytes+size
		if old, ok := x.byKey[key]; ok {
			entries, bytes = entries-1, bytes-old.size
		}
		if entries <= x.maxEntries && (x.maxBytes == 0 || bytes <= x.maxBytes) {
			return true
		}
		if len(x.ending) == 0 || !x.ending[0].until.Before(now) {
			return false
		}
		x.drop(x.ending[0])
	}
}

// clean drops the entries that have expired, but no more than most of them, and
// says how many.
func (x *expiring) clean(now time.Time, most int) int {
	for n := range most {
		if len(x.ending) == 0 || !x.ending[0].until.Before(now) {
			return n
		}
		x.drop(x.ending[0])
	}
	return most
}

func (x *expiring) drop(e *entry) {
	x.remove(e)
	x.note(e, nil)
}

func (x *expiring) remove(e *entry) {
	heap.Remove(&x.ending, e.place)
	delete(x.byKey, e.key.name())
	x.bytes -= e.size
	if x.dropped != nil {
		x.dropped(e)
	}
}

// note tells the journal that an entry came (and what it holds), or left.
func (x *expiring) note(e *entry, content *entry) {
	if x.journal == nil {
		return
	}
	c := Change{Kind: x.kind, Serial: e.serial, entry: content}
	if content != nil {
		c.Size = int(e.size) + overhead
	}
	x.journal.Note(c)
}

// usage says how full the map is.
func (x *expiring) usage() Usage {
	return Usage{Entries: len(x.byKey), Bytes: x.bytes, Evicted: x.evicted}
}

// before orders entries by their end.
func (e *entry) before(other *entry) bool { return e.until.Before(other.until) }

func (e *entry) moved(place int) { e.place = place }
