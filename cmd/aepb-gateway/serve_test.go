package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
)

// operated is a folder as an operator of serve has it: files and a configuration.
func operated(t *testing.T, extra string) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	_, err := identity.LoadOrCreate(dir, devTrustDomain, time.Now)
	must(t, err)
	file = filepath.Join(dir, "gateway.yaml")
	must(t, os.WriteFile(file, []byte(strings.ReplaceAll(`
public_url: https://127.0.0.1:8443
listen: {public: "127.0.0.1:0", admin: "127.0.0.1:0"}
identity: {trust_domain: aepb.dev, certificate: DIR/gateway.pem, key: DIR/gateway-key.pem, bundle: DIR/trust-bundle.json}
admin: {operators: {ann: {id: "spiffe://aepb.dev/client", roles: [operator]}}}
`, "DIR", dir)+extra), 0o600))
	return dir, file
}

// TestCheckConfig_SaysTheMemoryBound: what it prints is what the limits of the file add up
// to, and a smaller limit makes it less.
func TestCheckConfig_SaysTheMemoryBound(t *testing.T) {
	t.Parallel()
	bounds := make([]int, 2)
	for i, extra := range []string{"", "limits: {in_flight_mib: 16}\n"} {
		_, file := operated(t, extra+"policy: {approvals: [{severity: critical}]}\n")
		var out strings.Builder
		cmd := checkConfigCommand()
		cmd.SetArgs([]string{file})
		cmd.SetOut(&out)
		must(t, cmd.ExecuteContext(t.Context()))
		if _, err := fmt.Sscanf(out.String(), "ok\nmemory: at most %d MiB with these bounds\n", &bounds[i]); err != nil {
			t.Fatalf("%v in %q", err, out.String())
		}
	}
	if saved := bounds[0] - bounds[1]; saved != 16*9/2*5/4 { // in flight in four copies, of strangers in two, with the collector's part
		t.Errorf("%d MiB, with 16 MiB less in flight %d MiB", bounds[0], bounds[1])
	}
}

// A bad configuration never listens, and every file that it names is looked at.
func TestProductionRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ old, new, says string }{
		"good":             {"", "", ""},
		"no such key":      {"gateway-key.pem", "lost.pem", "identity"},
		"key of another":   {"gateway-key.pem", "client-key.pem", "identity"},
		"trust domain":     {"trust_domain: aepb.dev", "trust_domain: example.com", "the certificate says spiffe://aepb.dev/gateway, trust_domain says example.com: "},
		"no such bundle":   {"trust-bundle.json", "lost.json", "identity.bundle"},
		"PEM bundle":       {"trust-bundle.json", "ca.pem", ""},
		"plain public URL": {"https://127.0.0.1:8443", "http://127.0.0.1:8443", "public_url"},
		"public URL path":  {"https://127.0.0.1:8443", "https://127.0.0.1/x", "public_url"},
		"Workload API":     {"certificate: DIR/gateway.pem, key: DIR/gateway-key.pem, bundle: DIR/trust-bundle.json", `workload_api: "unix:///nonesuch.sock"`, ""},
		"lost certificate": {"\nadmin:", "\ntls: {certificate: /lost.pem, key: /lost.pem}\nadmin:", "tls"},
	} {
		dir, file := operated(t, "")
		data, err := os.ReadFile(file)
		must(t, err)
		c, err := config.Parse(bytes.Replace(data, []byte(strings.ReplaceAll(tc.old, "DIR", dir)), []byte(tc.new), 1))
		must(t, err)
		_, err = production(c, nil, slog.New(slog.DiscardHandler))
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want it to say %q", name, err, tc.says)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: a secret stands in the error", name)
		}
	}
}

func TestServeEndsInOrder(t *testing.T) {
	t.Parallel()
	_, file := operated(t, "")
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- serve(ctx, file, in, io.Discard) }()
	buffer := make([]byte, 256)
	n, err := out.Read(buffer)
	must(t, err)
	if !strings.HasPrefix(string(buffer[:n]), "ready public https://127.0.0.1:") {
		t.Errorf("got %q", buffer[:n])
	}
	stop()
	must(t, <-done)
}

