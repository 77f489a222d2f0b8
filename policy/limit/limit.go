package limit

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Defaults of a [Config].
const (
	DefaultRate       = 50.0
	DefaultBurst      = 100
	DefaultMaxSources = 16384
	DefaultIdle       = 10 * time.Minute
)

// Config is what an operator sets. A zero field takes its default.
type Config struct {
	Rate       float64       // requests per second that one source may make in the long run
	Burst      int           // requests that one source may make at once
	MaxSources int           // sources remembered: identities and addresses each
	Idle       time.Duration // a source is forgotten after this long, never before its bucket is full again
	Replicas   int           // replicas that share the buckets, at most; default 1
}

// WithDefaults fills the zero fields.
func (c Config) WithDefaults() Config {
	c.Rate = cmp.Or(c.Rate, DefaultRate)
	c.Burst = cmp.Or(c.Burst, DefaultBurst)
	c.MaxSources = cmp.Or(c.MaxSources, DefaultMaxSources)
	c.Idle = cmp.Or(c.Idle, DefaultIdle)
	c.Replicas = cmp.Or(c.Replicas, 1)
	return c
}

// Validate reports every field that makes no sense.
func (c Config) Validate() error {
	var errs []error
	if math.IsNaN(c.Rate) || math.IsInf(c.Rate, 0) || c.Rate < minRate || c.Rate > maxRate {
		errs = append(errs, fmt.Errorf("limit: rate must lie between %g and %g per second", minRate, maxRate))
	}
	if c.Burst < 1 {
		errs = append(errs, errors.New("limit: burst must be at least 1"))
	}
	if c.MaxSources < 1 {
		errs = append(errs, errors.New("limit: sources must be at least 1"))
	}
	if c.Idle < 0 {
		errs = append(errs, errors.New("limit: idle must not be negative"))
	}
	if c.Replicas < 1 || c.Replicas > maxReplicas {
		errs = append(errs, fmt.Errorf("limit: between 1 and %d replicas share a bucket", maxReplicas))
	}
	return errors.Join(errs...)
}

const maxReplicas = 1000

// A slower rate would need buckets that take months to fill, a faster one is
// no limit on any machine.
const (
	minRate = 1e-5
	maxRate = 1e9
)

// idle is how long a source is kept: as configured, but never shorter than an
// empty bucket takes to fill.
func (c Config) idle() time.Duration {
	seconds := math.Min(math.Ceil(float64(c.Burst)/c.Rate), maxIdle.Seconds())
	return max(c.Idle, time.Duration(seconds)*time.Second)
}

const maxIdle = 366 * 24 * time.Hour

// Deps is what a Limiter needs.
type Deps struct {
	Now func() time.Time // nil: time.Now
	// Bucket is shared with other replicas. Nil: there are none.
	Bucket Bucket
}

// Scope says which bucket decided. It is bounded, and so fit for a metric label.
type Scope string

// The scopes.
const (
	ScopeIdentity Scope = "identity"
	ScopeAddress  Scope = "address"
	ScopeOverflow Scope = "overflow" // the bucket that all sources share once the table is full
)

// ScopeShare is that of refusals by a share (policy/quota), which no bucket decides.
// They count beside those of the limit.
const ScopeShare Scope = "share"

// Scopes lists every scope.
func Scopes() []Scope { return []Scope{ScopeIdentity, ScopeAddress, ScopeOverflow, ScopeShare} }

// Decision is the answer to one request. It explains itself.
type Decision struct {
	OK         bool
	RetryAfter time.Duration // when refused: the earliest moment at which a request could pass
	Scope      Scope
	Pass       Pass // valid if [Limiter.Allow] took the request
}

// Pass proves that a request was taken from the share of its source.
type Pass struct{ taken bool }

// Valid is false for the zero Pass.
func (p Pass) Valid() bool { return p.taken }

// ErrNoPass refuses a request that did not go through a limiter, a mistake in this program.
var ErrNoPass = errors.New("limit: no Pass: take the request from the limiter first")

// Err is nil for a request that may pass, else an *[ExceededError].
func (d Decision) Err() error {
	if d.OK {
		return nil
	}
	return &ExceededError{Scope: d.Scope, RetryAfter: d.RetryAfter}
}

