package breaker

import (
	"math"
	"time"
)

// buckets are how many parts a window has: an old sample leaves with its part, so it
// counts for a sixtieth less than the window at least, and never for longer than it.
const buckets = 60

// window counts samples. The zero value is empty.
type window struct {
	counts            [buckets]tally // the newest first
	failures, samples int32          // of all buckets
	slot              int64          // number of the newest bucket, counted from 1970
	length            time.Duration  // of a bucket
	last              time.Time      // of the newest sample; zero: not yet
}

// tally counts samples of a bucket. They are halved before there are too many, which leaves
// their rate as it is, and are many still (maxSamples).
type tally struct{ failures, samples uint16 }

// add counts a sample. Timely is false if a newer one was there before, and then it
// counts as one of that time; a whole window back, the clock was set, and what is in the
// window is of a time to come: it is dropped.
func (w *window) add(size time.Duration, at time.Time, failed bool) (timely bool) {
	length := max(size/buckets, 1)
	timely = !at.Before(w.last)
	switch {
	case w.last.IsZero() || w.length != length || w.last.Sub(at) > size:
		*w = window{slot: slotOf(at, length), length: length, last: at}
	case timely:
		w.move(slotOf(at, length))
		w.last = at
	}
	newest := &w.counts[0]
	w.remove(*newest)
	if newest.samples == math.MaxUint16 {
		newest.failures, newest.samples = newest.failures/2, newest.samples/2
	}
	newest.samples++
	if failed {
		newest.failures++
	}
	w.failures, w.samples = w.failures+int32(newest.failures), w.samples+int32(newest.samples)
	return timely
}

// move makes a slot the newest.
func (w *window) move(slot int64) {
	n := slot - w.slot
	w.slot = slot
	if n < 0 || n >= buckets { // negative: beyond the years that nanoseconds can count
		w.counts, w.failures, w.samples = [buckets]tally{}, 0, 0
		return
	}
	if n == 0 {
		return
	}
	for _, gone := range w.counts[buckets-n:] {
		w.remove(gone)
	}
	copy(w.counts[n:], w.counts[:buckets-n])
	clear(w.counts[:n])
}

// remove takes the samples of a bucket out of the sums.
func (w *window) remove(t tally) {
	w.failures, w.samples = w.failures-int32(t.failures), w.samples-int32(t.samples)
}

func slotOf(at time.Time, length time.Duration) int64 { return at.UnixNano() / int64(length) }
