package hosts

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
)

// prefixes are the folders that files of the examples are in.
var prefixes = []string{"/etc/aepb/", "/run/svid/", "/run/secrets/", "/var/lib/aepb/", "/usr/local/bin/"}

// purposes are the examples, and what each shows beside being correct.
var purposes = map[string]func(t *testing.T, c config.Config){
	"single": func(t *testing.T, c config.Config) {
		t.Helper()
		check(t, c.State.Path != "" && !c.State.Redis.Used() && len(c.Agents) == 2, "state in a file, and two agents")
		check(t, strings.HasPrefix(c.Listen.Metrics, "127.0.0.1:"), "metrics at loopback")
	},
	"replicas": func(t *testing.T, c config.Config) {
		t.Helper()
		check(t, c.State.Redis.Used() && c.State.Redis.Replicas == 3 && c.State.Key != "" && c.State.Path == "", "three replicas with Redis and a key")
	},
	"federation": func(t *testing.T, c config.Config) {
		t.Helper()
		check(t, len(c.Identity.Federated) == 1 && len(c.Peers) == 1, "one other trust domain, and one peer")
	},
	"federation-partner": func(t *testing.T, c config.Config) {
		t.Helper()
		check(t, len(c.Identity.Federated) == 1 && len(c.Policy.Gateways) == 1, "one other trust domain, and one gateway that is listed")
	},
	"slim": func(t *testing.T, c config.Config) {
		t.Helper()
		check(t, len(c.SLIM.Nodes) == 2 && c.SLIM.Nodes[0].JWT != nil && c.SLIM.Nodes[1].SecretFile != "", "a node with JWTs, and one with a secret")
	},
	"sidecar": func(t *testing.T, c config.Config) {
		t.Helper()
		check(t, len(c.Agents) == 1 && strings.HasPrefix(c.Agents["calculator"].Endpoints[0].URL, "https://127.0.0.1:"), "one agent, at loopback")
		check(t, c.MemoryBound()>>20 <= int64(c.Limits.MemoryMiB), "bounds that follow from limits.memory_mib")
	},
	"balancer": func(t *testing.T, c config.Config) {
		t.Helper()
		check(t, c.Accept(false).PerAddress == 0, "no limit of connections by address")
		for _, bound := range []config.ConnectionBounds{c.Sockets(c.Listen.UACPConnections), c.Sockets(c.AINP.Sockets)} {
			check(t, bound.PerAddress == bound.Unidentified, "no limit of µACP and AINP by address")
		}
		check(t, stopTime(c) == 42*time.Second, "a stop of 42 s, as its comment says")
	},
	"stdio": func(t *testing.T, c config.Config) {
		t.Helper()
		check(t, !c.Agents["files"].Endpoints[0].Program.Shared && c.Agents["tickets"].Endpoints[0].Program.Shared, "a program for each caller, and a shared one")
	},
	"rollback": func(t *testing.T, c config.Config) {
		t.Helper()
		for name, rules := range map[string]int{"memory": 2, "files": 3, "repository": 1, "database": 0} {
			check(t, len(c.Agents[name].Compensate) == rules && len(c.Agents[name].ReadOnly) > 0, "the rules of "+name)
		}
	},
}

func check(t *testing.T, ok bool, want string) {
	t.Helper()
	if !ok {
		t.Errorf("the example does not have %s", want)
	}
}

// TestExamples_AreListed: each file has a purpose, and each purpose a file.
func TestExamples_AreListed(t *testing.T) {
	t.Parallel()
	found, err := filepath.Glob(filepath.Join(examples, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range found {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".yaml"))
	}
	slices.Sort(names)
	if want := slices.Sorted(maps.Keys(purposes)); !slices.Equal(names, want) {
		t.Errorf("the examples are %q, want %q", names, want)
	}
}

// TestExamples_PassCheckConfig: the program itself takes each example with the files that it names, without a warning.
func TestExamples_PassCheckConfig(t *testing.T) {
	t.Parallel()
	for name, shows := range purposes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shows(t, example(t, name))
			file := provide(t, name)
			if out, err := checkConfig(t.Context(), file); err != nil || !strings.HasPrefix(out, "ok\n") {
				t.Errorf("check-config: %v\n%s", err, out)
			}
		})
	}
}

