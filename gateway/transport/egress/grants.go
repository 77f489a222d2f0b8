package egress

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
)

// grants is what the operator has allowed. Those of the configuration stay;
// those of Allow are counted, because several agents may share a host.
type grants struct {
	listed   []string       // AllowHosts; empty: every host
	networks []netip.Prefix // AllowPrivate, CIDRs
	fixed    map[string]bool

	mu      sync.RWMutex
	counted map[string]int
}

func newGrants(config Config) (*grants, error) {
	g := &grants{fixed: map[string]bool{}, counted: map[string]int{}}
	for _, entry := range config.AllowHosts {
		name, ok := Canonical(strings.TrimPrefix(entry, "*."))
		if !ok {
			return nil, fmt.Errorf("egress: allowed host %q is neither host, host:port nor *.domain", entry)
		}
		if strings.HasPrefix(entry, "*.") {
			name = "*." + name
		}
		g.listed = append(g.listed, name)
	}
	for _, entry := range config.AllowPrivate {
		if network, err := netip.ParsePrefix(entry); err == nil {
			g.networks = append(g.networks, network.Masked())
			continue
		}
		name, ok := Canonical(entry)
		if !ok {
			return nil, fmt.Errorf("egress: allowed private host %q is neither host, host:port nor CIDR", entry)
		}
		g.fixed[name] = true
	}
	return g, nil
}

// add counts a grant; one that names no host grants nothing.
func (g *grants) add(hostport string) {
	if name, ok := Canonical(hostport); ok {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.counted[name]++
	}
}

// remove says whether that was the last one of its name.
func (g *grants) remove(hostport string) bool {
	name, ok := Canonical(hostport)
	if !ok {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.counted[name] > 1 {
		g.counted[name]--
		return false
	}
	_, counted := g.counted[name]
	delete(g.counted, name)
	return counted
}

// named says whether the operator has allowed this very host.
func (g *grants) named(at target) bool {
	if g.fixed[at.host] || g.fixed[at.hostport()] {
		return true
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.counted[at.host] > 0 || g.counted[at.hostport()] > 0
}

// callable says whether the host may be called at all, whatever its addresses.
func (g *grants) callable(at target) bool {
	if len(g.listed) == 0 || g.named(at) {
		return true
	}
	for _, entry := range g.listed {
		below, wild := strings.CutPrefix(entry, "*")
		if entry == at.host || entry == at.hostport() {
			return true
		}
		if wild && (strings.HasSuffix(at.host, below) || strings.HasSuffix(at.hostport(), below)) {
			return true
		}
	}
	return false
}

// judge says why one address of a host may not be called; empty: it may.
func (g *grants) judge(at target, address netip.Addr) Reason {
	reason := classify(address)
	if reason == "" || reason == ReasonMulticast || reason == ReasonUnspecified || reason == ReasonMapped {
		return reason
	}
	for _, network := range g.networks {
		if network.Contains(address) {
			return ""
		}
	}
	if !g.named(at) {
		return reason
	}
	// The DNS server of a name chooses its addresses, and could grant itself these classes.
	if !at.address.IsValid() && (reason == ReasonMetadata || reason == ReasonLinkLocal) {
		return reason
	}
	return ""
}

// target is a host to call, in the one form that grants and pools know.
type target struct {
	host    string     // lower case, no final dot, no brackets
	port    string     // "443"
	address netip.Addr // of a host that is an address; zero: it is a name
}

func (t target) hostport() string { return net.JoinHostPort(t.host, t.port) }

// newTarget reads a host and port; false for what is no plain host name,
// address or port.
func newTarget(host, port string) (target, bool) {
	name, address, ok := canonicalHost(host)
	if !ok || !plainPort(port) {
		return target{}, false
	}
	return target{host: name, port: port, address: address}, true
}

// meaning is the address of a host that is an address in any form, or a name that means
// one wherever it is resolved; false: only a resolver can tell. The zero address: the host
// is a number and no address, and numbers are no names.
func (t target) meaning() (netip.Addr, bool) {
	if t.address.IsValid() {
		return t.address, true
	}
	if address, ok := fixedNames[t.host]; ok {
		return address, true
	}
	if strings.HasSuffix(t.host, ".localhost") { // RFC 6761, section 6.3
		return fixedNames["localhost"], true
	}
	return numeric(t.host)
}

// fixedNames are names that mean an address by convention, and stand in the hosts file
// of many systems.
var fixedNames = map[string]netip.Addr{
	"localhost": netip.AddrFrom4([4]byte{127, 0, 0, 1}), "localhost.localdomain": netip.AddrFrom4([4]byte{127, 0, 0, 1}),
	"localhost6": netip.IPv6Loopback(), "ip6-localhost": netip.IPv6Loopback(), "ip6-loopback": netip.IPv6Loopback(),
	"metadata.google.internal": netip.AddrFrom4([4]byte{169, 254, 169, 254}),
}

// numeric reads an IPv4 address as inet_aton does, which many resolvers take for a name:
// one to four numbers, decimal, octal or hexadecimal, of which the last fills what is left.
// False: the host does not end in a number. The zero address: it does, and is none.
func numeric(host string) (netip.Addr, bool) {
	parts := strings.Split(host, ".")
	last := len(parts) - 1
	hexadecimal, isHex := strings.CutPrefix(parts[last], "0x")
	if strings.Trim(parts[last], digits) != "" && (!isHex || strings.Trim(hexadecimal, digits+"abcdef") != "") {
		return netip.Addr{}, false
	}
	if last > 3 {
		return netip.Addr{}, true
	}
	var value uint64
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 0, 32)
		if err != nil || i < last && n > 255 || i == last && n >= 1<<(8*(4-last)) {
			return netip.Addr{}, true
		}
		if i < last {
			n <<= 8 * (3 - i)
		}
		value |= n
	}
	return netip.AddrFrom4([4]byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)}), true
}

const digits = "0123456789"

// Canonical writes "host:port" or "host" in the one form by which destinations
// are compared: lower case, without a final dot, addresses in their shortest
// form, "[address]:port" before a port. False: it names no host.
func Canonical(hostport string) (string, bool) {
	if host, port, err := net.SplitHostPort(hostport); err == nil {
		at, ok := newTarget(host, port)
		return at.hostport(), ok
	}
	name, _, ok := canonicalHost(strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]"))
	return name, ok
}

// canonicalHost is strict: letters, digits, hyphen, underscore and dot, or an
// address. Names in other scripts come in their ASCII form (RFC 5891).
func canonicalHost(host string) (string, netip.Addr, bool) {
	if address, err := netip.ParseAddr(host); err == nil {
		return address.String(), address, true
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if name == "" || len(name) > 253 {
		return "", netip.Addr{}, false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' {
			return "", netip.Addr{}, false
		}
	}
	return name, netip.Addr{}, true
}

func plainPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16) // which takes digits alone
	return err == nil && n > 0
}
