package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// A gateway starts while Redis is away, says why it is not ready, and works once it comes.
func TestServe_StartsWithoutRedis(t *testing.T) {
	t.Parallel()
	server := gatewaytest.NewRedis(t)
	server.Kill()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{
		State: server.State(),
	}})
	if status, text := b.Monitor(t, "/readyz", ""); status != http.StatusServiceUnavailable || text != "state cannot be kept now: Redis at "+server.Address+" cannot be reached\n" {
		t.Errorf("ready: %d %s", status, text)
	}
	plain := gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(1), Header: map[string]string{"A2A-Version": "1.0"}}
	if got := b.Send(t, plain); got.Status != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" {
		t.Errorf("a call without Redis: %d: %s", got.Status, got.Body)
	}
	server.Run()
	gatewaytest.Within(t, gatewaytest.Patience, "ready", func() bool {
		status, _ := b.Monitor(t, "/readyz", "")
		return status == http.StatusOK
	})
	b.Right(t, b.Send(t, plain), `"sum":2`)
}

// A Redis that is there and not set up to keep state ends serve with a reason, and so do
// files that are not there. check-config does not ask Redis.
func TestServe_RefusesAnUnfitRedis(t *testing.T) {
	t.Parallel()
	evicting, locked := gatewaytest.NewRedis(t, "--maxmemory-policy", "allkeys-lru"), gatewaytest.NewRedis(t, "--requirepass", "a-secret")
	wrong := filepath.Join(t.TempDir(), "password")
	gatewaytest.Must(t, os.WriteFile(wrong, []byte("another"), 0o600))
	for name, tc := range map[string]struct{ redis, says string }{
		"evicts":         {`{addresses: ["` + evicting.Address + `"], plaintext: loopback}`, "maxmemory-policy"},
		"wrong password": {`{addresses: ["` + locked.Address + `"], plaintext: loopback, password_file: ` + wrong + `}`, "WRONGPASS"},
		"lost CA":        {`{addresses: ["127.0.0.1:1"], tls: {ca: /lost.pem}}`, "state.redis"},
		"lost secret":    {`{addresses: ["127.0.0.1:1"], plaintext: loopback, password_file: /lost}`, "state.redis"},
	} {
		_, file := gatewaytest.Operated(t, "state: {unverified: true, redis: "+tc.redis+"}\n")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // one that does not refuse serves until then
		err := serve(ctx, file, &gatewaytest.Journal{}, &gatewaytest.Journal{})
		cancel()
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want it to say %q", name, err, tc.says)
		}
	}
}
