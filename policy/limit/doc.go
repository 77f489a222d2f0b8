// Package limit keeps one source from flooding the gateway (AEPB, Gateway
// Requirements item 6; CPAT, Translation Gateway Requirements item 6).
//
// A [Limiter] holds a token bucket per source. A source is the verified
// identity of a caller, or the network of a caller without one: never a header
// that the caller can choose ([Identity], [Address]). Read limit.go first;
// key.go says which callers are one source, table.go bounds the memory.
//
// The table is bounded. A source may be forgotten only after it has been idle
// for as long as its bucket takes to fill, so being forgotten is never a gift.
// When all remembered sources are active, new ones share one overflow bucket:
// inventing sources buys nothing and costs the others nothing. Identities and
// addresses have tables of their own, because addresses are cheap to come by
// and identities are not.
//
// Replicas of a gateway share their buckets (R19, shared.go): each leases up to a tenth
// of a second's worth of its part of the requests at a time, no more than twice of what
// came since, so that a busy source costs a round trip per lease and not per request.
// Over any T seconds all replicas admit at most rate×T + burst + replicas×batch. Of an
// empty bucket a replica leases what is earned next, behind the leases of the others: so
// replicas that ask for more than there is take turns, and none starves; with refusals
// instead, the first to ask again would have all of it for seconds. While the shared buckets are away each replica
// admits its share, the rate divided by the number of replicas.
//
// Alternatives considered: a fixed window (lets twice the rate through at its
// border); refusing new sources when the table is full (a stranger could lock
// out a caller with an identity); forgetting the oldest source whatever its
// state (a stranger with many addresses resets every bucket); locks in shards
// (BenchmarkAllow_LocalBucket: one lock costs well under a microsecond with every core on
// it, a shard would cost the exact bound).
package limit
