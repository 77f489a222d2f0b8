package limit

import (
	"crypto/sha256"
	"net/netip"
	"strings"

	"github.com/aepb/aepb-gateway/ect/identity"
)

const (
	identityPrefix = "id:"
	addressPrefix  = "ip:"
	overflowKey    = "overflow" // of the bucket that all sources share once the table is full
	longestKey     = 256        // bytes; beyond: a hash, so that memory stays bounded
)

// KeyOf is the key of a caller: of its identity, which identified reports, else of its
// address.
func KeyOf(caller identity.Caller, address string) (key string, identified bool) {
	if caller.ID == "" || caller.Anonymous {
		return Address(address), false
	}
	return Identity(string(caller.ID)), true
}

// Identity is the key of a caller whose identity was verified.
func Identity(id string) string {
	if len(id) > longestKey {
		sum := sha256.Sum256([]byte(id))
		id = "#" + string(sum[:])
	}
	return identityPrefix + id
}

// IdentityOf is the identity of a key; false for an address, and for an identity
// so long that its key does not hold it.
func IdentityOf(key string) (string, bool) {
	id, ok := strings.CutPrefix(key, identityPrefix)
	return id, ok && !strings.HasPrefix(id, "#")
}

// Address is the key of a caller without an identity: its IPv4 address, or its
// IPv6 /64, since a host with one address of a /64 has them all. It takes an
// address with or without port. Callers whose address cannot be read share one key.
func Address(remote string) string {
	addr, err := netip.ParseAddr(remote)
	if err != nil {
		withPort, err := netip.ParseAddrPort(remote)
		if err != nil {
			return addressPrefix + "unknown"
		}
		addr = withPort.Addr()
	}
	addr = addr.Unmap().WithZone("")
	if addr.Is4() {
		return addressPrefix + addr.String()
	}
	return addressPrefix + netip.PrefixFrom(addr, 64).Masked().String()
}
