package main

import (
	"net"
	"net/netip"
	"net/url"
	"slices"

	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
)

// guards judge what leaves, each for its own kind of calls.
type guards struct {
	agents    *egress.Guard // what goes to listed agents and peers
	documents *egress.Guard // fetches capability documents that callers name
	hooks     *egress.Guard // of webhooks and callbacks; nil: not made yet
	programs  *stdio.Host   // runs the programs of agents
}

// openGuards makes the guard of what goes to listed agents and peers, and that of
// capability documents that callers name, to which nothing of that is open.
func (out *service) openGuards() error {
	s := out.settings
	settings := egress.Config{AllowLoopbackHTTP: s.dev}
	var err error
	if out.guards.agents, err = egress.New(egress.Deps{TLS: s.source, Config: settings}); err != nil {
		return err
	}
	if out.escalations, err = newEscalations(s); err != nil {
		return err
	}
	out.guards.documents, err = egress.New(egress.Deps{TLS: s.source, Config: settings, Refuses: s.listensAt})
	if err != nil {
		return err
	}
	out.close = append(out.close, func() error { out.guards.agents.CloseIdle(); out.guards.documents.CloseIdle(); return nil })
	return nil
}

// webhooks is the guard of what is posted to URLs that callers name. What the
// operator opens toward agents is not open to them, no client certificate is
// shown, and nothing is posted to listed agents, peers or this gateway itself:
// they would take a post for the gateway's own word.
func (out *service) webhooks() (*egress.Guard, error) {
	if out.guards.hooks != nil {
		return out.guards.hooks, nil
	}
	s := out.settings
	settings := egress.Config{AllowLoopbackHTTP: s.dev}
	if s.dev {
		settings.AllowPrivate = []string{"127.0.0.0/8", "::1/128"}
	}
	guard, err := egress.New(egress.Deps{
		TLS: s.source, Config: settings, Anonymous: true,
		Refuses: func(at string) bool {
			return s.listensAt(at) || out.guards.agents.Reached(at) || out.directory != nil && out.directory.Taken(at)
		},
	})
	if err != nil {
		return nil, err
	}
	out.guards.hooks = guard
	out.close = append(out.close, func() error { guard.CloseIdle(); return nil })
	return guard, nil
}

// listensAt reports whether "host:port", in the form of egress.Canonical, is one
// at which this gateway is reached: a published name, or any address of this
// machine with the port of one of our listeners.
func (s settings) listensAt(at string) bool {
	own := slices.Clone(s.listens)
	if public, err := url.Parse(s.publicURL); err == nil && public.Host != "" {
		own = append(own, hostOf(public))
	}
	if rpc := s.publicGRPC(); rpc != "" {
		own = append(own, rpc)
	}
	for _, l := range []net.Listener{s.grpc, s.uacp} {
		if l != nil {
			own = append(own, l.Addr().String())
		}
	}
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return false
	}
	for _, one := range own {
		name, _ := egress.Canonical(one)
		_, listens, err := net.SplitHostPort(one)
		if name == at || err == nil && listens == port && (slices.Contains(s.hosts, host) || ofThisMachine(host)) {
			return true
		}
	}
	return false
}

// hostOf is the host and port of an https URL.
func hostOf(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), "443")
}

// ofThisMachine reports whether a host is an address of this machine; each address is,
// if the system does not tell which are.
func ofThisMachine(host string) bool {
	address, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	if address.IsLoopback() || address.IsUnspecified() {
		return true
	}
	local, err := net.InterfaceAddrs()
	return err != nil || slices.ContainsFunc(local, func(a net.Addr) bool {
		network, ok := a.(*net.IPNet)
		if !ok {
			return false
		}
		own, ok := netip.AddrFromSlice(network.IP)
		return ok && own.Unmap() == address
	})
}
