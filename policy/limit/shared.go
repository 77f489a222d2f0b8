package limit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Bucket holds the buckets that replicas share (R19). Tokens leave it when they
// are leased, by its own clock.
type Bucket interface {
	// Lease takes up to want requests, at least one, out of a source's bucket, which
	// fills with rate per second up to burst. Of an empty bucket it takes requests that
	// the bucket still has to earn, each only once: they may be made after wait, and
	// the next lease comes after them. granted 0: the next request that is not leased
	// yet is there after wait, which is more than [LeaseAhead].
	Lease(ctx context.Context, source string, rate float64, burst, want int) (granted int, wait time.Duration, err error)
}

// LeaseAhead is how far ahead of time requests are leased.
const LeaseAhead = 2 * time.Second

// The terms of a lease (R19).
const (
	leaseFor   = time.Second            // what is not used by then lapses
	leaseShare = 0.1                    // seconds of the rate that all replicas hold together
	leaseWait  = 100 * time.Millisecond // how long a lease may take; longer: the bucket is away
	awayFor    = time.Second            // how long an absent bucket is not asked again
	refuseFor  = time.Second            // how long a refusal is believed, at most
)

// shared leases from buckets elsewhere.
type shared struct {
	bucket Bucket
	now    func() time.Time
	terms  atomic.Pointer[terms]
	away   atomic.Int64 // until when the bucket is not asked, in nanoseconds since 1970
}

// terms are the operator's.
type terms struct {
	rate         float64
	burst, batch int
}

func (s *shared) set(c Config) {
	batch := max(1, int(c.Rate*leaseShare/float64(c.Replicas)))
	s.terms.Store(&terms{rate: c.Rate, burst: c.Burst, batch: min(batch, c.Burst)})
}

// lease is what one source may use without asking: left requests from refused until
// until.
type lease struct {
	mu       sync.Mutex // held while asking: those who come meanwhile want the same answer
	left     int
	until    time.Time
	refused  time.Time // until then there is nothing
	requests int       // requests since the bucket was asked: what the next lease is sized by
	short    time.Time // until then there is less than is asked for, to judge by the last refusal
}

// allow takes one request. known is false when the bucket is away, so that the
// replica's own share decides.
func (s *shared) allow(from *source) (ok bool, wait time.Duration, known bool) {
	l := &from.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	now := s.now()
	l.requests++
	if now.Before(l.refused) {
		return l.deny(now, l.refused.Sub(now))
	}
	if l.left == 0 || !now.Before(l.until) {
		if now.UnixNano() < s.away.Load() {
			return false, 0, false
		}
		wait, known = s.renew(from.key, l, now)
		if !known {
			return false, 0, false
		}
		if wait > 0 {
			return l.deny(now, wait)
		}
	}
	l.left--
	if l.left == 0 && now.Before(l.short) && now.UnixNano() >= s.away.Load() {
		// Another lease is needed, and what a full bucket earns until the next request
		// asks for one would be lost.
		_, _ = s.renew(from.key, l, now)
	}
	return true, 0, true
}

func (l *lease) deny(now time.Time, wait time.Duration) (ok bool, after time.Duration, known bool) {
	l.short = now.Add(leaseFor)
	return false, wait, true
}

// renew asks with a deadline of its own: a caller that goes away must not make
// the bucket look absent to the others who wait for the same answer. It asks for twice
// of what came since it asked before: so leases grow to a batch as fast as the demand
// does, and a replica of little demand leaves to others what it would let lapse. wait is
// until there is something; 0: it is there.
func (s *shared) renew(key string, l *lease, now time.Time) (wait time.Duration, known bool) {
	t := s.terms.Load()
	ctx, cancel := context.WithTimeout(context.Background(), leaseWait)
	defer cancel()
	granted, wait, err := s.bucket.Lease(ctx, key, t.rate, t.burst, min(2*l.requests, t.batch))
	if err != nil {
		s.away.Store(s.now().Add(awayFor).UnixNano())
		return 0, false
	}
	l.left, l.requests = granted, 0
	switch {
	case granted == 0:
		l.refused = s.now().Add(min(wait, refuseFor))
	case wait > 0: // from after the question: a lease begins no earlier here than there
		l.refused = s.now().Add(wait)
		l.until = l.refused.Add(leaseFor)
	default: // from before the question: a lease ends no later here than there
		l.until = now.Add(leaseFor)
	}
	return wait, true
}
