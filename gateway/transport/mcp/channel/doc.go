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
// names a subscription or a task for the request that it names. The protocol names no
// receiver for anything else. A question or a log line of the server goes to the one request
// under way, if there is exactly one, else to the stream that listens in the session, as with
// Streamable HTTP. A question without such a receiver is refused.
//
// # One channel for several callers
//
// With Key.Shared all callers use one channel. The server is told that no caller can be asked.
// Its questions are refused, its log lines are dropped, and no caller can subscribe. It gets
// requests alone, with ids and progress tokens of the gateway's own, since two callers may use
// the same. All callers get the notification that a list changed.
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
