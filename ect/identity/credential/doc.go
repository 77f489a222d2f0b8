// Package credential finds out who is calling from what an HTTP request shows,
// for callers without a client certificate:
//
//   - [WIMSE]: a workload identity token with a workload proof token. The caller
//     holds a key, which may also sign its execution context tokens.
//   - [Bearer]: a JWT-SVID. Its holder is the caller; there is no key.
//
// and from the tokens of networks that are not HTTP (SLIM): [Members] judges the
// JWTs of one issuer, [Minter] makes ours, Bearer judges JWT-SVIDs there too.
//
// # How to read it
//
// credential.go is what both share; wimse.go is the way through a request,
// token.go the identity token, proof.go the proof, binding.go the other tokens
// that a proof names, bearer.go the JWT-SVID, members.go and minter.go the JWTs
// of members. Refusals are *identity.CredentialError and never quote a token.
//
// # Rules
//
// Keys are the operator's, for each trust domain, and no URL in a token is ever
// followed. An issuer vouches for its own trust domain alone. A token is read
// strictly, as package ect reads its own: one spelling, exact names, none twice,
// whole seconds. A proof is good for one request; who cannot remember proofs
// cannot judge them, so a replay cache is required although the draft only
// recommends one.
//
// # Sources
//
// draft-ietf-wimse-workload-creds-01 section 3.1; draft-ietf-wimse-wpt-01
// section 2, in which the proof has a field of its own, Workload-Proof-Token
// (later revisions put it into Authorization); SPIFFE JWT-SVID.
//
// # Alternatives considered
//
// go-spiffe's jwtsvid asks the real clock and brings a second JOSE library that
// takes the last of two equal names; the rules of a JWT-SVID are a page.
// Remembering verified identity tokens would save one signature per request, and
// would have to forget them as fast as issuers' keys are withdrawn.
package credential
