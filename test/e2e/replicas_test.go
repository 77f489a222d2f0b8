package e2e

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/state/seal"
	"github.com/aepb/aepb-gateway/test/harness/redisserver"
	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// replica is one gateway of a fleet, which has the same addresses after a restart.
type replica struct {
	*devgateway.Process
	name, config, public, uacp string
}

// fleet is gateways of production over one Redis.
type fleet struct {
	trust    *devgateway.Trust
	binary   string
	replicas []*replica
	caller   *http.Client // of agents
	operator *http.Client // who operates and audits

	successor string // the capability document of what takes an agent's place
}

// newFleet starts as many gateways; agents are where MCP servers are, by name.
func newFleet(t *testing.T, trust *devgateway.Trust, many int, agents map[string]string) *fleet {
	t.Helper()
	var listed strings.Builder
	for name, at := range agents {
		fmt.Fprintf(&listed, "  %s: {callers: [\"spiffe://%s/caller/client\"], endpoints: [{binding: mcp-v1, url: %q}]}\n", name, trust.TrustDomain(), at)
	}
	dir := t.TempDir()
	redis, err := redisserver.Start(t.Context(), filepath.Join(dir, "redis"))
	t.Cleanup(func() {
		if err := redis.End(syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	})
	must(t, err)
	f := &fleet{trust: trust, caller: client(t, trust, "client")}
	f.operator = client(t, trust, "ann")
	f.successor = serveDocument(t, trust)
	f.binary, err = devgateway.Build(t.Context(), dir)
	must(t, err)
	key := filepath.Join(dir, "state-key")
	must(t, os.WriteFile(key, seal.NewKey(), 0o600))
	must(t, writeAINPKey(filepath.Join(dir, "ainp.pem")))
	for i := range many {
		name := "replica-" + strconv.Itoa(i+1)
		r := &replica{name: name, public: freeLoopback(t), uacp: freeLoopback(t)}
		at := filepath.Join(dir, name)
		must(t, os.Mkdir(at, 0o700))
		must(t, trust.Replica(at))
		r.config = filepath.Join(at, "gateway.yaml")
		must(t, os.WriteFile(r.config, []byte(strings.NewReplacer("DIR", at, "ALL", dir, "PUBLIC", r.public, "UACP", r.uacp, "KEY", key,
			"REDIS", redis.Address(), "REPLICAS", strconv.Itoa(many), "AGENTS", listed.String(), "DOMAIN", trust.TrustDomain()).Replace(`
public_url: https://PUBLIC
listen: {public: "PUBLIC", admin: "127.0.0.1:0", uacp: "UACP"}
identity: {trust_domain: DOMAIN, certificate: DIR/gateway.pem, key: DIR/gateway-key.pem, bundle: DIR/ca.pem}
ainp: {key: ALL/ainp.pem}
admin: {operators: {ann: {id: "spiffe://DOMAIN/caller/ann", roles: [operator, auditor]}}}
timeout: 60s
shutdown_delay: 100ms
limits: {rate: 10000, burst: 10000}
state: {key: KEY, redis: {plaintext: loopback, max_replicas: REPLICAS, addresses: ["REDIS"]}}
agents:
AGENTS`)), 0o600))
		f.replicas = append(f.replicas, r)
		f.start(t, r)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
			defer cancel()
			if err := r.Stop(ctx); err != nil {
				t.Errorf("%s: %v", r.name, err)
			}
			if t.Failed() {
				t.Logf("%s printed\n%s", r.name, r.Output())
			}
		})
	}
	return f
}

func (f *fleet) start(t *testing.T, r *replica) {
	t.Helper()
	process, err := devgateway.Serve(t.Context(), devgateway.ServeDeps{Binary: f.binary, Config: r.config, Trust: f.trust})
	must(t, err)
	r.Process = process
}

// client is one that shows who it is, and lets go of its connections at the end.
func client(t *testing.T, trust *devgateway.Trust, name string) *http.Client {
	t.Helper()
	svid, err := trust.SVID(name)
	must(t, err)
	c := trust.Client(svid)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func freeLoopback(t *testing.T) string {
	t.Helper()
	port, err := redisserver.FreePort()
	must(t, err)
	return "127.0.0.1:" + port
}

func writeAINPKey(file string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}

// answer is what came of a request: an HTTP response, or a frame as its body.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request and reads what comes of it.
func ask(ctx context.Context, via *http.Client, method, at, body string, header http.Header) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, at, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	maps.Copy(request.Header, header)
	response, err := via.Do(request)
	if err != nil {
		return answer{}, err
	}
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text)}, errors.Join(err, response.Body.Close())
}

// standing is how an agent stands, as the admin API says it.
type standing struct {
	Status, Step, Token, Successor string
	Term                           uint64
}

// listed is how an agent stands at a replica; the zero value: it was never changed.
func (f *fleet) listed(ctx context.Context, r *replica, agent string) (standing, error) {
	got, err := ask(ctx, f.operator, http.MethodGet, r.Admin+"/api/lifecycles", "", nil)
	var list struct {
		Lifecycles []struct {
			Agent string
			standing
		}
	}
	if err == nil {
		err = json.Unmarshal([]byte(got.body), &list)
	}
	for _, one := range list.Lifecycles {
		if one.Agent == agent {
			return one.standing, err
		}
	}
	return standing{}, err
}

// stands waits until an agent stands so at a replica, and returns how.
func (f *fleet) stands(t *testing.T, r *replica, agent, what string, so func(standing) bool) (now standing) {
	t.Helper()
	err := wait.Until(t.Context(), "at "+r.name+" "+agent+" is "+what, func() bool {
		var err error
		now, err = f.listed(t.Context(), r, agent)
		return err == nil && so(now)
	})
	if err != nil {
		t.Fatalf("%v: it is %+v", err, now)
	}
	return now
}

// drain is the order to drain an agent, and to retire it as soon as its work has ended, and what the replica answers.
func (f *fleet) drain(ctx context.Context, r *replica, agent string) (s standing, err error) {
	got, err := ask(ctx, f.operator, http.MethodPost, r.Admin+"/api/agents/"+agent+"/lifecycle",
		`{"to":"draining","reason":"replaced","successor":"`+f.successor+`","force":true,"now":true}`, nil)
	if err == nil && got.status != http.StatusOK {
		err = fmt.Errorf("%d %s", got.status, got.body)
	}
	if err == nil {
		err = json.Unmarshal([]byte(got.body), &s)
	}
	return s, err
}

// serveDocument serves the capability document of an agent that takes work, and returns its URL.
func serveDocument(t *testing.T, trust *devgateway.Trust) string {
	t.Helper()
	conf, err := trust.PeerTLS("next")
	must(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"aepb_version":"1.0","agent_id":"spiffe://%s/next","protocols":[{"id":"mcp-v1","version":"2026-07-28",`+
			`"endpoint":"https://%s/mcp","priority":1}],"ect_assurance_level":"L2","lifecycle":{"status":"active","version":"1.0.0",`+
			`"deprecated_at":null,"sunset_at":null,"successor":null}}`, trust.TrustDomain(), r.Host)
	}))
	server.TLS = conf
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL + "/.well-known/aepb"
}
