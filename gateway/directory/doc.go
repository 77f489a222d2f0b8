// Package directory knows the agents: their names, endpoints and rules, and
// what they say about themselves.
//
// Agents are put here by an operator (configuration or admin API). What an
// agent says about itself is fetched on first use through its protocol's
// Describer, cleaned (R9: cards and tool descriptions are untrusted text) and
// cached; discovery at the endpoints is answered from that cache (R8). MCP servers show
// more to clients that can be asked for input, so their descriptions are kept by what
// the caller can be asked (Viewer). A listing asks again when what an agent said is no
// longer fresh, and so does a call that names what is not known, at most every five
// seconds.
//
// Alternatives considered: asking the agent at every discovery (an attacker's
// loop would become load on the agent), polling in the background (costs
// for agents without callers), and a stream to each server on which it tells of changes
// (a connection for each, held for callers that may never come back).
package directory
