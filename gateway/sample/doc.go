// Package sample counts what happens too often to be recorded one by one.
//
// A refusal that costs its sender nothing must cost us less: an error ECT for
// each of them would make every flood a flood of signatures (architecture
// section 5). A [Sampler] counts every refusal and says now and then that it is
// time to record how many there were since the last time. What it says is exact
// in sum: every refusal is in exactly one [Sample], sooner or later.
//
// Three bounds hold whatever is sent: one sample per key and interval, so many
// samples per interval in all, and so many keys. Sources that find no room share
// one row per reason; a row whose source has gone quiet makes room, and what it
// had counted goes to the shared row.
//
// Alternatives considered: sampling by chance (cheap, but the counts are
// guesses); a timer per key (a goroutine and an owner for what the next refusal
// can do itself; what stays uncounted is told at shutdown).
package sample
