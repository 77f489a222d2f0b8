package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/workloadtest"
	"github.com/aepb/aepb-gateway/gateway/server"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// process is serve in a process of its own, whose identity a SPIFFE agent tells.
type process struct {
	cmd   *exec.Cmd
	out   *bufio.Scanner
	logs  *gatewaytest.Journal
	dev   *identity.Development
	agent *workloadtest.Agent
	at    server.Addresses
	file  string // its configuration
}

// newProcess starts it; extra is more of its configuration, env of its environment. It
// is told nothing before the agent says something, and is killed at the end of the test.
func newProcess(t *testing.T, extra string, env ...string) *process {
	t.Helper()
	dir, file := gatewaytest.Operated(t, extra)
	p := &process{logs: &gatewaytest.Journal{}, agent: workloadtest.NewAgent(t), file: file}
	var err error
	p.dev, err = identity.LoadOrCreate(dir, gatewaytest.TrustDomain, time.Now)
	gatewaytest.Must(t, err)
	text, err := os.ReadFile(file)
	gatewaytest.Must(t, err)
	text = gatewaytest.ByWorkloadAPI(text, p.agent)
	gatewaytest.Must(t, os.WriteFile(file, []byte(strings.Replace(string(text), "listen: {", `listen: {metrics: "127.0.0.1:0", `, 1)), 0o600))
	program, err := os.Executable()
	gatewaytest.Must(t, err)
	p.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), program, "serve", "--config", file)
	p.cmd.Env, p.cmd.Stderr = append(append(os.Environ(), gatewaytest.AsGateway+"=1"), env...), p.logs
	out, err := p.cmd.StdoutPipe()
	gatewaytest.Must(t, err)
	p.out = bufio.NewScanner(out)
	gatewaytest.Must(t, p.cmd.Start())
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		_ = p.cmd.Wait()         // of being killed
		if t.Failed() {
			t.Log(p.logs.String())
		}
	})
	return p
}

// ready waits until it says where it listens.
func (p *process) ready(t *testing.T) {
	t.Helper()
	for p.out.Scan() {
		for prefix, at := range map[string]*string{"ready public ": &p.at.Public, "ready metrics ": &p.at.Metrics} {
			if text, ok := strings.CutPrefix(p.out.Text(), prefix); ok {
				*at = text
			}
		}
		if p.at.Metrics != "" {
			return
		}
	}
	t.Fatalf("the process ended: %v", p.cmd.Wait())
}

// notified has the agent say an SVID of so long a life.
func (p *process) notified(t *testing.T, ttl time.Duration) *identity.SVID {
	t.Helper()
	s := gatewaytest.Issue(t, p.dev.Authority, "/gateway", identity.SVIDRequest{TTL: ttl})
	p.agent.Say(t, gatewaytest.IdentityOf(p.dev, s))
	return s
}

func (p *process) page(t *testing.T, path string) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.at.Metrics+path, http.NoBody)
	gatewaytest.Must(t, err)
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	gatewaytest.Must(t, err)
	body, err := io.ReadAll(response.Body)
	gatewaytest.Must(t, err)
	gatewaytest.Must(t, response.Body.Close())
	return response.StatusCode, string(body)
}

// shakes makes a TLS connection as a caller does.
func (p *process) shakes(t *testing.T) error {
	t.Helper()
	source, err := identity.NewSource(p.dev.Client, p.dev.Bundle)
	gatewaytest.Must(t, err)
	d := tls.Dialer{Config: source.ClientConfig(p.dev.Gateway.ID)}
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(p.at.Public, "https://"))
	if err != nil {
		return err
	}
	return conn.Close()
}

// A SIGHUP before the gateway knows who it is waits until it does, and then has the
// configuration read again.
func TestSIGHUP_BeforeTheIdentityIsKnown(t *testing.T) {
	t.Parallel()
	p := newProcess(t, "")
	gatewaytest.Within(t, gatewaytest.Patience, "the gateway asks who it is", func() bool { return p.agent.Asked() > 0 })
	for range 3 {
		gatewaytest.Must(t, p.cmd.Process.Signal(syscall.SIGHUP))
	}
	p.notified(t, time.Hour)
	p.ready(t)
	gatewaytest.Within(t, gatewaytest.Patience, "the configuration is read again", func() bool { return p.logs.Lines("configuration reloaded") != nil })
}

