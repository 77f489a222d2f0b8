package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/seal"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// redisServer is a real one; kill ends it, run starts it again over what it left.
type redisServer struct {
	address string
	key     string // file with the key of those who share it
	run     func()
	kill    func()
}

func newRedis(t *testing.T, options ...string) *redisServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &redisServer{address: l.Addr().String()}
	must(t, l.Close())
	_, port, _ := strings.Cut(s.address, ":")
	dir := t.TempDir()
	s.key = filepath.Join(dir, "state-key")
	must(t, os.WriteFile(s.key, seal.NewKey(), 0o600))
	var process *exec.Cmd
	s.run = func() {
		process = exec.CommandContext(context.WithoutCancel(t.Context()), "redis-server", append([]string{
			"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "yes",
		}, options...)...)
		must(t, process.Start())
		within(t, 10*time.Second, "redis listens", func() bool {
			conn, err := net.Dial("tcp", s.address)
			return err == nil && conn.Close() == nil
		})
	}
	s.kill = func() {
		if process.ProcessState == nil {
			_ = process.Process.Kill()
			_ = process.Wait()
		}
	}
	s.run()
	t.Cleanup(s.kill)
	return s
}

// state is that of a gateway which has the key.
func (s *redisServer) state() config.State {
	return config.State{Key: s.key, Redis: config.Redis{Addresses: []string{s.address}, Plaintext: "loopback"}}
}

func within(t *testing.T, limit time.Duration, what string, done func() bool) {
	t.Helper()
	end := time.After(limit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// With state in Redis the gateway works; without Redis it refuses what it cannot
// remember, says so, and comes back by itself (architecture section 6).
func TestStateInRedis(t *testing.T) {
	t.Parallel()
	server := newRedis(t)
	b := newBed(t, plan{config: config.Config{
		State: server.state(),
	}})
	ready := func() bool { return b.send(t, b.operator("GET", "/readyz", "", nil)).status == http.StatusOK }
	metric := func(value string) bool {
		got := b.send(t, letter{at: b.at.Admin + "/metrics", method: http.MethodGet})
		text := string(got.body)
		return strings.Contains(text, `aepb_state_backend_up{backend="redis"} `+value) && strings.Contains(text, `aepb_state_ignored_total{backend="redis"} 0`)
	}
	within(t, patience, "ready with a Redis that is there", func() bool { return ready() && metric("1") })
	call := func() reply {
		body := addBody(1)
		return b.send(t, letter{body: body, tokens: []string{ecttest.Mint(t, b.me, b.recipe(body))}})
	}
	b.right(t, call(), `"sum":2`) // one that is ready takes tokens that are made now
	b.works(t)
	server.kill()
	within(t, patience, "not ready without Redis", func() bool { return !ready() })
	if status, text := b.monitor(t, "/readyz", ""); status != http.StatusServiceUnavailable || text != "state cannot be kept now: Redis at "+server.address+" cannot be reached\n" {
		t.Errorf("ready at listen.metrics without Redis: %d %s", status, text)
	}
	began := time.Now()
	got := call()
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" || time.Since(began) > patience {
		t.Errorf("without Redis: got %d, Retry-After %q after %v: %s", got.status, got.header.Get("Retry-After"), time.Since(began), got.body)
	}
	if !metric("0") {
		t.Error("the metric does not show it")
	}
	server.run()
	began = time.Now()
	within(t, patience, "ready again", ready)
	// Uses of tokens may be lost, so ECTs are refused until one can be younger than
	// that (R6); the gateway is not ready before, and says why.
	b.right(t, call(), `"sum":2`)
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the first translation took %v after the start of redis, expected about two seconds", took)
	}
	got = b.send(t, letter{at: doorA2A, body: addBody(1), header: map[string]string{"A2A-Version": "1.0"}})
	b.right(t, got, `"sum":2`)
}

