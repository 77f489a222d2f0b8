// Package peers tests agents that deviate from their specification. Each file of testdata/peers has one
// deviation: what the agent sends, and what its callers must get. A report about an agent that works with
// a direct client and not through the gateway becomes one more file. One test runs all files with every caller.
//
// A file is an archive of named texts (golang.org/x/tools/txtar). The lines before the first text say which
// agents it is about. The texts are:
//
//	agent            protocol and version ("mcp 2025-11-25", "a2a 1.0"), then one setting a line:
//	                 "path /x" where it is listed (/mcp, or / in A2A), "serves /y" where it takes
//	                 messages, "redirects /x /y", "sse" (it replies with event streams), "strict" (it demands
//	                 the header fields of 2026-07-28), "forgets 400" (a
//	                 session lasts for one call, and then is refused with that status)
//	METHOD           the result of that method, or a whole message with ID for the request's id; of a
//	                 streaming method one result a line. `METHOD "CURSOR"` is the page at a cursor
//	GET /PATH        a document, with ORIGIN for the agent's own origin
//	call             params of the call of MCP callers, in place of the tool "t" without arguments
//	initialize with  params of a legacy client's initialize, in place of the usual ones
//	want CALLER      what the reply to a caller has, one text a line, and with "! " before it what it has
//	                 not. CALLER is "all", a protocol or a protocol and version. White space does not
//	                 count. Without a "want error" no reply may be an error
//	want relay       "as it came": a caller of the agent's own version gets the bytes of its result
//	want show        what `agents show` says about the agent
package peers
