// Package peers holds the strangers that the demo and the interop tests put
// around the gateway: an A2A agent and an MCP server built with the official Go
// SDKs, and the unmodified clients of the same SDKs.
//
// They exist because a gateway that only ever talks to its own codecs proves
// nothing. None of these peers knows AEPB: they neither sign nor read ECTs. The
// servers do keep a bounded journal of what reached them, with the
// Execution-Context values, so that a caller can show and verify what the
// gateway sent on.
//
// How to read it: server.go is the loopback TLS 1.3 listener that both servers
// share and journal.go is what it remembers; a2a.go is the concierge agent,
// mcp.go the toolbox server; client.go has the two calls.
//
// Alternatives considered. Subprocesses would be stranger still, but the demo is
// to run from one binary with nothing installed. Hand-written peers would let us
// echo numbers of any size over A2A, but they would share our reading of the
// protocols; where the SDK rounds (A2A data parts pass through float64), the
// peer rounds.
package peers
