package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/consensus"
	"github.com/aepb/aepb-gateway/gateway/conversation"
	"github.com/aepb/aepb-gateway/gateway/descriptor"
	"github.com/aepb/aepb-gateway/gateway/idempotency"
	agentlife "github.com/aepb/aepb-gateway/gateway/lifecycle"
	"github.com/aepb/aepb-gateway/gateway/listing"
	"github.com/aepb/aepb-gateway/gateway/rollback"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/bolt"
	"github.com/aepb/aepb-gateway/gateway/state/redis"
	"github.com/aepb/aepb-gateway/gateway/state/seal"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/gateway/workflow"
	"github.com/aepb/aepb-gateway/policy/limit"
)

// replays knows which tokens were used.
type replays interface {
	ect.ReplayCache
	// Young is why a token that is made now would be refused; nil: it would not.
	Young() error
}

// stores holds all state, with any backend.
type stores struct {
	driver        driver
	evidence      ect.Store
	workflows     ect.Lister
	replay        replays
	answers       idempotency.Store
	conversations conversation.Store
	entries       store.Entries
	blobs         state.Blobs
	unsealed      seal.BlobStore // blobs as the driver has them
	limits        limit.Bucket   // nil: every process has its own
	dropped       losses
	plain         bool // in Redis, where any program's words are believed
}

// driver is what keeps them.
type driver struct {
	name    string // memory, bolt or redis
	failing func() error
	close   func() error
	usage   func() map[string]telemetry.Use          // what each kind of state takes
	lasts   func(context.Context) error              // returns when all evidence that was recorded before lasts; nil: it lasts at once
	clock   func(context.Context) (time.Time, error) // that all replicas see; nil: the clock of this process
}

// losses counts what is not kept.
type losses struct {
	evicted *evictions
	refused func() uint64 // uses of tokens that could not be remembered; nil: there is no bound
	ignored func() uint64 // what was found and not believed; nil: that cannot be
}

// evictions counts the evidence that leaves before its end, and says so in the log, at
// most once a minute. It is safe for concurrent use.
type evictions struct {
	own, others atomic.Uint64
	logger      *slog.Logger
	logged      atomic.Int64 // when, in Unix seconds
}

func (e *evictions) note(own bool) {
	if own {
		e.own.Add(1)
	} else {
		e.others.Add(1)
	}
	if now, last := time.Now().Unix(), e.logged.Load(); now-last >= 60 && e.logged.CompareAndSwap(last, now) {
		e.logger.WarnContext(context.Background(), "the evidence store is full: execution context tokens leave before their end, those of the caller that holds most first; raise state.evidence_mib",
			slog.Uint64("own", e.own.Load()), slog.Uint64("others", e.others.Load()))
	}
}

// counts are those of metrics, by scope.
func (e *evictions) counts() map[string]float64 {
	return map[string]float64{"own": float64(e.own.Load()), "others": float64(e.others.Load())}
}

// recordKinds are the kinds of entries for which every driver keeps a reserve: small records of what was
// decided, which must be writable however many tasks and sessions there are (R18).
func recordKinds() []string {
	kinds := []string{agentlife.KindLifecycle, breakers.KindBreaker, store.KindDecision, listing.KindAgent, workflow.KindWorkflow, descriptor.KindPlan}
	return append(append(kinds, approval.KindLevel, rollback.KindUndo, rollback.KindAftermath, store.KindRollback), append(approval.Kinds(), consensus.Kinds()...)...)
}

