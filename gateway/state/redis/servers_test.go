package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/gateway/state/redis"
)

func TestMain(m *testing.M) {
	redis.Quiet()
	goleak.VerifyTestMain(m)
}

// server is a real redis-server in a folder of its own.
type server struct {
	tb      testing.TB
	address string
	args    []string
	process *exec.Cmd
}

// freePort is one whose cluster bus, ten thousand above, is free too, and below
// those that systems give to clients.
func freePort(tb testing.TB) string {
	tb.Helper()
	for range 100 {
		port := 11000 + rand.IntN(11000)
		if free(port) && free(port+10000) {
			return strconv.Itoa(port)
		}
	}
	tb.Fatal("no free port")
	return ""
}

func free(port int) bool {
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// serve starts a server that writes to disk before it answers, unless args say
// otherwise, and ends it with the test.
func serve(tb testing.TB, args ...string) *server {
	tb.Helper()
	if testing.Short() {
		tb.Skip("redis-server is started")
	}
	port := freePort(tb)
	s := &server{tb: tb, address: "127.0.0.1:" + port}
	s.args = append([]string{
		"--port", port, "--bind", "127.0.0.1", "--dir", tb.TempDir(), "--save", "", "--daemonize", "no",
		"--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0",
		"--repl-ping-replica-period", "1",
	}, args...)
	s.start()
	tb.Cleanup(s.kill)
	return s
}

func (s *server) start() {
	s.tb.Helper()
	s.process = exec.CommandContext(context.WithoutCancel(s.tb.Context()), "redis-server", s.args...)
	s.process.Stdout, s.process.Stderr = s.log(), s.log()
	if err := s.process.Start(); err != nil {
		s.tb.Fatalf("redis-server is needed (make redis): %v", err)
	}
	eventually(s.tb, 10*time.Second, "the server listens", func() bool {
		conn, err := net.Dial("tcp", s.address)
		return err == nil && conn.Close() == nil
	})
}

func (s *server) log() *os.File {
	f, err := os.OpenFile(filepath.Join(s.tb.TempDir(), "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(func() { _ = f.Close() })
	return f
}

// kill ends the server without a chance to say goodbye.
func (s *server) kill() {
	if s.process.ProcessState != nil {
		return
	}
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

func (s *server) signal(number syscall.Signal) {
	s.tb.Helper()
	if err := s.process.Process.Signal(number); err != nil {
		s.tb.Fatal(err)
	}
}

// client is one of the test's own.
func (s *server) client(options goredis.Options) *goredis.Client {
	s.tb.Helper()
	options.Addr = s.address
	c := goredis.NewClient(&options)
	s.tb.Cleanup(func() { _ = c.Close() })
	return c
}

// soon is how long a slow machine may take for what is done at once.
const soon = 20 * time.Second

// eventually waits for something that others do.
func eventually(tb testing.TB, within time.Duration, what string, done func() bool) {
	tb.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(within)
	for !done() {
		select {
		case <-tick.C:
		case <-limit:
			tb.Fatalf("not within %v: %s", within, what)
		}
	}
}

// cluster is three masters with one replica each.
func cluster(tb testing.TB, more ...string) []*server {
	tb.Helper()
	nodes := make([]*server, 6)
	args := []string{"--cluster", "create"}
	more = append(more, "--cluster-enabled", "yes", "--cluster-node-timeout", "1500", "--cluster-replica-validity-factor", "0")
	for i := range nodes {
		nodes[i] = serve(tb, more...)
		args = append(args, nodes[i].address)
	}
	args = append(args, "--cluster-replicas", "1", "--cluster-yes")
	if out, err := exec.CommandContext(tb.Context(), "redis-cli", args...).CombinedOutput(); err != nil {
		tb.Fatalf("%v: %s", err, out)
	}
	for _, node := range nodes {
		c := node.client(goredis.Options{})
		eventually(tb, 30*time.Second, "the cluster stands", func() bool {
			info, err := c.ClusterInfo(tb.Context()).Result()
			replication, err2 := c.Info(tb.Context(), "replication").Result()
			ready := strings.Contains(replication, "connected_slaves:1") && strings.Contains(replication, "state=online") ||
				strings.Contains(replication, "master_link_status:up")
			return errors.Join(err, err2) == nil && strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, "cluster_known_nodes:6") && ready
		})
	}
	return nodes
}

func addresses(nodes []*server) []string {
	var all []string
	for _, node := range nodes {
		all = append(all, node.address)
	}
	return all
}

var prefixes atomic.Int64 //nolint:gochecknoglobals // tests share servers, and no key

// apart is a configuration whose keys are its own.
func apart(config redis.Config) redis.Config {
	config.Prefix = fmt.Sprintf("t%d:", prefixes.Add(1))
	return config
}

func open(tb testing.TB, config redis.Config) *redis.Store {
	tb.Helper()
	s, err := redis.Open(config, redis.Deps{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}
