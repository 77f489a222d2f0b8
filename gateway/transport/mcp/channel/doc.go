// Package channel lets the dialer of Streamable HTTP talk to MCP servers that have one
// two-way channel for everything: standard input and output, or HTTP with SSE (2024-11-05).
// It takes the dialer's requests and gives the responses that a server of Streamable HTTP
// would give, so that sessions, streams and questions have one implementation.
//
// # How to read it
//
//   - servers.go: the open channels by session, and which one a request is for
//   - conn.go: one channel: what is sent on it, and whom what comes is for
//   - call.go: the response to one request, filled as the server speaks
//
// # Whom a message is for
//
// A reply is for the request with its id; progress for the request with its token; what
// names a subscription or a task for the request that it names. Anything else belongs, by
// the protocol, to nobody: what the server asks, and what it logs, goes to the one request
// that is under way, if it is one, else to the stream that listens in the session, as with
// Streamable HTTP; a question that nobody can be chosen for is refused.
//
// # One channel for several callers
//
// With Key.Shared all callers use one channel. The server is told that nobody can be asked;
// what it asks is refused, its log is not handed on, and nobody can subscribe. Of what callers
// say it gets requests alone, with ids and progress tokens of our own, since two callers may use
// the same. That a list changed, all hear.
//
// # Ids
//
// A relayed message bears the id and the progress token that its client chose. Where clients
// share a channel, shared ones and those of a revision without sessions, both are replaced
// by random ones, and put back in what comes. The hashes of the evidence are of the messages
// as clients and the pipeline have them, with their own ids.
//
// # Bounds
//
// A response that is not read holds at most 8 MiB or 4096 messages; then its request fails,
// and no other. A session belongs to the agent and caller that began it.
//
// # Alternatives considered
//
// A second dialer would need a second implementation of sessions (R8), of the questions that
// come in the middle of a call, and of streams that are taken up again.
package channel
