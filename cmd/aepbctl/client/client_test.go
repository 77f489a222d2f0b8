package client_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/agents"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/ect/identity"
)

// TestClient_CertificateThatIsRefused: what is wrong with our own certificate is told, and not only what TLS says of it.
func TestClient_CertificateThatIsRefused(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	dev, err := identity.LoadOrCreate(dir, "example.test", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := identity.LoadOrCreate(other, "other.test", time.Now); err != nil {
		t.Fatal(err)
	}
	ended, err := dev.Authority.Issue("/client", identity.SVIDRequest{TTL: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	cert, key := filepath.Join(dir, "exp.pem"), filepath.Join(dir, "exp-key.pem")
	if err := ended.WritePEM(cert, key); err != nil {
		t.Fatal(err)
	}
	source, err := identity.NewSource(dev.Gateway, dev.Bundle)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Listener = tls.NewListener(s.Listener, source.ServerConfig())
	s.Start()
	t.Cleanup(s.Close)
	at := strings.Replace(s.URL, "http:", "https:", 1)
	ca := filepath.Join(dir, "ca.pem")
	for name, tc := range map[string]struct{ cert, key, want string }{
		"expired":           {cert, key, "the gateway refuses our certificate: " + cert + " ended "},
		"of another domain": {filepath.Join(other, "client.pem"), filepath.Join(other, "client-key.pem"), "our certificate is of other.test, the gateway of example.test: "},
		"good":              {filepath.Join(dir, "client.pem"), filepath.Join(dir, "client-key.pem"), "the gateway answered HTTP 404"},
	} {
		var out, complaints strings.Builder
		code := program.Run(t.Context(), agents.Commands, []string{"agents", "list", "--admin", at, "--cert", tc.cert, "--key", tc.key, "--ca", ca}, strings.NewReader(""), &out, &complaints)
		if code != program.ExitFailed || !strings.Contains(complaints.String(), tc.want) || strings.Contains(complaints.String(), "x509") {
			t.Errorf("%s: %d %s, want %s", name, code, complaints.String(), tc.want)
		}
	}
}
