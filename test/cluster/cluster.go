package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/aepb/aepb-gateway/test/harness/balancer"
	"github.com/aepb/aepb-gateway/test/harness/redisserver"
	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// replicaCount is that of deploy/compose.
const replicaCount = 3

// plan is what a cluster is made of.
type plan struct {
	dir    string // for all that it writes
	root   string // of the repository
	config []byte // of the gateway
}

// cluster is a running one.
type cluster struct {
	plan
	binary     string
	public     string // URL of the balancer
	replicas   []*replica
	prometheus string // its URL; "": it is not installed
	stops      []func(context.Context) error
}

// replica is one process of the gateway.
type replica struct {
	name, config string
	at           string // host:port of its public listener
	metrics      string // host:port
	process      *devgateway.Process
}

// start starts all parts and returns when the replicas are ready. What comes with an
// error must be closed, too.
func start(ctx context.Context, p plan) (*cluster, error) {
	c := &cluster{plan: p}
	var err error
	if c.binary, err = devgateway.Build(ctx, p.dir); err != nil {
		return c, err
	}
	ports, err := freePorts(3 + 3*replicaCount)
	if err != nil {
		return c, err
	}
	next := func() string { at := ports[0]; ports = ports[1:]; return at }
	redis, agents := next(), map[string]string{concierge: next(), calculator: next()}
	backends := []string{}
	for i := range replicaCount {
		c.replicas = append(c.replicas, &replica{name: "replica-" + strconv.Itoa(i+1), at: next(), metrics: next()})
		backends = append(backends, c.replicas[i].at)
	}
	front, err := balancer.New(backends...)
	if err != nil {
		return c, err
	}
	c.stops = append(c.stops, func(context.Context) error { return front.Close() })
	_, port, err := net.SplitHostPort(front.Address())
	if err != nil {
		return c, err
	}
	c.public = "https://localhost:" + port
	admins := [replicaCount]string{next(), next(), next()}
	if err := setup(p.dir, c.public, "https://"+admins[0]); err != nil {
		return c, err
	}
	if err := c.startRedis(ctx, redis); err != nil {
		return c, err
	}
	for name, at := range agents {
		running, err := startAgent(ctx, p.dir, name, at)
		if err != nil {
			return c, err
		}
		c.stops = append(c.stops, running.Stop)
	}
	here := loopback{dir: p.dir, names: map[string]string{"redis:6379": redis, concierge + ":9001": agents[concierge], calculator + ":9002": agents[calculator]}}
	for i, r := range c.replicas {
		text, err := here.gateway(p.config, c.public, map[string]string{"public": r.at, "metrics": r.metrics, "admin": admins[i]})
		if err != nil {
			return c, err
		}
		r.config = filepath.Join(p.dir, r.name+".yaml")
		if err := errors.Join(os.WriteFile(r.config, text, 0o600), c.run(ctx, r)); err != nil {
			return c, err
		}
		c.stops = append(c.stops, func(ctx context.Context) error { return r.process.Stop(ctx) })
	}
	return c, c.startPrometheus(ctx, here)
}

// run starts a replica.
func (c *cluster) run(ctx context.Context, r *replica) (err error) {
	r.process, err = devgateway.Serve(ctx, devgateway.ServeDeps{Binary: c.binary, Config: r.config})
	return err
}

// freePorts are addresses of 127.0.0.1 that nothing listens at.
func freePorts(n int) ([]string, error) {
	seen, all := map[string]bool{}, []string{}
	for len(all) < n {
		port, err := redisserver.FreePort()
		if err != nil {
			return nil, err
		}
		if !seen[port] {
			seen[port], all = true, append(all, "127.0.0.1:"+port)
		}
	}
	return all, nil
}

// startRedis starts Redis as deploy/compose has it: with TLS alone, and a password.
func (c *cluster) startRedis(ctx context.Context, at string) error {
	password, err := os.ReadFile(filepath.Join(c.dir, "secrets", "redis", "password"))
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		return err
	}
	file := func(name string) string { return filepath.Join(c.dir, "redis", name) }
	conf := strings.Join([]string{
		"bind 127.0.0.1", "port 0", "tls-port " + port, "tls-auth-clients no", "tls-protocols TLSv1.3",
		"tls-cert-file " + file("cert.pem"), "tls-key-file " + file("key.pem"), "tls-ca-cert-file " + filepath.Join(c.dir, "ca.pem"),
		"requirepass " + string(password), "dir " + file(""), "appendonly yes", "maxmemory 1gb", "maxmemory-policy noeviction",
	}, "\n")
	if err := os.WriteFile(file("redis.conf"), []byte(conf), 0o600); err != nil {
		return err
	}
	return c.launch(ctx, at, "redis-server", file("redis.conf"))
}

// startPrometheus starts Prometheus with the rules of deploy/, if it is installed.
func (c *cluster) startPrometheus(ctx context.Context, here loopback) error {
	program := filepath.Join(c.root, ".tmp", "bin", "prometheus")
	if _, err := os.Stat(program); err != nil {
		if program, err = exec.LookPath("prometheus"); err != nil {
			return nil //nolint:nilerr // a cluster without it
		}
	}
	text, err := os.ReadFile(filepath.Join(c.root, "deploy", "compose", "prometheus.yml"))
	if err != nil {
		return err
	}
	rules, err := filepath.Abs(filepath.Join(c.root, "deploy", "helm", "aepb-gateway", "files", "rules.yaml"))
	if err != nil {
		return err
	}
	targets := []string{}
	for _, r := range c.replicas {
		targets = append(targets, r.metrics)
	}
	if text, err = here.prometheus(text, rules, targets); err != nil {
		return err
	}
	file := filepath.Join(c.dir, "prometheus.yml")
	ports, err := freePorts(1)
	if err := errors.Join(err, os.WriteFile(file, text, 0o600)); err != nil {
		return err
	}
	c.prometheus = "http://" + ports[0]
	return c.launch(ctx, ports[0], program, "--config.file", file, "--storage.tsdb.path", filepath.Join(c.dir, "prometheus"), "--web.listen-address", ports[0], "--log.level", "warn")
}

// launch starts a program that listens at an address.
func (c *cluster) launch(ctx context.Context, at, program string, args ...string) error {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, args...)
	var logs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &logs, &logs
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s is needed (make tools): %w", filepath.Base(program), err)
	}
	c.stops = append(c.stops, func(context.Context) error {
		err := cmd.Process.Signal(syscall.SIGTERM)
		if errors.Is(err, os.ErrProcessDone) { // the interrupt of a terminal is for all of its processes
			err = nil
		}
		if err := errors.Join(err, cmd.Wait()); err != nil {
			return fmt.Errorf("%s: %w\n%s", filepath.Base(program), err, logs.String())
		}
		return nil
	})
	dialer := net.Dialer{Timeout: time.Second}
	return wait.Until(ctx, filepath.Base(program)+" listens at "+at, func() bool {
		conn, err := dialer.DialContext(ctx, "tcp", at)
		return err == nil && conn.Close() == nil
	})
}

// close ends all parts, the newest first.
func (c *cluster) close(ctx context.Context) error {
	var errs []error
	for _, stop := range slices.Backward(c.stops) {
		errs = append(errs, stop(ctx))
	}
	return errors.Join(errs...)
}
