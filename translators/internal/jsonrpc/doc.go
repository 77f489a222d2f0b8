// Package jsonrpc is the JSON-RPC 2.0 envelope that A2A and MCP share.
//
// It reads one message, never a batch (R8: a 2025-03-26 batch is split by the
// endpoint), and keeps ids raw because 1 and "1" are different ids.
package jsonrpc
