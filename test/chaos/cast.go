package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state/seal"
	"github.com/aepb/aepb-gateway/test/harness/balancer"
	"github.com/aepb/aepb-gateway/test/harness/redisserver"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// replicas is how many gateways there are.
const replicas = 3

// gateway is one replica: its files, and the process that runs now.
type gateway struct {
	address, config string

	mu      sync.Mutex
	process *devgateway.Process
}

// rig is everybody who takes part in one act.
type rig struct {
	binary   string
	trust    *devgateway.Trust
	gateways []*gateway
	balancer *balancer.Balancer
	agents   *agents
	journal  *journal
	witness  *witness
	minter   *devgateway.Minter
	svids    map[string]tls.Certificate // by kind of call
	killed   atomic.Bool                // a gateway was, and what was on its way there went down with it
}

// assemble starts the agents, the gateways over the given state, and the balancer.
// What it returns must be stopped, also when it comes with an error.
func assemble(ctx context.Context, binary, dir, redis string) (*rig, error) {
	r := &rig{binary: binary, journal: &journal{}, witness: &witness{}, svids: map[string]tls.Certificate{}}
	var err error
	if r.trust, err = devgateway.NewTrust("chaos.test"); err != nil {
		return r, err
	}
	if r.minter, err = r.trust.NewMinter(); err != nil {
		return r, err
	}
	for i, k := range kinds() {
		if k.name == kindTranslate { // whose ECTs are the client's
			continue
		}
		if r.svids[k.name], err = r.trust.SVID(strconv.Itoa(i)); err != nil {
			return r, err
		}
	}
	if r.agents, err = serveAgents(r.trust, r.journal); err != nil {
		return r, err
	}
	var addresses []string
	for range replicas {
		port, err := redisserver.FreePort()
		if err != nil {
			return r, err
		}
		addresses = append(addresses, "127.0.0.1:"+port)
	}
	if r.balancer, err = balancer.New(addresses...); err != nil {
		return r, err
	}
	if err := os.WriteFile(filepath.Join(dir, stateKey), seal.NewKey(), 0o600); err != nil {
		return r, err
	}
	for i, address := range addresses {
		g, err := r.write(filepath.Join(dir, "gateway-"+strconv.Itoa(i)), address, redis)
		if err != nil {
			return r, err
		}
		r.gateways = append(r.gateways, g)
		if err := r.start(ctx, g); err != nil {
			return r, err
		}
	}
	return r, nil
}

// stateKey is the file with the key of all replicas, beside their folders.
const stateKey = "state-key"

// agentTimeout is how long the gateways wait for an agent.
const agentTimeout = 10 * time.Second

// write makes the files of one gateway.
func (r *rig) write(dir, address, redis string) (*gateway, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := r.trust.Replica(dir); err != nil {
		return nil, err
	}
	text := strings.NewReplacer("DIR", dir, "STATEKEY", filepath.Join(filepath.Dir(dir), stateKey), "PUBLIC", r.balancer.Address(), "ADDRESS", address, "REDIS", redis,
		"AGENTS", r.agents.URL, "DOMAIN", r.trust.TrustDomain(), "TIMEOUT", agentTimeout.String()).Replace(`
public_url: https://PUBLIC
listen: {public: "ADDRESS", admin: "127.0.0.1:0"}
identity: {trust_domain: DOMAIN, certificate: DIR/gateway.pem, key: DIR/gateway-key.pem, bundle: DIR/ca.pem}
admin: {operators: {ann: {id: "spiffe://DOMAIN/client", roles: [operator]}}}
timeout: TIMEOUT
limits: {rate: 100000, burst: 100000}
state: {key: STATEKEY, records_mib: 128, records_kib_per_caller: 65536, redis: {plaintext: loopback, REDIS}}
agents:
  worker: {callers: ["spiffe://DOMAIN/client", "spiffe://DOMAIN/caller/*"], endpoints: [{binding: a2a-v1, url: "AGENTS"}]}
  tools: {callers: ["spiffe://DOMAIN/client", "spiffe://DOMAIN/caller/*"], endpoints: [{binding: mcp-v1, url: "AGENTS/modern"}]}
  classic: {callers: ["spiffe://DOMAIN/client", "spiffe://DOMAIN/caller/*"], endpoints: [{binding: mcp-v1, url: "AGENTS/legacy"}]}
`)
	file := filepath.Join(dir, "gateway.yaml")
	return &gateway{address: address, config: file}, os.WriteFile(file, []byte(text), 0o600)
}

// start runs a gateway that does not run.
func (r *rig) start(ctx context.Context, g *gateway) error {
	process, err := devgateway.Serve(ctx, devgateway.ServeDeps{Binary: r.binary, Config: g.config, Trust: r.trust})
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.process = process
	return nil
}

// kill ends a gateway in the middle of whatever it does.
func (g *gateway) kill() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.process == nil {
		return nil
	}
	err := g.process.Kill()
	g.process = nil
	return err
}

// output is what the gateways that run said.
func (r *rig) output() string {
	var b strings.Builder
	for _, g := range r.gateways {
		g.mu.Lock()
		if g.process != nil {
			fmt.Fprintf(&b, "== gateway %s\n%s\n", g.address, g.process.Output())
		}
		g.mu.Unlock()
	}
	return b.String()
}

func (r *rig) stop() error {
	var errs []error
	for _, g := range r.gateways {
		errs = append(errs, g.kill())
	}
	if r.balancer != nil {
		errs = append(errs, r.balancer.Close())
	}
	if r.agents != nil {
		r.agents.stop()
	}
	return errors.Join(errs...)
}
