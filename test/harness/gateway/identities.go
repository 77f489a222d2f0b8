package gatewaytest

import (
	"crypto/ecdsa"
	"crypto/tls"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
)

// Listen listens on a free TCP port of 127.0.0.1. Whoever is given the listener closes it. An error ends the test.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	Must(t, err)
	return l
}

// SVID issues a good certificate for this machine.
func (b *Fixture) SVID(t testing.TB, path string) *identity.SVID {
	t.Helper()
	return Issue(t, b.Dev.Authority, path, identity.SVIDRequest{})
}

// Issue issues a certificate of an authority; one that is asked for without names is for localhost and 127.0.0.1. An
// error ends the test.
func Issue(t testing.TB, a *identity.Authority, path string, r identity.SVIDRequest) *identity.SVID {
	t.Helper()
	if r.DNSNames == nil && r.IPs == nil {
		r.DNSNames, r.IPs = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	s, err := a.Issue(path, r)
	Must(t, err)
	return s
}

// Authority is a certificate authority that the gateway does not trust, or
// trusted when now was otherwise.
func Authority(t *testing.T, domain string, now func() time.Time) *identity.Authority {
	t.Helper()
	a, err := identity.NewAuthority(identity.AuthorityDeps{TrustDomain: domain, Now: now})
	Must(t, err)
	return a
}

// Serving is the configuration of a server of TLS 1.3 that shows an SVID.
func Serving(s *identity.SVID) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{s.Certificate()}, MinVersion: tls.VersionTLS13}
}

// Party is an SVID as somebody who mints tokens.
func (b *Fixture) Party(t testing.TB, s *identity.SVID) *ecttest.Party {
	t.Helper()
	key, ok := s.Key.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatal("not an ECDSA key")
	}
	kid, err := ect.Thumbprint(&key.PublicKey)
	Must(t, err)
	return &ecttest.Party{ID: s.ID, Key: key, Chain: s.Chain, KeyID: kid}
}

// Self is the gateway's identity.
func (b *Fixture) Self() string { return string(b.Dev.Gateway.ID) }

// Caller is a client that shows an SVID, or none.
func (b *Fixture) Caller(t testing.TB, s *identity.SVID) *http.Client {
	t.Helper()
	return b.Dialing(t, b.ClientTLS(t, s))
}

// ClientTLS is the configuration of a client that shows an SVID, or no certificate if that is nil, and trusts the
// development authority. An error ends the test.
func (b *Fixture) ClientTLS(t testing.TB, s *identity.SVID) *tls.Config {
	t.Helper()
	some := s
	if some == nil {
		some = b.Dev.Client
	}
	source, err := identity.NewSource(some, b.Dev.Bundle)
	Must(t, err)
	conf := source.ClientConfig("")
	if s == nil {
		conf.GetClientCertificate = nil
	}
	return conf
}

// Dialing is a client with exactly these TLS settings.
func (b *Fixture) Dialing(t testing.TB, conf *tls.Config) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: len(conf.NextProtos) == 0}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport: transport, Timeout: Patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// NoNames is an SVID without host names, as a client has it.
func NoNames() identity.SVIDRequest {
	return identity.SVIDRequest{DNSNames: []string{}, IPs: []net.IP{}}
}

// Expired is an SVID of the gateway's own authority that ran out a day ago. The
// authority is opened again with a clock that is behind.
func Expired(t *testing.T, b *Fixture, path string) *identity.SVID {
	t.Helper()
	past := func() time.Time { return time.Now().Add(-48 * time.Hour) }
	former, err := identity.LoadOrCreate(b.Dir, TrustDomain, past)
	Must(t, err)
	return Issue(t, former.Authority, path, identity.SVIDRequest{DNSNames: []string{}, IPs: []net.IP{}, TTL: 24 * time.Hour})
}
