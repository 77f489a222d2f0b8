package rollbacks

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
	Kills    int           // in each phase
	Waits    time.Duration // how long a caller sends a rollback request again; a call that was lost can be undone after a minute
	// Harm kills another part than a gateway, and returns when that is replaced. Nil: gateways are killed.
	Harm func(ctx context.Context) error
}

// gateway is one replica: where it listens, and the process that runs now.
type gateway struct {
	address, config string

	mu      sync.Mutex
	process *devgateway.Process
}

// group is a Group that runs.
type group struct {
	Group

	binary   string
	trust    *devgateway.Trust
	gateways []*gateway
	hotel    *hotel
	http     *http.Client // of callers
	boss     *http.Client // of the auditor
	signer   *ect.Signer  // of callers

	mu    sync.Mutex
	trips []*trip
	kills []kill
	log   []string // of processes that ended
}

// kill is one that was done.
type kill struct {
	phase phase
	at    time.Time
}

// launch starts the gateways of a group. It must be stopped, also after an error.
func launch(ctx context.Context, g *group, dir, hotel string) error {
	var addresses []string
	for range g.Replicas {
		port, err := redisserver.FreePort()
		if err != nil {
			return err
		}
		addresses = append(addresses, "127.0.0.1:"+port)
	}
	key := filepath.Join(dir, "state-key")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(key, seal.NewKey(), 0o600)); err != nil {
		return err
	}
	for i, address := range addresses {
		home := filepath.Join(dir, strconv.Itoa(i))
		if err := os.MkdirAll(home, 0o700); err != nil {
			return err
		}
		if err := g.trust.Replica(home); err != nil {
			return err
		}
		text := strings.NewReplacer("STATE", g.State, "KEY", key, "DIR", home, "PUBLIC", addresses[0], "ADDRESS", address, "HOTEL", hotel, "DOMAIN", g.trust.TrustDomain()).Replace(`
public_url: https://PUBLIC
listen: {public: "ADDRESS", admin: "127.0.0.1:0"}
identity: {trust_domain: DOMAIN, certificate: DIR/gateway.pem, key: DIR/gateway-key.pem, bundle: DIR/ca.pem}
admin: {operators: {boss: {id: "spiffe://DOMAIN/caller/boss", roles: [auditor]}}}
timeout: 5s
limits: {rate: 100000, burst: 100000, memory_mib: 2048}
state: {key: KEY, records_mib: 128, records_kib_per_caller: 65536, STATE}
agents:
  hotel:
    callers: ["spiffe://DOMAIN/client"]
    endpoints: [{binding: mcp-v1, url: "HOTEL"}]
    read_only: [get_booking]
    compensate:
      create_booking: {tool: cancel_booking, arguments: {id: {result: /id}}}
      rename_guest:
        before: {tool: get_booking, arguments: {id: {call: /id}}}
        tool: rename_guest
        arguments: {id: {call: /id}, guest: {before: /guest}}
`)
		one := &gateway{address: address, config: filepath.Join(home, "gateway.yaml")}
		g.gateways = append(g.gateways, one)
		if err := os.WriteFile(one.config, []byte(strings.ReplaceAll(text, "DIR", home)), 0o600); err != nil {
			return err
		}
		if err := g.start(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

func (g *group) start(ctx context.Context, one *gateway) error {
	p, err := devgateway.Serve(ctx, devgateway.ServeDeps{Binary: g.binary, Config: one.config, Trust: g.trust})
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

// admin is the base of a gateway's admin listener; empty: it does not run.
func (one *gateway) admin() string {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.process == nil {
		return ""
	}
	return one.process.Admin
}

// strike kills a replica and starts it again, or does the harm of the group.
func (g *group) strike(ctx context.Context, p phase, replica int) error {
	g.mu.Lock()
	g.kills = append(g.kills, kill{p, time.Now()})
	g.mu.Unlock()
	if g.Harm != nil {
		return g.Harm(ctx)
	}
	printed, err := g.gateways[replica].end()
	g.mu.Lock()
	g.log = append(g.log, fmt.Sprintf("== %s %d, killed\n%s", g.Name, replica, printed))
	g.mu.Unlock()
	if err != nil {
		return err
	}
	if err := g.start(ctx, g.gateways[replica]); err != nil {
		return err
	}
	if g.Replicas == 1 { // it does not know whether an ECT of the second in which it began was used before
		now := time.Now()
		wait.Pause(ctx, now.Truncate(time.Second).Add(time.Second).Sub(now))
	}
	return nil
}

// unsaved is how long a gateway over a file takes at most to write evidence.
const unsaved = 2 * time.Second

// wasUnsaved: evidence of the time between two instants went down with a gateway over a file, which writes it every second.
func (g *group) wasUnsaved(from, to time.Time) bool {
	return g.Replicas == 1 && slices.ContainsFunc(g.kills, func(k kill) bool { return k.at.After(from) && k.at.Before(to.Add(unsaved)) })
}

func (g *group) stop() error {
	var errs []error
	for i, one := range g.gateways {
		printed, err := one.end()
		g.log = append(g.log, fmt.Sprintf("== %s %d\n%s", g.Name, i, printed))
		errs = append(errs, err)
	}
	for _, c := range []*http.Client{g.http, g.boss} {
		if c != nil {
			c.CloseIdleConnections()
		}
	}
	return errors.Join(errs...)
}
