package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/state/seal"
	"github.com/aepb/aepb-gateway/test/harness/balancer"
	"github.com/aepb/aepb-gateway/test/harness/redisserver"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// The backends.
const (
	backendMemory = "memory"
	backendBolt   = "bbolt"
	backendRedis  = "redis"
)

// backends are all of them, in the order in which they are attacked.
func backends() []string { return []string{backendMemory, backendBolt, backendRedis} }

// rig is what is attacked: the gateways over one backend, and the agents behind
// them.
type rig struct {
	trust    *devgateway.Trust
	agents   *agents
	redis    *redisserver.Server
	balancer *balancer.Balancer
	gateways []*devgateway.Process
	public   []string // host:port of each gateway
	uacp     []string // the same for µACP
	metrics  []string // the same for /metrics and the probes
	front    string   // host:port for the good caller: the balancer, or the one gateway
	limits   string   // in the configuration
	members  []string // who may call both agents, beside the good caller
	bound    int      // MiB that one gateway has resident at most, as its configuration says
}

// What the gateways keep beside the evidence, in MiB.
const (
	recordsMiB = 32
	answersMiB = 16
)

// memory are the limits of a gateway of a large container: in a small one attackers and good
// callers, who come from one address here, share so few places that one of them can lose one.
func memory(evidence int) string {
	return fmt.Sprintf("memory_mib: %d", 4096+4*max(0, evidence-24))
}

// assemble starts everything for one backend, with these limits beside the rate and those of a large
// container. What it returns must be stopped, also when it comes with an error.
func assemble(ctx context.Context, o options, binary, dir, backend, limits string) (*rig, error) {
	r := &rig{limits: fmt.Sprintf("rate: %d, burst: %d, %s", rate, 2*rate, memory(o.evidence))}
	if limits != "" {
		r.limits += ", " + limits
	}
	state := fmt.Sprintf("evidence_mib: %d, records_mib: %d, answers_mib: %d", o.evidence, recordsMiB, answersMiB)
	return r, r.assemble(ctx, binary, dir, backend, state, o.evidence)
}

// assemble starts everything for one backend, with so many MiB of evidence.
func (r *rig) assemble(ctx context.Context, binary, dir, backend, state string, evidence int) error {
	var err error
	if err = os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if r.trust, err = devgateway.NewTrust("abuse.test"); err != nil {
		return err
	}
	if r.agents, err = serveAgents(r.trust); err != nil {
		return err
	}
	replicas := 1
	switch backend {
	case backendBolt:
		state += ", path: " + filepath.Join(dir, stateFile)
	case backendRedis:
		replicas = 2
		// Evidence gets a quarter of Redis. What else the gateways keep fits beside it,
		// and no more.
		room := strconv.Itoa(4*evidence+recordsMiB+answersMiB) + "mb"
		r.redis, err = redisserver.Start(ctx, filepath.Join(dir, "redis"),
			"--maxmemory", room, "--maxmemory-policy", "noeviction", "--appendfsync", "everysec", "--auto-aof-rewrite-min-size", neverRewrites)
		if err != nil {
			return err
		}
		key := filepath.Join(dir, "state-key")
		if err := os.WriteFile(key, seal.NewKey(), 0o600); err != nil {
			return err
		}
		state += ", key: " + key + `, redis: {plaintext: loopback, max_replicas: 2, addresses: ["` + r.redis.Address() + `"]}`
	}
	for range replicas {
		for _, addresses := range []*[]string{&r.public, &r.uacp, &r.metrics} {
			port, err := redisserver.FreePort()
			if err != nil {
				return err
			}
			*addresses = append(*addresses, "127.0.0.1:"+port)
		}
	}
	if r.front = r.public[0]; replicas > 1 {
		if r.balancer, err = balancer.New(r.public...); err != nil {
			return err
		}
		r.front = r.balancer.Address()
	}
	for i := range replicas {
		if err := r.start(ctx, binary, filepath.Join(dir, "gateway-"+strconv.Itoa(i)), i, state); err != nil {
			return err
		}
	}
	return nil
}

