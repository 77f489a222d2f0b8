// Package ect is evidence: execution context tokens, which say who did what to
// which message after which other deed.
//
// Read claims.go for what a token says, parse.go and payload.go for what we
// take for a token at all, sign.go and verify.go for how evidence comes to be
// and is believed, recorder.go for how it is kept. header.go is the carriage
// over HTTP, keys.go and replay.go declare what verification needs from
// elsewhere: package identity finds keys, a store remembers uses.
//
// Three values cannot be forged inside the program, because their fields are
// closed: a [Token] comes only from [Signer.Sign], a [Verified] only from
// [Verifier.Verify], a [Receipt] only from a [Recorder]. Whoever demands one
// knows that the step before was taken. Their zero values prove nothing.
//
// A token is the bytes that arrived. They are verified, hashed, stored and
// forwarded; [Claims] is a view. So that one token has one spelling and one
// meaning, reading is strict: canonical base64url, exact member names, none of
// them twice, whole seconds. Signatures are ES256 and nothing else, decided
// before any key is looked up.
//
// The dialect written is that of the AEPB draft: typ exec+jwt, par and ext. The
// older typ wimse-exec+jwt is read too, and a token that repeats par and ext
// under their later names pred and ect_ext if both say the same.
//
// # Alternatives considered
//
// The signature library's own Parse reads claims into Go maps and floats, lets
// the last of two equal names win and accepts several spellings of one token;
// here it computes and checks signatures only. A cache of verified tokens would
// save the signature of a repeated ancestor, and would have to forget keys as
// fast as they are revoked. One error per check was more to handle and said no
// more than one error with a [Reason].
package ect
