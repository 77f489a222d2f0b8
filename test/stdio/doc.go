// Package stdio runs MCP servers over standard input and output behind the gateway, as the
// black box that it is: those of servers_test.go, which others wrote, and one of its own
// that misbehaves (wild_test.go).
package stdio
