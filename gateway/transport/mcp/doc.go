// Package mcp is the wire of the Model Context Protocol: Streamable HTTP.
//
// serve.go is the server: one URL per agent for the modern revision (2026-07-28,
// stateless) and the legacy ones (2025-11-25, 2025-06-18 and 2025-03-26, which
// begin with initialize). Which of them a request is, the codec tells from
// header and body; the server adds what only HTTP knows, checks.go, and answers
// from the directory what is no delegation, describe.go; the tools of a session from the
// server's session that mirrors it, once that has been begun.
//
// A legacy client gets a session when it initializes, guest.go: what it can be
// asked, and in which revision, is kept among the entries, where every replica
// finds it, for the caller that began it alone. A request without one is
// answered all the same, but nothing can be asked on the way. events.go writes
// streams; stand.go has the one, for each session, on which a client reads
// notifications. Since 2025-06-18 every request names its revision in the header; one that
// does not, and does not show itself to be modern or an initialize, is taken
// for 2025-03-26, as that revision's successors demand. The batches of that
// revision batch.go takes apart: one exchange and ECT each, one after the other,
// at most 64, and the answers in order in one array. A caller that signs no tokens
// names the one that its message came of in the field Aepb-Parent-Jti.
//
// dial.go carries messages out and describe_out.go asks servers who they are:
// modern first, then initialize; reply.go reads an answer in JSON, flow.go an
// event stream, which it takes up again where a legacy server lets it; listen.go
// receives notifications of a legacy server, in the session that
// mirrors its hearer's; session.go keeps the sessions of legacy servers, one for each agent,
// caller and revision, so that no caller ever rides in another's (R8). Its server is told the
// name and version of the first client of the caller that needs it, or this gateway's where that
// client has not said its own. One that its server has lost is begun anew, once for each message, which is sent again: 404 says so, and
// 400, 401, 410 or 503 where the server refuses a ping in it as well (reply.go). A server
// gets its messages in the revision that it agreed to. standalone.go hears what a
// legacy server asks apart from its answer while a client of 2026-07-28 calls it.
//
// Revision 2024-11-05 has a transport of its own, HTTP with SSE, which newer revisions are
// spoken over as well: package oldsse. The server serves it at /mcp/sse and /mcp/messages with
// the pipeline of its one URL (OverSSE). A session lives in the process that has its stream, so
// several replicas need sticky routing for it. The 202 that answers a POST bears no
// Execution-Context, since it goes out before the message is translated: the evidence is under
// GET /ects and /workflows, and in the message's body for callers with ect_in_body. The dialer
// takes to it by GET where initialize by POST gets 400, 404 or 405, or, with an endpoint
// that names 2024-11-05, no answer of MCP; Endpoint.Transport then says so. It is no Form:
// messages are the same, and are relayed as they came.
//
// Between eras it is the pipeline that asks a modern server by subscriptions/listen
// for the notifications of a legacy client's stream, and the other way round (package
// gateway, news.go). For a modern client it listens in a session of its own,
// Endpoint.Alone, which no other client shares; listen.go ends that session with
// the stream.
//
// Alternatives considered: the official SDK as server and client (its method
// table is closed, its client rounds numbers, and its server cannot say 401 to
// one call).
package mcp
