// Package slim speaks SLIM 2: an agent is a name on a network of nodes, and
// every connection is an outgoing one, to a node.
//
// # How to read it
//
//   - peer.go: one application of ours on a node: calls out, calls in
//   - a2a.go: A2A on SLIMRPC, and the addresses that agent cards give
//
// and below, from the bottom up:
//
//   - internal/dataplane: the messages, generated from our own .proto
//   - name: names and their hashes
//   - credential: tokens and signatures
//   - internal/frame: session messages, built and read
//   - link: the connection to a node
//   - session: reliable conversations, and groups
//   - rpc: SLIMRPC, calls on a session
//   - plain: JSON-RPC on a session
//
// # What does not work
//
// End-to-end encryption (MLS): a session that asks for it is refused at once.
// SLIM's own SLIMRPC clients always ask, so they cannot call; their servers can
// be called, and plain sessions work both ways. SLIM 1 has other field numbers
// and is refused when a node says that it speaks it.
package slim
