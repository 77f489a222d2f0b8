// Package ainp carries AINP envelopes: over HTTPS, one POST for a message and
// its answer, or over a WebSocket that stays open, where an intent is answered
// with as many messages as it takes and its sender can be asked.
//
// The draft fixes no transport; its reference broker takes an envelope, says
// "routed" and delivers the RESULT later as a message of its own. Here the
// RESULT is the response to the POST: a gateway's caller waits anyway. An agent
// that only says "routed" is a bad reply; delivery through a broker would be
// another dialer beside this one.
//
// A WebSocket begins as a GET at the same URL, and its callers are who they are
// there; "?did=" keeps it to messages in one name. Evidence travels inside the
// messages; that which closes a stream is in its last one, which is held back
// for it. A caller that closes the connection, or sends a TaskCancel with the intent_id,
// cancels its intent. Towards an agent each intent has a connection of its own: a
// cancellation stops that intent alone, and no other exchange's message arrives there.
//
// did.go finds the keys of a DID (did:key, did:web), verify.go judges an
// envelope (freshness, signature, replay, in this order: a stranger's key is
// not fetched for a message that is too old), sign.go puts evidence and
// signature into one that leaves. serve.go is the server, dial.go the way out;
// socket.go and socketdial.go are the same for WebSockets.
//
// Who a caller is, policy asks by SPIFFE id. A DID stands for one where the
// operator says so (DoorDeps.Identity); any other DID proves that the message
// is whole and no more, and its caller is the one that the connection proved. A message
// that names another receiver than us or the agent of the URL is refused, for its
// signature holds wherever it is carried. One that names no receiver at all, as the
// draft and the reference code allow, is taken over a connection that itself proved
// who calls, and then gives its sender no rights; where the signature alone says who
// calls it is refused, because each service that was ever sent such a message could
// use it here.
//
// # What unknown callers can make the gateway do
//
// The document of a did:web is fetched if an operator names that DID, as a caller's
// or as an agent's, and for no other: a message costs its sender nothing, and the
// request that it causes would be ours. A connection that proved no identity brings
// messages of such callers alone. Documents are kept for ten seconds at least, found
// or not, and fetched once for all who wait for them, eight at once from a host and
// 32 in all. The client that fetches shows no certificate (gateway/server).
//
// Connections that stay open are counted by caller (place.go). One that proved no
// identity is refused, unless some callers are known by a DID; it is counted by
// address then, has thirty seconds for a message that proves one, which is read
// before the next, and at most 256 KiB for it.
//
// A signature is accepted under either reading of the draft (package
// translators/ainp, SigProfile), and answered under the one it came in.
package ainp
