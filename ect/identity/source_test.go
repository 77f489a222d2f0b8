package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// outcome is a handshake as both ends saw it.
type outcome struct {
	server, client       tls.ConnectionState
	serverErr, clientErr error
}

func (o outcome) ok() bool { return o.serverErr == nil && o.clientErr == nil }

// shake runs one handshake. In TLS 1.3 a client learns only from its first read
// that its certificate was refused, so the server ends by sending a byte.
func shake(t *testing.T, server, client *tls.Config) outcome {
	t.Helper()
	here, there := pair(t)
	var out outcome
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn := tls.Server(there, server)
		_, out.serverErr = conn.Write([]byte{1})
		out.server = conn.ConnectionState()
		_ = conn.Close()
	}()
	conn := tls.Client(here, client)
	_, out.clientErr = conn.Read(make([]byte, 1))
	out.client = conn.ConnectionState()
	_ = conn.Close()
	<-done
	return out
}

// pair is a connection with a kernel's buffer between its ends: over net.Pipe
// two peers that write at once, as TLS peers do, would wait for each other.
func pair(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "pair")
		if ends[i], err = net.FileConn(file); err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
		_ = ends[i].SetDeadline(time.Now().Add(10 * time.Second))
	}
	return ends[0], ends[1]
}

func source(t *testing.T, deps SourceDeps) *Source {
	t.Helper()
	if deps.Now == nil {
		deps.Now = at(noon)
	}
	s, err := NewSourceFrom(deps)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func named(config *tls.Config, host string) *tls.Config {
	config.ServerName = host
	return config
}

// parties are a gateway, an agent of its trust domain, and a stranger.
type parties struct {
	own, foreign             *Authority
	trust                    *Bundle
	gateway, agent, stranger *Source
}

func newParties(t *testing.T) parties {
	t.Helper()
	p := parties{own: authority(t, domain), foreign: authority(t, "foreign.org")}
	p.trust = bundleOf(t, p.own)
	local := SVIDRequest{DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}}
	p.gateway = source(t, SourceDeps{SVID: issue(t, p.own, "/gateway", local), Bundle: p.trust})
	p.agent = source(t, SourceDeps{SVID: issue(t, p.own, "/agents/a", SVIDRequest{}), Bundle: p.trust})
	p.stranger = source(t, SourceDeps{SVID: issue(t, p.foreign, "/agents/s", local), Bundle: bundleOf(t, p.foreign)})
	return p
}

func TestServerConfig_ClientCertificates(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	show := func(s *SVID) *tls.Config {
		return &tls.Config{
			MinVersion: tls.VersionTLS13, RootCAs: p.gateway.hostRoots(nil), ServerName: "localhost", Time: at(noon),
			Certificates: []tls.Certificate{s.Certificate()},
		}
	}
	old := issue(t, p.own, "/agents/a", SVIDRequest{TTL: time.Minute})
	late := source(t, SourceDeps{SVID: p.svid(t, "/gateway"), Bundle: p.trust, Now: at(noon.Add(time.Hour))})
	tests := []struct {
		name   string
		server *Source
		client *tls.Config
		peer   ect.Identity
		ok     bool
	}{
		{"our own client", p.gateway, named(p.agent.ClientConfig(""), "localhost"), "spiffe://example.org/agents/a", true},
		{"no certificate", p.gateway, &tls.Config{RootCAs: p.gateway.hostRoots(nil), ServerName: "localhost", Time: at(noon), MinVersion: tls.VersionTLS13}, "", true},
		{"foreign certificate", p.gateway, show(issue(t, p.foreign, "/agents/s", SVIDRequest{})), "", false},
		{"expired certificate", late, show(old), "", false},
		{"certificate without id", p.gateway, show(craft(t, p.own.anchors[0], p.own.key, func(c *x509.Certificate) {
			c.URIs, c.DNSNames = nil, []string{"client"}
		})), "", false},
		{"self-made certificate", p.gateway, show(craft(t, nil, nil, func(*x509.Certificate) {})), "", false},
		{"TLS 1.2", p.gateway, &tls.Config{
			RootCAs: p.gateway.hostRoots(nil), ServerName: "localhost", Time: at(noon), MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12,
		}, "", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			out := shake(t, test.server.ServerConfig(), test.client)
			if out.ok() != test.ok {
				t.Fatalf("server: %v; client: %v", out.serverErr, out.clientErr)
			}
			if !test.ok {
				if out.serverErr == nil {
					t.Error("the server did not refuse")
				}
				return
			}
			peer, known := PeerOf(&out.server)
			if peer.ID != test.peer || known != (test.peer != "") || known != (peer.Key != nil) {
				t.Errorf("peer %q, %v", peer.ID, known)
			}
		})
	}
}

