// Package peers reads at other gateways how their circuit breakers stand (GET /atd/breakers), so
// that breakers of several gateways that open for one agent call a human once (ATD, Coordinated
// Circuit Breaking; R21).
//
// A [Subscriber] has a stream to each gateway that the directory lists as a peer. The peer proves its
// identity by its certificate, and what it says counts for that identity alone. A stream that ends
// begins anew after a growing time, and one on which nothing comes is given up.
//
// subscriber.go follows the list of peers, stream.go reads one stream, pace.go says how fast and
// how soon again.
//
// # Weapons
//
// A peer may lie, flood and be silent. It can have an opening counted, for an agent that is listed here
// and once within a minute: two more gateways must say the same for a human to be called. It opens and
// closes no breaker here. Of its stream are read 20 events a second, 64 KiB of each, and 16 MiB before
// the stream begins anew, a minute later if it does so again and again. Which agents have failed is
// remembered for 256 of them at each peer, and 64 peers there are at most.
//
// A stream shows what one replica of the peer knows: that to which the connection goes.
package peers
