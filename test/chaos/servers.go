package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startTime is what a server gets to begin in, or to end in.
const startTime = 30 * time.Second

// redis is one redis-server in a folder of its own, over which it starts again.
type redis struct {
	address string
	args    []string
	process *exec.Cmd
}

// startRedis starts a server that has written what it acknowledges.
func startRedis(ctx context.Context, dir string, more ...string) (*redis, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &redis{address: "127.0.0.1:" + port, args: append([]string{
		"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", "always",
		"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--logfile", "log",
	}, more...)}
	return s, s.start(ctx)
}

func (s *redis) start(ctx context.Context) error {
	s.process = exec.CommandContext(context.WithoutCancel(ctx), "redis-server", s.args...)
	if err := s.process.Start(); err != nil {
		return fmt.Errorf("chaos: redis-server is needed (make redis): %w", err)
	}
	return eventually(ctx, "redis answers", func() bool { return s.ask(ctx, "PING") == "PONG" })
}

// ask says one command; "" if there is no answer.
func (s *redis) ask(ctx context.Context, command ...string) string {
	_, port, _ := strings.Cut(s.address, ":")
	out, err := exec.CommandContext(ctx, "redis-cli", append([]string{"-p", port}, command...)...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// end stops the process and waits for it.
func (s *redis) end(how os.Signal) error {
	if s == nil || s.process == nil || s.process.ProcessState != nil {
		return nil
	}
	if err := s.process.Process.Signal(how); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	var exit *exec.ExitError
	if err := s.process.Wait(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}

// cluster is three masters with a replica each.
func cluster(ctx context.Context, dir string) ([]*redis, error) {
	var nodes []*redis
	create := []string{"--cluster", "create"}
	for i := range 6 {
		node, err := startRedis(ctx, dir+"/"+strconv.Itoa(i), "--cluster-enabled", "yes", "--cluster-node-timeout", "1500",
			"--cluster-replica-validity-factor", "0")
		if node != nil {
			nodes = append(nodes, node)
			create = append(create, node.address)
		}
		if err != nil {
			return nodes, err
		}
	}
	out, err := exec.CommandContext(ctx, "redis-cli", append(create, "--cluster-replicas", "1", "--cluster-yes")...).CombinedOutput()
	if err != nil {
		return nodes, fmt.Errorf("chaos: %w: %s", err, out)
	}
	for _, node := range nodes {
		if err := eventually(ctx, "the cluster stands", func() bool { return node.whole(ctx) }); err != nil {
			return nodes, err
		}
	}
	return nodes, nil
}

// whole: the node knows a complete cluster and is in step with its other half.
func (s *redis) whole(ctx context.Context) bool {
	info, replication := s.ask(ctx, "CLUSTER", "INFO"), s.ask(ctx, "INFO", "replication")
	return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:6") &&
		(strings.Contains(replication, "state=online") || strings.Contains(replication, "master_link_status:up"))
}

func (s *redis) master(ctx context.Context) bool {
	return strings.Contains(s.ask(ctx, "INFO", "replication"), "role:master")
}

func endAll(nodes []*redis) error {
	var errs []error
	for _, node := range nodes {
		errs = append(errs, node.end(syscall.SIGKILL))
	}
	return errors.Join(errs...)
}

// freePort is one whose cluster bus, ten thousand above, is free too, and below
// those that systems give to clients.
func freePort() (string, error) {
	for range 100 {
		port := 11000 + rand.IntN(11000)
		if free(port) && free(port+10000) {
			return strconv.Itoa(port), nil
		}
	}
	return "", errors.New("chaos: no free port")
}

func free(port int) bool {
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	return err == nil && l.Close() == nil
}

// eventually waits for something that others do.
func eventually(ctx context.Context, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("chaos: not in time: %s", what)
		}
	}
	return nil
}

// pause waits; false: ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
