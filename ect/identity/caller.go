package identity

import (
	"crypto/tls"
	"crypto/x509"
	"strings"

	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/aepb/aepb-gateway/ect"
)

// anonymousPath is the path of callers without credentials (R3).
const anonymousPath = "/anonymous"

// Caller is who sent a message. An anonymous caller has an id for the records
// but no key: it proved nothing.
type Caller struct {
	ect.Peer
	Anonymous bool
}

// Anonymous is the caller without credentials in a trust domain.
func Anonymous(trustDomain string) Caller {
	return Caller{Peer: ect.Peer{ID: ect.Identity("spiffe://" + trustDomain + anonymousPath)}, Anonymous: true}
}

// PeerOf is who is at the other end of a connection; false if they gave no
// SVID. It reads what the handshake has verified and verifies nothing itself:
// the connection must have been made with a [Source]'s configuration.
func PeerOf(state *tls.ConnectionState) (ect.Peer, bool) {
	if state == nil || !state.HandshakeComplete || len(state.PeerCertificates) == 0 {
		return ect.Peer{}, false
	}
	leaf := state.PeerCertificates[0]
	id, err := x509svid.IDFromCert(leaf)
	if err != nil || id.Path() == "" || leaf.IsCA {
		return ect.Peer{}, false
	}
	return ect.Peer{ID: ect.Identity(id.String()), Key: leaf.PublicKey}, true
}

func claimsWorkload(cert *x509.Certificate) bool {
	for _, uri := range cert.URIs {
		if strings.EqualFold(uri.Scheme, "spiffe") {
			return true
		}
	}
	return false
}
