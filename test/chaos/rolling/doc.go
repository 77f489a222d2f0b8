// Package rolling restarts gateways under load, one after the other, and checks what
// their clients, the agents and the webhooks saw. It is an act of test/chaos.
//
// Two groups are restarted at the same time: three gateways over one Redis, and one
// gateway over a file. First each gateway is killed (SIGKILL), then each is stopped in order
// (SIGTERM), and each runs again before the next one stops. Clients use the replicas in
// turn. They try once more, at another replica, after a connection that broke, after
// 502, after 503 with Retry-After and after a stream that ended before its work; with one
// gateway alone they try again when it listens again. Calls go on all the time. Before each
// restart, this work begins at the gateway that is restarted:
//
//	stream    work whose events are streamed
//	task      work in the background, half of it at MCP agents
//	waiting   a call that is answered later
//	question  a question of an agent, answered at another replica after the restart
//	pushed    work in the background whose end is posted to a webhook
//
// These rules must hold. A client that tries once more sees no failure. All acknowledged
// work ends: completed, and done once at the agent, or failed with a reason. Only work that
// breaks with its connection may fail: a call at an MCP server without tasks whose gateway
// is killed, and a question that an MCP server asks in a stream that it keeps open. Each
// question is answered, and the agent gets its answer once. Each end is posted once. Each
// ECT that a client received verifies and can be read at another replica afterwards,
// except those of the last second before a gateway over a file is killed: it writes them
// every second, and its documentation says so.
//
// How to read it: rolling.go has the course of the act, fleet.go the gateways, agents.go
// the agents and the webhooks; caller.go is a client with its second attempt, wire.go what
// it reads, work.go the work that it starts; judge.go decides.
//
// Alternative considered: the callers of test/chaos, which use the SDKs. SDKs hide the
// status, the header fields and the trailer of an answer, which tell a client whether to
// try again and which evidence it got.
package rolling
