package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// agent is something that listens: one of the demo's peers, or something in
// front of one.
type agent struct {
	url  string
	gate *gate
	stop func(context.Context) error
}

func (w *world) put(ts *testscript.TestScript, name string, a *agent) {
	w.agents[name] = a
	ts.Setenv(name, a.url)
}

func startAgent(ctx context.Context, w *world, ts *testscript.TestScript, args []string) error {
	kind, name := args[0], args[1]
	conf, err := agentTLS(w, ts, name, args[2:])
	if err != nil {
		return err
	}
	deps := peers.Deps{TLS: conf}
	switch kind {
	case "a2a":
		peer, err := peers.NewA2AAgent(ctx, deps)
		if err != nil {
			return err
		}
		w.put(ts, name, &agent{url: peer.URL(), stop: peer.Stop})
	case "mcp":
		peer, err := peers.NewMCPServer(ctx, peers.MCPDeps{Deps: deps, Stateless: true})
		if err != nil {
			return err
		}
		w.put(ts, name, &agent{url: peer.URL(), stop: peer.Stop})
	default:
		return fmt.Errorf("no agent speaks %s", kind)
	}
	return nil
}

// agentTLS is with what an agent serves: a certificate of the story's trust domain, or the one of a folder.
func agentTLS(w *world, ts *testscript.TestScript, name string, folder []string) (*tls.Config, error) {
	if len(folder) == 0 {
		return w.trust.PeerTLS(name)
	}
	file := func(end string) string { return ts.MkAbs(filepath.Join(folder[0], name+end)) }
	pair, err := tls.LoadX509KeyPair(file(".pem"), file("-key.pem"))
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}, err
}

func haltAgent(ctx context.Context, w *world, _ *testscript.TestScript, args []string) error {
	halted, ok := w.agents[args[0]]
	if !ok {
		return errors.New("no such agent: " + args[0])
	}
	delete(w.agents, args[0])
	return halted.stop(ctx)
}

// startFront puts a plain HTTP server in front of an MCP agent, which is how an
// agent developer's own server looks, and a gate into it.
func startFront(_ context.Context, w *world, ts *testscript.TestScript, args []string) error {
	behind, ok := w.agents[args[1]]
	if !ok {
		return errors.New("no such agent: " + args[1])
	}
	target, err := url.Parse(behind.url)
	if err != nil {
		return err
	}
	client := w.trust.Client()
	g := &gate{}
	proxy := &httputil.ReverseProxy{
		Transport:      client.Transport,
		Rewrite:        func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host },
		ModifyResponse: g.reword,
	}
	server := httptest.NewServer(g.before(proxy))
	w.put(ts, args[0], &agent{url: server.URL + target.Path, gate: g, stop: func(context.Context) error {
		g.open()
		server.Close()
		client.CloseIdleConnections()
		return nil
	}})
	return nil
}

// startBetween puts somebody between us and the gateway who has a good
// certificate and changes one thing: the request, the reply or the evidence.
func startBetween(_ context.Context, w *world, ts *testscript.TestScript, args []string) error {
	target, err := url.Parse(w.gateway.Public)
	if err != nil {
		return err
	}
	conf, err := w.trust.PeerTLS(args[0])
	if err != nil {
		return err
	}
	client := w.trust.Client(w.trust.ClientSVID())
	proxy := &httputil.ReverseProxy{
		Transport: client.Transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
	}
	switch args[1] {
	case "request":
		proxy.Rewrite = func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if r.Out.Method == http.MethodPost {
				r.Out.Body, r.Out.ContentLength = longer(r.Out.Body), r.Out.ContentLength+1
			}
		}
	case "reply":
		proxy.ModifyResponse = func(r *http.Response) error {
			r.Body, r.ContentLength = longer(r.Body), r.ContentLength+1
			r.Header.Set("Content-Length", strconv.FormatInt(r.ContentLength, 10))
			return nil
		}
	case "evidence":
		proxy.ModifyResponse = spoilEvidence
	default:
		return errors.New("nobody changes " + args[1])
	}
	server := httptest.NewUnstartedServer(devgateway.Front(proxy))
	server.TLS = conf
	server.StartTLS()
	w.put(ts, args[0], &agent{url: server.URL, stop: func(context.Context) error {
		server.Close()
		client.CloseIdleConnections()
		return nil
	}})
	return nil
}

