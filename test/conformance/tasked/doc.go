// Package tasked is an MCP server of 2026-07-28 whose tools become tasks
// (extension io.modelcontextprotocol/tasks). The MCP SDK has none, so the tests
// that need one stand this one up: the conformance suite passes it when it is
// asked directly, and so what the suite sees through a gateway is the gateway's
// doing.
//
// How to read it: server.go is what a request meets, tools.go the tools that
// the suite wants, task.go a task. A task has no process of its own: how it
// stands is worked out from the clock when somebody asks.
//
// Alternative considered: the SDK's server with handlers of its own for tasks/*.
// It refuses methods that are not in its table before any handler is asked.
package tasked
