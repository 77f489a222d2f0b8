// Package python runs the official Python SDKs through the gateway: clients of MCP (1.x and
// 2.x) and of A2A (1.0 and 0.3), an MCP server of several revisions and an A2A agent. "make
// test" installs them, "make interop" runs this package alone; its programs are in peers.
package python
