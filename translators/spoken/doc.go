// Package spoken is the list of protocols: one that is not here does not exist, for
// the gateway and for its tools. What carries each, the gateway says beside it
// (cmd/aepb-gateway/protocols.go).
//
// Alternatives considered: codecs that enter themselves in a list when they are
// linked in (nobody sees then what is spoken), and a list in each program (whoever
// adds a protocol forgets one).
package spoken
