package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
)

// ClientTLS makes the TLS configuration toward a peer: with an expected id the
// peer must prove that id, without one its host name. *identity.Source is one.
type ClientTLS interface {
	ClientConfig(expected ect.Identity, roots ...*x509.Certificate) *tls.Config
}

var _ ClientTLS = (*identity.Source)(nil)

// Deps is what a Guard needs.
type Deps struct {
	TLS      ClientTLS // required
	Config   Config
	Resolver Resolver // nil: the system's
	// Refuses names destinations that may not be called whatever is allowed, in
	// the form of [Canonical]: it is asked for each host and port, and for each
	// address that the host resolves to, with that port. Nil: there are none.
	Refuses func(hostport string) bool
	// Anonymous: servers are shown no client certificate.
	Anonymous bool
	// Credentials say what requests show besides; nil: nothing.
	Credentials Credentials
	// Plain reports whether a host and port, in the form of [Canonical], is reached without TLS. It must be one of
	// loopback. Nil: only what Config allows.
	Plain func(hostport string) bool
}

// errNoTLS: without a TLS configuration a guard could authenticate no peer.
var errNoTLS = errors.New("egress: Config without a TLS configuration, expected one")

// Guard is the guarded client of everything that leaves. Safe for concurrent
// use. Anchors for host names are those of the moment when an expected
// identity was first used; SPIFFE ids are judged by the bundle as it is.
type Guard struct {
	tls      ClientTLS
	config   Config
	grants   *grants
	resolver Resolver
	refuses  func(hostport string) bool
	anon     bool
	reached  reached  // addresses of hosts that the operator named
	failures failures // of posts to hosts that callers named
	network  func(ctx context.Context, network, address string) (net.Conn, error)
	plain    *pool // http toward loopback; nil: refused
	plain2   *pool // the same in HTTP/2 alone
	isPlain  func(hostport string) bool

	credentials Credentials // nil: there are none

	mu    sync.Mutex
	clock uint64 // counts uses, to find the pool used least recently
	pools map[poolKey]*pool
}

// poolKey is what the handshakes of connections have in common.
type poolKey struct {
	expected    ect.Identity
	certificate string // that is shown; empty: the gateway's own
}

// pool is the connections that were made expecting one identity and showing one certificate. They are not
// shared with other expectations: the proof is given in the handshake.
type pool struct {
	transport *http.Transport
	direct    *direct // to servers of HTTP/1.1; nil: to none
	used      uint64
}

// send sends a request and reads its response: directly if it suits that, and its server speaks
// HTTP/1.1.
func (p *pool) send(r *http.Request) (*http.Response, error) {
	if p.direct == nil || !suits(r) {
		return p.transport.RoundTrip(r)
	}
	if p.direct.knows(r.URL.Host) {
		return p.direct.RoundTrip(r)
	}
	response, err := p.transport.RoundTrip(r)
	if err == nil {
		p.direct.learn(r.URL.Host, response)
	}
	return response, err
}

// closeIdle closes the connections that are not in use; for good: those in use follow.
func (p *pool) closeIdle(forGood bool) {
	p.transport.CloseIdleConnections()
	if p.direct != nil {
		p.direct.closeIdle(forGood)
	}
}

// New makes a Guard. It fails for entries of the configuration that name no host.
func New(deps Deps) (*Guard, error) {
	if deps.TLS == nil {
		return nil, errNoTLS
	}
	allowed, err := newGrants(deps.Config)
	if err != nil {
		return nil, err
	}
	g := &Guard{
		tls: deps.TLS, config: deps.Config.withDefaults(), grants: allowed, resolver: deps.Resolver,
		network: (&net.Dialer{}).DialContext, pools: map[poolKey]*pool{},
		refuses: deps.Refuses, anon: deps.Anonymous, credentials: deps.Credentials, isPlain: deps.Plain,
	}
	if g.refuses == nil {
		g.refuses = func(string) bool { return false }
	}
	g.resolver = cmp.Or[Resolver](g.resolver, net.DefaultResolver)
	if g.config.AllowLoopbackHTTP {
		g.isPlain = func(string) bool { return true }
	}
	if g.isPlain != nil {
		g.plain, g.plain2 = g.newPool(nil), &pool{transport: g.newTransport(nil)}
		g.plain2.transport.Protocols = new(http.Protocols)
		g.plain2.transport.Protocols.SetUnencryptedHTTP2(true)
	}
	return g, nil
}

