package identity

import (
	"context"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity/workloadtest"
)

// saying is what an agent says of an SVID.
func saying(s *SVID, own *Authority, others ...*Authority) workloadtest.Identity {
	who := workloadtest.Identity{ID: string(s.ID), Chain: s.Chain, Key: s.Key, Anchors: own.anchors, Federated: map[string][]*x509.Certificate{}}
	for _, other := range others {
		who.Federated[other.domain.IDString()] = other.anchors
	}
	return who
}

func openWorkload(t *testing.T, address string) *Workload {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	w, err := OpenWorkload(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// TestWorkloadAPI: what a SPIFFE agent says is as good as files, and when it says
// something new that is heard.
func TestWorkloadAPI(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	agent := workloadtest.NewAgent(t)
	first := p.svid(t, "/gateway")
	agent.Say(t, saying(first, p.own, p.foreign))
	w := openWorkload(t, agent.Address)
	svid, bundle, err := w.Current()
	if err != nil || svid.ID != first.ID || bundle.TrustDomain() != domain || bundle.Vouches(svid, noon) != nil {
		t.Fatalf("%+v, %v", svid, err)
	}
	server := source(t, SourceDeps{SVID: svid, Bundle: bundle})
	for name, peer := range map[string]*Source{
		"of the domain":   p.agent,
		"of a federation": source(t, SourceDeps{SVID: issue(t, p.foreign, "/partner", SVIDRequest{}), Bundle: p.trust}),
	} {
		if out := shake(t, server.ServerConfig(), peer.ClientConfig(first.ID)); !out.ok() {
			t.Errorf("%s: %v, %v", name, out.serverErr, out.clientErr)
		}
	}
	second := p.svid(t, "/gateway")
	agent.Say(t, saying(second, p.own))
	<-w.Changed()
	svid, _, err = w.Current()
	if err != nil || !svid.Chain[0].Equal(second.Chain[0]) {
		t.Errorf("the new SVID is not there: %v", err)
	}
}

func TestWorkloadAPIRefuses(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "/run/a.sock", "tcp://127.0.0.1:1", "https://x.example", "unix:"} {
		if CheckWorkloadAddress(address) == nil {
			t.Errorf("%q is an address", address)
		}
	}
	silent := workloadtest.NewAgent(t).Address
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := OpenWorkload(ctx, silent); !errors.Is(err, errNothingYet) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an agent that says nothing: %v", err)
	}
	if _, err := OpenWorkload(ctx, "unix:///nonesuch.sock"); err == nil {
		t.Error("no agent is no error")
	}
}
