package inflight

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/policy/quota"
)

// Config bounds what requests under way hold, of callers with an identity. Of the
// others it is a quarter in all, and as much for each as that allows.
type Config struct {
	Requests          int
	RequestsPerCaller int
	Streams           int
	StreamsPerCaller  int
	Bytes             int64
	BytesPerCaller    int64
	BodyWait          time.Duration // in which a body must bring bodyRate bytes for each second
	WriteWait         time.Duration // in which a reader must take a part of its answer
}

// The share of callers without an identity, and what counts as progress of a body.
const (
	unknownPart = 4
	bodyRate    = 8 << 10 // bytes per second
)

// Validate refuses bounds that bound nothing.
func (c Config) Validate() error {
	if c.BodyWait <= 0 || c.WriteWait <= 0 {
		return errors.New("inflight: expected times above zero")
	}
	var errs []error
	for _, pool := range append(c.pools(1), c.pools(unknownPart)...) {
		errs = append(errs, pool.Validate())
	}
	return errors.Join(errs...)
}

func (c Config) pools(part int64) []quota.Config {
	pool := func(resource string, total, each int64) quota.Config {
		total = max(1, total/part)
		return quota.Config{Resource: resource, Total: total, PerHolder: min(total, each)}
	}
	return []quota.Config{
		pool("requests under way", int64(c.Requests), int64(c.RequestsPerCaller)),
		pool("open streams", int64(c.Streams), int64(c.StreamsPerCaller)),
		pool("bytes in flight", c.Bytes, c.BytesPerCaller),
	}
}

// shares are the pools of one kind of callers.
type shares struct{ requests, streams, bytes *quota.Pool }

func newShares(configs []quota.Config) (shares, error) {
	var s shares
	var errs [3]error
	s.requests, errs[0] = quota.New(configs[0])
	s.streams, errs[1] = quota.New(configs[1])
	s.bytes, errs[2] = quota.New(configs[2])
	return s, errors.Join(errs[:]...)
}

func (s shares) reconfigure(configs []quota.Config) error {
	return errors.Join(s.requests.Reconfigure(configs[0]), s.streams.Reconfigure(configs[1]), s.bytes.Reconfigure(configs[2]))
}

// Limits grants shares to requests. It is safe for concurrent use.
type Limits struct {
	config         atomic.Pointer[Config]
	known, unknown shares
}

// New makes limits of which nothing is held.
func New(config Config) (*Limits, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	l := &Limits{}
	l.config.Store(&config)
	var errs [2]error
	l.known, errs[0] = newShares(config.pools(1))
	l.unknown, errs[1] = newShares(config.pools(unknownPart))
	return l, errors.Join(errs[:]...)
}

// Reconfigure changes the bounds for what is asked for from now on. On an error
// nothing changes.
func (l *Limits) Reconfigure(config Config) error {
	if err := config.Validate(); err != nil {
		return err
	}
	l.config.Store(&config)
	return errors.Join(l.known.reconfigure(config.pools(1)), l.unknown.reconfigure(config.pools(unknownPart)))
}

// OnRefusal has f called for each share that is refused, to count it.
func (l *Limits) OnRefusal(f func()) {
	for _, s := range []shares{l.known, l.unknown} {
		s.requests.OnRefusal(f)
		s.streams.OnRefusal(f)
		s.bytes.OnRefusal(f)
	}
}

// Usage is what is held of one resource: by callers with an identity, and by others.
type Usage [2]quota.Usage

// Usage says how full the pools are.
func (l *Limits) Usage() (requests, streams, bytes Usage) {
	for i, s := range []shares{l.known, l.unknown} {
		requests[i], streams[i], bytes[i] = s.requests.Usage(), s.streams.Usage(), s.bytes.Usage()
	}
	return requests, streams, bytes
}

// Request is one request under way. It is safe for concurrent use.
type Request struct {
	shares shares
	holder string

	mu    sync.Mutex
	slot  *quota.Grant // of the requests, or of the streams
	bytes *quota.Grant
	held  int64 // bytes
	ended bool
}

// Begin takes the share of one request. holder is a key of policy/limit; known:
// that of an identity. An [*quota.ExceededError] refuses it. End the request.
func (l *Limits) Begin(holder string, known bool) (*Request, error) {
	s := l.unknown
	if known {
		s = l.known
	}
	slot, err := s.requests.Take(holder, 1)
	if err != nil {
		return nil, err
	}
	return &Request{shares: s, holder: holder, slot: slot}, nil
}

// Hold lets the request hold at least n bytes from now on. On an
// [*quota.ExceededError] it holds what it held.
func (r *Request) Hold(n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || n <= r.held {
		return nil
	}
	var err error
	if r.bytes == nil {
		r.bytes, err = r.shares.bytes.Take(r.holder, n)
	} else {
		err = r.bytes.Grow(n - r.held)
	}
	if err == nil {
		r.held = n
	}
	return err
}

// Held is how many bytes the request holds.
func (r *Request) Held() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

// Shrink lets the request hold at most n bytes from now on.
func (r *Request) Shrink(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes == nil || n >= r.held {
		return
	}
	r.bytes.Shrink(r.held - n)
	r.held = n
}

// Stream counts the request as a stream from now on, and no more among the requests:
// streams, which last, take no places of plain calls. On an [*quota.ExceededError] there
// are too many: end the request then.
func (r *Request) Stream() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil
	}
	slot, err := r.shares.streams.Take(r.holder, 1)
	if err != nil {
		return err
	}
	r.slot.Release()
	r.slot = slot
	return nil
}

// End gives everything back. A second End does nothing.
func (r *Request) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.slot.Release()
	if r.bytes != nil {
		r.bytes.Release()
	}
}
