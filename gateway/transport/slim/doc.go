// Package slim speaks SLIM 2 and 3: an agent is a name on a network of nodes, and
// every connection is an outgoing one, to a node.
//
// # How to read it
//
//   - network.go: our connections to the configured nodes, and who we are there
//   - serve.go, talk.go: the server: agents as org/namespace/name, on SLIMRPC and in JSON-RPC
//   - dial.go, converse.go, describe.go: the way out, the same two ways
//   - frame.go, status.go: A2A's messages and errors between JSON and protobuf; evidence hashes the protobuf
//   - peer.go: one application of ours on a node: calls out, calls in
//   - group.go: its part in groups that it is invited to
//   - a2a.go: A2A on SLIMRPC, and the addresses that agent cards give
//
// and below, from the bottom up:
//
//   - internal/dataplane, internal/a2aproto: the messages, generated from our own .proto files
//   - name: names and their hashes
//   - credential: tokens and signatures
//   - internal/frame: session messages, built and read
//   - link: the connection to a node, its version, key and MACs
//   - session: reliable conversations, and groups
//   - rpc: SLIMRPC, calls on a session
//   - plain: JSON-RPC on a session
//
// # Who calls
//
// Members of a node's network know each other in one of three ways. A shared
// secret proves that a caller knows it, and not which of those who do it is: so
// callers there have the one SPIFFE id that the operator gives them. With JWTs of
// one issuer, a caller is the SPIFFE id that the operator gives its subject; with
// SPIFFE JWT-SVIDs it is who the token says. Without an id no member may call, and
// in development all are anonymous. Nodes check none of this; every message is
// checked here, and so are the signatures of control messages, by the key that
// the token names. Evidence goes in the metadata, which nodes can read and
// change: what binds it to the message is the hash in it. Beside it stands the jti of
// the token about the message (aepb-parent-jti), for agents that read none; a caller
// without a token names there what its message came of.
//
// # Groups
//
// A moderator may invite an exposed agent into a group that is not encrypted. It
// joins, acknowledges messages, and answers requests, in SLIMRPC or
// JSON-RPC, to the member who asked and to no other. It ignores all other messages of
// members, and sends none by itself. Each node
// has a number of groups that an agent may be in; who may not call may not
// invite either. The subject of a token has a share of all that is bounded: 256
// sessions, and 256 calls that are answered at once, in whatever sessions and groups
// it has; of four groups and more, a quarter is kept for moderators that have few.
//
// # Signals
//
// A rollback request is the one method of a SLIMRPC service of ours, with a token
// as request and as response, or a method of JSON-RPC. Who is told what a human
// decides stands in the metadata of a request. A decision itself has no form
// here: it is told where the callback is, or taken in over another binding; and
// an A2A agent that does not know the key finds no push settings in its stead.
//
// # What does not work
//
// On plain sessions there is one response to a request: no notices on the way,
// and no questions of an agent's. A request is stopped in the session that it came
// in, by a notice of its own, or in MCP 2026-07-28 by the end of that session. We
// moderate no groups.
//
// End-to-end encryption (MLS): a session that asks for it is refused at once, and
// the log says so in words. SLIM's own SLIMRPC clients, and slima2a, which stands on
// them, always ask, so they cannot call; their servers can be called, and plain
// sessions work both ways. The text that such a client shows is its own, whatever we
// answer: "channel closed" in 2.2, "mls operation error" in 3.4, both with code 14.
// Our reason stands in the metadata of the refusal (aepb-reason), for who looks. A
// moderator of an encrypted group takes no notice of the refusal and waits until it
// is tired.
//
// # What real peers do
//
// Nodes and applications of 2.2 and 3.4 have the same messages, and tests run ours
// with both. SLIM 1 has other field numbers and is refused when a node
// says that it speaks it, as is any version that is not known here. A node that is
// started from a service configuration demands a key of the link and a MAC in every
// header, and with enforce_pqc a key of ML-KEM-768 too; we offer both to every node,
// and drop what comes without a proper MAC where there is a key.
//
// Applications of 3.4 warn, in their own logs, that our control messages have no
// signature of their payload, and that the id in our names is not made of our
// identity. They take them all the same.
//
// slima2a shows clients of A2A 1.0 an extended card alone, if its agent has one, and
// the public card to those of 0.3, if it serves them. Either is read.
// An agent with neither has no names of skills to be had on this wire: it is one
// skill that takes messages.
//
// # Where it differs from the binding of A2A
//
// Section 2.1 of the SLIMRPC binding has the agent's name alone as URL in a card, and
// section 9 a slim:// URL. Cards of ours have the name, and the URL under the binding's
// name before /v1; any is read. The service is called lf.a2a.v1.A2AService first, and
// a2a.v1.A2AService (1) is served too. Of the parameters (3), A2A-Version and
// A2A-Extensions are read in any case; ours are execution-context and aepb-*. Errors that
// 6.1 does not list are written as those that it does (status.go), without details (6.2).
// There is no SendLiveMessage (A2A 1.1), and no multicast.
package slim
