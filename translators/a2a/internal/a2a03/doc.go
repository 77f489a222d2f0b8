// Package a2a03 turns JSON of A2A 0.3 into JSON of A2A 1.0 and back.
//
// The codec has one reading of the protocol, that of 1.0. A message of 0.3 is
// raised to it before it is read and lowered after it was written, value by
// value, without the numbers and strings inside ever being decoded.
//
// Raising loses nothing: what 1.0 knows as well gets its name there, and what
// only this message says stays where it is as an unknown member. Lowering
// carries what 0.3 has no member for, the tenant, and the media type and file
// name of texts and data, under metadata["urn:aepb:translation:1"].canon, and
// raising takes it out again. Data that is no object, which 0.3 demands, is
// wrapped as {"value": x} with data_part_compat in the part's metadata, as the
// official compatibility layers do it.
//
// Members that 1.0 would take for its own (mediaType on a part, say) are
// refused in 0.3: what one reader ignores and the next obeys is a way around
// policy.
//
// The HTTP form of 0.3, which has the words of a proto, is turned into those of
// JSON-RPC on its way up, and out of them on its way down: what the version
// lacks is carried in one way.
//
// Read names.go for the tables, raise.go and lower.go for messages and tasks,
// httpraise.go and httplower.go for their HTTP form, card.go for agent cards.
//
// # Alternatives considered
//
// A second codec (all of the carriage twice, and two readings of one protocol
// drift apart) and a version switch in every reader and writer (no function is
// then about one protocol any more).
package a2a03
