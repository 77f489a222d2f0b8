package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/server"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestReload_NeverTakesAMixedPair: a renewal has replaced the key and not yet the certificate. The reload refuses
// both, the next look tries again, and takes the pair once it is whole.
func TestReload_NeverTakesAMixedPair(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true})
	c := gatewaytest.OnFiles(b)
	gatewaytest.Must(t, b.Reload(t.Context(), c))
	file := filepath.Join(b.Dir, "c.yaml")
	text, err := json.Marshal(map[string]any{"identity": map[string]string{"certificate": c.Identity.Certificate, "key": c.Identity.Key}})
	gatewaytest.Must(t, err)
	gatewaytest.Must(t, os.WriteFile(file, text, 0o600))
	from, err := server.ReadFile(file)
	gatewaytest.Must(t, err)
	w := server.WatcherOf(b.Server, from)
	w.SetApply(func(ctx context.Context, _ config.Config) error { return b.Reload(ctx, c) })
	before, next := gatewaytest.Shown(t, b), b.SVID(t, "/gateway")
	gatewaytest.Must(t, next.WritePEM(filepath.Join(b.Dir, "waits.pem"), c.Identity.Key))
	for range 2 {
		if refused := w.Look(t.Context()); !refused || gatewaytest.Shown(t, b) != before {
			t.Errorf("a new key with the former certificate: refused %t, shown %s", refused, gatewaytest.Shown(t, b))
		}
	}
	gatewaytest.Must(t, os.Rename(filepath.Join(b.Dir, "waits.pem"), c.Identity.Certificate))
	if refused := w.Look(t.Context()); refused || gatewaytest.Shown(t, b) != next.Chain[0].SerialNumber.String() {
		t.Errorf("the whole pair: refused %t, shown %s", refused, gatewaytest.Shown(t, b))
	}
}

// What changes while a gateway starts is seen by the first look.
func TestWatcher_ChangedWhileStarting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, named := filepath.Join(dir, "c.yaml"), filepath.Join(dir, "cert.pem")
	write := func(file, text string) { gatewaytest.Must(t, os.WriteFile(file, []byte(text), 0o600)) }
	text := "timeout: 5s\nidentity: {certificate: " + named + "}\n"
	for name, one := range map[string]struct {
		change func()
		want   int
	}{
		"nothing":           {func() {}, 0},
		"the file":          {func() { write(file, strings.Replace(text, "5s", "6s", 1)) }, 1},
		"one that it names": {func() { write(named, "b") }, 1},
	} {
		write(file, text)
		write(named, "a")
		from, err := server.ReadFile(file)
		gatewaytest.Must(t, err)
		one.change()
		b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
		w := server.WatcherOf(b.Server, from)
		applied := 0
		w.SetApply(func(context.Context, config.Config) error { applied++; return nil })
		w.Look(t.Context())
		w.Look(t.Context())
		if applied != one.want {
			t.Errorf("%s changed: applied %d times, want %d", name, applied, one.want)
		}
	}
}

