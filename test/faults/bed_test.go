package faults

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	agentTimeout = 4 * time.Second  // of every agent, as configured
	patience     = 5 * time.Second  // over that, until a caller has its error on a slow machine
	stopTimeout  = 40 * time.Second // for the gateway and its agents to end in
)

// fixture is the real gateway, and agents that behave.
type fixture struct {
	*devgateway.Process
	worker  *peers.A2AAgent
	modern  *peers.MCPServer
	classic *peers.MCPServer // with sessions
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "gateway.yaml")
	must(t, os.WriteFile(config, []byte("timeout: "+agentTimeout.String()+"\n"), 0o600))
	binary, err := devgateway.Build(t.Context(), dir)
	must(t, err)
	process, err := devgateway.Start(t.Context(), devgateway.Deps{
		Binary: binary, Dir: filepath.Join(dir, ".aepb"), Args: []string{"--config", config},
	})
	must(t, err)
	stopLater(t, process.Stop)
	b := &fixture{Process: process}
	deps := func(name string) peers.Deps {
		conf, err := b.PeerTLS(name)
		must(t, err)
		return peers.Deps{TLS: conf}
	}
	b.worker, err = peers.NewA2AAgent(t.Context(), deps("worker"))
	must(t, err)
	stopLater(t, b.worker.Stop)
	b.modern, err = peers.NewMCPServer(t.Context(), peers.MCPDeps{Deps: deps("modern"), Stateless: true, Tools: []string{"echo"}})
	must(t, err)
	stopLater(t, b.modern.Stop)
	b.classic, err = peers.NewMCPServer(t.Context(), peers.MCPDeps{Deps: deps("classic"), Tools: []string{"echo"}})
	must(t, err)
	stopLater(t, b.classic.Stop)
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func stopLater(t *testing.T, stop func(context.Context) error) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if err := stop(ctx); err != nil {
			t.Error(err)
		}
	})
}

// listener is an SDK client's connection, with a copy of the newest answer.
type listener struct {
	*http.Client
	mu     sync.Mutex
	newest string
}

func (b *fixture) listener(t *testing.T) *listener {
	t.Helper()
	l := &listener{Client: b.Client(b.ClientSVID())}
	next := l.Transport
	l.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err == nil && r.Method == http.MethodPost { // not what a session says beside its calls
			resp.Body = &copied{resp.Body, &bytes.Buffer{}, l}
		}
		return resp, err
	})
	t.Cleanup(func() {
		if idle, ok := next.(*http.Transport); ok {
			idle.CloseIdleConnections()
		}
	})
	return l
}

// answer is the newest answer as far as it was read.
func (l *listener) answer() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip is the function itself.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type copied struct {
	io.ReadCloser
	read *bytes.Buffer
	l    *listener
}

func (c *copied) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.read.Write(b[:n])
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.newest = c.read.String()
	return n, err
}

func (c *copied) Close() error {
	_, _ = io.Copy(io.Discard, io.LimitReader(c, 1<<20)) // what the SDK does not look at
	return c.ReadCloser.Close()
}

// base is an agent's URL without its path.
func base(url string) string { return strings.TrimSuffix(url, "/mcp") }