// TestExamples_MistakesAreRefused: a mistake of each example's own kind does not pass, and the answer names its key.
func TestExamples_MistakesAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ example, before, after, want string }{
		"misspelled key":         {"single", "evidence_mib:", "evidence_mb:", "state.evidence_mb"},
		"no operator":            {"single", "  operators:\n", "  operators: {}\nunknown:\n", "admin.operators: at least one"},
		"no key for Redis":       {"replicas", "state:\n  key: ", "state:\n  # ", "state.key: missing"},
		"file is missing":        {"replicas", "redis-ca.pem", "redis-root.pem", "redis-root.pem"},
		"unknown peer":           {"federation", `through: "spiffe://partner.example/gateway"`, `through: "spiffe://partner.example/gw"`, "endpoints[0].through"},
		"anchors are missing":    {"federation-partner", "federated/example.com.pem", "federated/lost.pem", "lost.pem"},
		"two proofs of members":  {"slim", "      caller: spiffe", "      jwt_svid: {}\n      caller: spiffe", "slim.nodes[1]"},
		"plain HTTP at loopback": {"sidecar", "https://127.0.0.1:8000", "http://127.0.0.1:8000", "https"},
		"too little memory":      {"sidecar", "memory_mib: 256", "memory_mib: 100", "limits.memory_mib"},
		"share above the whole":  {"balancer", "per_address: 128          #", "per_address: 129          #", "listen.uacp_connections.per_address"},
		"two ways for a tool":    {"rollback", "read_only: [read_graph,", "read_only: [create_entities, read_graph,", "create_entities"},
		"no place in a call":     {"rollback", "{source: {call: /destination}", "{source: {call: destination}", "arguments"},
		"program is missing":     {"stdio", "mcp-server-tickets]", "mcp-server-lost]", "mcp-server-lost"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := provide(t, c.example)
			text := read(t, file)
			if strings.Count(text, c.before) != 1 {
				t.Fatalf("%s.yaml has %q %d times, want once", c.example, c.before, strings.Count(text, c.before))
			}
			write(t, file, []byte(strings.Replace(text, c.before, c.after, 1)))
			if out, err := checkConfig(t.Context(), file); err == nil || !strings.Contains(out, c.want) {
				t.Errorf("check-config: %v, want a refusal that names %s\n%s", err, c.want, out)
			}
		})
	}
}

// TestExamples_FederationFitsTogether: what one gateway expects of the other is what the other is.
func TestExamples_FederationFitsTogether(t *testing.T) {
	t.Parallel()
	ours, theirs := example(t, "federation"), example(t, "federation-partner")
	ourID, theirID := "spiffe://"+ours.Identity.TrustDomain+"/gateway", "spiffe://"+theirs.Identity.TrustDomain+"/gateway"
	if got, want := ours.Peers[theirID].Gateway, theirs.PublicURL+"/aepb/translate"; got != want {
		t.Errorf("the peer %s is at %q, want %q", theirID, got, want)
	}
	if !slices.Equal(theirs.Policy.Gateways, []string{ourID}) {
		t.Errorf("the partner lists the gateways %q, want %s", theirs.Policy.Gateways, ourID)
	}
	if _, listed := theirs.Peers[ourID]; !listed {
		t.Errorf("the partner does not list %s among its peers, so its circuit breakers cannot be read", ourID)
	}
	if ours.Identity.Federated[theirs.Identity.TrustDomain] == "" || theirs.Identity.Federated[ours.Identity.TrustDomain] == "" {
		t.Error("the trust domains do not know each other")
	}
	through := 0
	for name, agent := range ours.Agents {
		if agent.Endpoints[0].Through != theirID {
			continue
		}
		through++
		listed := theirs.Agents[name]
		if len(listed.Endpoints) == 0 || listed.Endpoints[0].Binding != agent.Endpoints[0].Binding || !slices.Contains(listed.Callers, ourID) {
			t.Errorf("the partner does not list %s with the same binding for %s", name, ourID)
		}
	}
	if through != 1 {
		t.Errorf("%d agents are behind the partner, want 1", through)
	}
}

func checkConfig(ctx context.Context, file string) (string, error) {
	out, err := exec.CommandContext(ctx, gateway, "check-config", file).CombinedOutput()
	return string(out), err
}

