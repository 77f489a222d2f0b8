package breaker

import "time"

// buckets are how many parts a window has: an old sample leaves with its part, so it
// counts for a sixtieth less than the window at least, and never for longer than it.
const buckets = 60

// window counts samples. The zero value is empty.
type window struct {
	counts [buckets]tally // the newest first
	slot   int64          // number of the newest bucket, counted from 1970
	length time.Duration  // of a bucket
	last   time.Time      // of the newest sample; zero: not yet
}

// tally counts a bucket's samples. It is large enough for 70 million in each second.
type tally struct{ failures, samples uint32 }

// add counts a sample. Timely is false if a newer one was there before, and then it
// counts as one of that time; a whole window back, the clock was set, and what is in the
// window is of a time to come: it is dropped.
func (w window) add(size time.Duration, at time.Time, failed bool) (_ window, timely bool) {
	length := max(size/buckets, 1)
	timely = !at.Before(w.last)
	switch {
	case w.last.IsZero():
		w = window{slot: slotOf(at, length), length: length, last: at}
	case w.length != length || w.last.Sub(at) > size:
		w = window{slot: slotOf(at, length), length: length, last: at}
	case timely:
		w = w.moved(slotOf(at, length))
		w.last = at
	}
	w.counts[0].samples++
	if failed {
		w.counts[0].failures++
	}
	return w, timely
}

// moved makes a slot the newest.
func (w window) moved(slot int64) window {
	n := slot - w.slot
	w.slot = slot
	if n < 0 || n >= buckets { // negative: beyond the years that nanoseconds can count
		clear(w.counts[:])
		return w
	}
	copy(w.counts[n:], w.counts[:buckets-n])
	clear(w.counts[:n])
	return w
}

// sum is of the whole window, as of the newest sample.
func (w window) sum() (failures, samples int) {
	for _, c := range w.counts {
		failures += int(c.failures)
		samples += int(c.samples)
	}
	return failures, samples
}

func slotOf(at time.Time, length time.Duration) int64 { return at.UnixNano() / int64(length) }
