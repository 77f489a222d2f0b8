// Package mcp is the wire of the Model Context Protocol: Streamable HTTP.
//
// serve.go is the door: one URL per agent for the modern revision (2026-07-28,
// stateless) and the legacy one (2025-11-25, which begins with initialize).
// Which of them a request is, the codec tells from header and body; the door
// adds what only HTTP knows, checks.go, and answers from the directory what is
// no delegation, describe.go. No session is ever assigned: a legacy client that
// is given none sends none.
//
// dial.go carries messages out and describe_out.go asks servers who they are:
// modern first, then initialize; reply.go reads the answer, JSON or an event
// stream; session.go keeps the sessions of legacy servers, one for each agent
// and caller, so that no caller ever rides in another's (R8).
//
// Alternatives considered: the official SDK as server and client (its method
// table is closed, its client rounds numbers, and its server cannot say 401 to
// one call), and a session table for legacy callers too (state that nothing
// here would read).
package mcp
