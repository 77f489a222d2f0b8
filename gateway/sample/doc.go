// Package sample counts what happens too often to be recorded one by one.
//
// A refusal costs its sender nothing, so it must cost the gateway little: an error ECT for each
// would make the gateway sign as often as a flood sends (architecture section 5). A [Sampler]
// counts every refusal and returns now and then a [Sample] to record: how many there were since the
// last one. Every refusal is in exactly one [Sample].
//
// Three bounds hold: one sample per key and interval, Most samples per interval in all, and MaxKeys
// keys. Sources beyond MaxKeys share one row per reason. A new source takes the row of one that was
// quiet for an interval; the count of that one goes to the shared row.
//
// Alternatives considered: sampling by chance (cheap, but the counts are
// guesses); a timer per key (a goroutine and an owner for what the next refusal
// can do itself; what stays uncounted is told at shutdown).
package sample