// DoAs sends a request to a server that must prove the expected SPIFFE id;
// empty: its host name. The request is not changed: a copy without credentials of its own
// is sent, with those of Deps.Credentials. One of HTTP/2 (ProtoMajor) without TLS is sent in that and no other;
// with TLS the server decides. A redirect comes back as it is. Errors: *DeniedError, when nothing
// was sent; the request's context's, also for a response or the end of a body
// that came after the request ended; identity.ErrUnexpectedPeer; the network's
// own. The caller closes the response's body.
func (g *Guard) DoAs(request *http.Request, expected ect.Identity) (*http.Response, error) {
	pool, err := g.admit(request, expected)
	if err != nil {
		if request.Body != nil {
			err = errors.Join(err, request.Body.Close())
		}
		return nil, err
	}
	response, err := g.send(request, expected, pool)
	return countBody(request.Context(), response, err)
}

// Allow lets a host be called although its addresses are private: "host:port"
// or "host". Grants are counted; each is taken back by one Disallow. What names
// no host allows nothing.
func (g *Guard) Allow(hostport string) { g.grants.add(hostport) }

// Disallow takes one Allow back. With the last one the host's pooled
// connections are given up too; requests in flight end in peace.
func (g *Guard) Disallow(hostport string) {
	if g.grants.remove(hostport) {
		g.dropPools()
	}
}

// Renew has every new connection use the TLS configuration as it is now: trust
// anchors for host names are read when a pool is made. Requests in flight end in
// peace.
func (g *Guard) Renew() { g.dropPools() }

// CloseIdle closes the connections that are not in use.
func (g *Guard) CloseIdle() {
	g.closePlain()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.pools {
		p.closeIdle(false)
	}
}

// admit judges what can be judged before dialing. A pooled connection is not
// dialed again, so what may be called is asked here too.
func (g *Guard) admit(request *http.Request, expected ect.Identity) (*pool, error) {
	url := request.URL
	if url == nil || url.Host == "" || url.Opaque != "" {
		return nil, &DeniedError{Reason: ReasonURL}
	}
	at, ok := newTarget(url.Hostname(), portOf(url.Port(), url.Scheme))
	switch {
	case !ok:
		return nil, &DeniedError{Host: url.Host, Reason: ReasonURL}
	case url.User != nil:
		return nil, at.denied(ReasonCredentials)
	case !g.grants.callable(at):
		return nil, at.denied(ReasonNotListed)
	case g.refuses(at.hostport()):
		return nil, at.denied(ReasonTaken)
	case url.Scheme == "https":
		return g.pool(poolKey{expected: expected}, nil), nil
	case url.Scheme == "http" && g.plainTo(at) && expected == "":
		if request.ProtoMajor == 2 {
			return g.plain2, nil
		}
		return g.plain, nil // dial sees to it that the address is loopback
	}
	return nil, at.denied(ReasonScheme)
}

// plainTo reports whether a host may be called without TLS.
func (g *Guard) plainTo(at target) bool {
	return g.plain != nil && g.isPlain(at.hostport()) && (at.address.IsLoopback() || at.host == "localhost")
}

func portOf(port, scheme string) string {
	switch {
	case port != "":
		return port
	case scheme == "http":
		return "80"
	}
	return "443"
}

// bare copies a request without headers that may hold a caller's credential. What a
// peer needs to know about the caller is in the execution context.
func bare(request *http.Request) *http.Request {
	out := request.WithContext(request.Context())
	out.Host = ""
	out.Header = make(http.Header, len(request.Header))
	for name, values := range request.Header {
		if !credential(name) {
			out.Header[name] = values
		}
	}
	return out
}

