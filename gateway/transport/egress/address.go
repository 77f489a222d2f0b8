package egress

import "net/netip"

// Reason says why a destination is refused.
type Reason string

// The reasons. The second group are address classes.
const (
	ReasonURL         Reason = "not an absolute URL with a plain host name"
	ReasonScheme      Reason = "only https is allowed"
	ReasonCredentials Reason = "credentials in the URL"
	ReasonNotListed   Reason = "host is not on the list of allowed hosts"
	ReasonNoAddress   Reason = "host has no address"
	ReasonTaken       Reason = "address of a listed agent, of a peer gateway or of this gateway"
	ReasonFailing     Reason = "host has refused too many posts lately"

	ReasonUnspecified   Reason = "unspecified address"
	ReasonLoopback      Reason = "loopback address"
	ReasonPrivate       Reason = "private address"
	ReasonLinkLocal     Reason = "link-local address"
	ReasonMetadata      Reason = "cloud metadata address"
	ReasonShared        Reason = "carrier-grade NAT address"
	ReasonMulticast     Reason = "multicast or broadcast address"
	ReasonDocumentation Reason = "documentation address"
	ReasonReserved      Reason = "reserved address"
	ReasonTranslated    Reason = "address of an IPv4/IPv6 translation"
	ReasonMapped        Reason = "IPv4-mapped IPv6 address"
)

// DeniedError refuses a destination that may not be called. Nothing was sent.
type DeniedError struct {
	Host   string // as in the URL, with port if it had one
	Reason Reason
	// Evident: the reason stands in the URL, so that who wrote it may know it. It says
	// nothing about networks, agents or the configuration.
	Evident bool
}

func (e *DeniedError) Error() string { return "egress to " + e.Host + " denied: " + string(e.Reason) }

// class is a range of addresses that are not the public internet.
type class struct {
	addresses netip.Prefix
	reason    Reason
}

// classes is searched from the top: single addresses before the ranges they
// are in. Sources: IANA's special-purpose registries for IPv4 and IPv6 (RFC
// 6890), and the documentation of the cloud providers for metadata.
var classes = []class{
	{netip.MustParsePrefix("169.254.169.254/32"), ReasonMetadata}, // most providers
	{netip.MustParsePrefix("169.254.170.2/32"), ReasonMetadata},   // container credentials, AWS
	{netip.MustParsePrefix("169.254.170.23/32"), ReasonMetadata},  // pod credentials, AWS
	{netip.MustParsePrefix("fd00:ec2::/32"), ReasonMetadata},      // AWS over IPv6
	{netip.MustParsePrefix("fd20:ce::254/128"), ReasonMetadata},   // Google over IPv6
	{netip.MustParsePrefix("100.100.100.200/32"), ReasonMetadata}, // Alibaba
	{netip.MustParsePrefix("192.0.0.192/32"), ReasonMetadata},     // Oracle, classic
	{netip.MustParsePrefix("168.63.129.16/32"), ReasonMetadata},   // Azure's wire server, a public address by its look

	{netip.MustParsePrefix("0.0.0.0/8"), ReasonUnspecified},
	{netip.MustParsePrefix("10.0.0.0/8"), ReasonPrivate},
	{netip.MustParsePrefix("100.64.0.0/10"), ReasonShared},
	{netip.MustParsePrefix("127.0.0.0/8"), ReasonLoopback},
	{netip.MustParsePrefix("169.254.0.0/16"), ReasonLinkLocal},
	{netip.MustParsePrefix("172.16.0.0/12"), ReasonPrivate},
	{netip.MustParsePrefix("192.0.0.0/24"), ReasonReserved},
	{netip.MustParsePrefix("192.0.2.0/24"), ReasonDocumentation},
	{netip.MustParsePrefix("192.88.99.0/24"), ReasonTranslated}, // 6to4 relays
	{netip.MustParsePrefix("192.168.0.0/16"), ReasonPrivate},
	{netip.MustParsePrefix("198.18.0.0/15"), ReasonReserved}, // benchmarks
	{netip.MustParsePrefix("198.51.100.0/24"), ReasonDocumentation},
	{netip.MustParsePrefix("203.0.113.0/24"), ReasonDocumentation},
	{netip.MustParsePrefix("224.0.0.0/4"), ReasonMulticast},
	{netip.MustParsePrefix("255.255.255.255/32"), ReasonMulticast},
	{netip.MustParsePrefix("240.0.0.0/4"), ReasonReserved},

	{netip.MustParsePrefix("::/128"), ReasonUnspecified},
	{netip.MustParsePrefix("::1/128"), ReasonLoopback},
	{netip.MustParsePrefix("::/96"), ReasonTranslated}, // IPv4-compatible
	{netip.MustParsePrefix("64:ff9b::/96"), ReasonTranslated},
	{netip.MustParsePrefix("64:ff9b:1::/48"), ReasonTranslated},
	{netip.MustParsePrefix("2001::/32"), ReasonTranslated}, // Teredo
	{netip.MustParsePrefix("2001:db8::/32"), ReasonDocumentation},
	{netip.MustParsePrefix("2001::/23"), ReasonReserved},
	{netip.MustParsePrefix("2002::/16"), ReasonTranslated}, // 6to4
	{netip.MustParsePrefix("3fff::/20"), ReasonDocumentation},
	{netip.MustParsePrefix("fc00::/7"), ReasonPrivate},
	{netip.MustParsePrefix("fe80::/10"), ReasonLinkLocal},
	{netip.MustParsePrefix("fec0::/10"), ReasonPrivate}, // site-local, withdrawn
	{netip.MustParsePrefix("ff00::/8"), ReasonMulticast},
}

// global is the only part of IPv6 from which public addresses are handed out.
var global = netip.MustParsePrefix("2000::/3")

// classify says why an address is not a public one; empty: it is.
func classify(address netip.Addr) Reason {
	switch {
	case !address.IsValid():
		return ReasonUnspecified
	case address.Is4In6():
		return ReasonMapped
	case address.Zone() != "":
		return ReasonLinkLocal
	}
	for _, c := range classes {
		if c.addresses.Contains(address) {
			return c.reason
		}
	}
	if address.Is6() && !global.Contains(address) {
		return ReasonReserved
	}
	return ""
}
