package identity

import (
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

func ring(t *testing.T, trust *Bundle, known int) *KeyRing {
	t.Helper()
	k, err := NewKeyRing(KeyRingDeps{Bundle: trust, Known: known})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func kid(t *testing.T, s *SVID) string {
	t.Helper()
	thumb, err := ect.Thumbprint(s.Key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return thumb
}

func x5c(chain ...*x509.Certificate) [][]byte {
	var out [][]byte
	for _, c := range chain {
		out = append(out, c.Raw)
	}
	return out
}

func peerOf(s *SVID) ect.Peer { return ect.Peer{ID: s.ID, Key: s.Key.Public()} }

func TestKeyRing_Resolve(t *testing.T) {
	t.Parallel()
	a := authority(t, domain)
	agent := issue(t, a, "/agents/a", SVIDRequest{TTL: time.Hour})
	renewed := issue(t, a, "/agents/a", SVIDRequest{TTL: time.Hour})
	other := issue(t, a, "/agents/b", SVIDRequest{TTL: time.Hour})
	foreign := issue(t, authority(t, "foreign.org"), "/agents/a", SVIDRequest{})
	root := a.anchors[0]
	chain := x5c(agent.Chain...)

	tests := []struct {
		name   string
		peer   ect.Peer
		header ect.Header
		at     time.Time
		want   *SVID
		reason ect.Reason
	}{
		{"own key by kid", peerOf(agent), ect.Header{KeyID: kid(t, agent)}, noon, agent, ""},
		{"own key without kid", peerOf(agent), ect.Header{}, noon, agent, ""},
		{"own key, other kid", peerOf(agent), ect.Header{KeyID: kid(t, other)}, noon, nil, ect.ReasonUnknownKey},
		{"own key, kid of no form", peerOf(agent), ect.Header{KeyID: "key-1"}, noon, nil, ect.ReasonUnknownKey},
		{"own former key by chain", peerOf(renewed), ect.Header{KeyID: kid(t, agent), Chain: chain}, noon, agent, ""},
		{"own former key without chain", peerOf(renewed), ect.Header{KeyID: kid(t, agent)}, noon, nil, ect.ReasonUnknownKey},
		{"chain without kid beats own key", peerOf(renewed), ect.Header{Chain: chain}, noon, agent, ""},
		{"peer is not the issuer", peerOf(other), ect.Header{}, noon, nil, ect.ReasonUnknownKey},
		{"peer without key", ect.Peer{ID: agent.ID}, ect.Header{}, noon, nil, ect.ReasonUnknownKey},
		{"nobody, nothing", ect.Peer{}, ect.Header{KeyID: kid(t, agent)}, noon, nil, ect.ReasonUnknownKey},
		{"chain", ect.Peer{}, ect.Header{KeyID: kid(t, agent), Chain: chain}, noon, agent, ""},
		{"chain through a gateway", peerOf(other), ect.Header{KeyID: kid(t, agent), Chain: chain}, noon, agent, ""},
		{"chain with anchor", ect.Peer{}, ect.Header{Chain: x5c(agent.Chain[0], root)}, noon, agent, ""},
		{"chain, kid of another key", ect.Peer{}, ect.Header{KeyID: kid(t, other), Chain: chain}, noon, nil, ect.ReasonUnknownKey},
		{"chain binds its own id, not the issuer's", ect.Peer{}, ect.Header{Chain: x5c(other.Chain...)}, noon, other, ""},
		{"chain before its time", ect.Peer{}, ect.Header{Chain: chain}, noon.Add(-time.Hour), nil, ect.ReasonKeyNotTrusted},
		{"chain after its time", ect.Peer{}, ect.Header{Chain: chain}, noon.Add(2 * time.Hour), nil, ect.ReasonKeyNotTrusted},
		{"chain at no time", ect.Peer{}, ect.Header{Chain: chain}, time.Time{}, nil, ect.ReasonKeyNotTrusted},
		{"foreign chain", ect.Peer{}, ect.Header{Chain: x5c(foreign.Chain...)}, noon, nil, ect.ReasonKeyNotTrusted},
		{"anchor as leaf", ect.Peer{}, ect.Header{Chain: x5c(root)}, noon, nil, ect.ReasonKeyNotTrusted},
		{"garbage", ect.Peer{}, ect.Header{Chain: [][]byte{{0x30, 0x03}}}, noon, nil, ect.ReasonKeyNotTrusted},
		{"garbage behind the leaf", ect.Peer{}, ect.Header{Chain: append(x5c(agent.Chain...), []byte("?"))}, noon, nil, ect.ReasonKeyNotTrusted},
		{"too many", ect.Peer{}, ect.Header{Chain: x5c(agent.Chain[0], root, root, root, root, root)}, noon, nil, ect.ReasonKeyNotTrusted},
		{"too large", ect.Peer{}, ect.Header{Chain: append(x5c(agent.Chain...), make([]byte, maxCertificate+1))}, noon, nil, ect.ReasonKeyNotTrusted},
	}
	shared := ring(t, bundleOf(t, a), 0) // shared: what it remembers of one case must not change another
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for range 2 { // the second time from memory
				got, err := shared.Resolve(t.Context(), ect.KeyRequest{Header: test.header, Issuer: agent.ID, At: test.at, Peer: test.peer})
				if test.want == nil {
					var invalid *ect.InvalidError
					if !errors.As(err, &invalid) || invalid.Reason != test.reason {
						t.Fatalf("got %v, want %s", err, test.reason)
					}
					continue
				}
				if err != nil || got.ID != test.want.ID || thumbprint(got.Key) != kid(t, test.want) {
					t.Fatalf("got %q, %v", got.ID, err)
				}
			}
		})
	}
}