func credential(name string) bool {
	return strings.EqualFold(name, "authorization") || strings.EqualFold(name, "cookie") ||
		begins(name, "proxy-") || begins(name, "workload-")
}

func begins(name, prefix string) bool {
	return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
}

// pool returns the pool of a key, whose connections show a certificate (nil: the gateway's own). If there is none it
// makes one, and evicts the least recently used pool when there are too many.
func (g *Guard) pool(key poolKey, shown *tls.Certificate) *pool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.clock++
	if p, ok := g.pools[key]; ok {
		p.used = g.clock
		return p
	}
	if len(g.pools) >= g.config.MaxIdentities {
		g.evict()
	}
	config := g.tlsConfig(key.expected)
	if shown != nil {
		config.Certificates = nil
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return shown, nil }
	}
	p := g.newPool(config)
	p.used = g.clock
	g.pools[key] = p
	return p
}

func (g *Guard) evict() {
	var oldest poolKey
	for id, p := range g.pools {
		if o, ok := g.pools[oldest]; !ok || p.used < o.used {
			oldest = id
		}
	}
	g.pools[oldest].closeIdle(true)
	delete(g.pools, oldest)
}

// dropPools gives up all pools rather than one host's, which http.Transport
// cannot; new ones are made on the next use.
func (g *Guard) dropPools() {
	g.mu.Lock()
	old := g.pools
	g.pools = map[poolKey]*pool{}
	g.mu.Unlock()
	for _, p := range old {
		p.closeIdle(true)
	}
	g.closePlain()
}

func (g *Guard) closePlain() {
	if g.plain != nil {
		g.plain.closeIdle(false)
		g.plain2.closeIdle(false)
	}
}

// newPool makes a pool; without TLS configuration it is the plain one.
func (g *Guard) newPool(config *tls.Config) *pool {
	d := &direct{dial: g.dialer(config == nil), bounds: g.config, idle: map[string][]*directConn{}, known: map[string]bool{}}
	if config != nil {
		own := config.Clone()
		own.NextProtos = []string{"http/1.1"}
		d.secure = func(ctx context.Context, plain net.Conn, host string) (*tls.Conn, error) {
			to := own.Clone()
			to.ServerName = host
			return g.handshake(ctx, tls.Client(plain, to), false)
		}
	}
	return &pool{transport: g.newTransport(config), direct: d}
}

// newTransport makes what net/http sends with; without TLS configuration it is the plain one.
func (g *Guard) newTransport(config *tls.Config) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(config != nil)
	return &http.Transport{
		Proxy:                  nil, // not even the environment's
		DialContext:            g.dialer(config == nil),
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    g.config.HandshakeTimeout,
		ResponseHeaderTimeout:  g.config.HeaderTimeout,
		MaxResponseHeaderBytes: maxResponseHeader,
		WriteBufferSize:        bufferSize,
		ReadBufferSize:         bufferSize,
		IdleConnTimeout:        g.config.IdleTimeout,
		MaxIdleConns:           g.config.MaxIdle,
		MaxIdleConnsPerHost:    g.config.MaxIdlePerHost,
		DisableCompression:     true,
		Protocols:              protocols,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingLimit, MaxReceiveBufferPerStream: receiveBuffer},
	}
}

// tlsConfig sets TLS 1.3 itself and does not rely on the given configuration.
func (g *Guard) tlsConfig(expected ect.Identity) *tls.Config {
	config := g.tls.ClientConfig(expected).Clone()
	config.MinVersion = tls.VersionTLS13
	config.MaxVersion = 0
	if g.anon {
		config.Certificates, config.GetClientCertificate = nil, nil
	}
	return config
}

// Over is a client of net/http, for libraries that want one, whose every request
// goes through do. It follows no redirect and keeps no cookie.
func Over(do func(*http.Request) (*http.Response, error)) *http.Client {
	return &http.Client{
		Transport:     tripper(do),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type tripper func(*http.Request) (*http.Response, error)

// RoundTrip is http.RoundTripper.
func (t tripper) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }
