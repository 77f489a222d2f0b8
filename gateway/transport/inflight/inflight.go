package inflight

import (
	"context"
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
	BodyWait          time.Duration // in which a body must bring bodyRate bytes for each second, or more if it holds much
	WriteWait         time.Duration // in which a reader must take a part of its answer
}

// The share of callers without an identity, and what counts as progress of a body.
const (
	unknownPart = 4
	bodyRate    = 8 << 10     // bytes per second, at least
	bodyTime    = time.Minute // in which all that a body holds must come
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
	bytes := pool("bytes in flight", c.Bytes, c.BytesPerCaller)
	bytes.Even = true
	return []quota.Config{
		pool("requests under way", int64(c.Requests), int64(c.RequestsPerCaller)),
		pool("open streams", int64(c.Streams), int64(c.StreamsPerCaller)),
		bytes,
	}
}

// shares are the pools of one kind of callers.
type shares struct{ requests, streams, bytes, growing *quota.Pool }

// mostGrowing is more answers than grow at once: each is a request's.
const mostGrowing = 1 << 20

func newShares(configs []quota.Config) (shares, error) {
	var s shares
	var errs [4]error
	s.requests, errs[0] = quota.New(configs[0])
	s.streams, errs[1] = quota.New(configs[1])
	s.bytes, errs[2] = quota.New(configs[2])
	s.growing, errs[3] = quota.New(quota.Config{Resource: "answers of unknown length", Total: mostGrowing, PerHolder: 1})
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

	mu     sync.Mutex
	slot   *quota.Grant // of the requests, or of the streams; nil: it has none of its own
	bytes  *quota.Grant // nil: it has held none
	body   int64        // bytes of what its caller sent, which is kept as long as it is under way
	answer int64        // bytes of its agent's answer
	sent   int64        // bytes that its caller is sent now
	ended  bool

	growing *quota.Grant // the turn of an answer that may have more bytes; nil: none has
}

// Begin takes the share of one request. holder is a key of policy/limit; known:
// that of an identity. An [*quota.ExceededError] refuses it. End the request.
func (l *Limits) Begin(holder string, known bool) (*Request, error) {
	r := l.Aside(holder, known)
	slot, err := r.shares.requests.Take(holder, 1)
	if err != nil {
		return nil, err
	}
	r.slot = slot
	return r, nil
}

// Aside is a request that counts elsewhere, and only its bytes here: of a protocol whose connections
// bound it, or one whose caller has left. End it.
func (l *Limits) Aside(holder string, known bool) *Request {
	s := l.unknown
	if known {
		s = l.known
	}
	return &Request{shares: s, holder: holder}
}

// grant is that of its bytes. The lock is held.
func (r *Request) grant() *quota.Grant {
	if r.bytes == nil {
		r.bytes, _ = r.shares.bytes.Take(r.holder, 0) // nothing is always granted
	}
	return r.bytes
}

// Hold lets the request hold at least n bytes from now on. On an
// [*quota.ExceededError] it holds what it held.
func (r *Request) Hold(n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || n <= r.booked() {
		return nil
	}
	err := r.grant().Grow(n - r.booked())
	if err == nil {
		r.body = n
	}
	return err
}

// booked is what it holds: what it sends is of its agent's answer. The lock is held.
func (r *Request) booked() int64 { return max(r.body, r.answer, r.sent) }

// Reserved is how many bytes the request holds.
func (r *Request) Reserved() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.booked()
}

// Shrink lets the request hold at most n bytes of what its caller sent.
func (r *Request) Shrink(n int64) {
	r.mu.Lock()
	_ = r.become(context.Background(), &r.body, min(r.body, n)) // which never waits
}

// Sent gives back what the request held to send it, when that is done.
func (r *Request) Sent() {
	r.mu.Lock()
	_ = r.become(context.Background(), &r.sent, 0) // which never waits
}

// Crowded returns an [*quota.ExceededError] if the gateway must not call the agent: so many answers
// to this caller wait until they may be held that another would wait too long.
func (r *Request) Crowded() error {
	if r.shares.bytes.Waiting(r.holder) < maxWaiting {
		return nil
	}
	return &quota.ExceededError{Resource: "answers that wait for memory", Own: true}
}

// maxWaiting bounds the answers to one caller that wait; above it no agent is called for it.
const maxWaiting = 16

// Answer books n bytes of the agent's answer, in place of those booked before. It waits until they
// may be held: a refusal would make the caller repeat finished work. Few bytes are not booked.
// whole: no more comes. Of answers of one agent that may grow, one grows at a time for a caller, else each
// could hold what another waits for.
// Errors: an [*quota.ExceededError] if so many are never granted, and the cause of the end of ctx.
func (r *Request) Answer(ctx context.Context, agent string, n int64, whole bool) error {
	if n < large {
		n = 0
	}
	if err := r.turn(ctx, agent, whole || n == 0); err != nil {
		return err
	}
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return nil
	}
	return r.become(ctx, &r.answer, n)
}

// turn waits until an answer may grow; over: it grows no more.
func (r *Request) turn(ctx context.Context, agent string, over bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.growing != nil && over:
		r.growing.Release()
		r.growing = nil
	case r.growing == nil && !over && !r.ended:
		turn, _ := r.shares.growing.Take(r.holder+" "+agent, 0) // nothing is always granted
		r.growing = turn
		r.mu.Unlock()
		err := turn.GrowWithin(ctx, 1)
		r.mu.Lock()
		return err
	}
	return nil
}

// Send books at least n bytes for what the request sends to its caller, and waits until they may be
// held. Encoded in the caller's protocol, an answer may have a quarter more bytes than
// were booked for it. Errors: those of [Request.Answer].
func (r *Request) Send(ctx context.Context, n int64) error {
	r.mu.Lock()
	if r.ended || n <= r.booked()/4*5 {
		r.mu.Unlock()
		return nil
	}
	return r.become(ctx, &r.sent, n)
}

// growWait is how long what holds some bytes waits for more: two answers of different agents may each hold
// what the other waits for.
const growWait = 10 * time.Second

// become sets one of the parts. The lock is held, and is not any more afterwards.
func (r *Request) become(ctx context.Context, part *int64, n int64) error {
	defer r.mu.Unlock()
	if r.ended || r.bytes == nil && n == 0 {
		return nil
	}
	bytes, old := r.grant(), *part
	before := bytes.Current()
	*part = n
	more := r.booked() - before
	if more <= 0 {
		bytes.Shrink(-more)
		return nil
	}
	r.mu.Unlock()
	if old > 0 {
		within, cancel := context.WithTimeout(ctx, growWait)
		defer cancel()
		ctx = within
	}
	err := bytes.GrowWithin(ctx, more)
	if r.mu.Lock(); err != nil {
		*part = old
	}
	return err
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
	if r.slot != nil {
		r.slot.Release()
	}
	r.slot = slot
	return nil
}

// End gives everything back. A second End does nothing.
func (r *Request) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if r.slot != nil {
		r.slot.Release()
	}
	if r.bytes != nil {
		r.bytes.Release()
	}
	if r.growing != nil {
		r.growing.Release()
	}
}

// Ended reports whether all was given back.
func (r *Request) Ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}
