// Package quota bounds what one caller may hold of a resource that all callers
// share: connections, streams, bytes in flight, workers, stored bytes.
//
// A [Pool] has a total and a limit per holder. A holder is the verified identity
// of a caller, or the network address of a caller without one: use the keys of
// policy/limit. Both bounds hold at every moment. The last quarter of a pool is
// kept for holders who hold little (at most an eighth of their own limit), so that
// a few holders at their limit do not lock out the others. Callers without an
// identity cost nothing to invent: give them a pool of their own.
//
// [Places] are for what is held for long and used now and then, such as connections: an
// unused one gives way to the next, so that holding costs others nothing.
//
// A refusal costs its holder nothing that it has, so what was asked for may be asked for again. Where
// that is not so, because finished work has a result to store, [Grant.GrowWithin] waits: holders
// take turns, and while any wait, none gets more than a quarter of the pool besides.
//
// Alternatives considered: golang.org/x/sync/semaphore bounds the total only, and
// lets callers wait in one line, in which one caller can stand many times. Maximum
// fairness (total divided by the number of holders) would take back what was
// granted before.
package quota
