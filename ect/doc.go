// Package ect signs and verifies evidence: execution context tokens, which state
// which party did which act on which message, and after which other acts.
//
// claims.go has the claims of a token and dialect.go their spellings. parse.go and
// payload.go parse a token, sign.go signs one, verify.go verifies one, recorder.go
// stores it. header.go reads and writes the HTTP header. ports.go declares the
// interfaces that verification needs: package identity finds keys, a store
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
// meaning, parsing is strict: canonical base64url, exact member names, none of
// them twice, whole seconds. Signatures are ES256 or EdDSA (Ed25519), decided
// before any key is looked up, and the key has to be of that kind.
//
// # Dialects
//
// The revisions of the draft give two names to the parents (par, pred), to the
// extension (ext, ect_ext) and to the type. All are read, in any mixture, as
// long as both names of a claim do not have different values; such a token is
// refused. [Verified.Dialect] is the dialect of a token, [Dialects] stores it for the
// issuer, and [Signer.SignAs] signs in it. The default
// dialect is that of the AEPB draft: typ exec+jwt, par
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
