// Package lifecycle keeps how the agents and the gateway itself stand: active, deprecated, draining
// or retired (AEPB, Agent Lifecycle Management). What may follow on what is decided in the pure
// package of the same name; here are the store that all replicas share, the evidence, and the
// graceful end.
//
// service.go is what others ask and order, store.go the record that replicas share (R18), end.go the
// graceful end of an agent that drains, which whichever replica lives goes on with.
//
// A transition is signed once. Those bytes are what is swapped in, recorded and announced, in this
// order: a replica that ends in between is followed by one that finds the record and records its
// token. What the store could not confirm is not announced.
//
// # Alternatives considered
//
// A status in the configuration alone cannot be drained by the replica that is left, and would be
// changed by everyone who can write that file. A lock in place of the compare-and-swap gives liveness, and
// no safety when its holder is slow (R18).
package lifecycle
