// Package mcpbridge gives MCP callers what their agents lack. artifacts.go keeps artifacts of A2A
// tasks, which callers read as MCP resources; subscriptions.go keeps what a session subscribed to,
// for agents of a revision in which each new stream has to subscribe again.
package mcpbridge