// provide writes an example under a root of its own, with the files that it names, and returns its file.
func provide(t *testing.T, name string) string {
	t.Helper()
	root, text := t.TempDir(), read(t, filepath.Join(examples, name+".yaml"))
	for _, prefix := range prefixes {
		text = strings.ReplaceAll(text, prefix, root+prefix)
		if err := os.MkdirAll(root+prefix, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	c := parse(t, text)
	secrets(t, c)
	if c.Identity.WorkloadAPI == "" {
		identities(t, c)
	}
	file := filepath.Join(root, "etc", "aepb", "gateway.yaml")
	write(t, file, []byte(text))
	return file
}

// identities writes certificates: of the gateway, of other trust domains, and those of tls and of Redis.
func identities(t *testing.T, c config.Config) {
	t.Helper()
	own := authority(t, c.Identity.TrustDomain, c.Identity.Bundle)
	at, err := url.Parse(c.PublicURL)
	if err != nil {
		t.Fatal(err)
	}
	issue(t, own, "/gateway", c.Identity.Certificate, c.Identity.Key, at.Hostname())
	for domain, file := range c.Identity.Federated {
		authority(t, domain, file)
	}
	if c.TLS.Certificate != "" {
		issue(t, own, "/web", c.TLS.Certificate, c.TLS.Key, at.Hostname())
	}
	if redis := c.State.Redis; redis.Used() {
		issue(t, authority(t, "redis.internal", redis.TLS.CA), "/client", redis.TLS.Certificate, redis.TLS.Key)
	}
}

func authority(t *testing.T, domain, bundle string) *identity.Authority {
	t.Helper()
	a, err := identity.NewAuthority(identity.AuthorityDeps{TrustDomain: domain})
	if err != nil {
		t.Fatal(err)
	}
	b, err := a.Bundle()
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	for _, anchor := range b.Anchors() {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: anchor.Raw})...)
	}
	write(t, bundle, text)
	return a
}

// issue writes a certificate for host names, and its key.
func issue(t *testing.T, a *identity.Authority, path, certificate, key string, hosts ...string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(certificate), 0o700)
	if err == nil {
		var svid *identity.SVID
		if svid, err = a.Issue(path, identity.SVIDRequest{DNSNames: hosts}); err == nil {
			err = svid.WritePEM(certificate, key)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// secrets writes keys, passwords, and programs of agents.
func secrets(t *testing.T, c config.Config) {
	t.Helper()
	random := []byte(rand.Text() + rand.Text() + "\n")
	for _, file := range []string{c.State.Redis.UsernameFile, c.State.Redis.PasswordFile} {
		write(t, file, random)
	}
	var key [32]byte
	_, _ = rand.Read(key[:])
	write(t, c.State.Key, []byte(base64.StdEncoding.EncodeToString(key[:])+"\n"))
	if c.AINP.Key != "" {
		_, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		writeKey(t, c.AINP.Key, private)
	}
	for _, node := range c.SLIM.Nodes {
		write(t, node.SecretFile, random)
		if node.JWT != nil {
			memberKeys(t, node.JWT.Key, node.JWT.Keys)
		}
	}
	for _, agent := range c.Agents {
		for _, endpoint := range agent.Endpoints {
			for _, file := range endpoint.Program.EnvFiles {
				write(t, file, random)
			}
			if command := endpoint.Program.Command; len(command) > 0 {
				write(t, command[0], []byte("#!/bin/sh\nexec cat\n"))
				if err := os.Chmod(command[0], 0o700); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// memberKeys writes a private key, and the JWK set that has its public half.
func memberKeys(t *testing.T, private, set string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	writeKey(t, private, key)
	point, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	coordinate := base64.RawURLEncoding.EncodeToString
	text, err := json.Marshal(map[string]any{"keys": []any{map[string]string{
		"kty": "EC", "crv": "P-256", "alg": "ES256", "kid": "gateway", "x": coordinate(point[1:33]), "y": coordinate(point[33:]),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, set, text)
}

func writeKey(t *testing.T, file string, key crypto.Signer) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// write writes a file of the owner's and makes its folder; no file, no write.
func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if file == "" {
		return
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
