// Command chaos stops replicas of the gateway and the Redis that they share, under load,
// and checks what callers were told. It exits with 1 if any of it was wrong.
//
//	go run ./test/chaos
//	go run ./test/chaos --time 20s --act replicas
//
// Three gateways of one identity share a real Redis behind a TCP balancer; agents and
// callers are built with the official SDKs. The acts:
//
//	replicas  a gateway is killed every few seconds, and started again
//	redis     Redis is restarted in the middle
//	cluster   of three masters with a replica each one is killed, and returns later
//	rolling   all gateways are restarted one after the other, abruptly and in order
//	approvals gateways are killed while calls wait for humans
//	rollbacks gateways are killed while work is undone
//	consensus gateways and masters are killed while agents decide together
//
// The last four acts are stricter than the others and have packages of their own (rolling,
// approvals, rollbacks, rounds). What follows is about the others.
//
// Errors are allowed, and so are connections that break visibly. Where gateways are
// killed, the answer to a question may get lost too, since MCP clients do not send it
// again. The code calls a violation a lie. These are violations: an answer that is not the
// agent's for that very call; accepted work that no replica knows, or that never ends; a
// call that the agent did twice; a stream that ends normally without its last event; a
// call without any answer; and an act in which some kind of call never succeeds, since
// the act then proves nothing.
//
// How to read it: main.go has the flags and play.go the acts; servers.go starts a cluster
// of Redis, and cast.go starts the gateways behind a balancer (test/harness); agents.go
// has the agents, with a record of what they did; callers.go makes the load, with mcp.go
// and a2a.go for its protocols, and asks every replica afterwards; witness.go reads the
// streams, and judge.go finds the violations.
//
// Alternatives considered: a simulated clock and network, which find more orders of
// events but no mistakes between processes; counting errors, which rewards a gateway for
// hiding them.
package main
