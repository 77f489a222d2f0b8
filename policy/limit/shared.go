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
	// Lease takes up to want requests out of a source's bucket, which fills with
	// rate per second up to burst. granted 0: the bucket is empty, and wait is
	// until one is there.
	Lease(ctx context.Context, source string, rate float64, burst, want int) (granted int, wait time.Duration, err error)
}

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

// lease is what one source may still use without asking.
type lease struct {
	mu      sync.Mutex // held while asking: those who come meanwhile want the same answer
	left    int
	until   time.Time
	refused time.Time // until then the bucket is known to be empty
}

// allow takes one request. known is false when the bucket is away, so that the
// replica's own share decides.
func (s *shared) allow(from *source) (ok bool, wait time.Duration, known bool) {
	l := &from.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	now := s.now()
	switch {
	case l.left > 0 && now.Before(l.until):
		l.left--
		return true, 0, true
	case now.Before(l.refused):
		return false, l.refused.Sub(now), true
	case now.UnixNano() < s.away.Load():
		return false, 0, false
	}
	return s.renew(from.key, l, now)
}

// renew asks with a deadline of its own: a caller that goes away must not make
// the bucket look absent to the others who wait for the same answer.
func (s *shared) renew(key string, l *lease, now time.Time) (ok bool, wait time.Duration, known bool) {
	t := s.terms.Load()
	ctx, cancel := context.WithTimeout(context.Background(), leaseWait)
	defer cancel()
	granted, wait, err := s.bucket.Lease(ctx, key, t.rate, t.burst, t.batch)
	if err != nil {
		s.away.Store(s.now().Add(awayFor).UnixNano())
		return false, 0, false
	}
	if granted == 0 {
		l.left, l.refused = 0, s.now().Add(min(wait, refuseFor))
		return false, wait, true
	}
	// From before the question: a lease ends no later here than there.
	l.left, l.until = granted-1, now.Add(leaseFor)
	return true, 0, true
}
