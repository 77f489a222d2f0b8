// Package builtin is the list of protocols: one that is not here does not exist, for
// the gateway and for its tools. What carries each, the gateway says beside it
// (gateway/server/protocol.go).
//
// Alternatives considered: codecs that enter themselves in a list when they are
// linked in (the code then shows no list of protocols), and a list in each program
// (the author of a new protocol forgets one).
package builtin
