// Package bolt is the driver of gateway/state for one process that outlives a
// restart: memory, written behind to a bbolt file (architecture section 6, R20).
//
// Evidence is read from the file; what waits to be written lies before it, in memory
// (package evidence). Everything else is read from and decided in [state.Memory], under its
// bounds. Its journal fills a bounded queue, and one goroutine writes what is queued in one
// transaction, at the latest half a second later (Config.FlushEvery, never more
// than a second), or when the queue is half full. No message waits for a
// disk, unless the queue is full: then writers wait until it is taken, because
// the alternative would be to lose something.
//
// # What is promised
//
// A record, a use of a token, an answer or a turn is accepted when it is in memory and queued; that
// is what the L2 store of the evidence means by "on record". It is on disk after the next group
// commit, and [Store.Flush] waits for that. A stronger promise is that of L3, the ledger.
//
// When a commit fails (disk full, file gone) the store is [Store.Failing]: nothing that was
// accepted is given up, the same changes are tried again every second, and until that works Put and
// Claim are refused with a [state.UnavailableError], so that no more evidence is taken in that may
// never be durable. Finish and Remember return no error; while the store fails they keep nothing
// (the repetition is refused as in progress, the next turn continues from the turn before). Reading
// goes on.
//
// [Store.Close] writes what is queued and the mark of a clean end in one transaction. [Open] takes
// the mark away before anything else happens. If it was there, all uses of tokens since the stored
// epoch are known and the epoch stays. If it was not, up to the last second of the process before
// is missing: what is there is restored, and the epoch is the start, so that tokens issued earlier
// are refused (R6). A sender whose clock is ahead of ours dates a token after the start and may
// have used it before: such a use is on disk before the token is accepted ([Store.Claim]). An
// instant within a second counts: tokens carry whole seconds, so those of the second of the start
// are refused with the earlier ones, for less than a second with [state.UnavailableError], which
// says when to come again. Uses that exceed bounds which became smaller are forgotten with any
// date: then the epoch is the start and [ect.DefaultSkew] more. A new file has the epoch of its
// start, too: that nothing is known does not mean that nothing happened. The mark says nothing of a
// file that was replaced by an older copy of itself; to restore a backup, delete the mark with it,
// or the replay window is open.
//
// # The file
//
// One bucket per kind of state, and one per table of evidence. Keys of kinds are serials, so
// that what is new is appended at one end and expires roughly at the other; records of
// evidence too, and their indexes are small. A commit writes the records; their indexes wait
// for more changes, at most ten seconds, and a start makes those again that an end without
// warning left unwritten. Values have a checksum before them, which
// bbolt has for its two meta pages alone. What has expired is deleted in the same group
// commits, a bounded number each time; the file does not shrink, what is free in it is
// used again.
//
// A start reads everything but evidence, however much there is, and of that what its indexes lack: what is damaged there is
// found when it is asked for, and refused with [state.UnavailableError]. A page of bbolt
// that points back to itself, which no panic tells, ends the process: "bbolt check" of
// bbolt's own program finds such a file.
//
// Blobs have two buckets: what there is, which a start reads into memory, and the bytes, which are
// read when they are asked for. A blob is written in a transaction of its own and not queued. The
// goroutine that writes makes both in turn, so no write of a blob waits in the queue behind others,
// and a blob of 1 MiB delays a group commit by one transaction.
//
// # How to read it
//
// store.go is what callers see, owner.go the goroutine that writes, queue.go
// what lies between them; file.go and write.go are everything about bbolt, evidence.go
// how it reads and writes evidence, and blobs.go and blob_file.go how blobs.
//
// # Alternatives considered
//
// bbolt's own Batch waits up to 10 ms for company at one caller, and Update for
// the disk (R20). Keeping everything but evidence on disk alone would put page reads on
// the pipeline, to save memory that is bounded anyway; evidence lasts for a day, which no
// memory holds. A log file of our own would be smaller and faster; and it would be a
// storage engine to maintain. Serials in groups, one value each, made commits of small
// things faster, and half of the code.
package bolt
