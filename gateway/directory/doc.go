// Package directory knows the agents: their names, endpoints and rules, and
// what they say about themselves.
//
// Agents are put here by an operator (configuration or admin API). What an
// agent says about itself is fetched on first use through its protocol's
// Describer, cleaned (R9: cards and tool descriptions are untrusted text) and
// cached; discovery at the doors is answered from that cache (R8).
//
// Alternatives considered: asking the agent at every discovery (an attacker's
// loop would become load on the agent), and polling in the background (costs
// for agents nobody calls).
package directory
