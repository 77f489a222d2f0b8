package stories

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// A policy document holds from the start, changes with a reload, and a bad one
// leaves the old in force.
func TestPolicyDocument_Reload(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "policy.json")
	write := func(text string) { gatewaytest.Must(t, os.WriteFile(file, []byte(text), 0o600)) }
	write(`{"constraints":{"aepb.allowed_dest_protocols":["slim-v1"]}}`)
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Policy: config.Policy{Document: file}}})
	status := func() int {
		return b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(b.Number())})).Status
	}
	if got := status(); got != http.StatusForbidden {
		t.Errorf("at the start: got %d", got)
	}
	write(`{"constraints":{"aepb.max_translation_hops":"many"}}`)
	if err := b.Reload(t.Context(), b.Settings()); err == nil || !strings.Contains(err.Error(), "aepb.max_translation_hops") {
		t.Errorf("a bad document: %v", err)
	}
	if got := status(); got != http.StatusForbidden {
		t.Errorf("after a bad one: got %d", got)
	}
	write(`{"constraints":{"aepb.allowed_dest_protocols":["mcp-v1"]}}`)
	gatewaytest.Must(t, b.Reload(t.Context(), b.Settings()))
	if got := status(); got != http.StatusOK {
		t.Errorf("after a good one: got %d", got)
	}
	for name, path := range map[string]string{"none": filepath.Join(t.TempDir(), "none"), "empty": os.DevNull} {
		if err := b.Reload(t.Context(), config.Config{Policy: config.Policy{Document: path}}); err == nil {
			t.Errorf("%s was taken for a document", name)
		}
	}
}

// What was refused and not told yet is told when the service stops.
func TestRefusals_PendingAreLoggedAtStop(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Limits: config.Limits{Rate: 0.001, Burst: 1}}})
	b.Flood(t, gatewaytest.HTTPRequest{At: "/agents/nobody/a2a", Body: gatewaytest.AddBody(1)}, 20)
	b.Stop()
	b.Logs.Mu.Lock()
	defer b.Logs.Mu.Unlock()
	const sample = `"msg":"refused","reason":"rate_limited"`
	if logged := b.Logs.Text.String(); strings.Count(logged, sample) != 2 {
		t.Errorf("%d samples: %s", strings.Count(logged, sample), logged)
	}
}

// A connection that comes to its handshake while the service stops does not hold it
// back: the fixture demands a clean end.
func TestStop_LateHandshakeDoesNotDelay(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	where, err := url.Parse(b.At.Public)
	gatewaytest.Must(t, err)
	raw, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", where.Host)
	gatewaytest.Must(t, err)
	t.Cleanup(func() { _ = raw.Close() })
	conf := b.ClientTLS(t, b.Dev.Client)
	conf.ServerName, conf.NextProtos = where.Hostname(), []string{"h2"}
	next, err := (&tls.Dialer{Config: conf}).DialContext(t.Context(), "tcp", where.Host)
	gatewaytest.Must(t, err) // so the one before it was accepted
	gatewaytest.Must(t, next.Close())
	b.End()
	if !gatewaytest.Soon(t.Context(), func() bool { // it has begun to stop
		other, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", where.Host)
		if err == nil {
			_ = other.Close()
		}
		return err != nil
	}) {
		t.Fatal("it goes on")
	}
	late := tls.Client(raw, conf)
	gatewaytest.Must(t, late.HandshakeContext(t.Context()))
	gatewaytest.Must(t, late.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = late.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
	if err == nil {
		_, err = io.Copy(io.Discard, late)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) { // it may be closed at any moment, in any way
		t.Errorf("the connection is left open: %v", err)
	}
}
