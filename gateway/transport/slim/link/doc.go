// Package link keeps the connection to one SLIM node.
//
// A node is a router: it knows which names are reached over which connection
// and forgets all of it when the connection ends. So the link's work is to
// connect again and say again who is here, for as long as it runs; sessions
// above it live on, and repair what was lost meanwhile.
//
//   - link.go: the link, its life and its subscriptions
//   - stream.go: one connection: greeting, sending, receiving
//   - negotiation.go: the node's version, and the key that both derive
//   - mac.go: the MAC under that key, which proves that a header was not changed
//   - prompt.go: its bytes are acknowledged at once
//
// The network is the caller's (Dial): TLS 1.3 and the rules of who may be
// called are settled before a connection gets here. Nodes answer TLS without
// agreeing on a protocol (ALPN), so none is asked for, and gRPC is told nothing
// of TLS.
//
// A node's first words say its version and its half of a key; without one there are
// no MACs. TLS protects what they do already: they are here because nodes that are
// started from a service configuration demand them.
//
// # Sending
//
// Send never waits: it refuses a message if the queue is full, and the session sends it
// again by its timers. So one slow node does not delay a gateway that uses several.
package link
