package policy

// Security is how well a protocol's connection is protected. A larger value is
// stronger; the zero value is no protection.
type Security int

// The order of protection. AEPB names one word for aepb.min_protocol_security,
// "tls-1.3", and forbids everything below it (Protocol Downgrade Prevention and
// Summary Table), so there is nothing between it and a plaintext connection,
// which only a development gateway makes, to loopback.
const (
	SecurityNone  Security = 0
	SecurityTLS13 Security = 1
)

// ParseSecurity reads a value of aepb.min_protocol_security; false for any
// word that the draft does not know. A minimum that is not understood cannot
// be met.
func ParseSecurity(text string) (Security, bool) {
	if text == "tls-1.3" {
		return SecurityTLS13, true
	}
	return SecurityNone, false
}
