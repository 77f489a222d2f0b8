// Package transport is the wire: how native messages come in and go out.
//
// Each protocol has a folder here with two faces. serve.go is the door that
// takes native traffic in: it authenticates nothing and decides nothing, it
// turns requests into a [Call] for the road and its [Answer] into a response.
// dial.go carries a [Sealed] message out through package egress, the one door
// to the network.
//
// A Sealed value can be had only from [Seal], which demands the receipt of an
// execution context token whose out_hash covers exactly these bytes. So
// nothing is forwarded before its evidence is recorded, and the compiler keeps
// that order (architecture section 4).
package transport