// Thumbprints of connections' keys are remembered, and not without bound.
func TestThumbprints_AreBounded(t *testing.T) {
	t.Parallel()
	a := authority(t, domain)
	cache := &printCache{limit: 3}
	for range 3 {
		for n := range 5 {
			s := issue(t, a, "/agents/"+string(rune('a'+n)), SVIDRequest{TTL: time.Hour})
			for range 2 {
				if got := cache.get(s.Key.Public()); got != kid(t, s) {
					t.Errorf("got %q, want %q", got, kid(t, s))
				}
			}
			if len(cache.of) > cache.limit {
				t.Fatalf("%d keys are remembered", len(cache.of))
			}
		}
	}
}

// A remembered chain is good for what it was judged for, and no more.
func TestKeyRing_CachedChains(t *testing.T) {
	t.Parallel()
	a := authority(t, domain)
	agent := issue(t, a, "/agents/a", SVIDRequest{TTL: time.Hour})
	ask := func(k *KeyRing, s *SVID, at time.Time) error {
		_, err := k.Resolve(t.Context(), ect.KeyRequest{Header: ect.Header{Chain: x5c(s.Chain...)}, At: at})
		return err
	}
	t.Run("outside its validity", func(t *testing.T) {
		t.Parallel()
		k := ring(t, bundleOf(t, a), 0)
		for _, step := range []struct {
			at time.Time
			ok bool
		}{{noon, true}, {agent.Expires(), true}, {agent.Expires().Add(time.Second), false}, {noon.Add(-2 * time.Minute), false}, {noon, true}} {
			if err := ask(k, agent, step.at); (err == nil) != step.ok {
				t.Errorf("at %v: %v", step.at, err)
			}
		}
	})
	t.Run("after the anchor is withdrawn", func(t *testing.T) {
		t.Parallel()
		trust := bundleOf(t, a)
		k := ring(t, trust, 0)
		if err := ask(k, agent, noon); err != nil {
			t.Fatal(err)
		}
		trust.Trust(bundleOf(t, authority(t, domain)))
		if ask(k, agent, noon) == nil {
			t.Error("still trusted")
		}
	})
	t.Run("is bounded, the least used go first", func(t *testing.T) {
		t.Parallel()
		k := ring(t, bundleOf(t, a), 2)
		b, c := issue(t, a, "/agents/b", SVIDRequest{}), issue(t, a, "/agents/c", SVIDRequest{})
		for _, s := range []*SVID{agent, b, agent, c} {
			if err := ask(k, s, noon); err != nil {
				t.Fatal(err)
			}
		}
		for s, want := range map[*SVID]bool{agent: true, b: false, c: true} {
			name, _ := chainName(x5c(s.Chain...))
			if _, got := k.known.get(name); got != want {
				t.Errorf("%s remembered: %v", s.ID, got)
			}
		}
		if k.known.order.Len() != 2 || len(k.known.byName) != 2 {
			t.Errorf("%d and %d chains", k.known.order.Len(), len(k.known.byName))
		}
	})
	t.Run("window is the whole chain's", func(t *testing.T) {
		t.Parallel()
		short, long := &x509.Certificate{NotBefore: noon, NotAfter: noon.Add(time.Hour)}, agent.Chain[0]
		j := newJudged("", []*x509.Certificate{long, short}, 0)
		if !j.from.Equal(noon) || j.covers(noon.Add(-time.Second)) || !j.covers(noon) {
			t.Errorf("from %v until %v", j.from, j.until)
		}
	})
}

func TestChainName_Bounds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		chain [][]byte
		ok    bool
	}{
		"largest":   {[][]byte{make([]byte, maxCertificate), {}, {}, {}, {}}, true},
		"too large": {[][]byte{make([]byte, maxCertificate+1)}, false},
		"too long":  {make([][]byte, maxChain+1), false},
	} {
		if _, ok := chainName(test.chain); ok != test.ok {
			t.Errorf("%s: %v", name, ok)
		}
	}
	one, _ := chainName([][]byte{{1, 2}, {3}})
	two, _ := chainName([][]byte{{1}, {2, 3}})
	if one == two {
		t.Error("two chains have one name")
	}
}

func BenchmarkKeyRing_Resolve(b *testing.B) {
	a, err := NewAuthority(AuthorityDeps{TrustDomain: domain, Now: at(noon)})
	if err != nil {
		b.Fatal(err)
	}
	s, err := a.Issue("/agents/a", SVIDRequest{})
	if err != nil {
		b.Fatal(err)
	}
	trust, err := a.Bundle()
	if err != nil {
		b.Fatal(err)
	}
	k, err := NewKeyRing(KeyRingDeps{Bundle: trust})
	if err != nil {
		b.Fatal(err)
	}
	thumb, err := ect.Thumbprint(s.Key.Public())
	if err != nil {
		b.Fatal(err)
	}
	request := ect.KeyRequest{Header: ect.Header{KeyID: thumb, Chain: x5c(s.Chain...)}, Issuer: s.ID, At: noon}
	for b.Loop() {
		if _, err := k.Resolve(b.Context(), request); err != nil {
			b.Fatal(err)
		}
	}
}
