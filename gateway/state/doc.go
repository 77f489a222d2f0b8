// Package state keeps what the lower layers ask to be kept, behind the small
// interfaces that they declare. This is the driver for one process: memory.
// Package bolt is the same with a file behind it.
//
// There is one type per kind of state, each with bounds of its own, so that a
// flood of one kind cannot push out another:
//
//   - [Tokens] is the evidence store (ect.Store), which package evidence is: in memory, or
//     with package bolt in its file.
//   - [Replays] is the replay cache (ect.ReplayCache, R6). Full, it refuses
//     with a [UsesError] rather than forget: forgetting would let a token be
//     used twice. Each issuer has a share, by the rule of package quota.
//   - [Answers] holds what was answered, for byte-identical repetitions (R6).
//     Full, the owner that has most loses its oldest.
//   - [Conversations] remembers where each conversation stands (R3).
//   - [Entries] holds small records that are changed by compare-and-swap and
//     outlive a request: tasks, native sessions, continuations, push configs.
//     Full, it drops tasks that have ended, and then refuses.
//
// Read shelf.go first: the bounded, expiring map under what every message leaves
// behind; expiring.go is the one under the entries, which change. Both sweep a
// little with every write, so nothing needs a goroutine and no write ever pays
// for a long sweep. journal.go is what a driver needs that keeps
// the memory somewhere safer: it is told of every change, and can restore one;
// owners.go is what each owner has of the entries; codec.go and internal/encoding are how
// state is written; internal/index finds what is on a shelf.
//
// statetest holds the contract of what is declared nowhere else; every driver
// has to pass it, and the suites of package ect/ecttest.
//
// Alternatives considered: one map for everything (a flood of one kind would
// evict another); a least-recently-used order (evidence and replays have an
// end of their own, and use does not prolong it); an object for each thing kept,
// and a heap of their ends (at a thousand calls a second the collector's walk
// through them was half of what a translation cost); locks in shards
// (BenchmarkClaim: hashing the key happens outside the lock, and what is inside
// takes less than a microsecond with every core on it, a hundredth of a
// signature check).
package state
