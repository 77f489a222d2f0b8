// Package transport is the wire: how native messages come in and go out.
//
// Each protocol has a folder here with two halves. serve.go is the server that
// takes native traffic in: it authenticates nothing and decides nothing, it
// turns requests into a [Call] for the pipeline and its [Answer] into a response.
// dial.go carries a [Sealed] message out through package egress, the one way
// to the network.
//
// What leaves is [Attested]: only [Attest] makes one, which demands the receipt of an
// execution context token whose out_hash covers exactly these bytes. A Sealed and the
// message of an Answer come of it, and the stream of an Answer of an [Opened], which
// demands the receipt of the token that opens it. So nothing is forwarded or answered before
// its evidence is recorded, and the compiler keeps that order (architecture section 4).
package transport
