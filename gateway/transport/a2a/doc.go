// Package a2a is the wire of the Agent2Agent protocol: JSON-RPC over HTTP.
//
// serve.go is the [Door]: POST with one JSON-RPC message at /agents/{agent}/a2a,
// and the agent card beside it (card.go). It authenticates nothing and decides
// nothing. What the road refuses is said in the protocol's own words: a
// JSON-RPC error, with the HTTP status of the refusal where a client acts on
// it (limits, credentials, an unknown agent, evidence, size) and 200 elsewhere.
//
// dial.go is the [Dialer]: it carries a sealed message to an agent and judges
// whether what comes back is a reply to it. describe.go reads an agent's card.
// A card is somebody's claim: it may name a path on the host that the operator
// configured, and never another host, or a card could send the gateway, and
// whoever trusts it, anywhere.
//
// # Alternatives considered
//
// The protocol's own server and client: they decode into Go types, which
// changes bytes that were hashed, and they follow redirects and retry by
// themselves, which sends messages that no receipt covers. One handler for
// card and calls: they differ in everything, methods, caching, errors.
package a2a
