// Package plain carries JSON-RPC on a session: each message is one JSON-RPC
// message in UTF-8, without any metadata that would be needed. This is how MCP
// goes over SLIM.
//
//   - message.go: what of a message is looked at: its id and its method
//   - client.go: a conversation that we begin
//   - server.go: one that others begin
//
// Nothing here judges the messages; that is the translators' work. The same
// Handler serves these calls and those of package rpc: here they have no service.
//
// A conversation has a state of its own in MCP, and ids that its client chose,
// so there is one session for each, and who begins one decides what shares it.
package plain
