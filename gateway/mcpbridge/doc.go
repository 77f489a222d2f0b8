// Package mcpbridge keeps what callers of MCP see of agents that have no such thing:
// artifacts.go is what came of tasks, as resources, and subscriptions.go what a session
// subscribes to, where the agent's revision asks for that anew with each stream.
package mcpbridge
