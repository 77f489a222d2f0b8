package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// begun is a session of a connection whose client showed a chain.
func begun(s *Source, chain ...*x509.Certificate) *Session {
	session := s.Session()
	session.Begin(&tls.ConnectionState{HandshakeComplete: true, PeerCertificates: chain})
	return session
}

// A session ends with its SVID: to the second, for everything that waits for it,
// and no sooner.
func TestSession_EndsWithItsSVID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, err := NewAuthority(AuthorityDeps{TrustDomain: domain})
		if err != nil {
			t.Fatal(err)
		}
		s := source(t, SourceDeps{SVID: issue(t, a, "/gateway", SVIDRequest{}), Bundle: bundleOf(t, a), Now: time.Now})
		client := issue(t, a, "/client", SVIDRequest{TTL: time.Hour})
		session := begun(s, client.Chain...)
		defer session.Close()
		bound, leave := session.Bound(t.Context())
		defer leave()
		notified := make(chan time.Time, 1)
		session.AfterEnd(func() { notified <- time.Now() })
		forgotten := begun(s, client.Chain...)
		forgotten.AfterEnd(func() { t.Error("a closed session ends") })
		forgotten.Close()

		time.Sleep(time.Until(client.Expires()) - 11*time.Second)
		if session.Ended() || session.Ending() {
			t.Error("it is about to end eleven seconds before it does")
		}
		time.Sleep(2 * time.Second)
		if session.Ended() || !session.Ending() || bound.Err() != nil {
			t.Error("nine seconds before its end its client is not told to go")
		}
		time.Sleep(time.Until(client.Expires()))
		if session.Ended() {
			t.Error("it ends before its certificate")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !session.Ended() || !errors.Is(context.Cause(bound), ErrSessionEnded) {
			t.Errorf("it goes on: %v", context.Cause(bound))
		}
		if late := (<-notified).Sub(client.Expires()); late < 0 || late > time.Second {
			t.Errorf("those who wait are told %v after the end", late)
		}
	})
}

// What is not vouched for any more has no session; what still is keeps it.
func TestSession_EndsWithItsAnchor(t *testing.T) {
	t.Parallel()
	own, partner := authority(t, domain), authority(t, "partner.example")
	trust := bundleOf(t, own)
	trust.Federate(bundleOf(t, partner))
	s := source(t, SourceDeps{SVID: issue(t, own, "/gateway", SVIDRequest{}), Bundle: trust})
	stays, goes := begun(s, issue(t, own, "/a", SVIDRequest{}).Chain...), begun(s, issue(t, partner, "/a", SVIDRequest{}).Chain...)
	bare := begun(s)
	stranger := begun(s, issue(t, authority(t, domain), "/a", SVIDRequest{}).Chain...)
	var none *Session
	trust.Federate(bundleOf(t, partner)) // nothing changes
	if stays.Ended() || goes.Ended() || bare.Ended() || none.Ended() || none.Ending() || !stranger.Ended() {
		t.Error("before: the wrong sessions have ended")
	}
	trust.Trust(bundleOf(t, own))
	if stays.Ended() || !goes.Ended() || bare.Ended() {
		t.Error("after: the wrong sessions have ended")
	}
	for _, session := range []*Session{stays, goes, bare, stranger, none} {
		session.Close()
	}
	if len(trust.sessions) != 0 {
		t.Errorf("%d sessions are still known", len(trust.sessions))
	}
}

// A trust domain that is federated no more is out at once, with the keys of its
// JWT-SVIDs; our own stays whatever we are told.
func TestBundle_TrustReplacesFederatedDomains(t *testing.T) {
	t.Parallel()
	own, partner := authority(t, domain), authority(t, "partner.example")
	keys := []byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","use":"sig","kid":"k","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`)
	set, err := ParseKeySet(keys)
	if err != nil {
		t.Fatal(err)
	}
	other := bundleOf(t, partner)
	other.setTokenKeys(other.home, set)
	trust := bundleOf(t, own)
	trust.Federate(other)
	chain := issue(t, partner, "/a", SVIDRequest{}).Chain
	if _, ok := trust.TokenKeys("partner.example"); !ok || trust.Vouches(&SVID{Chain: chain}, noon) != nil {
		t.Fatal("the partner is not trusted")
	}
	trust.Trust(bundleOf(t, own))
	if _, ok := trust.TokenKeys("partner.example"); ok || trust.Vouches(&SVID{Chain: chain}, noon) == nil {
		t.Error("the former partner is trusted")
	}
	trust.Trust(other)
	if trust.Vouches(&SVID{Chain: issue(t, own, "/a", SVIDRequest{}).Chain}, noon) != nil || len(trust.Anchors()) != 1 {
		t.Error("our own trust domain went")
	}
}
