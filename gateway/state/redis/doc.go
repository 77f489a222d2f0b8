// Package redis is the driver of gateway/state for several replicas: a Redis
// server, one found through Sentinels, or a Redis Cluster (architecture section
// 6, R18, R19). Nothing is kept in this process, so any replica may answer.
//
// # What is promised
//
// Every change is one Lua script on keys of one slot. A script that may be sent twice, because its
// first answer was lost, carries a nonce by which Redis knows it, so that a caller is never told
// that another write was first when that was its own. Every operation ends within Config.Timeout;
// while Redis is known to be away it is refused at once with a [state.UnavailableError], and by
// itself taken again when Redis is back.
//
// Entries of durable kinds, and blobs, count when Config.Wait replicas have acknowledged
// them, asked on the connection that wrote. Reading does not wait for that: who
// reads may see what is not confirmed yet. What is left to chance is that a master
// and all those replicas are lost before any of them has it on disk.
//
// Uses of tokens (R6) are known since an epoch, which is kept beside them and
// begins anew whenever a master was restarted, replaced or emptied: then uses may
// have been lost, and tokens from before are refused: with a wait in the second of the
// epoch, and for good later. A token that is dated ahead is not used before its date, by
// Redis's clock: the call waits up to 5 seconds, and is refused until then if it is more.
//
// [Open] refuses a Redis that evicts keys, does not write to disk, or does not let us
// log in; it waits for one that cannot be reached, and for a cluster that changes its masters. Redis is looked at again every
// second, and one that has become unfit is as good as away.
//
// # How to read it
//
// store.go is the frame, watch.go the looking at Redis; replays.go, tokens.go, listing.go,
// answers.go, entries.go, blobs.go and lease.go are one kind of state each, with its
// scripts; await.go is how those learn of a change who wait for one.
//
// # Alternatives considered
//
// MULTI with WATCH needs two round trips and a retry where a script needs one.
// Notifications of the key space have to be switched on by the operator and are
// lost as easily as messages of a channel of our own; either way those who wait
// also look by themselves. Sharded channels would spread announcements over a
// cluster, at the price of a subscription to each of its masters.
package redis
