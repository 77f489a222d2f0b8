// Package rolling restarts gateways under load, one after the other, and looks at what
// their clients, the agents and the webhooks lived through. It is an act of test/chaos.
//
// Two fleets are restarted at the same time: three gateways over one Redis, and one
// gateway over a file. First each gateway is killed (SIGKILL), then each is ended in order
// (SIGTERM), and each is there again before the next one ends. Clients go to one replica
// after the other, and try once more at another one after a connection that broke, after
// 502, after 503 with Retry-After and after a stream that ended before its work; where
// there is but one gateway, once it listens again. All the time there are calls; and
// before each restart there begin, at the gateway that is restarted:
//
//	stream    work that is heard as it goes
//	task      work in the background, half of it at MCP agents
//	waiting   a call that is answered later
//	question  something that an agent asks, answered at another replica after the restart
//	pushed    work in the background whose end is posted to a webhook
//
// What must hold: a client that tries once more sees no failure. All work that was
// acknowledged ends: as completed, once done at the agent, or with a reason that is told,
// which only work may do that breaks with its connection: a call at an MCP server without
// tasks whose gateway is killed, and a question that an MCP server asks in a stream that
// it keeps open. Each question is answered, and its answer comes to the agent once. Each end is
// posted, once. Each ECT that a client received verifies, and is found at another replica
// afterwards, but for those of the last second before a gateway over a file is killed: it
// writes them every second, and says so.
//
// How to read it: rolling.go is the course of the act, fleet.go the gateways, agents.go
// the agents and the webhooks; caller.go is a client with its second attempt, wire.go what
// it reads, work.go the things that it does; judge.go decides.
//
// Alternative considered: the callers of test/chaos, which are built with the SDKs. Those
// hide the status, the header fields and the trailer of an answer, by which a client knows
// whether to try again and what it was given as evidence.
package rolling
