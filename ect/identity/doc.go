// Package identity finds out who a peer is, and whether a key is that peer's, by
// SPIFFE: X.509 SVIDs, the anchors that verify them, and the TLS 1.3
// configurations made of both. It is the only package that imports go-spiffe.
//
// # How to read it
//
//   - svid.go: our own name, certificate chain and key, and their PEM files; the
//     [Life] of certificates, and when to warn of its end
//   - bundle.go, jwks.go: whom we trust, per trust domain; the one function
//     that judges a chain (verify) and the SPIFFE form of a bundle
//   - authority.go, files.go: a certificate authority for development, and the
//     folder that it lives in
//   - workload.go: who we are by the SPIFFE Workload API instead of files;
//     our JWT-SVIDs, and the keys of others'
//   - source.go: server and client TLS configurations; [Session], for how long
//     an accepted connection may be used
//   - caller.go: from a finished handshake to the peer's identity
//   - keyring.go, cache.go: the key of an ECT's issuer ([ect.KeySource])
//   - keyset.go: the same from JWK sets that the operator configured; several
//     sources in a row
//
// Callers without a client certificate are the business of package credential
// below; its refusals ([CredentialError]) are here, beside [Caller].
//
// # Rules
//
// TLS is 1.3 only, both ways (AEPB section 5, CPAT). A client certificate is
// verified whenever one is given, and a bad one ends the handshake. A caller
// without one is admitted as anonymous, and the gateway decides what such a caller
// may do (R3). An anchor vouches only for its own trust domain. A chain in an ECT is
// judged as of the token's iat (R4), so evidence stays verifiable after the
// certificate that signed it has expired; how old a token may be is the
// verifier's question, not ours. There is no revocation list: SVIDs are meant
// to live hours, and an anchor that is withdrawn takes its chains along at once.
// The same holds for connections: the handshake judges a client's SVID once, and
// a [Session] ends with that SVID, or when the anchors do not vouch for it any
// more. It is told of a change rather than asking at each request: an idle
// connection and an open stream have no requests.
//
// # Alternatives considered
//
// go-spiffe's spiffebundle and jwtbundle also know JWK sets, but bring a second
// JOSE library with them for sixty lines of JSON; jwks.go writes those, and a
// test holds them to the SPIFFE document's rules. What the Workload API brings
// comes through that library and is read again by ours. Fetching a key set whose URL
// stands in a token would let its issuer choose whom we call and whom we trust.
//
// go-spiffe's tlsconfig judges in VerifyPeerCertificate, which a resumed session
// skips, always requires a client certificate, and has no injectable clock; we
// use its verifier (x509svid.Verify) from VerifyConnection instead.
//
// crypto/tls's own VerifyClientCertIfGiven would tell clients our anchors'
// names, and a client whose certificate comes from elsewhere would then send
// none and pass as anonymous instead of being told that it is not trusted. So
// the server asks for any certificate and judges it itself.
package identity
