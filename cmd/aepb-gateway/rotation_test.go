package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/workloadtest"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// A gateway that asks the Workload API who it is serves with what it is told, and
// follows.
func TestServe_WorkloadAPI(t *testing.T) {
	t.Parallel()
	dir, file := gatewaytest.Operated(t, "")
	dev, err := identity.LoadOrCreate(dir, gatewaytest.TrustDomain, time.Now)
	gatewaytest.Must(t, err)
	agent := workloadtest.NewAgent(t)
	tell := func() string {
		s := gatewaytest.Issue(t, dev.Authority, "/gateway", identity.SVIDRequest{})
		agent.Say(t, workloadtest.Identity{ID: string(s.ID), Chain: s.Chain, Key: s.Key, Anchors: dev.Bundle.Anchors()})
		return s.Chain[0].SerialNumber.String()
	}
	first := tell()
	text, err := os.ReadFile(file)
	gatewaytest.Must(t, err)
	before, rest, _ := strings.Cut(string(text), "certificate:")
	_, after, _ := strings.Cut(rest, "trust-bundle.json")
	gatewaytest.Must(t, os.WriteFile(file, []byte(before+`workload_api: "`+agent.Address+`"`+after), 0o600))

	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- serve(ctx, file, in, io.Discard) }()
	lines := bufio.NewScanner(out)
	lines.Scan()
	address := strings.TrimPrefix(lines.Text(), "ready public https://")
	go func() { _, _ = io.Copy(io.Discard, out) }()
	source, err := identity.NewSource(dev.Client, dev.Bundle)
	gatewaytest.Must(t, err)
	shown := func() string {
		d := tls.Dialer{Config: source.ClientConfig(dev.Gateway.ID)}
		conn, err := d.DialContext(t.Context(), "tcp", address)
		gatewaytest.Must(t, err)
		defer func() { _ = conn.Close() }()
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	if got := shown(); got != first {
		t.Errorf("shown %s, told %s", got, first)
	}
	second := tell()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(gatewaytest.Patience); shown() != second; <-tick.C {
		if time.Now().After(end) {
			t.Fatal("the new SVID is not in force")
		}
	}
	stop()
	gatewaytest.Must(t, <-done)
	gatewaytest.Must(t, in.Close())
}
