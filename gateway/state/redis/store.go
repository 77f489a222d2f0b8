package redis

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aepb/aepb-gateway/ect"
)

// Store is state that every replica of the gateway shares. It is safe for
// concurrent use.
type Store struct {
	config  Config
	now     func() time.Time
	logger  *slog.Logger
	evicted func(own bool)
	client  goredis.UniversalClient
	entries *Entries
	vouch   *authenticator
	changes *goredis.PubSub // what other replicas announce
	scripts sync.Map        // of *goredis.Script, by their texts

	pressure pressure

	trouble atomic.Pointer[trouble] // nil: none
	settled atomic.Int64            // until when tokens that are made now are refused, in nanoseconds since 1970
	filled  atomic.Uint64           // bits of a float64: the part of maxmemory that is in use, of the fullest master
	ctx     context.Context         //nolint:containedctx // ends what runs beside callers, at Close
	stop    context.CancelFunc
	group   sync.WaitGroup
}

// pressure is how much memory there is for evidence.
type pressure struct {
	memory   atomic.Int64 // what all masters may use; 0: there is no bound
	squeezes atomic.Int64 // how often shares were halved
}

// trouble is why the last look at Redis failed.
type trouble struct {
	err   error // a *downError
	fatal bool  // nothing may be written: Redis is there, and not fit
}

var (
	_ ect.Store       = (*Store)(nil)
	_ ect.Lister      = (*Store)(nil)
	_ ect.ReplayCache = (*Store)(nil)
)

// Open connects, and refuses with an [OpenError] a Redis that is there and not set
// up to keep state (R18): it would not become so by itself. One that cannot be
// reached is no error: the Store is [Store.Failing], and works once Redis comes. The
// Store must be closed.
func Open(config Config, deps Deps) (*Store, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	deps = deps.WithDefaults()
	vouch, err := newVoucher(config.Keys, deps.Logger, deps.Now)
	if err != nil {
		return nil, err
	}
	s := &Store{config: config, vouch: vouch, now: deps.Now, logger: deps.Logger, evicted: deps.Evicted, client: goredis.NewUniversalClient(config.options())}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.entries = &Entries{store: s, watches: watches{byKey: map[string]*watch{}}}
	s.changes = s.client.Subscribe(s.ctx, s.channel())
	ctx, cancel := context.WithTimeout(s.ctx, startWait)
	defer cancel()
	if err := s.inspect(ctx); unfit(err) {
		return nil, errors.Join(&OpenError{Err: err}, s.Close())
	}
	if len(config.Keys) == 0 {
		s.logger.WarnContext(ctx, "redis is not verified: a program that can write there can make evidence, members and conversations; set state.key to a file with a key that all replicas have")
	}
	s.group.Go(s.watch)
	s.group.Go(s.entries.listen)
	return s, nil
}

// startWait is how long Open looks for Redis.
const startWait = 5 * time.Second

// Close ends the goroutines of the store and closes all connections; later calls are refused.
func (s *Store) Close() error {
	s.stop()
	_ = s.changes.Close() // ends a read that waits; it may be closed already
	s.group.Wait()
	if err := s.client.Close(); err != nil && !errors.Is(err, goredis.ErrClosed) {
		return err
	}
	return nil
}

// Failing is why Redis cannot be used now; nil: it can, as of a second ago. Its text
// names the configured addresses and no secrets.
func (s *Store) Failing() error {
	if t := s.trouble.Load(); t != nil {
		return t.err
	}
	return nil
}

// Entries are kept beside the rest: their methods have names of their own kind.
func (s *Store) Entries() *Entries { return s.entries }

// begin bounds an operation. While Redis is known to be away it fails at once, so that no caller
// waits in vain.
func (s *Store) begin(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if s.ctx.Err() != nil {
		return nil, nil, unavailable(ErrClosed)
	}
	t := s.trouble.Load()
	if t != nil && (t.fatal || !s.sharded()) {
		return nil, nil, unavailable(t.err)
	}
	bounded, cancel := context.WithTimeout(ctx, s.config.Timeout)
	return bounded, cancel, nil
}

// Filled is the part of its maxmemory that the fullest master uses, as of a second
// ago; 0: none has a maxmemory.
func (s *Store) Filled() float64 { return math.Float64frombits(s.filled.Load()) }

// crowded is true if entries of a kind may begin only in the place of ended ones now.
func (s *Store) crowded(kind string) bool { return s.Filled() > Crowded && s.bulk(kind) }

// bulk is true for a kind that leaves a reserve to records.
func (s *Store) bulk(kind string) bool {
	return len(s.config.Bounds.RecordKinds) > 0 && !slices.Contains(s.config.Bounds.RecordKinds, kind)
}

// sharded: when one master is away, others go on.
func (s *Store) sharded() bool {
	_, cluster := s.client.(*goredis.ClusterClient)
	return cluster
}

// clockLua begins scripts that look at the clock. lives gives a key at least the time
// until an instant (ms).
const clockLua = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function lives(key, til)
  local left = redis.call('PTTL', key)
  if left < 0 or left < tonumber(til) - now then redis.call('PEXPIREAT', key, til) end
end
`

// Time is the time of the server, which all replicas of a gateway see; in a cluster, that of one of its nodes.
func (s *Store) Time(ctx context.Context) (now time.Time, err error) {
	err = s.within(ctx, "time", func(bounded context.Context) (err error) {
		now, err = s.client.Time(bounded).Result()
		return err
	})
	return now, err
}

// script is a script by its text: the server knows it by its hash.
func (s *Store) script(lua string) *goredis.Script {
	if known, ok := s.scripts.Load(lua); ok {
		return known.(*goredis.Script)
	}
	known, _ := s.scripts.LoadOrStore(lua, goredis.NewScript(lua))
	return known.(*goredis.Script)
}

// within bounds an operation as begin does, and says what its failure means to a caller.
func (s *Store) within(ctx context.Context, what string, do func(bounded context.Context) error) error {
	bounded, cancel, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	return failure(ctx, what, do(bounded))
}

// run runs a script on the master of its keys.
func (s *Store) run(ctx context.Context, what string, script *goredis.Script, keys []string, args ...any) (reply []any, err error) {
	err = s.within(ctx, what, func(bounded context.Context) (err error) {
		reply, err = script.Run(bounded, s.client, keys, args...).Slice()
		return err
	})
	return reply, err
}

// lasting runs a script as run does, and returns when as many replicas as configured have what it wrote (R18).
func (s *Store) lasting(ctx context.Context, what string, script *goredis.Script, keys []string, args ...any) (reply []any, err error) {
	if s.config.Wait == 0 {
		return s.run(ctx, what, script, keys, args...)
	}
	err = s.within(ctx, what, func(bounded context.Context) (err error) {
		reply, err = s.confirmed(bounded, script, keys, args)
		return err
	})
	return reply, err
}

// Quiet keeps the client from writing to standard error by itself: what it says
// there comes back as errors, too. It is for the start of a process, before any
// Store is opened.
func Quiet() { goredis.SetLogger(quiet{}) }

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