func (p parties) svid(t *testing.T, path string) *SVID {
	t.Helper()
	return issue(t, p.own, path, SVIDRequest{DNSNames: []string{"localhost"}})
}

func TestServerConfig_Resumption(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	server := p.gateway.ServerConfig()
	client := named(p.agent.ClientConfig(""), "localhost")
	client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	if out := shake(t, server, client); !out.ok() {
		t.Fatal(out.serverErr, out.clientErr)
	}
	out := shake(t, server, client)
	if !out.ok() || !out.server.DidResume {
		t.Fatalf("not resumed: %v, %v", out.serverErr, out.clientErr)
	}
	if peer, _ := PeerOf(&out.server); peer.ID != "spiffe://example.org/agents/a" {
		t.Errorf("peer %q", peer.ID)
	}
	p.trust.Trust(bundleOf(t, authority(t, domain)))
	if out := shake(t, server, client); out.serverErr == nil {
		t.Error("a session outlived the anchor that vouched for it")
	}
}

func TestClientConfig_ServerCertificates(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	federated := bundleOf(t, p.own)
	federated.Federate(bundleOf(t, p.foreign))
	friend := source(t, SourceDeps{SVID: issue(t, p.own, "/gateway", SVIDRequest{}), Bundle: federated})
	rooted := source(t, SourceDeps{SVID: issue(t, p.own, "/gateway", SVIDRequest{}), Bundle: p.trust, Roots: p.foreign.anchors})
	late := source(t, SourceDeps{SVID: issue(t, p.own, "/gateway", SVIDRequest{}), Bundle: p.trust, Now: at(noon.Add(2 * DefaultTTL))})
	web := craft(t, p.foreign.anchors[0], p.foreign.key, func(c *x509.Certificate) { c.URIs, c.DNSNames = nil, []string{"localhost"} })
	webServer := &tls.Config{Certificates: []tls.Certificate{web.Certificate()}, MinVersion: tls.VersionTLS13, Time: at(noon)}
	liar := craft(t, p.foreign.anchors[0], p.foreign.key, func(c *x509.Certificate) { c.DNSNames = []string{"localhost"} })
	liarServer := &tls.Config{Certificates: []tls.Certificate{liar.Certificate()}, MinVersion: tls.VersionTLS13, Time: at(noon)}
	old := p.gateway.ServerConfig()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12

	const gateway ect.Identity = "spiffe://example.org/gateway"
	tests := []struct {
		name   string
		server *tls.Config
		client *tls.Config
		ok     bool
	}{
		{"by id", p.gateway.ServerConfig(), p.agent.ClientConfig(gateway), true},
		{"by id under any name", p.gateway.ServerConfig(), named(p.agent.ClientConfig(gateway), "elsewhere"), true},
		{"another id", p.gateway.ServerConfig(), p.agent.ClientConfig("spiffe://example.org/other"), false},
		{"no id at all", p.gateway.ServerConfig(), p.agent.ClientConfig("https://example.org/gateway"), false},
		{"same path, other domain", p.stranger.ServerConfig(), p.agent.ClientConfig("spiffe://example.org/agents/s"), false},
		{"foreign id", p.stranger.ServerConfig(), p.agent.ClientConfig("spiffe://foreign.org/agents/s"), false},
		{"federated id", webless(p.stranger.ServerConfig()), friend.ClientConfig("spiffe://foreign.org/agents/s"), true},
		{"expired, by id", p.gateway.ServerConfig(), late.ClientConfig(gateway), false},
		{"expired, by name", p.gateway.ServerConfig(), named(late.ClientConfig(""), "localhost"), false},
		{"by name", p.gateway.ServerConfig(), named(p.agent.ClientConfig(""), "localhost"), true},
		{"by address", p.gateway.ServerConfig(), named(p.agent.ClientConfig(""), "127.0.0.1"), true},
		{"by IPv6 address", p.gateway.ServerConfig(), named(p.agent.ClientConfig(""), "::1"), true},
		{"another name", p.gateway.ServerConfig(), named(p.agent.ClientConfig(""), "elsewhere"), false},
		{"another address", p.gateway.ServerConfig(), named(p.agent.ClientConfig(""), "127.0.0.2"), false},
		{"unknown web authority", webServer, named(p.agent.ClientConfig(""), "localhost"), false},
		{"configured web authority", webServer, named(rooted.ClientConfig(""), "localhost"), true},
		{"given web authority", webServer, named(p.agent.ClientConfig("", p.foreign.anchors...), "localhost"), true},
		{"federated authority has no say on names", webServer, named(friend.ClientConfig(""), "localhost"), false},
		{"web authority has no say on ids", webServer, rooted.ClientConfig(gateway), false},
		{"web authority lends our id", liarServer, named(rooted.ClientConfig(""), "localhost"), false},
		{"TLS 1.2, by id", old, p.agent.ClientConfig(gateway), false},
		{"TLS 1.2, by name", old, named(p.agent.ClientConfig(""), "localhost"), false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			out := shake(t, test.server, test.client)
			if (out.clientErr == nil) != test.ok {
				t.Fatalf("server: %v; client: %v", out.serverErr, out.clientErr)
			}
			if test.ok && out.client.Version != tls.VersionTLS13 {
				t.Errorf("version %x", out.client.Version)
			}
		})
	}
}

