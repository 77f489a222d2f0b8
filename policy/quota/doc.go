// Package quota bounds what one caller may hold of a resource that all callers
// share: connections, streams, bytes in flight, workers, stored bytes.
//
// A [Pool] has a total and a limit per holder. A holder is the verified identity
// of a caller, or the network address of a caller without one: use the keys of
// policy/limit. Both bounds hold at every moment. The last quarter of a pool is
// kept for holders who hold little (at most an eighth of their own limit), so that
// a few holders at their limit do not lock out the others. A caller without an identity
// can appear as many callers: give such callers a pool of their own.
//
// [Places] are for resources that are held for long and used now and then, such as connections:
// an unused one is taken for the next holder, so that it takes nothing from others.
//
// A refused holder keeps what it has and may try again. Where a refusal would waste finished
// work, because its result must be stored, [Grant.GrowWithin] waits instead: holders take turns,
// and while one waits, no other holder gets more than a quarter of the pool.
//
// Alternatives considered: golang.org/x/sync/semaphore bounds the total only, and
// lets callers wait in one line, in which one caller can stand many times. Maximum
// fairness (total divided by the number of holders) would take back what was
// granted before.
package quota
