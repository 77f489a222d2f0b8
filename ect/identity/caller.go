package identity

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"slices"
	"strings"
	"time"

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
	Until     time.Time // when the token ends that the caller showed; zero: it showed none
	Grant     *Grant    // what its access token says besides; nil: it showed none
}

// Grant is what an OAuth access token says beside who its caller is. It never changes.
type Grant struct {
	Client  string         // client_id
	Actor   string         // sub of act (RFC 8693 section 4.1); empty: the client acts for itself or its user
	Proxies []ect.Identity // whose certificates may stand beside the token
	// May refuses what no scope of the token permits; an empty operation is one that the gateway
	// answers itself.
	May func(agent, operation string) error
}

// Permits refuses what no scope of the caller's access token permits. Who showed none may all.
func (c Caller) Permits(agent, operation string) error {
	if c.Grant == nil || c.Grant.May == nil {
		return nil
	}
	return c.Grant.May(agent, operation)
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
	return slices.ContainsFunc(cert.URIs, func(uri *url.URL) bool { return strings.EqualFold(uri.Scheme, "spiffe") })
}

// CredentialReason says in one word why a credential was refused. The words are
// those of the WIMSE conformance vectors where they have one, and of package ect
// where that has.
type CredentialReason string

// The reasons.
const (
	CredentialMissing                 CredentialReason = "missing_credential"  // one of two fields that belong together
	CredentialRepeated                CredentialReason = "repeated_credential" // a field that may be there once
	CredentialMalformed               CredentialReason = "malformed_token"
	CredentialTooLong                 CredentialReason = "token_too_long"
	CredentialInvalidEncoding         CredentialReason = "invalid_encoding"
	CredentialWrongType               CredentialReason = "wrong_type"
	CredentialUnsupportedAlg          CredentialReason = "unsupported_alg"
	CredentialUnsupportedCritical     CredentialReason = "unsupported_critical"
	CredentialUnknownKey              CredentialReason = "unknown_key" // of a trust domain or kid that is not configured
	CredentialInvalidSignature        CredentialReason = "invalid_signature"
	CredentialIssuerMismatch          CredentialReason = "issuer_mismatch"
	CredentialMissingClaim            CredentialReason = "missing_claim"
	CredentialInvalidClaim            CredentialReason = "invalid_claim"
	CredentialAudienceMismatch        CredentialReason = "audience_mismatch"
	CredentialExpired                 CredentialReason = "expired"
	CredentialIssuedInFuture          CredentialReason = "issued_in_future"
	CredentialLifetimeTooLong         CredentialReason = "lifetime_too_long"
	CredentialMissingConfirmation     CredentialReason = "missing_confirmation_alg"
	CredentialForbiddenConfirmation   CredentialReason = "forbidden_confirmation_alg"
	CredentialUnsupportedConfirmation CredentialReason = "unsupported_confirmation_alg"
	CredentialInvalidKey              CredentialReason = "invalid_key"
	CredentialIdentityBinding         CredentialReason = "wit_binding_mismatch" //nolint:gosec // a word for logs, no secret
	CredentialAccessBinding           CredentialReason = "access_token_binding_mismatch"
	CredentialTransactionBinding      CredentialReason = "transaction_token_binding_mismatch"
	CredentialOtherBinding            CredentialReason = "other_token_binding_mismatch"
	CredentialUnknownBinding          CredentialReason = "unknown_token_binding"
	CredentialReplay                  CredentialReason = "replay"
	CredentialInURL                   CredentialReason = "credential_in_url" //nolint:gosec // a word for logs; where servers and proxies on the way log it
)

// CredentialError refuses what a caller showed to say who it is. WIMSE wants
// status 400 for it: no challenge would help (workload-creds, "Error Conditions").
type CredentialError struct {
	Credential string // "workload identity token", "workload proof token", "JWT-SVID" or "API key"
	Reason     CredentialReason
	Claim      string // the claim, header parameter or field at fault, if one is; never foreign text
	// Foreign: it cannot have been meant for us, so beside a client certificate it
	// counts for nothing. Alone it is refused like any other.
	Foreign bool
}

func (e *CredentialError) Error() string {
	text := e.Credential + " refused: " + string(e.Reason)
	if e.Claim != "" {
		text += " (" + e.Claim + ")"
	}
	return text
}
