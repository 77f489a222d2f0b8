package identity

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

func TestLife_WarnsAtAThirdThenByHalvesThenEveryFiveMinutes(t *testing.T) {
	t.Parallel()
	life := Life{From: noon, Until: noon.Add(time.Hour)}
	var left []time.Duration
	for at := life.FirstWarning(); at.Before(life.Until.Add(12 * time.Minute)); at = life.NextWarning(at) {
		left = append(left, life.Until.Sub(at))
		if life.Ended(at) != (life.Until.Sub(at) < 0) {
			t.Errorf("with %v left it has ended: %v", life.Until.Sub(at), life.Ended(at))
		}
	}
	m := time.Minute
	want := []time.Duration{20 * m, 10 * m, 5 * m, 150 * time.Second, 75 * time.Second, 15 * time.Second, -1, -1 - 5*m, -1 - 10*m}
	if len(left) != len(want) {
		t.Fatalf("warned with %v left, want %v", left, want)
	}
	for i := range want {
		if left[i] != want[i] {
			t.Errorf("warning %d with %v left, want %v", i+1, left[i], want[i])
		}
	}
}

// What vouches for an SVID may end before it.
func TestSource_LifeIsThatOfTheWholePath(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	svid := issue(t, p.own, "/gateway", SVIDRequest{TTL: time.Hour})
	s := source(t, SourceDeps{SVID: svid, Bundle: p.trust})
	if got := s.Life(); !got.Until.Equal(svid.Chain[0].NotAfter) || !got.From.Equal(svid.Chain[0].NotBefore) {
		t.Errorf("got %v, want that of the leaf", got)
	}
	anchor := p.own.anchors[0]
	id, err := spiffeid.FromString(string(svid.ID))
	if err != nil {
		t.Fatal(err)
	}
	template := p.own.leafTemplate(id, SVIDRequest{})
	template.NotAfter = anchor.NotAfter.Add(time.Hour)
	leaf, err := p.own.sign(template, anchor, svid.Key.Public())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Renew(&SVID{ID: svid.ID, Chain: []*x509.Certificate{leaf}, Key: svid.Key}); err != nil {
		t.Fatal(err)
	}
	if got := s.Life(); !got.Until.Equal(anchor.NotAfter) {
		t.Errorf("until %v, want %v, the end of the anchor", got.Until, anchor.NotAfter)
	}
	if _, ok := s.PublicLife(); ok {
		t.Error("there is no public certificate")
	}
	public := tls.Certificate{Leaf: p.own.anchors[0]}
	s.Show(&public)
	if got, ok := s.PublicLife(); !ok || !got.Until.Equal(p.own.anchors[0].NotAfter) {
		t.Errorf("public: got %v, %v", got, ok)
	}
}

// Of old and new anchors of one trust domain the one counts that ends last.
func TestBundle_LivesAreThoseOfTheLastAnchors(t *testing.T) {
	t.Parallel()
	later, err := NewAuthority(AuthorityDeps{TrustDomain: domain, Now: func() time.Time { return noon.Add(24 * time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	p := newParties(t)
	bundle, err := NewBundle(domain, later.anchors[0], p.own.anchors[0])
	if err != nil {
		t.Fatal(err)
	}
	other, err := p.foreign.Bundle()
	if err != nil {
		t.Fatal(err)
	}
	bundle.Federate(other)
	lives := bundle.Lives()
	if len(lives) != 2 || !lives[domain].Until.Equal(later.anchors[0].NotAfter) || !lives[p.foreign.domain.Name()].Until.Equal(p.foreign.anchors[0].NotAfter) {
		t.Errorf("got %v", lives)
	}
}
