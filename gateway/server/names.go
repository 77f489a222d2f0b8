package server

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	tuacp "github.com/aepb/aepb-gateway/gateway/transport/uacp"
)

// ours reports whether a host name, without its port, is one of our names.
func (s Config) ours(name string) bool {
	public, err := url.Parse(s.Names.URL)
	return slices.Contains(s.Names.Hosts, name) || err == nil && name != "" && strings.EqualFold(public.Hostname(), name)
}

// AgentURL is where a caller reaches an agent.
func (s Config) AgentURL(r *http.Request, agent string) string {
	return s.BaseURL(r) + "/agents/" + agent
}

const defaultPort = "443"

// hostPort splits a Host header; without a port it is that of https.
func hostPort(host string) (name, port string) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = host, defaultPort
	}
	return strings.Trim(name, "[]"), port
}

// BaseURL is where this caller reaches us: its own Host header if that is one of
// our names at a port where we listen or are published, else what the operator
// said. A foreign Host never gets into a card, nor does a foreign port of our own.
func (s Config) BaseURL(r *http.Request) string {
	if r.Host == strings.TrimPrefix(s.Names.URL, "https://") {
		return s.Names.URL
	}
	name, port := hostPort(r.Host)
	if !slices.Contains(s.Names.Hosts, name) || !slices.Contains(s.publicPorts(), port) {
		return s.Names.URL
	}
	host := net.JoinHostPort(name, port)
	if port == defaultPort {
		host = strings.TrimSuffix(host, ":"+defaultPort)
	}
	return "https://" + host
}

// publicPorts are where we are published, and where we listen.
func (s Config) publicPorts() []string {
	ports := []string{portOf(s.Sockets.Public)}
	if public, err := url.Parse(s.Names.URL); err == nil {
		_, port := hostPort(public.Host)
		ports = append(ports, port)
	}
	return ports
}

// portOf is the port that a listener listens at; empty: it has none, or is nil.
func portOf(l net.Listener) (port string) {
	if l != nil {
		_, port, _ = net.SplitHostPort(l.Addr().String()) // nothing of what is no host and port
	}
	return port
}

// listensAt reports whether "host:port", in the form of egress.Canonical, is one
// at which this gateway is reached: a published name, or any address of this
// machine with the port of one of our listeners.
func (s Config) listensAt(at string) bool {
	var own []string
	if public, err := url.Parse(s.Names.URL); err == nil && public.Host != "" {
		own = append(own, net.JoinHostPort(hostPort(public.Host)))
	}
	if rpc := s.publicGRPC(); rpc != "" {
		own = append(own, rpc)
	}
	for _, l := range s.Sockets.listeners() {
		own = append(own, l.Addr().String())
	}
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return false
	}
	for _, one := range own {
		name, _ := egress.Canonical(one)
		_, listens, err := net.SplitHostPort(one)
		if name == at || err == nil && listens == port && (slices.Contains(s.Names.Hosts, host) || ofThisMachine(host)) {
			return true
		}
	}
	return false
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

// publicGRPC is where callers reach it, as cards say it; empty: it is off.
func (s Config) publicGRPC() string {
	if s.Sockets.GRPC == nil {
		return ""
	}
	if s.Settings.PublicRPC != "" {
		return s.Settings.PublicRPC
	}
	_, port, err := net.SplitHostPort(s.Sockets.GRPC.Addr().String())
	public, bad := url.Parse(s.Names.URL)
	if err != nil || bad != nil {
		return ""
	}
	return net.JoinHostPort(public.Hostname(), port)
}

// mcpPath is the path of an agent's MCP endpoint as clients see it.
func (s Config) mcpPath(r *http.Request) string {
	at, err := url.Parse(s.AgentURL(r, url.PathEscape(r.PathValue("agent"))))
	if err != nil { // of a configuration that was checked
		return ""
	}
	return at.EscapedPath() + "/mcp"
}

// hosts are the names that we answer to.
func hosts(c config.Config) ([]string, error) {
	u, err := url.Parse(c.PublicURL)
	if err != nil || u.Scheme != "https" || u.Host == "" || (u.Path != "" && u.Path != "/") {
		return nil, errors.New("not an https URL without a path")
	}
	return append([]string{u.Hostname(), "localhost", "127.0.0.1", "::1"}, c.Admin.Hosts...), nil
}

// Sockets are what a gateway listens on. A [Server] closes them.
type Sockets struct {
	Public, Admin       net.Listener   // a gateway that runs has both
	GRPC, Metrics, UACP net.Listener   // nil: off
	Datagrams           net.PacketConn // nil: µACP is not taken in datagrams
}

// Listen listens wherever there is an address. On an error nothing stays open.
func Listen(l config.Listen) (s Sockets, err error) {
	for _, one := range []struct {
		at, say string // where it is said
		to      *net.Listener
	}{
		{l.Public, "--addr, or listen.public", &s.Public},
		{l.Admin, "--admin-addr, or listen.admin", &s.Admin},
		{l.GRPC, "listen.grpc", &s.GRPC},
		{l.Metrics, "listen.metrics", &s.Metrics},
		{l.UACP, "--uacp-addr, or listen.uacp", &s.UACP},
	} {
		if one.at == "" {
			continue
		}
		if *one.to, err = net.Listen("tcp", one.at); err != nil {
			return Sockets{}, errors.Join(taken(err, one.at, one.say), s.Close())
		}
	}
	return s, nil
}

// taken says what to do about an address at which something else listens.
func taken(err error, at, say string) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is in use: give another address with %s, or stop what listens there: %w", at, say, err)
	}
	return err
}

// Close closes all of them.
func (s Sockets) Close() error {
	var errs []error
	if s.Datagrams != nil {
		errs = append(errs, s.Datagrams.Close())
	}
	for _, l := range s.listeners() {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

func (s Sockets) listeners() []net.Listener {
	return slices.DeleteFunc([]net.Listener{s.Public, s.Admin, s.GRPC, s.Metrics, s.UACP}, func(l net.Listener) bool { return l == nil })
}

// Addresses is where they are reached.
func (s Sockets) Addresses() Addresses {
	a := Addresses{Public: "https://" + s.Public.Addr().String(), Admin: "https://" + s.Admin.Addr().String()}
	if s.UACP != nil {
		a.UACP = tuacp.Scheme + "://" + s.UACP.Addr().String()
	}
	if s.Metrics != nil {
		a.Metrics = "http://" + s.Metrics.Addr().String()
	}
	return a
}

// Addresses is where a gateway listens; aepbctl --dir reads them.
type Addresses struct {
	Public  string `json:"public"`
	Admin   string `json:"admin"`
	UACP    string `json:"uacp,omitempty"`
	Metrics string `json:"metrics,omitempty"`
}