// ExceededError reports that a source sends requests more often than it may.
type ExceededError struct {
	Scope      Scope
	RetryAfter time.Duration
}

func (e *ExceededError) Error() string {
	return "rate limit exceeded (" + string(e.Scope) + "), retry after " + e.RetryAfter.String()
}

// Limiter decides per source. It is safe for concurrent use and starts no goroutine.
type Limiter struct {
	now    func() time.Time
	shared *shared // nil: the buckets are our own
	rate   rate.Limit
	burst  int

	mu         sync.Mutex // guards the tables and makes every decision exact
	identities *table
	addresses  *table
	overflow   *source
}

// New makes a limiter.
func New(config Config, deps Deps) (*Limiter, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	l := &Limiter{now: deps.Now}
	if deps.Bucket != nil {
		l.shared = &shared{bucket: deps.Bucket, now: deps.Now}
	}
	l.set(config)
	l.identities = newTable(config.MaxSources, config.idle(), l.bucket)
	l.addresses = newTable(config.MaxSources, config.idle(), l.bucket)
	l.overflow = &source{key: overflowKey, bucket: l.bucket()}
	return l, nil
}

// Reconfigure changes rate and burst for every source, those with a bucket
// included: tokens that were earned stay, up to the new burst. How many sources
// are remembered stays as it was. On an error nothing changes.
func (l *Limiter) Reconfigure(config Config) error {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(config)
	now := l.now()
	change := func(bucket *rate.Limiter) {
		bucket.SetLimitAt(now, l.rate)
		bucket.SetBurstAt(now, l.burst)
	}
	for _, t := range []*table{l.identities, l.addresses} {
		t.idle = config.idle()
		t.each(change)
	}
	change(l.overflow.bucket)
	return nil
}

// set takes rate and burst: those of one replica's share if the buckets are shared.
func (l *Limiter) set(config Config) {
	l.rate, l.burst = rate.Limit(config.Rate), config.Burst
	if l.shared != nil {
		l.shared.set(config)
		l.rate, l.burst = l.rate/rate.Limit(config.Replicas), max(1, config.Burst/config.Replicas)
	}
}

func (l *Limiter) bucket() *rate.Limiter { return rate.NewLimiter(l.rate, l.burst) }

// Allow takes one request from the bucket of a source, whose key comes from
// [Identity] or [Address]. It never blocks, unless buckets are shared: then it
// waits for at most a tenth of a second when the lease is used up.
func (l *Limiter) Allow(key string) Decision {
	if l.shared == nil {
		return l.allowOwn(key)
	}
	s, scope := l.find(key)
	ok, wait, known := l.shared.allow(s)
	if !known {
		return l.allowOwn(key)
	}
	return Decision{OK: ok, RetryAfter: wait, Scope: scope, Pass: Pass{ok}}
}

func (l *Limiter) find(key string) (*source, Scope) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sourceOf(key, l.now())
}

// sourceOf is called locked.
func (l *Limiter) sourceOf(key string, now time.Time) (*source, Scope) {
	sources, scope := l.scope(key)
	if s, ok := sources.find(key, now); ok {
		return s, scope
	}
	return l.overflow, ScopeOverflow
}

// scope is where sources of this kind are remembered.
func (l *Limiter) scope(key string) (*table, Scope) {
	if strings.HasPrefix(key, addressPrefix) {
		return l.addresses, ScopeAddress
	}
	return l.identities, ScopeIdentity
}

// allowOwn takes from the bucket that is this process's own.
func (l *Limiter) allowOwn(key string) Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	s, scope := l.sourceOf(key, now)
	if s.bucket.AllowN(now, 1) {
		return Decision{OK: true, Scope: scope, Pass: Pass{true}}
	}
	return Decision{Scope: scope, RetryAfter: l.wait(s.bucket, now)}
}

// wait is the time until one token is there.
func (l *Limiter) wait(bucket *rate.Limiter, now time.Time) time.Duration {
	seconds := (1 - bucket.TokensAt(now)) / float64(l.rate)
	return max(time.Duration(math.Ceil(seconds*1e9)), time.Nanosecond)
}