// longer is a body with a space at its end, which means the same.
func longer(body io.ReadCloser) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(body, strings.NewReader(" ")), body}
}

func spoilEvidence(r *http.Response) error {
	tokens := r.Header.Values("Execution-Context")
	for i, token := range tokens {
		var err error
		if tokens[i], err = spoil(token); err != nil {
			return err
		}
	}
	return nil
}

// gate holds calls of tools on demand; everything else passes.
type gate struct {
	mu      sync.Mutex
	closed  chan struct{} // closed when the gate opens; nil: it is open
	arrived chan struct{}

	old, now string // what is said otherwise
}

// reword changes what the agent says.
func (g *gate) reword(r *http.Response) error {
	g.mu.Lock()
	old, now := g.old, g.now
	g.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if old != "" {
		body = bytes.ReplaceAll(body, []byte(old), []byte(now))
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

func rewordFront(_ context.Context, w *world, _ *testscript.TestScript, args []string) error {
	g, err := w.gate(args[0])
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.old, g.now = "", ""
	if len(args) > 2 {
		g.old, g.now = args[1], args[2]
	}
	return nil
}

// startLibrary serves a file as a capability document; one that begins with
// "410 " is what a retired agent's server says, with a link to the rest.
func startLibrary(_ context.Context, w *world, ts *testscript.TestScript, args []string) error {
	conf, err := w.trust.PeerTLS(args[0])
	if err != nil {
		return err
	}
	file := ts.MkAbs(args[1])
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		data, err := os.ReadFile(file)
		if err != nil {
			out.WriteHeader(http.StatusInternalServerError)
			return
		}
		if link, gone := strings.CutPrefix(strings.TrimSpace(string(data)), "410 "); gone {
			out.Header().Set("Link", "<"+link+`>; rel="successor-version"`)
			out.WriteHeader(http.StatusGone)
			return
		}
		out.Header().Set("Content-Type", "application/json")
		out.Header().Set("Cache-Control", "no-store")
		_, _ = out.Write(data)
	}))
	server.TLS = conf
	server.StartTLS()
	w.put(ts, args[0], &agent{url: server.URL + "/.well-known/aepb", stop: func(context.Context) error {
		server.Close()
		return nil
	}})
	return nil
}

func (g *gate) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if strings.Contains(string(body), `"tools/call"`) {
			g.pass(r.Context())
		}
		next.ServeHTTP(w, r)
	})
}

func (g *gate) pass(ctx context.Context) {
	g.mu.Lock()
	closed, arrived := g.closed, g.arrived
	g.mu.Unlock()
	if closed == nil {
		return
	}
	select {
	case arrived <- struct{}{}:
	default: // nobody counts further calls
	}
	select {
	case <-closed:
	case <-ctx.Done():
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.arrived = make(chan struct{}), make(chan struct{}, 1)
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

// waited returns when a call waits at the gate.
func (g *gate) waited(ctx context.Context) error {
	g.mu.Lock()
	arrived := g.arrived
	g.mu.Unlock()
	select {
	case <-arrived:
		return nil
	case <-ctx.Done():
		return errors.New("no call arrived")
	}
}

func (w *world) gate(name string) (*gate, error) {
	a, ok := w.agents[name]
	if !ok || a.gate == nil {
		return nil, errors.New("no such front: " + name)
	}
	return a.gate, nil
}

func holdCalls(_ context.Context, w *world, _ *testscript.TestScript, args []string) error {
	g, err := w.gate(args[0])
	if err == nil {
		g.close()
	}
	return err
}

func awaitCall(ctx context.Context, w *world, _ *testscript.TestScript, args []string) error {
	g, err := w.gate(args[0])
	if err != nil {
		return err
	}
	return g.waited(ctx)
}

func releaseCalls(_ context.Context, w *world, _ *testscript.TestScript, args []string) error {
	g, err := w.gate(args[0])
	if err == nil {
		g.open()
	}
	return err
}
