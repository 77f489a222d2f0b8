// Package evidence is the evidence store (ect.Store) over ordered tables: in memory, or on
// disk with the changes that wait for it in memory. What it decides, it decides from the
// tables alone, so that it is the same for both. A start reads only the records that were
// written after the other tables were, some ten seconds of them at most.
//
// A record is kept until its end. When the store is full the holder of most loses its own
// records: those of others, the oldest first, down to an eighth, then those that we signed.
// What is on hold (ect.Filing.HoldUntil) is in accounts of its own, and leaves after all else.
// The members of its workflow, 96 bytes each and 256 at most, stay with it and count for no hold;
// where they and holds take the whole store, holds leave too. A lineage that can no longer be resolved is then refused by policy, never guessed. The
// members of a workflow go with its last record; who began it stays known until the term
// of its records.
//
// tables.go is the tables, and how changes lie before what is on disk; store.go what
// callers see; disk.go what is written when, and read again at a start; record.go how a
// record is written; holders.go who has how much, and what leaves; workflows.go what is
// known of each workflow; listing.go which workflows have records.
//
// # Alternatives considered
//
// Records in memory with a journal behind them, as other state has: then memory bounds how
// long evidence lasts, and a start reads all of it. Linked lists and hash tables over pages
// of bytes are a third faster in memory, and could not be on disk: all of it would be
// there twice. Ids as keys of records would spread what comes in one second over all pages.
package evidence
