// Package fleet runs gateways over one state, for acts that kill them at chosen moments.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/state/seal"
	"github.com/aepb/aepb-gateway/test/harness/redisserver"
	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// Group is gateways over one state.
type Group struct {
	Name     string
	State    string // in the configuration; DIR stands for a folder
	Replicas int
	Kills    int // in each phase
	// Harm kills another part than a gateway, and returns when that is replaced. Nil: gateways are killed.
	Harm func(ctx context.Context) error
}

// Deps are what a fleet needs.
type Deps struct {
	Binary, Dir string // of the gateway; for what it writes
	Trust       *devgateway.Trust
	// Config is the rest of the configuration: the operator boss, policy and agents. DOMAIN stands for the trust domain.
	Config string
}

// Fleet is a Group that runs.
type Fleet struct {
	Group

	Trust *devgateway.Trust
	HTTP  *http.Client // of callers
	Boss  *http.Client // of the operator caller/boss

	binary   string
	gateways []*gateway

	mu    sync.Mutex
	kills []kill
	log   []string // of processes that ended
}

// gateway is one replica: where it listens, and the process that runs now.
type gateway struct {
	address, config string

	mu      sync.Mutex
	process *devgateway.Process
}

// kill is one that was done.
type kill struct {
	phase string
	at    time.Time
}

// Launch starts the gateways of a group. What it returns must be stopped, also if it comes with an error, unless it is nil.
func Launch(ctx context.Context, g Group, d Deps) (*Fleet, error) {
	boss, err := d.Trust.SVID("boss")
	if err != nil {
		return nil, err
	}
	f := &Fleet{Group: g, Trust: d.Trust, HTTP: d.Trust.Client(d.Trust.ClientSVID()), Boss: d.Trust.Client(boss), binary: d.Binary}
	for range g.Replicas {
		port, err := redisserver.FreePort()
		if err != nil {
			return f, err
		}
		f.gateways = append(f.gateways, &gateway{address: "127.0.0.1:" + port})
	}
	key := filepath.Join(d.Dir, "state-key")
	if err := errors.Join(os.MkdirAll(d.Dir, 0o700), os.WriteFile(key, seal.NewKey(), 0o600)); err != nil {
		return f, err
	}
	for i, one := range f.gateways {
		home := filepath.Join(d.Dir, strconv.Itoa(i))
		if err := os.MkdirAll(home, 0o700); err != nil {
			return f, err
		}
		if err := d.Trust.Replica(home); err != nil {
			return f, err
		}
		text := strings.NewReplacer("STATE", strings.ReplaceAll(g.State, "DIR", home), "KEY", key, "DIR", home, "PUBLIC", f.gateways[0].address,
			"ADDRESS", one.address, "CONFIG", d.Config).Replace(`
public_url: https://PUBLIC
listen: {public: "ADDRESS", admin: "127.0.0.1:0"}
identity: {trust_domain: DOMAIN, certificate: DIR/gateway.pem, key: DIR/gateway-key.pem, bundle: DIR/ca.pem}
limits: {rate: 100000, burst: 100000, memory_mib: 2048}
state: {key: KEY, records_mib: 128, records_kib_per_caller: 65536, STATE}
CONFIG`)
		one.config = filepath.Join(home, "gateway.yaml")
		if err := os.WriteFile(one.config, []byte(strings.ReplaceAll(text, "DOMAIN", d.Trust.TrustDomain())), 0o600); err != nil {
			return f, err
		}
		if err := f.start(ctx, one); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (f *Fleet) start(ctx context.Context, one *gateway) error {
	p, err := devgateway.Serve(ctx, devgateway.ServeDeps{Binary: f.binary, Config: one.config, Trust: f.Trust})
	if err != nil {
		return err
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	one.process = p
	return nil
}

// end kills a gateway in the middle of what it does, and returns what it printed.
func (one *gateway) end() (string, error) {
	one.mu.Lock()
	p := one.process
	one.process = nil
	one.mu.Unlock()
	if p == nil {
		return "", nil
	}
	return p.Output(), p.Kill()
}

// Public is the base of a replica's public listener. The number of a replica counts on from the last one to the first.
func (f *Fleet) Public(replica int) string {
	return "https://" + f.gateways[replica%len(f.gateways)].address
}

// Admin is the base of a replica's admin listener; empty: it does not run.
func (f *Fleet) Admin(replica int) string {
	one := f.gateways[replica%len(f.gateways)]
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.process == nil {
		return ""
	}
	return one.process.Admin
}

// Strike kills a replica and starts it again, or does the harm of the group.
func (f *Fleet) Strike(ctx context.Context, phase string, replica int) error {
	f.mu.Lock()
	f.kills = append(f.kills, kill{phase, time.Now()})
	f.mu.Unlock()
	if f.Harm != nil {
		return f.Harm(ctx)
	}
	printed, err := f.gateways[replica].end()
	f.mu.Lock()
	f.log = append(f.log, fmt.Sprintf("== %s %d, killed\n%s", f.Name, replica, printed))
	f.mu.Unlock()
	if err != nil {
		return err
	}
	if err := f.start(ctx, f.gateways[replica]); err != nil {
		return err
	}
	if f.Replicas == 1 { // it does not know whether an ECT of the second in which it began was used before
		now := time.Now()
		wait.Pause(ctx, now.Truncate(time.Second).Add(time.Second).Sub(now))
	}
	return nil
}

// Struck counts what was done, by group and phase.
func (f *Fleet) Struck() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := map[string]int{}
	for _, k := range f.kills {
		counts[f.Name+" "+k.phase]++
	}
	return counts
}

// unsaved is how long a gateway over a file takes at most to write evidence.
const unsaved = 2 * time.Second

// WasUnsaved reports whether evidence of the time between two instants went down with a gateway over a file, which writes
// it every second.
func (f *Fleet) WasUnsaved(from, to time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Replicas == 1 && slices.ContainsFunc(f.kills, func(k kill) bool { return k.at.After(from) && k.at.Sub(to) < unsaved })
}

// Verifier verifies what the gateways and their callers signed.
func (f *Fleet) Verifier() (*ect.Verifier, error) {
	bundle, err := identity.LoadBundle(filepath.Join(filepath.Dir(f.gateways[0].config), "ca.pem"), f.Trust.TrustDomain())
	if err != nil {
		return nil, err
	}
	keys, err := identity.NewKeyRing(identity.KeyRingDeps{Bundle: bundle})
	if err != nil {
		return nil, err
	}
	return ect.NewVerifier(ect.VerifierDeps{Keys: keys, Now: time.Now})
}

// Stop ends all gateways, and returns what all of them printed.
func (f *Fleet) Stop() (printed string, err error) {
	var errs []error
	for i, one := range f.gateways {
		text, err := one.end()
		f.log = append(f.log, fmt.Sprintf("== %s %d\n%s", f.Name, i, text))
		errs = append(errs, err)
	}
	f.HTTP.CloseIdleConnections()
	f.Boss.CloseIdleConnections()
	return strings.Join(f.log, "\n"), errors.Join(errs...)
}
