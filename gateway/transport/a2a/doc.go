// Package a2a is the wire of the Agent2Agent protocol: 1.0 and 0.3, over JSON-RPC
// and over HTTP alone, and 1.0 over gRPC.
//
// serve.go is the [Server]: POST with one JSON-RPC message of either version at
// /agents/{agent}/a2a; below it the places of the HTTP form (rest.go), those of
// 0.3 under /v1, and the agent card (card.go), one document for clients of both
// versions. It authenticates nothing and decides nothing. What the pipeline refuses
// is written as an error of the protocol: a JSON-RPC error, with the HTTP status of
// the refusal where a client acts on it (limits, credentials, an unknown agent,
// evidence, size) and 200 elsewhere; in the HTTP form a google.rpc.Status under
// a status that fits it.
//
// A stream is answered as one of server-sent events (stream.go), the next one
// asked for when the last was written; over JSON-RPC what is refused is an event
// too, because a client that asked for a stream reads nothing else. The extended
// card is the public card: the agent's own extended card names URLs that do not
// lead through the gateway.
//
// listener.go is the [Listener], the server over gRPC on a port of its own, and
// remote.go one call of it. The agent is the tenant that the request names,
// which then says nothing to the agent, or the metadata aepb-agent. Evidence is
// in the metadata: that of the request in the initial, ours in the initial and,
// of a whole stream, in the trailer. A caller that signs no tokens names the one that
// its message came of in the field Aepb-Parent-Jti, or the metadata of that name. A refusal is a status with an ErrorInfo.
// Messages are kept as they travel; package frame says what they mean.
//
// push.go is the [Pusher], which posts changes of tasks to webhooks: an event of
// 1.0 to those of callers of 1.0, the whole task to those of callers of 0.3.
//
// dial.go is the [Dialer]: it carries a sealed message to an agent and judges
// whether what comes back is a reply to it; dialgrpc.go does so over gRPC, which
// goes the way of all other requests. describe.go reads an agent's card, and
// address.go picks the interface: the newest version first, JSON-RPC before HTTP before
// gRPC, unless its operator named a place for gRPC.
// The gateway cannot verify a card. A card may name a path on the host that the
// operator configured. It may not name another host, or an agent could make the
// gateway send requests to any host.
//
// # Alternatives considered
//
// The protocol's own server and client: they decode into Go types, which
// changes bytes that were hashed, and they follow redirects and retry by
// themselves, which sends messages that no receipt covers. One handler for
// card and calls: they differ in everything, methods, caching, errors. The
// client of gRPC's library: it resolves, dials, balances and retries by itself,
// past the guard; two calls of HTTP/2 are all that is needed of it.
package a2a
