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

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/server"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestCheckConfig_SaysTheMemoryBound: what it prints is what the limits of the file add up
// to, and a smaller limit makes it less.
func TestCheckConfig_SaysTheMemoryBound(t *testing.T) {
	t.Parallel()
	bounds := make([]int, 2)
	for i, extra := range []string{"", "limits: {in_flight_mib: 16}\n"} {
		_, file := gatewaytest.Operated(t, extra+"policy: {approvals: [{severity: critical}]}\n")
		var out strings.Builder
		cmd := checkConfigCommand()
		cmd.SetArgs([]string{file})
		cmd.SetOut(&out)
		gatewaytest.Must(t, cmd.ExecuteContext(t.Context()))
		if _, err := fmt.Sscanf(out.String(), "ok\nmemory: at most %d MiB with these bounds\n", &bounds[i]); err != nil {
			t.Fatalf("%v in %q", err, out.String())
		}
	}
	if saved := bounds[0] - bounds[1]; saved != 16*9/2*5/4 { // in flight in four copies, of strangers in two, with the collector's part
		t.Errorf("%d MiB, with 16 MiB less in flight %d MiB", bounds[0], bounds[1])
	}
}

// A bad configuration never listens, and every file that it names is looked at.
func TestProduction_Refuses(t *testing.T) {
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
		dir, file := gatewaytest.Operated(t, "")
		data, err := os.ReadFile(file)
		gatewaytest.Must(t, err)
		c, err := config.Parse(bytes.Replace(data, []byte(strings.ReplaceAll(tc.old, "DIR", dir)), []byte(tc.new), 1))
		gatewaytest.Must(t, err)
		_, err = server.Production(c, nil, slog.New(slog.DiscardHandler))
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want it to say %q", name, err, tc.says)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: a secret stands in the error", name)
		}
	}
}

func TestServe_StopsCleanly(t *testing.T) {
	t.Parallel()
	_, file := gatewaytest.Operated(t, "")
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- serve(ctx, file, in, io.Discard) }()
	buffer := make([]byte, 256)
	n, err := out.Read(buffer)
	gatewaytest.Must(t, err)
	if !strings.HasPrefix(string(buffer[:n]), "ready public https://127.0.0.1:") {
		t.Errorf("got %q", buffer[:n])
	}
	stop()
	gatewaytest.Must(t, <-done)
}

// TestReload_TellsWhatWaitsForARestart: a change that a running gateway cannot make is logged, counted and told to
// operators, until it is taken back.
func TestReload_TellsWhatWaitsForARestart(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	base := b.Settings()
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
		gatewaytest.Must(t, b.Reload(t.Context(), changed))
		if step.logged != "" && !strings.Contains(b.Logs.String(), step.logged) {
			t.Errorf("not logged: %s", step.logged)
		}
		text := b.Send(t, gatewaytest.HTTPRequest{At: b.At.Admin + "/metrics", Method: http.MethodGet})
		if want := fmt.Sprintf("aepb_config_keys_waiting_for_restart %d\n", step.count); !strings.Contains(string(text.Body), want) {
			t.Errorf("%q: the metrics lack %s", step.metrics, want)
		}
	}
}

// TestServe_WithoutRedis: one line of the log says once that shared state cannot be reached.
func TestServe_WithoutRedis(t *testing.T) {
	t.Parallel()
	dir, file := gatewaytest.Operated(t, `state: {key: DIR/state.key, redis: {addresses: ["127.0.0.1:1"], plaintext: loopback}}
shutdown_delay: 0s
`)
	text, err := os.ReadFile(file)
	gatewaytest.Must(t, err)
	gatewaytest.Must(t, os.WriteFile(file, bytes.ReplaceAll(text, []byte("DIR"), []byte(dir)), 0o600))
	gatewaytest.Must(t, os.WriteFile(filepath.Join(dir, "state.key"), []byte(strings.Repeat("ab", 32)+"\n"), 0o600))
	ctx, stop := context.WithCancel(t.Context())
	logs, ended := &gatewaytest.Journal{}, make(chan error, 1)
	go func() { ended <- serve(ctx, file, io.Discard, logs) }()
	gatewaytest.Within(t, gatewaytest.Patience, "the start is logged", func() bool { return strings.Contains(logs.String(), `"msg":"started"`) })
	stop()
	gatewaytest.Must(t, <-ended)
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
