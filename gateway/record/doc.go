// Package record decides what all replicas of a gateway must tell alike, once (R18): how an agent's lifecycle
// stands, what a human decided, which agents were added. A [Machine] does it in one order:
//
//	read      the record as the store has it
//	step      make the next value, purely; nothing to do: the record is confirmed and returned
//	sign      its evidence, once
//	swap      the bytes in, if no other writer was first; else begin again
//	confirm   as many replicas of the store have it as are demanded: Swap returns after that
//	record    the evidence
//	announce  the value here
//
// What fails before the swap changes nothing. What fails after it, also because the process ends, is done by
// the next [Machine.Look] of any replica: it *adopts* a value that it did not announce yet. It confirms the
// bytes first, because what is read may be a write that no copy of the store has, and that a failover takes
// back: a replica that announced it would tell one outcome, and the others another one. Then it records the
// evidence of those bytes and announces them. It signs nothing anew.
//
// A value is announced at least once by each replica, and possibly late: what it replaces may be announced
// after it. Records therefore carry a term, and whom they are announced to keeps the higher one.
//
// # Alternatives considered
//
// A value that each reader writes again under a new revision wakes all others, who write it again in turn.
// Confirm writes the same bytes under the same revision. A mark "confirmed" in the record would save later
// readers the wait, and would itself be a write that can be lost.
package record
