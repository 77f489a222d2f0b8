package doctor

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/ect/identity"
)

// pages is a gateway's listener for metrics that answers /readyz so.
func pages(t *testing.T, status int, text string) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/healthz") // not to be followed
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func healthz(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, complaints strings.Builder
	code = program.Run(t.Context(), Commands, append([]string{"healthz"}, args...), strings.NewReader(""), &out, &complaints)
	return code, out.String(), complaints.String()
}

func TestHealthz_SaysWhetherAGatewayIsReady(t *testing.T) {
	t.Parallel()
	ready, stopping := pages(t, http.StatusOK, "ready\n"), pages(t, http.StatusServiceUnavailable, "stopping\nthe bell is \a\n")
	elsewhere, gone := pages(t, http.StatusFound, "moved\n"), pages(t, http.StatusOK, "ready\n")
	gone.Close()
	for _, tc := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string
	}{
		{"ready", []string{ready.URL}, program.ExitOK, "ready\n", ""},
		{"ready, with a slash", []string{ready.URL + "/"}, program.ExitOK, "ready\n", ""},
		{"live", []string{"--live", ready.URL}, program.ExitOK, "ok\n", ""},
		{"not ready", []string{stopping.URL}, program.ExitFailed, "", "HTTP 503: stopping; the bell is \\a"},
		{"not ready, but live", []string{"--live", stopping.URL}, program.ExitOK, "ok\n", ""},
		{"a redirect", []string{elsewhere.URL}, program.ExitFailed, "", "HTTP 302: moved"},
		{"no gateway", []string{gone.URL}, program.ExitFailed, "", "refused"},
		{"an admin listener without certificates", []string{"https://127.0.0.1:9443", "--dir", t.TempDir()}, program.ExitFailed, "", "client.pem"},
		{"a page", []string{ready.URL + "/readyz"}, program.ExitUsage, "", "is no URL of a listener"},
		{"a query", []string{ready.URL + "?live"}, program.ExitUsage, "", "is no URL of a listener"},
		{"no scheme", []string{"127.0.0.1:9464"}, program.ExitUsage, "", "is no URL of a listener"},
		{"another scheme", []string{"ftp://127.0.0.1"}, program.ExitUsage, "", "is no URL of a listener"},
		{"two URLs", []string{ready.URL, ready.URL}, program.ExitUsage, "", "one URL at most"},
	} {
		code, stdout, stderr := healthz(t, tc.args...)
		if code != tc.code || stdout != tc.stdout || !strings.Contains(stderr, tc.stderr) || (tc.stderr == "") != (stderr == "") {
			t.Errorf("%s: got %d, %q, %q; want %d, %q, %q", tc.name, code, stdout, stderr, tc.code, tc.stdout, tc.stderr)
		}
	}
	_, stdout, _ := healthz(t, "-o", "json", ready.URL)
	var answer struct{ Status string }
	if err := json.Unmarshal([]byte(stdout), &answer); err != nil || answer.Status != "ready" {
		t.Errorf("as JSON: %v in %q", err, stdout)
	}
}

// Over https the certificates of --dir are shown and judged.
func TestHealthz_AsksTheAdminListener(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	material, err := identity.LoadOrCreate(dir, "aepb.dev", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	source, err := identity.NewSource(material.Gateway, material.Bundle)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(pages(t, http.StatusOK, "ready\n").Config.Handler)
	s.Listener = tls.NewListener(s.Listener, source.ServerConfig())
	s.Start()
	t.Cleanup(s.Close)
	at := strings.Replace(s.URL, "http:", "https:", 1)
	if code, stdout, stderr := healthz(t, "--dir", dir, at); code != program.ExitOK || stdout != "ready\n" {
		t.Errorf("got %d, %q, %q", code, stdout, stderr)
	}
	other := filepath.Join(t.TempDir(), "ca.pem")
	stranger := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(stranger.Close)
	if err := os.WriteFile(other, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: stranger.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := healthz(t, "--dir", dir, "--ca", other, at); code != program.ExitFailed || !strings.Contains(stderr, "certificate") {
		t.Errorf("a gateway of another authority: got %d, %q", code, stderr)
	}
}