// webless is a server that asks no client for a certificate: who may call it is
// not what the client's tests are about.
func webless(config *tls.Config) *tls.Config {
	config.ClientAuth, config.VerifyConnection = tls.NoClientCert, nil
	return config
}

func TestClientConfig_UnexpectedPeer(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	out := shake(t, p.gateway.ServerConfig(), p.agent.ClientConfig("spiffe://example.org/other"))
	if !errors.Is(out.clientErr, ErrUnexpectedPeer) {
		t.Errorf("got %v", out.clientErr)
	}
}

func TestSource_SystemRoots(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	with := source(t, SourceDeps{SVID: p.svid(t, "/gateway"), Bundle: p.trust, SystemRoots: true})
	out := shake(t, p.gateway.ServerConfig(), named(with.ClientConfig(""), "localhost"))
	if !out.ok() {
		t.Errorf("%v, %v", out.serverErr, out.clientErr)
	}
}

func TestSource_PublicCertificate(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	web := craft(t, p.foreign.anchors[0], p.foreign.key, func(c *x509.Certificate) { c.URIs, c.DNSNames = nil, []string{"public.example"} })
	cert := web.Certificate()
	server := source(t, SourceDeps{SVID: p.svid(t, "/gateway"), Bundle: p.trust, Public: &cert})
	out := shake(t, server.ServerConfig(), named(p.agent.ClientConfig("", p.foreign.anchors...), "public.example"))
	if !out.ok() {
		t.Fatal(out.serverErr, out.clientErr)
	}
	if _, known := PeerOf(&out.client); known {
		t.Error("a web certificate passed for an identity")
	}
}

func TestSource_Renew(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	server := p.gateway.ServerConfig()
	if err := p.gateway.Renew(p.svid(t, "/gateway2")); err != nil {
		t.Fatal(err)
	}
	if out := shake(t, server, p.agent.ClientConfig("spiffe://example.org/gateway2")); !out.ok() {
		t.Error(out.clientErr)
	}
	web := craft(t, p.foreign.anchors[0], p.foreign.key, func(c *x509.Certificate) { c.URIs, c.DNSNames = nil, []string{"public.example"} }).Certificate()
	p.gateway.Show(&web)
	if out := shake(t, server, named(p.agent.ClientConfig("", p.foreign.anchors...), "public.example")); !out.ok() {
		t.Error("the public certificate is not shown:", out.clientErr)
	}
	p.gateway.Show(nil)
	if out := shake(t, server, p.agent.ClientConfig("spiffe://example.org/gateway2")); !out.ok() {
		t.Error("the SVID is not shown again:", out.clientErr)
	}
	if p.gateway.Renew(nil) == nil || p.gateway.Renew(&SVID{}) == nil {
		t.Error("renewed to nothing")
	}
}

func TestPeerOf_NoPeer(t *testing.T) {
	t.Parallel()
	leaf := issue(t, authority(t, domain), "/agents/a", SVIDRequest{}).Chain[0]
	anchor := craft(t, nil, nil, func(c *x509.Certificate) { c.IsCA = true }).Chain[0]
	for name, state := range map[string]*tls.ConnectionState{
		"no connection":  nil,
		"no certificate": {HandshakeComplete: true},
		"no handshake":   {PeerCertificates: []*x509.Certificate{leaf}},
		"an authority":   {HandshakeComplete: true, PeerCertificates: []*x509.Certificate{anchor}},
	} {
		if peer, ok := PeerOf(state); ok {
			t.Errorf("%s: %q", name, peer.ID)
		}
	}
}
