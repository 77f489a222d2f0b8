// Package accept bounds the connections of a listener: how many there are, how
// many one network address and one identity have, how long one may be open before
// its first request, and how long a reader may not read.
//
// [Gate.Listen] wraps a listener below TLS. A connection first counts for its
// address. When its first request comes, the server calls [Conn.Begin] with the
// identity that the handshake has verified, and the connection counts for that
// from then on: callers behind one address do not stand in each other's way, and a
// stranger at that address takes nothing from them. A connection that is over a
// limit is closed at once; where the places of callers without an identity are all
// taken, the one that has waited longest for its first request gives way.
//
// The identity is not read in the handshake itself: crypto/tls judges a client's
// certificate before the client has proved that it has the key, and a certificate
// is public.
//
// Alternatives considered: netutil.LimitListener of golang.org/x/net bounds the
// total alone, and lets new connections wait behind those that hold it.
package accept
