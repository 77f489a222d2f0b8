// Package ect is evidence: execution context tokens, which say who did what to
// which message after which other deed.
//
// Read claims.go for what a token says and dialect.go for how it is spelled,
// parse.go and payload.go for what we take for a token at all, sign.go and
// verify.go for how evidence comes to be and is believed, recorder.go for how it
// is kept. header.go is the carriage over HTTP, ports.go declares what
// verification needs from elsewhere: package identity finds keys, a store
// remembers uses.
//
// Three values cannot be forged inside the program, because their fields are
// closed: a [Token] comes only from a [Signer], a [Verified] only from
// [Verifier.Verify], a [Receipt] only from a [Recorder]. A function with such a
// parameter runs only after that step. Their zero values prove nothing. What is
// not signed is no Token but an [Assertion], and grants nothing.
//
// A token is the bytes that arrived. They are verified, hashed, stored and
// forwarded; [Claims] is a view. So that one token has one spelling and one
// meaning, reading is strict: canonical base64url, exact member names, none of
// them twice, whole seconds. Signatures are ES256 or EdDSA (Ed25519), decided
// before any key is looked up, and the key has to be of that kind.
//
// # Dialects
//
// The revisions of the draft give two names to the parents (par, pred), to the
// extension (ext, ect_ext) and to the type. All are read, in any mixture, as
// long as a token says one thing; one that says two things is refused, never
// chosen from. [Verified.Dialect] tells how its issuer writes, [Dialects]
// remembers that, and [Signer.SignAs] answers in kind. Without a reason for
// another one the dialect written is that of the AEPB draft: typ exec+jwt, par
// and ext.
//
// # Levels
//
// An unsigned token (L1) is read only if the operator configures that, for the peer
// that presents it, and proves what that peer claims and no more. A translation, or
// any other act of a gateway, is neither accepted nor written without a signature.
//
// # Alternatives considered
//
// A cache of verified tokens would save the signature of a repeated ancestor,
// and would have to forget keys as fast as they are revoked. One error per check
// was more to handle and said no more than one error with a [Reason]. A dialect
// as a member of [Claims] would have made spelling a part of meaning; as a
// setting of the signer it would have meant one signer per peer.
package ect
