// Package a2a is the wire of the Agent2Agent protocol: 1.0 and 0.3, over JSON-RPC
// and over HTTP alone.
//
// serve.go is the [Door]: POST with one JSON-RPC message of either version at
// /agents/{agent}/a2a; below it the places of the HTTP form (rest.go), those of
// 0.3 under /v1, and the agent card (card.go), one document for clients of both
// versions. It authenticates nothing and decides nothing. What the road refuses
// is said in the protocol's own words: a JSON-RPC error, with the HTTP status of
// the refusal where a client acts on it (limits, credentials, an unknown agent,
// evidence, size) and 200 elsewhere; in the HTTP form a google.rpc.Status under
// a status that fits it.
//
// A stream is answered as one of server-sent events (stream.go), the next one
// asked for when the last was written; over JSON-RPC what is refused is an event
// too, because a client that asked for a stream reads nothing else. The extended
// card is the card that everybody gets: the agent's own names places that are
// not ours.
//
// push.go is the [Pusher], which posts changes of tasks to webhooks.
//
// dial.go is the [Dialer]: it carries a sealed message to an agent and judges
// whether what comes back is a reply to it. describe.go reads an agent's card
// and picks the interface: the newest version first, JSON-RPC before HTTP.
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
