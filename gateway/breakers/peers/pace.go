package peers

import (
	"math/rand/v2"
	"time"
)

// How soon a stream is asked for again.
const (
	firstDelay   = time.Second     // after the first failure; it doubles by each further one
	longestDelay = time.Minute     // it grows no longer
	refusedDelay = 5 * time.Minute // after a refusal, which only an operator there can end
	goodAfter    = time.Minute     // a stream that lasted so long was no failure
)

// delay is how long to wait after so many failures in a row, before jitter.
func delay(failures int) time.Duration {
	return min(firstDelay<<min(failures, 10), longestDelay)
}

// jitter is up to a quarter less, so that many who lost one gateway do not return in one moment.
func jitter(d time.Duration) time.Duration {
	return d - rand.N(d/4) //nolint:gosec // spreads load, keeps no secret
}

// How fast events are read: as many at once as a gateway with many agents has breakers, and then what
// a gateway can have to say in the worst second without many of its agents failing at once.
const (
	eventEvery = 50 * time.Millisecond
	eventBurst = 256
)

// pace says how fast the events of one peer are read. The zero value has read nothing.
type pace struct {
	due time.Time // when all that was read would have been, one each eventEvery
}

// read counts an event, and returns how long to wait before the next is read.
func (p *pace) read(now time.Time) time.Duration {
	if p.due.Before(now) {
		p.due = now
	}
	p.due = p.due.Add(eventEvery)
	return p.due.Sub(now) - eventBurst*eventEvery
}
