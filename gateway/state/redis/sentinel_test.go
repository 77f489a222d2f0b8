package redis_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aepb/aepb-gateway/gateway/state/redis"
)

// sentinel watches a master as "m", and alone decides that it is gone.
func sentinel(t *testing.T, master *server) *server {
	t.Helper()
	port, dir := freePort(t), t.TempDir()
	host, masterPort, err := net.SplitHostPort(master.address)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %s\nsentinel monitor m %s %s 1\n"+
		"sentinel down-after-milliseconds m 1000\nsentinel failover-timeout m 5000\n", port, dir, host, masterPort)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal(err)
	}
	s := &server{tb: t, address: "127.0.0.1:" + port, args: []string{file, "--sentinel"}}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func TestFailover_Sentinel(t *testing.T) {
	t.Parallel()
	master := serve(t)
	host, port, err := net.SplitHostPort(master.address)
	if err != nil {
		t.Fatal(err)
	}
	replica := serve(t, "--replicaof", host+" "+port)
	watcher := sentinel(t, master)
	c := watcher.client(goredis.Options{})
	eventually(t, 20*time.Second, "the Sentinel knows the replica", func() bool {
		text, err := c.Info(t.Context(), "sentinel").Result()
		link, err2 := replica.client(goredis.Options{}).Info(t.Context(), "replication").Result()
		return err == nil && err2 == nil && strings.Contains(text, "slaves=1") && strings.Contains(link, "master_link_status:up")
	})
	s := open(t, redis.Config{Addresses: []string{watcher.address}, Master: "m", Wait: 1})
	w := write(t, s, "1")
	eventually(t, 5*time.Second, "writes", func() bool { return swapOne(s, "2") == nil && w.answer.Load() > 0 })
	master.kill()
	eventually(t, 5*time.Second, "it is noticed", func() bool { return s.Failing() != nil })
	eventually(t, 30*time.Second, "the replica takes over", func() bool { return s.Failing() == nil })
	reported, _ := w.end()
	if reported == 0 {
		t.Error("nothing was acknowledged")
	}
	wantCount(t, s, "1", reported)
}
