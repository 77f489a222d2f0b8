// Command chaos breaks what several replicas of the gateway stand on, under load,
// and says whether anybody was told a lie. It ends with 1 if somebody was.
//
//	go run ./test/chaos
//	go run ./test/chaos --time 20s --act replicas
//
// Three gateways of one identity share a real Redis behind a balancer that knows
// nothing but TCP; agents and callers are built with the official SDKs. The acts:
//
//	replicas  a gateway is killed every few seconds, and started again
//	redis     Redis is restarted in the middle
//	cluster   of three masters with a replica each one is killed, and returns later
//	rolling   all gateways are restarted one after the other, abruptly and in order
//
// The last one is stricter than the others: see package rolling, which it is in. What
// follows is of the others.
//
// Errors are allowed, and so are connections that break where everybody sees it.
// Where gateways are killed, so is that of an answer to a question, which MCP
// clients do not send again.
// These are lies, and none is allowed: an answer that is not the agent's for that
// very call; accepted work of which no replica knows anything, or which never
// ends; a call that the agent was made to do twice; a stream that ends properly
// without its end; a call that nobody ever answers. So is an act in which some
// kind of call never succeeds: then nothing was proved.
//
// How to read it: main.go are the flags and play.go the acts; servers.go is a cluster
// of Redis, and cast.go starts the gateways behind a balancer (test/harness); agents.go
// are the agents, with the journal of what they did; callers.go is the load, with
// mcp.go and a2a.go for its protocols, which also asks every replica afterwards;
// witness.go reads the streams as they come, and judge.go decides; rolling is an act with
// gateways, agents and callers of its own.
//
// Alternatives considered: a clock and a network that are simulated, which find
// more orders of events and none of the mistakes between processes; counting errors,
// which rewards a gateway for hiding them.
package main
