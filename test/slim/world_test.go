package slim_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// domain is the trust domain of these tests.
const domain = "slim.test"

// programs is where both programs are once a test needed them.
var programs string

var build = sync.OnceValue(func() (err error) {
	programs, err = devgateway.BuildAll(context.Background(), scratch)
	return err
})

// scratch is a folder that is removed after the tests.
var scratch string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "slim-bin-"); err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	return m.Run()
}

// world is a trust domain with a real node in it, reached over TLS 1.3.
type world struct {
	trust *devgateway.Trust
	dir   string
	node  *peer
	at    string // the node's address
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := nodeless(t)
	w.startNode(t)
	return w
}

// nodeless is a trust domain whose node has its certificate, and does not run yet.
func nodeless(t *testing.T) *world {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	trust, err := devgateway.NewTrust(domain)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{trust: trust, dir: t.TempDir(), at: freeAddress(t)}
	w.write(t, "bundle.pem", trust.RootsPEM())
	w.write(t, "secret", []byte(secret))
	w.pair(t, "client", trust.ClientSVID())
	w.svid(t, "node")
	return w
}

func (w *world) startNode(t *testing.T) {
	t.Helper()
	w.node = startPeer(t)
	w.node.do(t, job{"job": "node", "endpoint": w.at, "cert": w.read(t, "node.pem"), "key": w.read(t, "node-key.pem")}, nil)
}

// app is a real application on the node.
func (w *world) app(t *testing.T, name string, more job) *peer {
	t.Helper()
	p := startPeer(t)
	what := job{"job": "app", "endpoint": "https://" + w.at, "ca": string(w.trust.RootsPEM()), "name": name, "secret": secret}
	maps.Copy(what, more)
	p.do(t, what, nil)
	return p
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) write(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(w.path(name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (w *world) read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(w.path(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// svid writes a certificate and key for somebody: spiffe://slim.test/peer/name.
func (w *world) svid(t *testing.T, name string) *tls.Config {
	t.Helper()
	conf, err := w.trust.PeerTLS(name)
	if err != nil {
		t.Fatal(err)
	}
	w.pair(t, name, conf.Certificates[0])
	return conf
}

func id(name string) string { return "spiffe://" + domain + "/peer/" + name }

func (w *world) pair(t *testing.T, name string, pair tls.Certificate) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	w.write(t, name+".pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}))
	w.write(t, name+"-key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
}

// gate is a gateway in production, as a process.
type gate struct {
	w             *world
	name          string
	public, admin string
	cmd           *exec.Cmd
	logs          *journal
}

// on is how a gateway is on the node, with "caller" as everybody else there.
func (w *world) on(namespace, caller string) string {
	return fmt.Sprintf(`slim: {nodes: [{url: "https://%s", id: %q, organization: org, namespace: %s, shared_secret_file: %q, caller: %q}]}`,
		w.at, id("node"), namespace, w.path("secret"), caller)
}

// gateway starts one. more is the rest of its configuration.
func (w *world) gateway(t *testing.T, name, more string) *gate {
	t.Helper()
	files := fmt.Sprintf("certificate: %q, key: %q, bundle: %q", w.path(name+".pem"), w.path(name+"-key.pem"), w.path("bundle.pem"))
	return w.gatewayOf(t, name, files, more)
}

// gatewayOf starts one that is told otherwise who it is.
func (w *world) gatewayOf(t *testing.T, name, who, more string) *gate {
	t.Helper()
	g := &gate{w: w, name: name, public: "https://" + freeAddress(t), admin: "https://" + freeAddress(t), logs: new(journal)}
	w.svid(t, name)
	w.write(t, name+".yaml", fmt.Appendf(nil, `
listen: {public: %q, admin: %q}
public_url: %q
identity: {trust_domain: %s, %s}
admin: {operators: {root: {id: "spiffe://%s/client", roles: [viewer, operator, auditor]}}}
log: {level: debug}
timeout: 20s
shutdown_delay: 0s
%s
`, strings.TrimPrefix(g.public, "https://"), strings.TrimPrefix(g.admin, "https://"), g.public, domain,
		who, domain, more))
	g.cmd = exec.Command(filepath.Join(programs, "aepb-gateway"), "serve", "--config", w.path(name+".yaml"))
	g.cmd.Stderr = g.logs
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for range 2 {
		if !lines.Scan() {
			_ = g.cmd.Wait()
			t.Fatalf("%s is not ready:\n%s", name, g.logs.text())
		}
	}
	t.Cleanup(func() {
		_ = g.cmd.Process.Signal(syscall.SIGTERM)
		if err := g.cmd.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if t.Failed() {
			t.Logf("%s:\n%s", name, g.logs.text())
		}
	})
	return g
}

// await waits until the gateway has logged something.
func (g *gate) await(t *testing.T, text string) {
	t.Helper()
	ctx := limited(t, 20*time.Second)
	for !bytes.Contains(g.logs.text(), []byte(text)) {
		wait(t, 50*time.Millisecond)
		if ctx.Err() != nil {
			t.Fatalf("%s never logged %q:\n%s", g.name, text, g.logs.text())
		}
	}
}

// client is the operator and user of these tests, with its certificate.
func (w *world) client(t *testing.T) *http.Client {
	t.Helper()
	c := w.trust.Client(w.trust.ClientSVID())
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// ctl runs aepbctl as the operator.
func (g *gate) ctl(t *testing.T, args ...string) string {
	t.Helper()
	args = append([]string{"--gateway", g.public, "--admin", g.admin, "--cert", g.w.path("client.pem"), "--key", g.w.path("client-key.pem"), "--ca", g.w.path("bundle.pem")}, args...)
	out, err := exec.CommandContext(t.Context(), filepath.Join(programs, "aepbctl"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("aepbctl %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// toolbox is a real MCP server; its configuration entry comes back.
func (w *world) toolbox(t *testing.T) (*peers.MCPServer, string) {
	t.Helper()
	server, err := peers.NewMCPServer(t.Context(), peers.MCPDeps{Deps: peers.Deps{TLS: w.svid(t, "toolbox")}, Stateless: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	return server, fmt.Sprintf(`{id: %q, endpoints: [{binding: mcp-v1, url: %q}], callers: ["spiffe://%s/*"]}`, id("toolbox"), server.URL(), domain)
}

// far is the entry of an agent on the node; who is its SPIFFE id.
func (w *world) far(name, who, more string) string {
	return fmt.Sprintf(`{id: %q, endpoints: [{binding: slim-v1, url: "slim://%s/%s"%s}], callers: ["spiffe://%s/*"]}`, who, w.at, name, more, domain)
}

func jsonOf(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
