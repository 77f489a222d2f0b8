package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/aepb/aepb-gateway/ect"
)

// Why the Workload API is of no use.
var (
	errNothingYet = errors.New("identity: no SVID of the Workload API yet: check that the workload is registered")
	errNoSocket   = errors.New("identity: the Workload API has a wrong address, expected unix:// and a path")
	errNoAudience = errors.New("identity: JWT-SVID audience is empty: set one")
)

// Workload is who we are and whom we trust by the SPIFFE Workload API, which
// pushes new SVIDs and bundles as they are issued (SPIFFE Workload API, section
// 5). Safe for concurrent use.
type Workload struct {
	client   *workloadapi.Client
	watch    context.Context //nolint:containedctx // it ends with Close, which go-spiffe reports as an error
	end      context.CancelFunc
	watching sync.WaitGroup
	failed   func(error)
	failures atomic.Uint64
	first    chan struct{} // closed when something is known
	changed  chan struct{} // holds one token when there is something new

	mu     sync.Mutex
	svid   *SVID
	bundle *Bundle
	tokens map[spiffeid.TrustDomain]*KeySet // keys that sign JWT-SVIDs, as far as it tells
	wrong  error                            // why the newest answer will not do
}

// How soon the Workload API is asked again after it failed. It is a socket of this
// machine, so asking often costs little, and an SVID may be about to expire. The
// pauses of go-spiffe and of gRPC grow to 30 s and to 2 minutes.
const (
	retryWatch   = time.Second
	retryConnect = 500 * time.Millisecond
	maxConnect   = 3 * time.Second // for one connection
)

// WorkloadDeps is what a Workload needs.
type WorkloadDeps struct {
	Address string // of the API, such as unix:///run/agent.sock; required
	// Failed is called each time that a request for the SVID failed. It must not wait, and
	// must not call the Workload. Nil: only Failures counts it.
	Failed func(error)
	Dial   func(context.Context, string) (net.Conn, error) // nil: the socket at Address
}

// OpenWorkload asks the Workload API who we are and waits for its first answer
// until ctx ends. From then on it is watched: when it fails it is asked again every
// second, and what it said last stays. It must be closed.
func OpenWorkload(ctx context.Context, deps WorkloadDeps) (*Workload, error) {
	if err := CheckWorkloadAddress(deps.Address); err != nil {
		return nil, err
	}
	watch, end := context.WithCancel(context.WithoutCancel(ctx))
	client, err := workloadapi.New(watch, deps.options()...)
	if err != nil {
		end()
		return nil, fmt.Errorf("identity: %w", err)
	}
	w := &Workload{client: client, watch: watch, end: end, failed: deps.Failed, first: make(chan struct{}), changed: make(chan struct{}, 1)}
	w.watching.Go(func() {
		again(watch, func() error { return client.WatchX509Context(watch, (*workloadWatcher)(w)) })
	})
	w.watching.Go(func() { // an API without JWT-SVIDs is none the worse for it
		again(watch, func() error { return client.WatchJWTBundles(watch, (*tokenWatcher)(w)) })
	})
	select {
	case <-w.first:
		return w, nil
	case <-ctx.Done():
		_, _, err := w.Current()
		return nil, errors.Join(ctx.Err(), err, w.Close())
	}
}

func (d WorkloadDeps) options() []workloadapi.ClientOption {
	dial := []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: retryConnect, Multiplier: 1, MaxDelay: retryConnect},
		MinConnectTimeout: maxConnect,
	})}
	if d.Dial != nil {
		dial = append(dial, grpc.WithContextDialer(d.Dial))
	}
	return []workloadapi.ClientOption{
		workloadapi.WithAddr(d.Address), workloadapi.WithBackoffStrategy(steady{}), workloadapi.WithDialOptions(dial...),
	}
}

// steady is a pause that does not grow.
type steady struct{}

var _ workloadapi.BackoffStrategy = steady{}

// NewBackoff implements workloadapi.BackoffStrategy.
func (s steady) NewBackoff() workloadapi.Backoff { return s }

// Next implements workloadapi.Backoff.
func (steady) Next() time.Duration { return retryWatch }

// Reset implements workloadapi.Backoff.
func (steady) Reset() {}

// again watches until ctx ends. go-spiffe ends a watch for good when the API says
// that the call is canceled, as an agent may that stops, or invalid. The watcher was
// told of that error.
func again(ctx context.Context, watch func() error) {
	for ctx.Err() == nil {
		_ = watch()
		select {
		case <-ctx.Done():
		case <-time.After(retryWatch):
		}
	}
}

// CheckWorkloadAddress says what is wrong with an address. Only a socket of this
// machine will do: the API has no other protection than who can reach it.
func CheckWorkloadAddress(address string) error {
	if !strings.HasPrefix(address, "unix:") {
		return errNoSocket
	}
	if err := workloadapi.ValidateAddress(address); err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	return nil
}

