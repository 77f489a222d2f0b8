// Package accept bounds the connections of a listener: how many there are, how
// many one network address and one identity have, how long one may be open before
// its first request, and how long a reader may not read.
//
// [Gate.Listen] wraps a listener below TLS. A connection is in one of three states, each
// with places of its own (quota.Places):
//
//   - fresh: nothing was asked on it, though its handshake may be over. It counts for its
//     address. It ends if no request comes soon.
//   - stranger: something was asked ([Conn.Begin]), and no identity was proved. It counts
//     for its address, and ends when it is idle for some seconds.
//   - identified: a certificate ([Conn.Begin]) or a token ([Conn.Prove]) has proved an
//     identity. It counts for that.
//
// So callers with an identity never compete with strangers, and in each state a new
// connection takes the place of one on which no request is under way, from the holder
// with the most, when there are no more: no number of addresses keeps new callers out.
// A connection with a request under way does not give way.
//
// Neither does a fresh one while this side works on what it said (its handshake, the
// header of its request): callers of a busy gateway open more connections than they use,
// and to close the oldest closed handshakes that this side had kept waiting. Else the one
// whose caller is silent for longest gives way, however old. That is no weapon: how long
// work takes depends on this side alone, a single byte only puts a connection behind the
// others, for the price of a new one, and FirstRequest ends it. Were the newest refused
// instead, a few silent connections would keep out all others of the same address for that
// long; it is refused only when all are worked on, which costs less than half a handshake.
//
// The identity is not read in the handshake itself: crypto/tls judges a client's
// certificate before the client has proved that it has the key, and a certificate
// is public.
//
// Alternatives considered: netutil.LimitListener of golang.org/x/net bounds the
// total alone, and lets new connections wait behind those that hold it.
package accept
