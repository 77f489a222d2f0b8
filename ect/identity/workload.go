package identity

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"github.com/aepb/aepb-gateway/ect"
)

// Why the Workload API is of no use.
var (
	errNothingYet = errors.New("identity: the Workload API has not said who we are")
	errNoSocket   = errors.New("identity: the address of the Workload API is unix:// and a path")
)

// Workload is who we are and whom we trust by the SPIFFE Workload API, which
// pushes new SVIDs and bundles as they are issued (SPIFFE Workload API, section
// 5). Safe for concurrent use.
type Workload struct {
	end      context.CancelFunc
	watching sync.WaitGroup
	failed   error         // why watching ended; read after watching.Wait
	first    chan struct{} // closed when something is known
	changed  chan struct{} // holds one token when there is something new

	mu     sync.Mutex
	svid   *SVID
	bundle *Bundle
	wrong  error // why the newest answer will not do
}

// OpenWorkload asks the Workload API at an address such as unix:///run/agent.sock
// and waits for its first answer until ctx ends. It must be closed.
func OpenWorkload(ctx context.Context, address string) (*Workload, error) {
	if err := CheckWorkloadAddress(address); err != nil {
		return nil, err
	}
	watch, end := context.WithCancel(context.WithoutCancel(ctx))
	w := &Workload{end: end, first: make(chan struct{}), changed: make(chan struct{}, 1)}
	w.watching.Go(func() {
		err := workloadapi.WatchX509Context(watch, (*workloadWatcher)(w), workloadapi.WithAddr(address))
		if watch.Err() == nil { // else it was Close
			w.failed = err
		}
	})
	select {
	case <-w.first:
		return w, nil
	case <-ctx.Done():
		_, _, err := w.Current()
		return nil, errors.Join(ctx.Err(), err, w.Close())
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

// Close ends the connection and waits for its end.
func (w *Workload) Close() error {
	w.end()
	w.watching.Wait()
	return w.failed
}

// workloadWatcher hears what the Workload API says.
type workloadWatcher Workload

var _ workloadapi.X509ContextWatcher = (*workloadWatcher)(nil)

// OnX509ContextUpdate takes over the default SVID: the first one (SPIFFE
// Workload API, section 5.2.1). One that cannot sign ECTs is an error.
func (w *workloadWatcher) OnX509ContextUpdate(said *workloadapi.X509Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	given := said.DefaultSVID()
	if !signsECT(given.PrivateKey) {
		w.wrong = errKeyType
		return
	}
	known := w.svid != nil
	w.svid = &SVID{ID: ect.Identity(given.ID.String()), Chain: given.Certificates, Key: given.PrivateKey}
	w.bundle = &Bundle{home: given.ID.TrustDomain(), set: said.Bundles}
	w.wrong = nil
	if !known {
		close(w.first)
		return
	}
	select {
	case w.changed <- struct{}{}:
	default: // whoever comes for the token will see this too
	}
}

// OnX509ContextWatchError keeps the reason; the watch goes on by itself, with a
// growing pause, and what was known stays.
func (w *workloadWatcher) OnX509ContextWatchError(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = err
}
