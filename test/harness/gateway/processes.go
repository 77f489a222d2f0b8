package gatewaytest

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/workloadtest"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/state/seal"
)

// ByWorkloadAPI is a configuration of files whose identity comes from an agent instead.
func ByWorkloadAPI(text []byte, agent *workloadtest.Agent) []byte {
	before, rest, _ := strings.Cut(string(text), "certificate:")
	_, after, _ := strings.Cut(rest, "trust-bundle.json")
	return []byte(before + `workload_api: "` + agent.Address + `"` + after)
}

// IdentityOf is what an agent says of the gateway.
func IdentityOf(dev *identity.Development, s *identity.SVID) workloadtest.Identity {
	return workloadtest.Identity{ID: string(s.ID), Chain: s.Chain, Key: s.Key, Anchors: dev.Bundle.Anchors()}
}

// NumberIn is the value of a metric on a page of them. metric is its name with its labels; if it is not on the page,
// the test ends.
func NumberIn(t *testing.T, page, metric string) float64 {
	t.Helper()
	_, rest, ok := strings.Cut(page, "\n"+metric+" ")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseFloat(line, 64)
	if !ok || err != nil {
		t.Fatalf("no number for %s: %v", metric, err)
	}
	return n
}

// Lines are the log lines that hold all of the words.
func (j *Journal) Lines(words ...string) (found []string) {
next:
	for line := range strings.Lines(j.String()) {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}

// RedisServer is a real one; Kill ends it, Run starts it again over what it left.
type RedisServer struct {
	Address string
	Key     string // file with the key of those who share it
	Run     func()
	Kill    func()
}

// NewRedis runs a redis-server of this machine until the test ends, on a free port of 127.0.0.1 and with a file of
// what it was told. options are further arguments of the command. The test ends if it does not listen within 10 s.
func NewRedis(t *testing.T, options ...string) *RedisServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	s := &RedisServer{Address: l.Addr().String()}
	Must(t, l.Close())
	_, port, _ := strings.Cut(s.Address, ":")
	dir := t.TempDir()
	s.Key = filepath.Join(dir, "state-key")
	Must(t, os.WriteFile(s.Key, seal.NewKey(), 0o600))
	var process *exec.Cmd
	s.Run = func() {
		process = exec.CommandContext(context.WithoutCancel(t.Context()), "redis-server", append([]string{
			"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "yes",
		}, options...)...)
		Must(t, process.Start())
		Within(t, 10*time.Second, "redis listens", func() bool {
			conn, err := net.Dial("tcp", s.Address)
			return err == nil && conn.Close() == nil
		})
	}
	s.Kill = func() {
		if process.ProcessState == nil {
			_ = process.Process.Kill()
			_ = process.Wait()
		}
	}
	s.Run()
	t.Cleanup(s.Kill)
	return s
}

// State is that of a gateway which has the key.
func (s *RedisServer) State() config.State {
	return config.State{Key: s.Key, Redis: config.Redis{Addresses: []string{s.Address}, Plaintext: "loopback"}}
}

// Within asks every 20 ms whether something is done. If that lasts longer than limit, the test ends, and says what was
// waited for.
func Within(t *testing.T, limit time.Duration, what string, done func() bool) {
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

// PushBackends keep the state of a gateway beyond its process.
func PushBackends(t *testing.T) map[string]config.State {
	t.Helper()
	return map[string]config.State{"file": {Path: filepath.Join(t.TempDir(), "state.db")}, "Redis": NewRedis(t).State()}
}

// States are those that the notifications of a path say, with all repetitions.
func (h *PushReceiver) States(path string) (states []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.taken[path] {
		if state := n.state(); state != "" {
			states = append(states, state)
		}
	}
	return states
}

// OnFiles is the configuration of a gateway whose identity lies in its folder.
func OnFiles(b *Fixture) config.Config {
	c := b.Settings()
	c.PublicURL = "https://127.0.0.1:8443"
	c.Admin = Staff().Admin
	file := func(name string) string { return filepath.Join(b.Dir, name) }
	c.Identity = config.Identity{
		TrustDomain: TrustDomain, Certificate: file("gateway.pem"), Key: file("gateway-key.pem"), Bundle: file("ca.pem"),
	}
	return c
}

// Operated is a folder as an operator of serve has it: files and a configuration.
func Operated(t *testing.T, extra string) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	_, err := identity.LoadOrCreate(dir, TrustDomain, time.Now)
	Must(t, err)
	file = filepath.Join(dir, "gateway.yaml")
	Must(t, os.WriteFile(file, []byte(strings.ReplaceAll(`
public_url: https://127.0.0.1:8443
listen: {public: "127.0.0.1:0", admin: "127.0.0.1:0"}
identity: {trust_domain: aepb.dev, certificate: DIR/gateway.pem, key: DIR/gateway-key.pem, bundle: DIR/trust-bundle.json}
admin: {operators: {ann: {id: "spiffe://aepb.dev/client", roles: [operator]}}}
`, "DIR", dir)+extra), 0o600))
	return dir, file
}

// PutSVID is what a SPIFFE agent does to our files.
func PutSVID(t *testing.T, b *Fixture, s *identity.SVID) {
	t.Helper()
	Must(t, s.WritePEM(filepath.Join(b.Dir, "gateway.pem"), filepath.Join(b.Dir, "gateway-key.pem")))
}

// Shown is the serial of the certificate that a new connection is shown.
func Shown(t *testing.T, b *Fixture) string {
	t.Helper()
	d := tls.Dialer{Config: b.ClientTLS(t, b.Dev.Client)}
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(b.At.Public, "https://"))
	Must(t, err)
	defer func() { _ = conn.Close() }()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
}