// In real time: the SPIFFE agent dies, a short SVID ends, and the agent comes back.
func TestExpiry_InRealTime(t *testing.T) {
	t.Parallel()
	p := newProcess(t, "")
	short := p.notified(t, 8*time.Second)
	p.ready(t)
	gatewaytest.Within(t, gatewaytest.Patience, "the gateway is ready", func() bool {
		status, _ := p.page(t, "/readyz")
		return status == http.StatusOK
	})
	gatewaytest.Must(t, p.shakes(t))
	p.agent.Leave()
	gatewaytest.Within(t, gatewaytest.Patience, "the SVID ends", func() bool { return time.Now().After(short.Expires()) })
	gatewaytest.Within(t, 3*time.Second, "readiness fails", func() bool {
		status, text := p.page(t, "/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(text, "the SVID of this gateway expired at "+short.Expires().UTC().Format(time.RFC3339))
	})
	if p.shakes(t) == nil {
		t.Error("callers take an SVID that has expired")
	}
	_, page := p.page(t, "/metrics")
	if got := gatewaytest.NumberIn(t, page, `aepb_identity_expiry_timestamp_seconds{kind="svid"}`); got != float64(short.Expires().Unix()) {
		t.Errorf("the SVID ends at %v, want %v", got, short.Expires())
	}
	if n := gatewaytest.NumberIn(t, page, "aepb_identity_watch_errors_total"); n < 2 {
		t.Errorf("%v failures of the Workload API", n)
	}
	gatewaytest.Within(t, gatewaytest.Patience, "the log tells", func() bool {
		return p.logs.Lines("the SPIFFE Workload API failed") != nil && p.logs.Lines("expires soon", `"kind":"svid"`) != nil &&
			p.logs.Lines("identity expired", `"kind":"svid"`) != nil
	})

	fresh := p.notified(t, time.Hour)
	p.agent.Return(t)
	gatewaytest.Within(t, 5*time.Second, "the gateway is ready again", func() bool {
		status, _ := p.page(t, "/readyz")
		return status == http.StatusOK
	})
	gatewaytest.Must(t, p.shakes(t))
	_, page = p.page(t, "/metrics")
	if got := gatewaytest.NumberIn(t, page, `aepb_identity_expiry_timestamp_seconds{kind="svid"}`); got != float64(fresh.Expires().Unix()) {
		t.Errorf("the SVID ends at %v, want %v", got, fresh.Expires())
	}

	without := gatewaytest.IdentityOf(p.dev, fresh)
	without.Anchors = nil
	p.agent.Say(t, without)
	gatewaytest.Within(t, 3*time.Second, "readiness fails without a trust bundle", func() bool {
		status, text := p.page(t, "/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(text, "no trust bundle")
	})
	p.agent.Say(t, gatewaytest.IdentityOf(p.dev, fresh))
	gatewaytest.Within(t, 3*time.Second, "the gateway is ready with the trust bundle", func() bool {
		status, _ := p.page(t, "/readyz")
		return status == http.StatusOK
	})
}

// TestStop_SecondSignalEndsAtOnce: the first SIGTERM begins a stop that waits for load
// balancers, and a second one that comes later does not wait for anything.
func TestStop_SecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := newProcess(t, "shutdown_delay: 60s\n")
	p.notified(t, time.Hour)
	p.ready(t)
	gatewaytest.Must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	gatewaytest.Must(t, p.cmd.Process.Signal(syscall.SIGTERM)) // the same signal again, as timeout(1) sends it
	gatewaytest.Within(t, gatewaytest.Patience, "the stop begins", func() bool { return p.logs.Lines(`"msg":"stopping"`) != nil })
	if status, text := p.page(t, "/readyz"); status != http.StatusServiceUnavailable || text != "stopping\n" {
		t.Errorf("while the stop waits: %d %q", status, text)
	}
	<-time.After(2 * sameSignal)
	gatewaytest.Must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	select {
	case err := <-ended:
		if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGTERM {
			t.Errorf("the process ended with %v, want the end that SIGTERM makes", err)
		}
	case <-time.After(10 * time.Second):
		gatewaytest.Must(t, p.cmd.Process.Kill())
		t.Errorf("the process goes on after the second SIGTERM, until it is killed: %v", <-ended)
	}
}

// TestServe_SoftMemoryLimit: a started service has the bound of its configuration as the
// soft limit of Go's memory, and keeps one that the operator states in the environment.
func TestServe_SoftMemoryLimit(t *testing.T) {
	t.Parallel()
	for env, want := range map[string]float64{"": 0, "3GiB": 3 << 30} {
		p := newProcess(t, "limits: {in_flight_mib: 16}\n", "GOMEMLIMIT="+env)
		p.notified(t, time.Hour)
		p.ready(t)
		if want == 0 {
			from, err := server.ReadFile(p.file)
			gatewaytest.Must(t, err)
			want = float64(from.Config.MemoryBound() - 48<<20) // the program itself takes the rest
			if container, err := memlimit.FromCgroup(); err == nil && container < math.MaxInt64/2 {
				want = min(want, float64(container/10*9))
			}
		}
		if _, page := p.page(t, "/metrics"); gatewaytest.NumberIn(t, page, "go_gc_gomemlimit_bytes") != want {
			t.Errorf("with GOMEMLIMIT=%q the soft limit is %v bytes, want %v", env, gatewaytest.NumberIn(t, page, "go_gc_gomemlimit_bytes"), want)
		}
	}
}