// A gateway starts while Redis is away, says why it is not ready, and works once it comes.
func TestServe_StartsWithoutRedis(t *testing.T) {
	t.Parallel()
	server := newRedis(t)
	server.kill()
	b := newBed(t, plan{config: config.Config{
		State: server.state(),
	}})
	if status, text := b.monitor(t, "/readyz", ""); status != http.StatusServiceUnavailable || text != "state cannot be kept now: Redis at "+server.address+" cannot be reached\n" {
		t.Errorf("ready: %d %s", status, text)
	}
	plain := letter{at: doorA2A, body: addBody(1), header: map[string]string{"A2A-Version": "1.0"}}
	if got := b.send(t, plain); got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("a call without Redis: %d: %s", got.status, got.body)
	}
	server.run()
	within(t, patience, "ready", func() bool {
		status, _ := b.monitor(t, "/readyz", "")
		return status == http.StatusOK
	})
	b.right(t, b.send(t, plain), `"sum":2`)
}

// Without Redis and without a journal every door refuses, and names what is lacking.
func TestDoors_NameTheGuaranteeThatRedisIsNeededFor(t *testing.T) {
	t.Parallel()
	server := newRedis(t)
	b := newBed(t, plan{config: config.Config{
		State: server.state(),
	}})
	add := modernCall("concierge", `{"message":"x"}`)
	doors := map[string]struct {
		letter func() letter
		lacks  state.Guarantee
	}{
		"A2A": {func() letter {
			return letter{at: doorA2A, body: addBody(1), header: map[string]string{"A2A-Version": "1.0"}}
		}, state.LacksRecording},
		"MCP": {func() letter { return letter{at: doorMCP, body: add, header: mirror("tools/call", "concierge")} }, state.LacksRecording},
		"an MCP session": {func() letter {
			return letter{at: doorMCP, body: initializeBody, header: mcpHeader("2025-06-18")}
		}, state.LacksShared},
		"A2A, a task": {func() letter {
			return letter{at: doorA2A, body: `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t"}}`, header: map[string]string{"A2A-Version": "1.0"}}
		}, state.LacksShared},
		"translate, with an ECT": {func() letter {
			body := addBody(1)
			return letter{body: body, tokens: []string{ecttest.Mint(t, b.me, b.recipe(body))}}
		}, state.LacksReading},
		"AINP": {func() letter {
			return letter{at: "/agents/calculator/ainp", body: envelopeWith()(t, b)}
		}, state.LacksReplay},
	}
	b.right(t, b.send(t, doors["A2A"].letter()), `"sum":2`)
	server.kill()
	for name, tc := range doors {
		got := b.send(t, tc.letter())
		wait := got.header.Get("Retry-After")
		if got.status != http.StatusServiceUnavailable || wait == "" || !strings.Contains(string(got.body), string(tc.lacks)+"; try again in "+wait+" s") {
			t.Errorf("%s: %d, Retry-After %q: %s\nwant %q", name, got.status, wait, got.body, tc.lacks)
		}
	}
	if text := string(b.askUACP(t, "calculator", frameOf(t, uacp.FormBare, addition(1)))); !strings.Contains(text, string(state.LacksRecording)+"; try again in 1 s") {
		t.Errorf("µACP: %s", text)
	}
}

// A Redis that is there and not set up to keep state ends serve with a reason, and so do
// files that are not there. check-config does not ask Redis.
func TestServe_RefusesAnUnfitRedis(t *testing.T) {
	t.Parallel()
	evicting, locked := newRedis(t, "--maxmemory-policy", "allkeys-lru"), newRedis(t, "--requirepass", "a-secret")
	wrong := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(wrong, []byte("another"), 0o600))
	for name, tc := range map[string]struct{ redis, says string }{
		"evicts":         {`{addresses: ["` + evicting.address + `"], plaintext: loopback}`, "maxmemory-policy"},
		"wrong password": {`{addresses: ["` + locked.address + `"], plaintext: loopback, password_file: ` + wrong + `}`, "WRONGPASS"},
		"lost CA":        {`{addresses: ["127.0.0.1:1"], tls: {ca: /lost.pem}}`, "state.redis"},
		"lost secret":    {`{addresses: ["127.0.0.1:1"], plaintext: loopback, password_file: /lost}`, "state.redis"},
	} {
		_, file := operated(t, "state: {unverified: true, redis: "+tc.redis+"}\n")
		err := serve(t.Context(), file, &journal{}, &journal{})
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want it to say %q", name, err, tc.says)
		}
	}
}
