package main

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
)

// A policy document holds from the start, changes with a reload, and a bad one
// leaves the old in force.
func TestPolicyDocument(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "policy.json")
	write := func(text string) { must(t, os.WriteFile(file, []byte(text), 0o600)) }
	write(`{"constraints":{"aepb.allowed_dest_protocols":["slim-v1"]}}`)
	b := newBed(t, plan{config: config.Config{Policy: config.Policy{Document: file}}})
	status := func() int { return b.send(t, b.sealed(t, letter{body: addBody(b.number())})).status }
	if got := status(); got != http.StatusForbidden {
		t.Errorf("at the start: got %d", got)
	}
	write(`{"constraints":{"aepb.max_translation_hops":"many"}}`)
	if err := b.reload(t.Context(), b.settings.config); err == nil || !strings.Contains(err.Error(), "aepb.max_translation_hops") {
		t.Errorf("a bad document: %v", err)
	}
	if got := status(); got != http.StatusForbidden {
		t.Errorf("after a bad one: got %d", got)
	}
	write(`{"constraints":{"aepb.allowed_dest_protocols":["mcp-v1"]}}`)
	must(t, b.reload(t.Context(), b.settings.config))
	if got := status(); got != http.StatusOK {
		t.Errorf("after a good one: got %d", got)
	}
	for name, path := range map[string]string{"none": filepath.Join(t.TempDir(), "none"), "empty": os.DevNull} {
		if _, _, err := loadPolicy(&config.Config{Policy: config.Policy{Document: path}}); err == nil {
			t.Errorf("%s was taken for a document", name)
		}
	}
}

// What was refused and not told yet is told when the service stops.
func TestRefusalsAreToldAtTheEnd(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: config.Config{Limits: config.Limits{Rate: 0.001, Burst: 1}}})
	b.flood(t, letter{at: "/agents/nobody/a2a", body: addBody(1)}, 20)
	for _, first := range slices.Backward(b.close[len(b.close)-2:]) { // what happens at the end, while there is still a store
		must(t, first())
	}
	b.logs.mu.Lock()
	defer b.logs.mu.Unlock()
	const sample = `"msg":"refused","reason":"rate_limited"`
	if logged := b.logs.text.String(); strings.Count(logged, sample) != 2 {
		t.Errorf("%d samples: %s", strings.Count(logged, sample), logged)
	}
}

// A connection that comes to its handshake while the service stops does not hold it
// back: the bed demands a clean end.
func TestALateHandshakeHoldsNobodyBack(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	where, err := url.Parse(b.at.Public)
	must(t, err)
	raw, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", where.Host)
	must(t, err)
	t.Cleanup(func() { _ = raw.Close() })
	conf := b.clientTLS(t, b.dev.Client)
	conf.ServerName, conf.NextProtos = where.Hostname(), []string{"h2"}
	next, err := (&tls.Dialer{Config: conf}).DialContext(t.Context(), "tcp", where.Host)
	must(t, err) // so the one before it was accepted
	must(t, next.Close())
	b.end()
	if !soon(t.Context(), func() bool { // it has begun to stop
		other, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", where.Host)
		if err == nil {
			_ = other.Close()
		}
		return err != nil
	}) {
		t.Fatal("it goes on")
	}
	late := tls.Client(raw, conf)
	must(t, late.HandshakeContext(t.Context()))
	must(t, late.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = late.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
	if err == nil {
		_, err = io.Copy(io.Discard, late)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) { // it may be closed at any moment, in any way
		t.Errorf("the connection is left open: %v", err)
	}
}
