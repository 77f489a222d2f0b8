// Package demo plays the gateway's main job with real peers: agents and
// clients built with the protocols' own SDKs, none of which knows the gateway.
//
// An A2A client uses an MCP server and an MCP client uses an A2A agent. Then
// everything that the gateway proved is checked from the outside: signatures,
// lineage, and every hash against the bytes that were really on the wire.
// The demo succeeds only if all of it holds.
//
// In the scene of an agent that fails, one of the agents breaks, recovers and is retired. In that of approvals, calls
// wait for an approver, who grants one and denies another. In that of rollbacks a step fails, and what led to it is undone
// at an MCP server by a compensating call, and at an agent of µACP by its own rollback.
//
// The agent of µACP is in this package, because that protocol has no SDK. SLIM would need a node, which is a program of its
// own that would have to be downloaded.
package demo
