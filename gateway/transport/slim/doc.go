// Package slim speaks SLIM 2: an agent is a name on a network of nodes, and
// every connection is an outgoing one, to a node.
//
// # How to read it
//
//   - network.go: our connections to the configured nodes, and who we are there
//   - serve.go, talk.go: the door: agents as org/namespace/name, on SLIMRPC and in JSON-RPC
//   - dial.go, converse.go, describe.go: the way out, the same two ways
//   - frame.go, status.go: A2A's messages and errors between JSON and protobuf; evidence hashes the protobuf
//   - peer.go: one application of ours on a node: calls out, calls in
//   - a2a.go: A2A on SLIMRPC, and the addresses that agent cards give
//
// and below, from the bottom up:
//
//   - internal/dataplane, internal/a2aproto: the messages, generated from our own .proto files
//   - name: names and their hashes
//   - credential: tokens and signatures
//   - internal/frame: session messages, built and read
//   - link: the connection to a node
//   - session: reliable conversations, and groups
//   - rpc: SLIMRPC, calls on a session
//   - plain: JSON-RPC on a session
//
// # Who calls
//
// A shared secret proves that a caller knows it, and not which of those who do
// it is. So callers on a node have the one SPIFFE id that the operator gives
// them there; without one nobody may call, and in development they are
// anonymous. Evidence goes in the metadata, which nodes can read and change:
// what binds it to the message is the hash in it.
//
// # What does not work
//
// Callers are not told apart by JWTs yet. On plain sessions there is one
// response to a request: no notices on the way, and no questions of an agent's.
//
// End-to-end encryption (MLS): a session that asks for it is refused at once.
// SLIM's own SLIMRPC clients always ask, so they cannot call; their servers can
// be called, and plain sessions work both ways. SLIM 1 has other field numbers
// and is refused when a node says that it speaks it.
package slim
