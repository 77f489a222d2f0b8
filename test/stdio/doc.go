// Package stdio runs MCP servers over standard input and output behind the real gateway
// binary: published ones (servers_test.go), and one of our own that misbehaves (wild_test.go).
package stdio
