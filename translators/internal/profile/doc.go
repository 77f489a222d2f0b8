// Package profile is what the protocols agree on beyond their own words: how a
// protocol of messages (A2A) and a protocol of calls (MCP) meet.
//
// names.go has the names that both sides put on the wire (R10). message.go is
// profile P1: a turn as arguments of a "message" tool and back. typed.go is
// profile P2, the data part {skill, input}, and P3, binding plain text to a
// tool's only required string. canon.go carries canonical members that a
// protocol has no place for, and foreign extensions, in one object per level:
//
//	A2A  metadata["urn:aepb:translation:1"] = {"canon": {…}, "mcp-v1": {…}}
//	MCP  _meta["aepb.gateway/ext"]          = {"canon": {…}, "a2a-v1": {…}}
//
// The names inside "canon" are defined here once and written and read by both
// codecs through the same functions, so that a message which comes home finds
// everything again. Whatever rides there is a Loss of fate Carried: a peer
// that is no gateway of ours may not keep it.
//
// Alternatives considered: a schema of metadata per pair of protocols (it grows
// with the square of them), and hiding the carriage inside an opaque blob (an
// operator can no longer read what travels).
package profile
