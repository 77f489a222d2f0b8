package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Resolver finds the addresses of a name; *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// errTLS refuses a TLS connection whose peer selected none of the protocols offered.
var errTLS = errors.New("egress: the peer speaks none of the protocols offered")

// DialTLS opens a TLS 1.3 connection for bindings that are not HTTP, by the
// same rules. The peer must prove the expected SPIFFE id, if one is given, else
// the host's name. With protocols given, one of them is agreed on (ALPN). The
// caller closes the connection. Errors: *DeniedError, or the network's own.
func (g *Guard) DialTLS(ctx context.Context, hostport string, expected ect.Identity, protocols ...string) (*tls.Conn, error) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, &DeniedError{Host: hostport, Reason: ReasonURL}
	}
	at, ok := newTarget(host, port)
	if !ok {
		return nil, &DeniedError{Host: hostport, Reason: ReasonURL}
	}
	plain, err := g.dial(ctx, "tcp", at, false)
	if err != nil {
		return nil, err
	}
	config := g.tlsConfig(expected)
	config.ServerName, config.NextProtos = at.host, protocols
	return g.handshake(ctx, tls.Client(plain, config), len(protocols) > 0)
}

// DialLoopback opens a connection without TLS, for bindings that are not HTTP,
// in development: AllowLoopbackHTTP must be set, and every address of the host
// be a loopback one that may be called. The caller closes the connection.
// Errors: *DeniedError, or the network's own.
func (g *Guard) DialLoopback(ctx context.Context, hostport string) (net.Conn, error) {
	if !g.config.AllowLoopbackHTTP {
		return nil, &DeniedError{Host: hostport, Reason: ReasonScheme}
	}
	return g.dialer(true)(ctx, "tcp", hostport)
}

// DialDatagrams is DialLoopback for datagrams: each Write sends one, to that peer
// alone, and each Read returns one of its. It sends nothing itself.
func (g *Guard) DialDatagrams(ctx context.Context, hostport string) (net.Conn, error) {
	if !g.config.AllowLoopbackHTTP {
		return nil, &DeniedError{Host: hostport, Reason: ReasonScheme}
	}
	return g.dialer(true)(ctx, "udp", hostport)
}

func (g *Guard) handshake(ctx context.Context, conn *tls.Conn, agreed bool) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, g.config.HandshakeTimeout)
	defer cancel()
	err := conn.HandshakeContext(ctx)
	if err == nil && agreed && conn.ConnectionState().NegotiatedProtocol == "" {
		err = errTLS
	}
	if err != nil {
		return nil, errors.Join(err, conn.NetConn().Close())
	}
	return conn, nil
}

// dialer adapts dial to http.Transport. plain connections, without TLS, go to
// loopback addresses and nowhere else.
func (g *Guard) dialer(plain bool) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, hostport string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(hostport)
		if err != nil {
			return nil, &DeniedError{Host: hostport, Reason: ReasonURL}
		}
		at, ok := newTarget(host, port)
		if !ok {
			return nil, &DeniedError{Host: hostport, Reason: ReasonURL}
		}
		return g.dial(ctx, network, at, plain)
	}
}

// dial resolves once, judges every address, and connects to one of just these.
func (g *Guard) dial(ctx context.Context, network string, at target, plain bool) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, g.config.ConnectTimeout)
	defer cancel()
	if !g.grants.callable(at) {
		return nil, at.denied(ReasonNotListed)
	}
	if g.refuses(at.hostport()) {
		return nil, at.denied(ReasonTaken)
	}
	addresses, err := g.resolve(ctx, at)
	if err != nil {
		return nil, err
	}
	for _, address := range addresses {
		if g.refuses(net.JoinHostPort(address.String(), at.port)) {
			return nil, at.denied(ReasonTaken)
		}
		if reason := g.grants.judge(at, address); reason != "" {
			return nil, at.denied(reason)
		}
		if plain && !address.IsLoopback() {
			return nil, at.denied(ReasonScheme)
		}
	}
	if g.grants.named(at) {
		g.reached.add(at, addresses)
	}
	return g.connect(ctx, network, at, addresses)
}

// resolve gives a host's addresses, IPv4 ones as such: resolvers write them as
// IPv4-mapped, and to connect to either form is the same.
func (g *Guard) resolve(ctx context.Context, at target) ([]netip.Addr, error) {
	if at.address.IsValid() {
		return []netip.Addr{at.address}, nil
	}
	found, err := g.resolver.LookupNetIP(ctx, "ip", at.host)
	if err != nil {
		return nil, fmt.Errorf("egress: resolve %s: %w", at.host, err)
	}
	addresses := make([]netip.Addr, len(found))
	for i, address := range found {
		addresses[i] = address.Unmap()
	}
	if len(addresses) == 0 {
		return nil, at.denied(ReasonNoAddress)
	}
	return addresses, nil
}

// connect tries the addresses in the resolver's order. Each but the last gets
// half of what time is left, so that one dead address does not use it all up.
func (g *Guard) connect(ctx context.Context, network string, at target, addresses []netip.Addr) (net.Conn, error) {
	var errs []error
	for i, address := range addresses {
		conn, err := g.try(ctx, network, net.JoinHostPort(address.String(), at.port), i == len(addresses)-1)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("egress: connect to %s: %w", at.host, errors.Join(errs...))
}

func (g *Guard) try(ctx context.Context, network, address string, last bool) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok && !last {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	return g.network(ctx, network, address)
}

func (t target) denied(reason Reason) error {
	return &DeniedError{Host: t.hostport(), Reason: reason}
}
