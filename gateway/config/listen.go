package config

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/gateway/transport"
)

// CORS is which pages a browser lets ask the public listener.
type CORS struct {
	Origins []string `yaml:"origins"` // Origins of pages, such as https://app.example.com, at most 64; http only of this machine. No patterns. Default: pages of other origins are refused.
}

// maxOrigins bounds CORS.Origins.
const maxOrigins = 64

func (c CORS) check(say func(path, reason string)) {
	if len(c.Origins) > maxOrigins {
		say("$.cors.origins", "more than "+strconv.Itoa(maxOrigins)+" origins")
	}
	for i, origin := range c.Origins {
		if at := "$.cors.origins[" + strconv.Itoa(i) + "]"; !isOrigin(origin) {
			say(at, strconv.Quote(origin)+" is no origin: expected https://HOST or https://HOST:PORT in small letters, without path or pattern; http of this machine alone")
		} else if slices.Contains(c.Origins[:i], origin) {
			say(at, "stands twice")
		}
	}
}

func isOrigin(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && u.Scheme+"://"+u.Host == text && strings.ToLower(text) == text && !strings.ContainsAny(text, "*@ ") &&
		(u.Scheme == "https" || u.Scheme == "http" && transport.IsLoopback(u.Hostname()))
}

// WithDefaults is where serve listens: an address that is missing is the default one,
// or stays empty if nothing is served there by default.
func (l Listen) WithDefaults() Listen {
	l.Public = cmp.Or(l.Public, ":8443")
	l.Admin = cmp.Or(l.Admin, "127.0.0.1:9443")
	return l
}

// listenAddress is one key of [Listen]; an empty address is one that is not set.
type listenAddress struct{ key, at string }

// streams are the addresses that share the port numbers of TCP.
func (l Listen) streams() []listenAddress {
	return []listenAddress{{"public", l.Public}, {"grpc", l.GRPC}, {"admin", l.Admin}, {"metrics", l.Metrics}, {"uacp", l.UACP}}
}

// check finds addresses that cannot be parsed, and listeners that take each other's
// port, among the addresses that the file names: dev has the others from its flags.
func (l Listen) check(say func(path, reason string)) {
	for _, a := range append(l.streams(), listenAddress{"uacp_udp", l.UACPUDP}) {
		if _, _, ok := splitListen(a.at); a.at != "" && !ok {
			say("$.listen."+a.key, "not an address to listen on, such as :8443 or 127.0.0.1:8443: "+strconv.Quote(a.at))
		}
	}
	l.clashes(func(a, other listenAddress) {
		say("$.listen."+a.key, "the same address as listen."+other.key+" ("+other.at+")")
	})
}

// serve finds listeners that take the port of a default one.
func (l Listen) serve() (errs []error) {
	l.WithDefaults().clashes(func(a, other listenAddress) {
		errs = append(errs, &Error{Reason: "listen." + a.key + ": the same address as listen." + other.key + " (" + other.at + ")"})
	})
	return errs
}

// clashes calls found for each address that an earlier one has taken. Port 0 is any
// free port, so it never clashes.
func (l Listen) clashes(found func(a, other listenAddress)) {
	all := l.streams()
	for i, a := range all {
		at := slices.IndexFunc(all[:i], func(other listenAddress) bool { return sameListen(a.at, other.at) })
		if at >= 0 {
			found(a, all[at])
		}
	}
}

// sameListen reports whether two listeners cannot be opened at the same time. One
// without a host listens on all addresses, and so on that of the other.
func sameListen(a, b string) bool {
	hostA, portA, okA := splitListen(a)
	hostB, portB, okB := splitListen(b)
	return okA && okB && portA != 0 && portA == portB && (hostA == hostB || hostA == "" || hostB == "")
}

// splitListen reads host:port as net.Listen does, but for names of ports. An
// unspecified address is "", localhost its IPv4 address.
func splitListen(address string) (host string, port uint64, ok bool) {
	host, text, err := net.SplitHostPort(address)
	port, bad := strconv.ParseUint(text, 10, 16)
	if err != nil || bad != nil {
		return "", 0, false
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case err == nil && ip.IsUnspecified():
		return "", port, true
	case err == nil:
		return ip.Unmap().String(), port, true
	case strings.EqualFold(host, "localhost"):
		return "127.0.0.1", port, true
	default:
		return strings.ToLower(host), port, host == "" || exactHost(host)
	}
}

// exactHost reports whether a text is what may stand in Host before the port: a host
// name or an IP address, without brackets.
func exactHost(text string) bool {
	if ip, err := netip.ParseAddr(text); err == nil {
		return ip.Zone() == ""
	}
	labels := strings.Split(text, ".")
	if len(text) > 253 || strings.Trim(labels[len(labels)-1], "0123456789") == "" {
		return false // too long, or an address that is none
	}
	return !slices.ContainsFunc(labels, func(label string) bool {
		return label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' || strings.ContainsFunc(label, notInHost)
	})
}

func notInHost(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
}
