package limit

import "time"

// Exhausted says whether a source has no request left, and takes none. The answer
// is about this moment and does not make an unknown source known. A listener asks
// before work that only a refusal would pay for, such as judging credentials.
func (l *Limiter) Exhausted(key string) Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	sources, scope := l.scope(key)
	var s *source
	if found, ok := sources.byKey[key]; ok {
		s, _ = found.Value.(*source)
	}
	var wait time.Duration
	switch now := l.now(); {
	case s == nil:
	case l.shared != nil:
		wait = s.lease.wait(now)
	case s.bucket.TokensAt(now) < 1:
		wait = l.wait(s.bucket, now)
	}
	return Decision{OK: wait == 0, Scope: scope, RetryAfter: wait}
}

// wait is what the last answer of the shared bucket says. A lease that is being renewed
// need not be waited for.
func (l *lease) wait(now time.Time) time.Duration {
	if !l.mu.TryLock() {
		return 0
	}
	defer l.mu.Unlock()
	return max(0, l.refused.Sub(now))
}