// neverRewrites is more than Redis writes to its file in a run. By default it would write
// the file anew every ten seconds under attack, with a process of its own that takes
// one of two CPUs, and never in the control.
const neverRewrites = "16gb"

// start writes the files of one gateway and runs it.
func (r *rig) start(ctx context.Context, binary, dir string, i int, state string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := errors.Join(r.trust.Replica(dir), writeKey(filepath.Join(dir, "ainp.pem"))); err != nil {
		return err
	}
	file := filepath.Join(dir, "gateway.yaml")
	text := strings.NewReplacer("DIR", dir, "FRONT", r.front, "ADDRESS", r.public[i], "UACP", r.uacp[i], "METRICS", r.metrics[i], "STATE", state, "LIMITS", r.limits,
		"AGENTS", r.agents.URL, "MEMBERS", r.callers(), "DOMAIN", r.trust.TrustDomain()).Replace(`
public_url: https://FRONT
listen: {public: "ADDRESS", admin: "127.0.0.1:0", uacp: "UACP", metrics: "METRICS"}
identity: {trust_domain: DOMAIN, certificate: DIR/gateway.pem, key: DIR/gateway-key.pem, bundle: DIR/ca.pem}
ainp: {key: DIR/ainp.pem}
admin: {operators: {ann: {id: "spiffe://DOMAIN/caller/ann", roles: [operator]}}}
timeout: 10s
limits: {LIMITS}
state: {STATE}
agents:
  tools: {callers: ["spiffe://DOMAIN/client", "spiffe://DOMAIN/caller/hostile"MEMBERS], endpoints: [{binding: mcp-v1, url: "AGENTS/mcp"}]}
  worker: {callers: ["spiffe://DOMAIN/client"MEMBERS], endpoints: [{binding: a2a-v1, url: "AGENTS"}]}
`)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	written, err := config.Parse([]byte(text))
	if err != nil {
		return err
	}
	r.bound = int(written.MemoryBound() >> 20)
	process, err := devgateway.Serve(ctx, devgateway.ServeDeps{Binary: binary, Config: file, Trust: r.trust})
	if err == nil {
		r.gateways = append(r.gateways, process)
	}
	return err
}

// callers are those of both agents in the configuration, beside the good one.
func (r *rig) callers() string {
	var b strings.Builder
	for _, name := range r.members {
		b.WriteString(`, "spiffe://` + r.trust.TrustDomain() + "/caller/" + name + `"`)
	}
	return b.String()
}

// order tells the attackers where everything is.
func (r *rig) order(o options, read, decided place) (order, error) {
	svid, err := r.trust.SVID("hostile")
	if err != nil {
		return order{}, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(svid.PrivateKey)
	if err != nil {
		return order{}, err
	}
	return order{
		Seconds: o.time.Seconds(), Public: r.public, UACP: r.uacp, Agents: r.agents.Listener.Addr().String(), Gateway: r.trust.GatewayID(),
		Roots:       r.trust.RootsPEM(),
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: svid.Certificate[0]}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		Workflow:    read, Decision: decided,
	}, nil
}

// rate is what the gateways let one identity or address do in a second: enough for
// the 50 calls a second and for asking about all of them afterwards. It is more
// than the attackers do: that their requests are few must not be what saves others.
const rate = 4000

// writeKey makes a gateway's AINP key.
func writeKey(file string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}

// output is what the gateways printed.
func (r *rig) output() string {
	var b strings.Builder
	for i, g := range r.gateways {
		fmt.Fprintf(&b, "== gateway %d\n%s\n", i, g.Output())
	}
	return b.String()
}

// stop ends everything that assemble started.
func (r *rig) stop() error {
	var errs []error
	for _, g := range r.gateways {
		errs = append(errs, g.Kill())
	}
	if r.balancer != nil {
		errs = append(errs, r.balancer.Close())
	}
	errs = append(errs, r.redis.End(syscall.SIGKILL))
	if r.agents != nil {
		r.agents.stop()
	}
	return errors.Join(errs...)
}
