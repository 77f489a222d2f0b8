// Package embedded puts execution context tokens into messages in JSON, and takes
// them out, for peers that do not see the header that has them (R5, ect_in_body:
// a library hides it from them, or something on the way removes it).
//
// Where they go, the protocol's codec knows (translators.EvidencePlacer); the value there
// is an array of compact tokens, in the order of the header. Evidence about such a
// message hashes its bytes before insertion (aepb.hash_form "before-ect"). So both
// ways are a cut at one place, and nothing else of a message changes: the member is
// written first in its object, or that object first in the one around it. To get the
// bytes that were hashed, a peer removes the member, with its comma, and its object if
// that is then empty. A message with an empty object there is left
// unchanged, because that would be removed too; so is one that has such a member already. Where
// a protocol has a list in place of an object (the details of an A2A error), the
// tokens are in an object of it, written first, and the same holds of that: its @type
// is the key, and they are its tokens.
//
// Events of streams have them like messages, and each is hashed before insertion.
// What is no JSON has no place: over gRPC they are in the metadata alone.
//
// # Alternatives considered
//
// Canonical JSON without the member: the rule of µACP and AINP, but not of
// protocols whose messages are hashed as they travel, and a peer that keeps numbers
// as doubles could not form it. The codecs alone: what is hashed is what they wrote,
// and the same few cuts would be in each.
package embedded
