// Package bridge connects A2A and MCP with the official Go SDKs and nothing else: what a user
// of both would write in an afternoon. The benchmark compares the gateway with it.
//
// It verifies, hashes and signs nothing, has no policy, limits, records or traces. Wherever
// the SDKs leave a choice, the cheaper one was taken:
//
//   - The A2A side answers with a message, so that the SDK stores no task. The gateway
//     answers with a task.
//   - Both MCP sides speak revision 2025-11-25. In the stateless revision after it the SDK's
//     server makes a session for each call, and its client sends and reads more: both cost more.
//   - The MCP server answers in JSON, not in an event stream.
//   - Arguments of tools pass through as the JSON that they are.
//   - Nothing is logged.
//
// How to read it: bridge.go puts both directions on one handler, toolcalls.go is A2A to MCP
// and messages.go MCP to A2A.
package bridge