// openState opens what the operator named, or keeps state in memory: what was
// used before this start is then unknown, and ECTs from before it are refused (R6). It waits
// for the next second, because ECTs carry whole ones.
func openState(s Config) (stores, error) {
	bounds := s.Settings.StateBounds()
	bounds.RecordKinds = recordKinds()
	gone := &evictions{logger: s.Logger}
	switch path := s.Settings.State.Path; {
	case s.State.Redis != nil:
		config := *s.State.Redis
		config.Bounds, config.Keys = bounds, s.State.Keys
		config.Fleeting = []string{breakers.KindBreaker, agentlife.KindAgentWork}
		store, err := redis.Open(config, redis.Deps{Now: time.Now, Logger: s.Logger, Evicted: gone.note})
		if err != nil {
			return stores{}, err
		}
		usage := func() map[string]telemetry.Use {
			return map[string]telemetry.Use{"memory": {Bytes: -1, Ratio: store.Filled()}}
		}
		by := driver{"redis", store.Failing, store.Close, usage, nil, store.Time}
		return stores{by, store, store, store, store, store, store.Entries(), store.Blobs(), store.Blobs(), store, losses{gone, nil, store.Ignored}, false}, nil
	case path != "":
		store, err := bolt.Open(bolt.Config{Path: path, Bounds: bounds}, bolt.Deps{Now: time.Now, Logger: s.Logger, Evicted: gone.note})
		if err != nil {
			return stores{}, err
		}
		by := driver{"bolt", store.Failing, store.Close, usageOf(store.Memory), store.Flush, nil}
		return stores{by, store, store, store, store, store, store.Entries(), store.Blobs(), store.Blobs(), nil, losses{gone, store.Memory.Refused, nil}, false}, nil
	}
	if s.Hooks.Epoch.IsZero() { // a token of the second before may have been used by the process before
		s.Hooks.Epoch = time.Now().Truncate(time.Second).Add(time.Second)
		<-time.After(time.Until(s.Hooks.Epoch))
	}
	memory, err := state.New(bounds, state.Deps{Now: time.Now, Epoch: s.Hooks.Epoch, Passing: true, Evicted: gone.note})
	if err != nil {
		return stores{}, err
	}
	always := func() error { return nil }
	by := driver{"memory", always, always, usageOf(memory), nil, nil}
	return stores{by, memory, memory, memory, memory, memory, memory.Entries(), memory.Blobs(), memory.Blobs(), nil, losses{gone, memory.Refused, nil}, false}, nil
}

// Writing sweeps what has ended. After a load there are no writes, and all of it would stay.
const sweepEvery, sweepMost = time.Second, 1024 // of each kind, for which others wait

// sweeping drops what has ended from memory, until ctx ends.
func sweeping(ctx context.Context, m *state.Memory) error {
	worker.Every(ctx, sweepEvery, func() { m.Sweep(sweepMost) })
	return nil
}

// usageOf is what state in this process takes, as metrics name it.
func usageOf(m *state.Memory) func() map[string]telemetry.Use {
	each := map[state.Kind]int{state.KindReplay: config.BytesOfUse, state.KindConversation: config.BytesOfConversation}
	return func() map[string]telemetry.Use {
		ratios := m.Filled()
		out := map[string]telemetry.Use{state.KindLasting: {Bytes: -1, Ratio: ratios[state.KindLasting]}}
		for _, kind := range state.Kinds() {
			u := m.UsageOf(kind)
			out[kind.String()] = telemetry.Use{Bytes: float64(u.Bytes) + float64(each[kind]*u.Entries), Ratio: ratios[kind.String()]}
		}
		for kind, u := range m.Entries().ByKind() {
			out["entries_"+kind] = telemetry.Use{Bytes: float64(u.Bytes), Ratio: u.Ratio}
		}
		return out
	}
}

// loadRedis reads the files that state.redis names; nil: there is no Redis.
func loadRedis(c config.Redis) (*redis.Config, error) {
	if !c.Used() {
		return nil, nil //nolint:nilnil // state is kept elsewhere
	}
	out := redis.Config{
		Addresses: c.Addresses, Cluster: c.Cluster, Master: c.Master, Wait: c.Wait,
		Timeout: time.Duration(c.Timeout), Assert: c.Durability == "asserted", Prefix: c.Prefix,
	}
	var errs []error
	for _, secret := range []struct {
		file string
		to   *string
	}{
		{c.UsernameFile, &out.Username},
		{c.PasswordFile, &out.Password},
		{c.SentinelUsernameFile, &out.SentinelUsername},
		{c.SentinelPasswordFile, &out.SentinelPassword},
	} {
		var err error
		*secret.to, err = loadSecret(secret.file)
		errs = append(errs, err)
	}
	if c.Plaintext == "" {
		var err error
		out.TLS, err = redisTLS(c.TLS)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &out, out.WithDefaults().Validate()
}

// loadSecret reads a file of one line; no file, no secret.
func loadSecret(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	secret := string(bytes.TrimSpace(text))
	if secret == "" {
		return "", fmt.Errorf("%s is empty", file)
	}
	return secret, nil
}

func redisTLS(c config.RedisTLS) (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: c.ServerName}
	if c.CA != "" {
		text, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, err
		}
		if out.RootCAs = x509.NewCertPool(); !out.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no certificate", c.CA)
		}
	}
	if c.Certificate == "" {
		return out, nil
	}
	pair, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
	out.Certificates = []tls.Certificate{pair}
	return out, err
}

