// Package state stores the state of the gateway, behind the small interfaces that the lower layers
// declare. This is the driver for one process, in memory. Package bolt adds a file to it.
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
//   - [Blobs] keeps larger values that are written once: the contents of checkpoints.
//     Full, it refuses.
//
// Read bounded_map.go first: it holds the bounded, expiring map of answers and conversations.
// expiring.go is the map under the entries, which change. Both drop a few expired pieces with every
// write: this needs no goroutine, and no write takes long. A driver with a file has a journal
// (journal.go), which learns every change and can restore it. owners.go counts the entries of each
// owner; codec.go and internal/encoding write state as bytes; internal/index finds the pieces of a
// bounded map.
//
// statetest holds the contract of what is declared nowhere else; every driver
// has to pass it, and the suites of package ect/ecttest.
//
// Alternatives considered: one map for everything (a flood of one kind would
// evict another); a least-recently-used order (evidence and replays have an
// end of their own, and use does not prolong it); an object for each thing kept,
// and a heap of their ends (at a thousand calls a second the collector's walk
// through them was half of what a translation cost); locks in shards
// (BenchmarkClaim_SingleLock: hashing the key happens outside the lock, and what is inside
// takes less than a microsecond with every core on it, a hundredth of a
// signature check).
package state