// A new file changes agents, limits and policy of a running gateway; a bad one
// changes nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	file := filepath.Join(b.dir, "extra.yaml")
	w := b.watcher(loaded{file: file}, nil)
	write := func(text string) {
		must(t, os.WriteFile(file, []byte(text), 0o600))
		w.look(t.Context(), false)
	}
	listed := func(name string) bool {
		_, ok := b.directory.Find(name)
		return ok
	}
	base := b.settings.config
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
	must(t, b.reload(t.Context(), base))
	if !listed("calculator") || listed("other") {
		t.Error("the agents of the first file are not back")
	}
	b.works(t)
	strict := base
	strict.ECT.Require = true
	must(t, b.reload(t.Context(), strict))
	got := b.send(t, letter{at: doorA2A, body: addBody(1)})
	if got.status != http.StatusForbidden {
		t.Errorf("ect.require is not in force: got %d %s", got.status, got.body)
	}
	text := b.send(t, letter{at: b.at.Admin + "/metrics", method: http.MethodGet})
	for _, want := range []string{`aepb_config_reloads_total{result="applied"} 1`, `aepb_config_reloads_total{result="refused"} 4`, `aepb_config_last_reload_successful 1`, `aepb_config_keys_waiting_for_restart 0`} {
		if !strings.Contains(string(text.body), want) {
			t.Errorf("%s is not among the metrics", want)
		}
	}
}

// TestReload_TellsWhatWaitsForARestart: a change that a running gateway cannot make is logged, counted and told to
// operators, until it is taken back.
func TestReload_TellsWhatWaitsForARestart(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	base := b.settings.config
	for _, step := range []struct {
		metrics string
		count   int
		logged  string
	}{
		{"127.0.0.1:9464", 1, "listen.metrics takes a restart: in force the default, in the file 127.0.0.1:9464"},
		{"", 0, ""},
	} {
		changed := base
		changed.Listen.Metrics = step.metrics
		must(t, b.reload(t.Context(), changed))
		if step.logged != "" && !strings.Contains(b.logs.String(), step.logged) {
			t.Errorf("not logged: %s", step.logged)
		}
		text := b.send(t, letter{at: b.at.Admin + "/metrics", method: http.MethodGet})
		if want := fmt.Sprintf("aepb_config_keys_waiting_for_restart %d\n", step.count); !strings.Contains(string(text.body), want) {
			t.Errorf("%q: the metrics lack %s", step.metrics, want)
		}
	}
}

// TestServe_WithoutRedis: one line of the log says once that shared state cannot be reached.
func TestServe_WithoutRedis(t *testing.T) {
	t.Parallel()
	dir, file := operated(t, `state: {key: DIR/state.key, redis: {addresses: ["127.0.0.1:1"], plaintext: loopback}}
shutdown_delay: 0s
`)
	text, err := os.ReadFile(file)
	must(t, err)
	must(t, os.WriteFile(file, bytes.ReplaceAll(text, []byte("DIR"), []byte(dir)), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "state.key"), []byte(strings.Repeat("ab", 32)+"\n"), 0o600))
	ctx, stop := context.WithCancel(t.Context())
	logs, ended := &journal{}, make(chan error, 1)
	go func() { ended <- serve(ctx, file, io.Discard, logs) }()
	within(t, patience, "the start is logged", func() bool { return strings.Contains(logs.String(), `"msg":"started"`) })
	stop()
	must(t, <-ended)
	found := false
	for line := range strings.Lines(logs.String()) {
		if strings.Contains(line, "how agents stand, is not known yet") {
			found = true
			if strings.Count(line, "cannot be reached now") != 1 {
				t.Errorf("not once: %s", line)
			}
		}
	}
	if !found {
		t.Errorf("nothing is logged of it: %s", logs.String())
	}
}