// Anchors and peers' keys are read again too.
func TestReload_TrustAnchorsAndPeerKeys(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true})
	c := gatewaytest.OnFiles(b)
	gatewaytest.Must(t, b.Reload(t.Context(), c))
	second, err := identity.NewAuthority(identity.AuthorityDeps{TrustDomain: gatewaytest.TrustDomain})
	gatewaytest.Must(t, err)
	newcomer, err := identity.NewSource(gatewaytest.Issue(t, second, "/newcomer", identity.SVIDRequest{}), b.Dev.Bundle)
	gatewaytest.Must(t, err)
	via := b.Dialing(t, newcomer.ClientConfig(""))
	look := func() error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.At.Public+"/.well-known/aepb", http.NoBody)
		gatewaytest.Must(t, err)
		_, err = gatewaytest.Receive(via, request)
		return err
	}
	if look() == nil {
		t.Error("a stranger is let in")
	}
	both, err := os.ReadFile(c.Identity.Bundle)
	gatewaytest.Must(t, err)
	other := t.TempDir()
	gatewaytest.Must(t, second.Save(other))
	more, err := os.ReadFile(filepath.Join(other, identity.AnchorFile))
	gatewaytest.Must(t, err)
	gatewaytest.Must(t, os.WriteFile(c.Identity.Bundle, append(both, more...), 0o600))
	gatewaytest.Must(t, b.Reload(t.Context(), c))
	if err := look(); err != nil {
		t.Errorf("who has the new anchor is refused: %v", err)
	}
	keys := filepath.Join(b.Dir, "keys.json")
	c.Peers = map[string]config.Peer{"spiffe://other.example/a": {Keys: keys, Dialect: "01", MinLevel: "L1"}}
	c.Identity.Issuers = map[string]string{"other.example": keys}
	if err := b.Reload(t.Context(), c); err == nil || !strings.Contains(err.Error(), "peers.") || !strings.Contains(err.Error(), "identity.issuers.") {
		t.Errorf("keys that are not there: %v", err)
	}
	gatewaytest.Must(t, os.WriteFile(keys, []byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`), 0o600))
	gatewaytest.Must(t, b.Reload(t.Context(), c))
	request := ect.KeyRequest{Issuer: "spiffe://other.example/a", Header: ect.Header{Algorithm: "EdDSA", KeyID: "k"}}
	if known, tokens, dialect, level := server.Trusted(t.Context(), b.Server, request); !known || !tokens || dialect != ect.Dialect01 || level != ect.L1 {
		t.Errorf("not in force: key %t, tokens %t, dialect %s, level %v", known, tokens, dialect, level)
	}
	c.Peers, c.Identity.Issuers = nil, nil
	gatewaytest.Must(t, b.Reload(t.Context(), c))
	if known, tokens, dialect, level := server.Trusted(t.Context(), b.Server, request); known || tokens || dialect != ect.DialectSeed || level != ect.L2 {
		t.Errorf("withdrawn, and in force: key %t, tokens %t, dialect %s, level %v", known, tokens, dialect, level)
	}
}

// A new file changes agents, limits and policy of a running gateway; a bad one
// changes nothing.
func TestReload_AgentsLimitsAndPolicy(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	file := filepath.Join(b.Dir, "extra.yaml")
	w := server.WatcherOf(b.Server, server.FileAt(file))
	write := func(text string) {
		gatewaytest.Must(t, os.WriteFile(file, []byte(text), 0o600))
		w.Look(t.Context())
	}
	listed := func(name string) bool {
		_, ok := b.Directory().Find(name)
		return ok
	}
	base := b.Settings()
	write("agents: {other: {endpoints: [{binding: mcp-v1, url: \"https://127.0.0.1:1/mcp\"}]}}\n")
	if !listed("other") || listed("calculator") {
		t.Error("the agents are not those of the new file")
	}
	for name, bad := range map[string]string{
		"not YAML":    "agents: [",
		"unknown key": "agent: {}",
		"bad agent":   "agents: {other: {endpoints: [{binding: nothing-v1, url: \"https://127.0.0.1:1\"}]}}",
		"bad limit":   "limits: {rate: -1}",
	} {
		write(bad)
		if !listed("other") {
			t.Errorf("%s: the old configuration is gone", name)
		}
	}
	gatewaytest.Must(t, b.Reload(t.Context(), base))
	if !listed("calculator") || listed("other") {
		t.Error("the agents of the first file are not back")
	}
	b.Works(t)
	strict := base
	strict.ECT.Require = true
	gatewaytest.Must(t, b.Reload(t.Context(), strict))
	got := b.Send(t, gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(1)})
	if got.Status != http.StatusForbidden {
		t.Errorf("ect.require is not in force: got %d %s", got.Status, got.Body)
	}
	text := b.Send(t, gatewaytest.HTTPRequest{At: b.At.Admin + "/metrics", Method: http.MethodGet})
	for _, want := range []string{`aepb_config_reloads_total{result="applied"} 1`, `aepb_config_reloads_total{result="refused"} 4`, `aepb_config_last_reload_successful 1`, `aepb_config_keys_waiting_for_restart 0`} {
		if !strings.Contains(string(text.Body), want) {
			t.Errorf("%s is not among the metrics", want)
		}
	}
}
