// Package uacp carries µACP frames over TLS 1.3 connections, each frame behind
// its length in two bytes, big-endian.
//
// µACP's own carrier is the datagram, protected by OSCORE. AEPB demands TLS 1.3
// of every conforming binding (Protocol Downgrade Prevention), so frames travel
// in a stream here. Datagrams are for development, and between addresses of this
// machine only: taken in (datagram.go) a TELL is repeated until it is acknowledged,
// toward agents (loose.go) a request until something follows it. No frame is longer
// than one datagram, and neither end can prove its identity.
//
// serve.go is the listener: agents known apart by the TLS server name, several requests at once
// on a connection, each answered under its own id when it is ready. A frame with
// quality of service 1 that comes again is answered as before (recent.go); a
// TELL with it is acknowledged. On a stream nothing has to be said twice, so
// nothing is. observe.go sends and receives events. dial.go is
// the way out: a connection per request, through the guarded dialer. frame.go
// is the framing that both share.
//
// share.go counts connections: those in their TLS handshake by address, and those of
// callers by caller. Where anonymous callers are refused, the handshake fails without a
// certificate. A caller with too many connections gets an error in answer to its first
// frame.
//
// Evidence travels inside the payload where the peer speaks envelopes, and by
// reference where it does not (package translators/uacp). A frame has 65535 bytes
// and no second one, so a message can leave no space for its token. It goes out all
// the same: the codec has written the token's jti into it (aepb.parent_jti, under
// the hash that the token testifies to), under which its issuer and its audience
// find it, at GET /ects/{jti}. Where only some tokens fit, the one about this very
// message comes before those that it was made of. Two kinds of message name none,
// since nothing may be written into them: one that is relayed byte by byte, and
// the reply that ends an observation, whose closing token is made after it; both
// tokens are in the workflow (GET /workflows/{wid}) that an observer's opening token
// and a caller's own name. The listener and the dialer report each of these messages
// (ByReference), so the metrics count them.
//
// A request names the token that it came of in the same place, or bare in option 41.
// The pipeline judges that (package gateway, parent.go): a name that it does not know is
// refused, and so is a frame of another gateway that had no space for its token,
// unless both share their evidence.
//
// An answer that fits no frame at all is refused with PAYLOAD_TOO_LARGE (4A), and
// names the task under which the pipeline has kept it for endpoints of other protocols;
// observed, it is sent event by event, each in a frame of its own.
// Cutting it into several was not to be had: neither reference code does, so no peer
// would put it together again.
//
// Alternatives considered: to refuse what leaves no space for its token (a message
// lost for the sake of its receipt), the reference's vendor options (the Python code
// breaks on them), the jti in the slot for tokens (a peer that reads tokens there would
// refuse it), WebSocket (another handshake for nothing, as long as no browser
// speaks µACP), and one connection for many requests toward agents
// (the reference codes do not agree on how replies are paired, so a stray reply
// could be taken for another request's).
package uacp