// Current is the newest SVID, and the anchors of its trust domain and of those
// that it federates with.
func (w *Workload) Current() (*SVID, *Bundle, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.svid == nil {
		return nil, nil, errors.Join(errNothingYet, w.wrong)
	}
	return w.svid, w.bundle, nil
}

// Changed delivers when Current has something new.
func (w *Workload) Changed() <-chan struct{} { return w.changed }

// Failures is how often asking who we are has failed: the API could not be reached,
// refused, or gave an answer that will not do.
func (w *Workload) Failures() uint64 { return w.failures.Load() }

// Token is a new JWT-SVID of ours for these audiences, and when it ends. It
// fails as the API does, and never quotes a token.
func (w *Workload) Token(ctx context.Context, audience ...string) (token string, expires time.Time, err error) {
	if len(audience) == 0 {
		return "", time.Time{}, errNoAudience
	}
	svid, err := w.client.FetchJWTSVID(ctx, jwtsvid.Params{Audience: audience[0], ExtraAudiences: audience[1:]})
	if err != nil {
		return "", time.Time{}, fmt.Errorf("identity: %w", err)
	}
	return svid.Marshal(), svid.Expiry, nil
}

// Close ends the connection and waits for its end.
func (w *Workload) Close() error {
	w.end()
	w.watching.Wait()
	return w.client.Close()
}

// workloadWatcher takes updates of SVIDs from the Workload API.
type workloadWatcher Workload

var _ workloadapi.X509ContextWatcher = (*workloadWatcher)(nil)

// OnX509ContextUpdate takes over the default SVID: the first one (SPIFFE
// Workload API, section 5.2.1). One that cannot sign ECTs is an error.
func (w *workloadWatcher) OnX509ContextUpdate(update *workloadapi.X509Context) {
	given := update.DefaultSVID()
	if !signsECT(given.PrivateKey) {
		w.fail(errKeyType)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.svid != nil
	w.svid = &SVID{ID: ect.Identity(given.ID.String()), Chain: given.Certificates, Key: given.PrivateKey}
	w.bundle = &Bundle{home: given.ID.TrustDomain(), set: update.Bundles, tokens: maps.Clone(w.tokens)}
	w.wrong = nil
	if !known {
		close(w.first)
		return
	}
	w.tell()
}

// tell wakes the goroutine that waits for a change.
func (w *workloadWatcher) tell() {
	select {
	case w.changed <- struct{}{}:
	default: // a change is already signalled, and its reader sees this one too
	}
}

// OnX509ContextWatchError keeps the reason; the watch goes on by itself, and what
// was known stays.
func (w *workloadWatcher) OnX509ContextWatchError(err error) {
	if w.watch.Err() == nil { // else it was Close
		w.fail(err)
	}
}

func (w *workloadWatcher) fail(err error) {
	w.mu.Lock()
	w.wrong = err
	w.mu.Unlock()
	w.failures.Add(1)
	if w.failed != nil {
		w.failed(err)
	}
}

// tokenWatcher takes updates of the keys that sign JWT-SVIDs.
type tokenWatcher Workload

var _ workloadapi.JWTBundleWatcher = (*tokenWatcher)(nil)

// OnJWTBundlesUpdate takes over the keys of every trust domain. One whose keys
// cannot be read has none.
func (w *tokenWatcher) OnJWTBundlesUpdate(update *jwtbundle.Set) {
	tokens := map[spiffeid.TrustDomain]*KeySet{}
	for _, bundle := range update.Bundles() {
		if keys := tokenKeysOf(bundle); keys != nil {
			tokens[bundle.TrustDomain()] = keys
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tokens = tokens
	if w.bundle == nil {
		return
	}
	w.bundle = &Bundle{home: w.bundle.home, set: w.bundle.authorities(), tokens: maps.Clone(tokens)}
	(*workloadWatcher)(w).tell()
}

// OnJWTBundlesWatchError changes nothing: what was known stays, and the watch
// goes on by itself.
func (*tokenWatcher) OnJWTBundlesWatchError(error) {}

// tokenKeysOf reads a bundle with the same eyes as a file; nil: there is no key
// in it that can be used.
func tokenKeysOf(bundle *jwtbundle.Bundle) *KeySet {
	document, err := bundle.Marshal()
	if err != nil {
		return nil
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if json.Unmarshal(document, &set) != nil {
		return nil
	}
	keys := &KeySet{}
	for _, raw := range set.Keys {
		if keys.add(raw) != nil {
			return nil
		}
	}
	if len(keys.keys) == 0 {
		return nil
	}
	return keys
}
