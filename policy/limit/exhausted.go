package limit

import "time"

// Exhausted says whether a source has no request left, and takes none. The answer
// is about this moment and does not make an unknown source known. A listener asks
// before work that only a refusal would pay for, such as judging credentials.
func (l *Limiter) Exhausted(key string) Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	sources, scope := l.scope(key)
	found, ok := sources.byKey[key]
	if !ok {
		return Decision{OK: true, Scope: scope}
	}
	s, ok := found.Value.(*source)
	if !ok {
		return Decision{OK: true, Scope: scope}
	}
	now := l.now()
	if l.shared != nil {
		return s.lease.exhausted(now, scope)
	}
	if s.bucket.TokensAt(now) >= 1 {
		return Decision{OK: true, Scope: scope}
	}
	return Decision{Scope: scope, RetryAfter: l.wait(s.bucket, now)}
}

// exhausted is what the last answer of the shared bucket says. A lease that is
// being renewed is not exhausted.
func (l *lease) exhausted(now time.Time, scope Scope) Decision {
	if !l.mu.TryLock() {
		return Decision{OK: true, Scope: scope}
	}
	defer l.mu.Unlock()
	if now.Before(l.refused) {
		return Decision{Scope: scope, RetryAfter: l.refused.Sub(now)}
	}
	return Decision{OK: true, Scope: scope}
}