// maxKeyFile bounds the file with the keys of the state, bytes.
const maxKeyFile = 4 << 10

// onlyOwner is the mode of a file with a secret.
const onlyOwner fs.FileMode = 0o600

// errNoStateKey: no way of running the gateway leaves Redis unverified by itself.
var errNoStateKey = errors.New("state in redis has no key: set state.key, or state.unverified: true")

// errKeyLost: a new key would open nothing of what is kept, and the tasks in it would be
// unknown without a word.
var errKeyLost = errors.New("the state holds entries that are sealed with its key")

// loadStateKeys reads state.key; no file, no keys.
func loadStateKeys(file string) ([][]byte, error) {
	if file == "" {
		return nil, nil
	}
	opened, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(opened, maxKeyFile+1))
	if err = errors.Join(err, opened.Close()); err != nil {
		return nil, err
	}
	if len(text) > maxKeyFile {
		return nil, seal.ErrKeys
	}
	keys, err := seal.ParseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return keys, nil
}

// stateKeyAt reads a key file of our own, which only we may read, and makes it
// first when there is none.
func stateKeyAt(file string) ([][]byte, error) {
	created, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, onlyOwner)
	switch {
	case err == nil:
		_, err = created.Write(seal.NewKey())
		if err = errors.Join(err, created.Sync(), created.Close()); err != nil {
			return nil, errors.Join(err, os.Remove(file))
		}
	case !errors.Is(err, fs.ErrExist):
		return nil, err
	}
	if err := os.Chmod(file, onlyOwner); err != nil {
		return nil, err
	}
	return loadStateKeys(file)
}

// sealed puts encryption between the gateway and a driver that writes to a file
// or to Redis. A file has a key beside it when none is configured. In Redis, which
// several replicas share, nothing is sealed where the operator says state.unverified,
// and the result is plain.
func (k stores) sealed(s Config) (out stores, err error) {
	keys := s.State.Keys
	switch {
	case k.driver.name == "memory":
		return k, nil
	case len(keys) == 0 && k.driver.name == "bolt":
		file := s.Settings.State.Path + ".key"
		if _, err = os.Stat(file); errors.Is(err, fs.ErrNotExist) && k.driver.usage()[state.KindEntry.String()].Bytes > 0 {
			return k, fmt.Errorf("%s is missing: %w: put that file back, name the key in state.key, or move %s away to begin anew", file, errKeyLost, s.Settings.State.Path)
		}
		if keys, err = stateKeyAt(file); err != nil {
			return k, fmt.Errorf("the key of the state: %w", err)
		}
	case len(keys) == 0 && s.Settings.State.Unverified:
		s.Logger.WarnContext(context.Background(), "state in redis is not sealed: what any program writes there is believed, webhooks with credentials are refused, and checkpoints are kept in memory by each replica for itself; configure state.key, the same for all replicas, instead of state.unverified")
		own, err := state.New(s.Settings.StateBounds(), state.Deps{Now: time.Now})
		if err != nil {
			return k, err
		}
		k.blobs, k.plain = own.Blobs(), true
		return k, nil
	case len(keys) == 0:
		return k, errNoStateKey
	}
	box, err := seal.NewBox(seal.Deps{Now: time.Now, Logger: s.Logger}, keys...)
	if err != nil {
		return k, err
	}
	ignored := k.dropped.ignored
	k.dropped.ignored = func() uint64 {
		if ignored == nil {
			return box.Refused()
		}
		return ignored() + box.Refused()
	}
	k.entries, k.blobs = seal.NewEntries(k.entries, box), seal.NewBlobs(k.unsealed, box)
	if shared, ok := k.answers.(seal.SharedStore); ok {
		k.answers = seal.NewSharedAnswers(shared, box)
	} else {
		k.answers = seal.NewAnswers(k.answers, box)
	}
	return k, nil
}
