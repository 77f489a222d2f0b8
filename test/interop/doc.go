// Package interop holds the gateway to its word with software that is not ours:
// unmodified SDK clients on one side, SDK-built servers on the other, and the
// real gateway binary between them. Go on Go and JavaScript on Go; both MCP eras.
//
// The evidence is checked by verify_test.go, which knows ECTs from the drafts
// alone: stock golang-jwt, crypto/x509 and a SHA-256, none of our packages.
//
// How to read it: gateway_test.go is the seam that starts the gateway and its
// peers, wire_test.go records what went over the wire, js_test.go runs the
// clients in js/. The scenarios are a2a_test.go (A2A callers of MCP servers) and
// mcp_test.go (MCP callers of an A2A agent). direct_test.go runs the JavaScript
// clients straight against the peers, so that a failure elsewhere is ours.
// fidelity_test.go runs everything that a callee can do, between every two ways
// of calling and being called, and logs a table of that.
package interop
