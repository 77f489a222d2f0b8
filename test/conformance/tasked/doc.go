// Package tasked is an MCP server of 2026-07-28 whose tools become tasks
// (extension io.modelcontextprotocol/tasks). The MCP SDK has no such server, so tests
// start this one. It passes the conformance suite when the suite calls it directly;
// so a failure through a gateway comes from the gateway.
//
// How to read it: server.go takes the requests, tools.go has the tools that the suite
// calls, task.go a task. A task has no goroutine of its own: its state follows from
// the clock when a client asks for it.
//
// Alternative considered: the SDK's server with handlers of its own for tasks/*.
// It refuses methods that are not in its table before it calls any handler.
package tasked
