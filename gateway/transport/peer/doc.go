// Package peer carries messages on to other translation gateways (AEPB and CPAT,
// Multi-Hop Translation): it posts them to their translate endpoints, with the
// ECT of the translation that was made here, and reads what comes back.
//
// Read dial.go, then reply.go.
//
// A message travels in a protocol that both gateways speak and that has one
// message per HTTP body: A2A or MCP, over JSON-RPC. What the next gateway makes
// of it is its own matter, and its own evidence. A refusal of that gateway is a
// problem document (RFC 9457), and becomes a *transport.RefusedError with the
// evidence that came along; an agent's error is a message like any other.
//
// Alternatives considered: the native endpoints of the next gateway, which need no
// package at all, since to them a gateway is a client like any other. That way
// remains: an agent may be listed with the URL that it has at another gateway.
// But an endpoint knows nothing of protocols that the sender could not name, and
// a gateway cannot ask it beforehand whether it translates a pair.
package peer
