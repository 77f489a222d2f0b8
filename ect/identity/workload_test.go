package identity

import (
	"context"
	"crypto/x509"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
	w, err := OpenWorkload(ctx, WorkloadDeps{Address: address})
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

// TestWorkloadAPI_UpdatesApply: what a SPIFFE agent says is as good as files, and when it says
// something new that is heard.
func TestWorkloadAPI_UpdatesApply(t *testing.T) {
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

func TestWorkloadAPI_Refuses(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "/run/a.sock", "tcp://127.0.0.1:1", "https://x.example", "unix:"} {
		if CheckWorkloadAddress(address) == nil {
			t.Errorf("%q is an address", address)
		}
	}
	silent := workloadtest.NewAgent(t).Address
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := OpenWorkload(ctx, WorkloadDeps{Address: silent}); !errors.Is(err, errNothingYet) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an agent that says nothing: %v", err)
	}
	if _, err := OpenWorkload(ctx, WorkloadDeps{Address: "unix:///nonesuch.sock"}); err == nil {
		t.Error("no agent is no error")
	}
}

// While the Workload API is away, what it said stays, each failed question is counted
// and told, and it is heard again soon after it is back, however long it was away.
func TestWorkloadAPI_IsHeardAgainWithinSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		own, err := NewAuthority(AuthorityDeps{TrustDomain: domain})
		if err != nil {
			t.Fatal(err)
		}
		agent := workloadtest.NewPipedAgent(t)
		first, second := issue(t, own, "/gateway", SVIDRequest{}), issue(t, own, "/gateway", SVIDRequest{})
		agent.Say(t, saying(first, own))
		var notified atomic.Uint64
		w, err := OpenWorkload(t.Context(), WorkloadDeps{
			Address: agent.Address, Dial: agent.Dial, Failed: func(error) { notified.Add(1) },
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if w.Failures() != 0 {
			t.Errorf("%d failures before there is one", w.Failures())
		}
		for _, away := range []time.Duration{time.Second, time.Hour} {
			before := w.Failures()
			agent.Leave()
			time.Sleep(away)
			if svid, _, err := w.Current(); err != nil || !svid.Chain[0].Equal(first.Chain[0]) {
				t.Errorf("what was said is gone: %v", err)
			}
			if n := w.Failures() - before; n < uint64(away/time.Second) || n != notified.Load()-before {
				t.Errorf("in %v %d failures are counted, and %d told", away, n, notified.Load()-before)
			}
			first, second = second, issue(t, own, "/gateway", SVIDRequest{})
			for len(w.Changed()) > 0 {
				<-w.Changed()
			}
			agent.Say(t, saying(first, own))
			agent.Return(t)
			back := time.Now()
			<-w.Changed()
			if took := time.Since(back); took > 3*time.Second {
				t.Errorf("away for %v, heard again after %v", away, took)
			}
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if notified.Load() != w.Failures() {
			t.Error("closing counts as a failure")
		}
		agent.Leave()
	})
}

// An agent that ends its calls as it stops, or that takes a call for invalid, is asked
// again.
func TestWorkloadAPI_AsksAgainWhateverTheErrorIs(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{codes.Canceled, codes.InvalidArgument, codes.PermissionDenied, codes.Unavailable} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				own, err := NewAuthority(AuthorityDeps{TrustDomain: domain})
				if err != nil {
					t.Fatal(err)
				}
				agent := workloadtest.NewPipedAgent(t)
				agent.Say(t, saying(issue(t, own, "/gateway", SVIDRequest{}), own))
				w, err := OpenWorkload(t.Context(), WorkloadDeps{Address: agent.Address, Dial: agent.Dial})
				if err != nil {
					t.Fatal(err)
				}
				agent.Refuse(status.Error(code, "no"))
				time.Sleep(time.Minute)
				if w.Failures() < 20 {
					t.Errorf("asked %d times in a minute", w.Failures())
				}
				next := issue(t, own, "/gateway", SVIDRequest{})
				agent.Say(t, saying(next, own))
				agent.Refuse(nil)
				time.Sleep(3 * time.Second)
				if svid, _, err := w.Current(); err != nil || !svid.Chain[0].Equal(next.Chain[0]) {
					t.Errorf("the new SVID is not there: %v", err)
				}
				if err := w.Close(); err != nil {
					t.Error(err)
				}
				agent.Leave()
			})
		})
	}
}
